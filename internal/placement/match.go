package placement

import (
	"slices"
	"strconv"
)

// String renders the taint as kubectl does: "key=value:Effect".
func (t Taint) String() string {
	s := t.Key
	if t.Value != "" {
		s += "=" + t.Value
	}
	return s + ":" + t.Effect
}

// Tolerated reports whether one of the tolerations matches the taint.
func Tolerated(t *Taint, tolerations []Toleration) bool {
	for i := range tolerations {
		o := &tolerations[i]
		switch {
		case o.Effect != "" && o.Effect != t.Effect:
		case o.Key == "" && o.Operator == "Exists", o.Key != "" && o.Key == t.Key && (o.Operator == "Exists" || o.Value == t.Value):
			return true
		}
	}
	return false
}

// MeetsOne reports whether the node meets all requirements of one of the alternatives, of which
// nil are met by every node.
func (n *Node) MeetsOne(alternatives [][]Requirement) bool {
	return alternatives == nil || slices.ContainsFunc(alternatives, n.meetsAll)
}

// meetsAll reports whether the node meets all requirements; an empty list matches
// nothing, as in Kubernetes' node affinity.
func (n *Node) meetsAll(all []Requirement) bool {
	for _, r := range all {
		value, ok := n.Labels[r.Key]
		switch r.Key {
		case FieldName:
			value, ok = n.Name, true
		case FieldPool:
			value, ok = n.Pool, true
		}
		if !r.meets(value, ok) {
			return false
		}
	}
	return len(all) > 0
}

// meets reports whether the value of the key meets the requirement; ok is whether it has one.
func (r Requirement) meets(value string, ok bool) bool {
	switch r.Operator {
	case "In":
		return ok && slices.Contains(r.Values, value)
	case "NotIn":
		return !ok || !slices.Contains(r.Values, value)
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	case "Gt", "Lt":
		if !ok || len(r.Values) != 1 {
			return false
		}
		have, errHave := strconv.ParseInt(value, 10, 64)
		bound, errBound := strconv.ParseInt(r.Values[0], 10, 64)
		if errHave != nil || errBound != nil {
			return false
		}
		return r.Operator == "Gt" && have > bound || r.Operator == "Lt" && have < bound
	}
	return false
}
