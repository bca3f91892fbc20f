package placement

import (
	"slices"
	"strconv"
)

// unschedulableTaint is the taint that Kubernetes puts on cordoned nodes; a
// toleration of it lets a pod onto them (Kubernetes, "Taints and Tolerations").
var unschedulableTaint = Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}

// rules are the constraints of a role that do not depend on what runs on a node.
type rules struct {
	selector    map[string]string
	affinity    [][]Requirement
	tolerations []Toleration
	pools       []string
}

// refusal says which rule keeps a member from a node; detail is the taint, label or mode concerned.
type refusal struct {
	code   Code
	detail string
}

// refuses returns why the node is not admissible, or the zero refusal.
func (r *rules) refuses(n *Node) refusal {
	if n.Unschedulable && !tolerated(unschedulableTaint, r.tolerations) {
		return refusal{code: Unschedulable}
	}
	if len(r.pools) > 0 && !slices.Contains(r.pools, n.Pool) {
		return refusal{SelectorMismatch, "pool"}
	}
	for key, value := range r.selector {
		if have, ok := n.Labels[key]; !ok || have != value {
			return refusal{SelectorMismatch, "selector"}
		}
	}
	if r.affinity != nil && !slices.ContainsFunc(r.affinity, func(all []Requirement) bool { return meetsAll(all, n.Labels) }) {
		return refusal{SelectorMismatch, "affinity"}
	}
	for _, t := range n.Taints {
		if !tolerated(t, r.tolerations) {
			return refusal{Untolerated, t.String()}
		}
	}
	return refusal{}
}

// String renders the taint as kubectl does: "key=value:Effect".
func (t Taint) String() string {
	s := t.Key
	if t.Value != "" {
		s += "=" + t.Value
	}
	return s + ":" + t.Effect
}

func tolerated(t Taint, tolerations []Toleration) bool {
	return slices.ContainsFunc(tolerations, func(o Toleration) bool {
		if o.Effect != "" && o.Effect != t.Effect {
			return false
		}
		if o.Key == "" {
			return o.Operator == "Exists"
		}
		return o.Key == t.Key && (o.Operator == "Exists" || o.Value == t.Value)
	})
}

// meetsAll reports whether labels meet all requirements; an empty list matches
// nothing, as in Kubernetes' node affinity.
func meetsAll(all []Requirement, labels map[string]string) bool {
	for _, r := range all {
		if !r.meets(labels) {
			return false
		}
	}
	return len(all) > 0
}

func (r Requirement) meets(labels map[string]string) bool {
	value, ok := labels[r.Key]
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
