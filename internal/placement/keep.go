package placement

import (
	"reflect"
	"slices"
	"strings"
)

// valid reports whether a gang gets its reservation once those have gone that it waits for.
func (v *View) valid(h *reserved, g *Gang) bool { return v.free(h, g, v.awaited(h)) }

// free reports whether a reservation is for a gang as it is now, which can take it once pods have
// gone. Reservations that were made later leave it alone by construction.
func (v *View) free(h *reserved, g *Gang, gone []*Pod) bool {
	if !h.isFor(g) {
		return false
	}
	p := newPlanner(v.before(h, gone), *g)
	if p.leafMissing(g) || p.exceeded(g, chargeOf(h.pods())) != nil {
		return false
	}
	if h.QuotaOnly {
		return true
	}
	rulesOf := map[string]*rules{}
	for _, b := range p.due {
		for _, name := range b.names {
			rulesOf[name] = &p.rules[p.classes[b.class].rules]
		}
	}
	found := 0
	for _, n := range p.nodes {
		if !h.on(n.Name) {
			continue
		}
		found++
		full := &node{Node: n.Node, present: true, used: n.used.clone()}
		for _, pod := range h.come[n.Name] {
			full.used.charge(pod, 1)
		}
		full.free = full.capacity()
		come := map[*rules]int{}
		if !h.keeps(g, n.Name) {
			return false
		}
		for _, pod := range h.come[n.Name] {
			r := rulesOf[strings.TrimPrefix(pod.ID, g.ID+"/")]
			if r == nil || g.ExcludeNodes[n.Name] || full.evicts(pod) != "" || full.clashes(pod) {
				return false
			}
			come[r]++
			if limit, limited := r.limits[n.Name]; limited && come[r] > limit {
				return false
			}
			if why, _ := r.rejects(&n.Node); why.code != "" {
				return false
			}
		}
	}
	return found == len(h.usage)
}

// keeps reports whether the reservation keeps the joint limits of roles on a node.
func (h *reserved) keeps(g *Gang, node string) bool {
	for _, l := range g.Limits {
		if l.Node != node {
			continue
		}
		come := 0
		for i := range g.Roles {
			if slices.Contains(l.Roles, g.Roles[i].Name) {
				for _, a := range h.Placement.Assignments {
					if a.Node == node && slices.Contains(g.Roles[i].Members, a.Member) {
						come++
					}
				}
			}
		}
		if come > l.Most {
			return false
		}
	}
	return true
}

// isFor reports whether the reservation was made for the gang as it is now, but for late
// members, which may appear after it was made.
func (h *reserved) isFor(g *Gang) bool {
	bare := func(g Gang) Gang {
		g.ExcludeNodes, g.Limits, g.Planned = nil, nil, nil
		g.Roles = slices.DeleteFunc(slices.Clone(g.Roles), func(r Role) bool { return r.Late })
		for i := range g.Roles {
			g.Roles[i].NodeLimits = nil
		}
		return g
	}
	return reflect.DeepEqual(bare(h.Gang), bare(*g))
}
