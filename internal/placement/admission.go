package placement

import (
	"maps"
	"slices"
)

// maxAdmissions bounds the sets of rules that a view remembers.
const maxAdmissions = 64

// admissions remembers which nodes of a view meet which rules: gangs of one kind come
// again and again, and nodes seldom change. Rules that exclude nodes by name are
// remembered without them.
type admissions struct {
	// nodes is how many nodes are numbered.
	nodes int
	known []admission
}

// admission is what is known of one set of rules.
type admission struct {
	rules rules
	// met is, by the node's number, 0 for not looked at yet, else admitted or refused.
	met []uint8
}

const (
	admitted = 1
	rejected = 2
)

// of returns the memory of the rules, but for the nodes that they exclude by name.
func (a *admissions) of(r *rules) *admission {
	for i := range a.known {
		if a.known[i].rules.equalBut(r) {
			return &a.known[i]
		}
	}
	if len(a.known) == maxAdmissions {
		a.known = nil
	}
	known := admission{rules: r.clone(), met: make([]uint8, a.nodes+1)}
	known.rules.limits = nil
	a.known = append(a.known, known)
	return &a.known[len(a.known)-1]
}

// admits reports whether a node meets the rules.
func (a *admission) admits(n *node) bool {
	if n.number > 0 && a.met[n.number] > 0 {
		return a.met[n.number] == admitted
	}
	why, _ := a.rules.rejects(&n.Node)
	if n.number > 0 {
		a.met[n.number] = rejected
		if why.code == "" {
			a.met[n.number] = admitted
		}
	}
	return why.code == ""
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
