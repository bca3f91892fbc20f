package placement

import (
	"maps"
	"slices"
)

// maxAdmissions bounds the sets of rules that a view remembers.
const maxAdmissions = 64

// admissions remembers which nodes meet which rules: gangs of one kind come again and
// again, and nodes seldom change. Rules that exclude nodes by name are remembered
// without them.
type admissions struct{ known []admission }

// admission is which nodes meet the rules, in the planner's order of nodes.
type admission struct {
	rules rules
	nodes []bool
}

// of returns which nodes meet the rules, but for those that the rules exclude. A nil
// receiver remembers nothing.
func (a *admissions) of(r rules, nodes []*node) []bool {
	r.exclude = nil
	if a != nil {
		for i := range a.known {
			if a.known[i].rules.equal(&r) {
				return a.known[i].nodes
			}
		}
	}
	admitted := make([]bool, len(nodes))
	for i, n := range nodes {
		why, _ := r.refuses(&n.Node)
		admitted[i] = why.code == ""
	}
	if a != nil {
		if len(a.known) == maxAdmissions {
			a.known = nil
		}
		a.known = append(a.known, admission{r.clone(), admitted})
	}
	return admitted
}

// equal reports whether the rules are written alike.
func (r *rules) equal(o *rules) bool {
	sameTerm := func(a, b Requirement) bool {
		return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
	}
	return slices.Equal(r.selector, o.selector) && slices.Equal(r.tolerations, o.tolerations) && slices.Equal(r.pools, o.pools) &&
		(r.affinity == nil) == (o.affinity == nil) &&
		slices.EqualFunc(r.affinity, o.affinity, func(a, b []Requirement) bool { return slices.EqualFunc(a, b, sameTerm) }) &&
		maps.Equal(r.exclude, o.exclude)
}

// clone copies what the caller of the planner may change later.
func (r *rules) clone() rules {
	c := *r
	c.tolerations, c.pools, c.affinity = slices.Clone(r.tolerations), slices.Clone(r.pools), slices.Clone(r.affinity)
	for i, term := range c.affinity {
		c.affinity[i] = slices.Clone(term)
		for j := range term {
			c.affinity[i][j].Values = slices.Clone(term[j].Values)
		}
	}
	return c
}
