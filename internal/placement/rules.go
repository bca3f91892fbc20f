package placement

import (
	"cmp"
	"maps"
	"slices"
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

// newRules returns those of a role.
func newRules(role *Role) rules {
	r := rules{affinity: role.Affinity, volumes: role.Volumes, tolerations: role.Tolerations, pools: role.Pools, limits: role.NodeLimits}
	for key, value := range role.NodeSelector {
		r.selector = append(r.selector, label{key, value})
	}
	slices.SortFunc(r.selector, func(a, b label) int { return cmp.Compare(a.key, b.key) })
	return r
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

// equal reports whether the rules are written alike.
func (r *rules) equal(o *rules) bool {
	return r.equalBut(o) && maps.Equal(r.limits, o.limits)
}

// equalBut is equal but for the nodes that are excluded by name.
func (r *rules) equalBut(o *rules) bool {
	sameTerm := func(a, b Requirement) bool {
		return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
	}
	same := func(a, b [][]Requirement) bool {
		return (a == nil) == (b == nil) &&
			slices.EqualFunc(a, b, func(a, b []Requirement) bool { return slices.EqualFunc(a, b, sameTerm) })
	}
	return slices.Equal(r.selector, o.selector) && slices.Equal(r.tolerations, o.tolerations) && slices.Equal(r.pools, o.pools) &&
		same(r.affinity, o.affinity) && same(r.volumes, o.volumes)
}

// clone copies what the caller of the planner may change later.
func (r *rules) clone() rules {
	c := *r
	c.tolerations, c.pools = slices.Clone(r.tolerations), slices.Clone(r.pools)
	c.affinity, c.volumes = cloneAlternatives(r.affinity), cloneAlternatives(r.volumes)
	return c
}

func cloneAlternatives(alternatives [][]Requirement) [][]Requirement {
	c := slices.Clone(alternatives)
	for i, term := range c {
		c[i] = slices.Clone(term)
		for j := range term {
			c[i][j].Values = slices.Clone(term[j].Values)
		}
	}
	return c
}
