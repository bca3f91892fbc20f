package placement

import (
	"cmp"
	"slices"
	"strconv"
)

// unschedulableTaint is the taint that Kubernetes puts on cordoned nodes; a
// toleration of it lets a pod onto them (Kubernetes, "Taints and Tolerations").
var unschedulableTaint = Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}

// rules are the constraints of a role that do not depend on what runs on a node.
type rules struct {
	// selector is sorted by key.
	selector    []label
	affinity    [][]Requirement
	volumes     [][]Requirement
	tolerations []Toleration
	pools       []string
	limits      map[string]int
}

type label struct{ key, value string }

func newRules(role *Role) rules {
	r := rules{affinity: role.Affinity, volumes: role.Volumes, tolerations: role.Tolerations, pools: role.Pools, limits: role.NodeLimits}
	for key, value := range role.NodeSelector {
		r.selector = append(r.selector, label{key, value})
	}
	slices.SortFunc(r.selector, func(a, b label) int { return cmp.Compare(a.key, b.key) })
	return r
}

// rejection says which rule keeps a member from a node; detail is the taint, label or mode concerned.
type rejection struct {
	code   Code
	detail string
}

// rejects returns why the node is not admissible, or the zero refusal. Of a taint that
// is not tolerated, the refusal lacks the detail, which is then the taint returned.
func (r *rules) rejects(n *Node) (rejection, *Taint) {
	if r.excludes(n.Name) {
		return rejection{code: Excluded}, nil
	}
	if n.Unschedulable && !tolerated(&unschedulableTaint, r.tolerations) {
		return rejection{code: Unschedulable}, nil
	}
	if len(r.pools) > 0 && !slices.Contains(r.pools, n.Pool) {
		return rejection{SelectorMismatch, "pool"}, nil
	}
	if !r.selects(n) {
		return rejection{SelectorMismatch, "selector"}, nil
	}
	if !r.matches(n) {
		return rejection{SelectorMismatch, "affinity"}, nil
	}
	if !n.meetsOne(r.volumes) {
		return rejection{SelectorMismatch, "volumes"}, nil
	}
	if taint := r.tolerates(n); taint != nil {
		return rejection{code: Untolerated}, taint
	}
	return rejection{}, nil
}

// excludes reports whether a node is refused by name.
func (r *rules) excludes(node string) bool {
	limit, limited := r.limits[node]
	return limited && limit == 0
}

func (r *rules) selects(n *Node) bool {
	for _, want := range r.selector {
		if have, ok := n.Labels[want.key]; !ok || have != want.value {
			return false
		}
	}
	return true
}

// matches reports whether a node meets selector and affinity.
func (r *rules) matches(n *Node) bool {
	return r.selects(n) && n.meetsOne(r.affinity)
}

// tolerates returns a taint of the node that is not tolerated, nil when there is none.
func (r *rules) tolerates(n *Node) *Taint {
	for i := range n.Taints {
		if !tolerated(&n.Taints[i], r.tolerations) {
			return &n.Taints[i]
		}
	}
	return nil
}

// String renders the taint as kubectl does: "key=value:Effect".
func (t Taint) String() string {
	s := t.Key
	if t.Value != "" {
		s += "=" + t.Value
	}
	return s + ":" + t.Effect
}

func tolerated(t *Taint, tolerations []Toleration) bool {
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

// meetsOne reports whether the node meets all requirements of one of the alternatives, of which
// nil are met by every node.
func (n *Node) meetsOne(alternatives [][]Requirement) bool {
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
