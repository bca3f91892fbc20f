// Package admission tells which nodes a role's members may use whatever runs there: by
// selectors, affinity, taints, pools and the filters of others.
package admission

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// UnschedulableTaint is the taint that Kubernetes puts on cordoned nodes; a
// toleration of it lets a pod onto them (Kubernetes, "Taints and Tolerations").
var UnschedulableTaint = placement.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}

// Rules are the constraints of a role that do not depend on what runs on a node.
type Rules struct {
	// selector is sorted by key.
	selector    []label
	affinity    [][]placement.Requirement
	volumes     [][]placement.Requirement
	devices     [][]placement.Requirement
	tolerations []placement.Toleration
	pools       []string
	Limits      map[string]int
	limitedOnly bool
}

type label struct{ key, value string }

// RulesOf returns those of a role.
func RulesOf(role *placement.Role) Rules {
	r := Rules{
		affinity: role.Affinity, volumes: role.Volumes, devices: role.Devices, tolerations: role.Tolerations, pools: role.Pools,
		Limits: role.NodeLimits, limitedOnly: role.LimitedOnly,
	}
	for key, value := range role.NodeSelector {
		r.selector = append(r.selector, label{key, value})
	}
	slices.SortFunc(r.selector, func(a, b label) int { return cmp.Compare(a.key, b.key) })
	return r
}

// Rejects returns why the node is not admissible, or the zero refusal. Of a taint that
// is not tolerated, the refusal lacks the detail, which is then the taint returned.
func (r *Rules) Rejects(n *placement.Node) (placement.Rejection, *placement.Taint) {
	if r.Excludes(n.Name) {
		return placement.Rejection{Code: placement.Excluded}, nil
	}
	if n.Unschedulable && !placement.Tolerated(&UnschedulableTaint, r.tolerations) {
		return placement.Rejection{Code: placement.NodeUnschedulable}, nil
	}
	if len(r.pools) > 0 && !slices.Contains(r.pools, n.Pool) {
		return placement.Rejection{Code: placement.SelectorMismatch, Detail: "pool"}, nil
	}
	if !r.selects(n) {
		return placement.Rejection{Code: placement.SelectorMismatch, Detail: "selector"}, nil
	}
	if !r.Matches(n) {
		return placement.Rejection{Code: placement.SelectorMismatch, Detail: "affinity"}, nil
	}
	if !n.MeetsOne(r.volumes) {
		return placement.Rejection{Code: placement.SelectorMismatch, Detail: "volumes"}, nil
	}
	if !n.MeetsOne(r.devices) {
		return placement.Rejection{Code: placement.SelectorMismatch, Detail: "devices"}, nil
	}
	if taint := r.Tolerates(n); taint != nil {
		return placement.Rejection{Code: placement.Untolerated}, taint
	}
	return placement.Rejection{}, nil
}

// Excludes reports whether a node is refused by name.
func (r *Rules) Excludes(node string) bool {
	limit, limited := r.Limits[node]
	return limited && limit == 0 || r.limitedOnly && !limited
}

// MissingLabels are those that the node selector asks for and a node has not, each as "team=a".
func (r *Rules) MissingLabels(n *placement.Node) (lacking []string) {
	for _, want := range r.selector {
		if have, ok := n.Labels[want.key]; !ok || have != want.value {
			lacking = append(lacking, want.key+"="+want.value)
		}
	}
	return lacking
}

// VolumesOn says on which nodes the volumes are, as "topology.kubernetes.io/zone in (a)".
func (r *Rules) VolumesOn() string { return written(r.volumes) }

// DevicesOn says on which nodes the devices are that resource claims have been given.
func (r *Rules) DevicesOn() string { return written(r.devices) }

func written(either [][]placement.Requirement) string {
	var alternatives []string
	for _, requirements := range either {
		var all []string
		for _, q := range requirements {
			text := q.Key + " " + q.Operator
			if len(q.Values) > 0 {
				text += " (" + strings.Join(q.Values, ", ") + ")"
			}
			all = append(all, text)
		}
		alternatives = append(alternatives, strings.Join(all, " and "))
	}
	return strings.Join(alternatives, ", or ")
}

func (r *Rules) selects(n *placement.Node) bool {
	for _, want := range r.selector {
		if have, ok := n.Labels[want.key]; !ok || have != want.value {
			return false
		}
	}
	return true
}

// Matches reports whether a node meets selector and affinity.
func (r *Rules) Matches(n *placement.Node) bool {
	return r.selects(n) && n.MeetsOne(r.affinity)
}

// Tolerates returns a taint of the node that is not tolerated, nil when there is none.
func (r *Rules) Tolerates(n *placement.Node) *placement.Taint {
	for i := range n.Taints {
		if !placement.Tolerated(&n.Taints[i], r.tolerations) {
			return &n.Taints[i]
		}
	}
	return nil
}

// Equal reports whether the rules are written alike.
func (r *Rules) Equal(o *Rules) bool {
	return r.equalBut(o) && r.limitedOnly == o.limitedOnly && maps.Equal(r.Limits, o.Limits)
}

// equalBut is equal but for the nodes that are excluded by name.
func (r *Rules) equalBut(o *Rules) bool {
	sameTerm := func(a, b placement.Requirement) bool {
		return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
	}
	same := func(a, b [][]placement.Requirement) bool {
		return (a == nil) == (b == nil) &&
			slices.EqualFunc(a, b, func(a, b []placement.Requirement) bool { return slices.EqualFunc(a, b, sameTerm) })
	}
	return slices.Equal(r.selector, o.selector) && slices.Equal(r.tolerations, o.tolerations) && slices.Equal(r.pools, o.pools) &&
		same(r.affinity, o.affinity) && same(r.volumes, o.volumes) && same(r.devices, o.devices)
}

// clone copies what the caller of the planner may change later.
func (r *Rules) clone() Rules {
	c := *r
	c.tolerations, c.pools = slices.Clone(r.tolerations), slices.Clone(r.pools)
	c.affinity, c.volumes, c.devices = cloneAlternatives(r.affinity), cloneAlternatives(r.volumes), cloneAlternatives(r.devices)
	return c
}

func cloneAlternatives(alternatives [][]placement.Requirement) [][]placement.Requirement {
	c := slices.Clone(alternatives)
	for i, term := range c {
		c[i] = slices.Clone(term)
		for j := range term {
			c[i][j].Values = slices.Clone(term[j].Values)
		}
	}
	return c
}
