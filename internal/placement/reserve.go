package placement

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Reservation is the place that a waiting gang gets once others have gone.
type Reservation struct {
	Gang      Gang
	Placement Placement
	// After are the gangs that have to go first, with all their pods, or with those
	// that are being deleted already.
	After []Victim
	// Evicts means that those of After that are not going yet are evicted for the gang;
	// otherwise it waits for them to end.
	Evicts bool
	// QuotaOnly means that the gang waits for quota: no GPU is kept from others for it.
	QuotaOnly bool
}

// Victims returns the gangs that are to be evicted.
func (r *Reservation) Victims() []Victim {
	if !r.Evicts {
		return nil
	}
	var list []Victim
	for _, victim := range r.After {
		if !victim.Leaving {
			list = append(list, victim)
		}
	}
	return list
}

// Reserve finds the place that a blocked gang gets when some of the running gangs have
// ended: those that are being deleted, then those that end first, as far as ends are
// known, then those that free the most; none that the others make superfluous. A gang
// that its quota stops gets a reservation of quota only: it waits for gangs of its own
// leaf, and no GPU idles for it meanwhile. ok is false when the gang would not fit even
// on the empty cluster, and while it loses members: it will need more than it lacks now.
func (v *View) Reserve(g Gang) (r Reservation, ok bool) {
	p := newPlanner(v.seen(&g, nil), g)
	if p.invalid() != nil {
		return Reservation{}, false
	}
	leaving, running := v.runningGangs(g.ID, func(*Pod) bool { return true })
	if loses(leaving, g.ID) {
		return Reservation{}, false
	}
	v.sortEnds(running, p)
	after, ok := v.fewest(g, slices.Concat(leaving, running))
	if !ok {
		return Reservation{}, false
	}
	placed := newPlanner(v.seen(&g, podsOf(after)), g)
	placed.elastic = false
	result, _ := placed.place()
	r = Reservation{Gang: g, Placement: *result.Placement, QuotaOnly: p.allowed() < p.needed}
	for _, ended := range after {
		r.After = append(r.After, ended.Victim)
	}
	return r, true
}

// ReservationIsValid reports whether the reservation that a gang holds is still what it waits for:
// the gang is the same, its place is valid once those have gone that it waits for, and
// not all of them have.
func (v *View) ReservationIsValid(g Gang) bool {
	h := v.reservationOf(g.ID)
	return h != nil && v.valid(h, &g) && !v.free(h, &g, nil)
}

// valid reports whether a gang gets its reservation once those have gone that it waits for.
func (v *View) valid(h *reserved, g *Gang) bool { return h.isFor(g) && v.free(h, g, v.awaited(h)) }

// awaited returns the pods that a reservation still waits for, but for those that are overdue.
func (v *View) awaited(h *reserved) []*Pod {
	var pods []*Pod
	for _, ids := range h.after {
		for _, id := range ids {
			if p := v.pods[id]; p != nil && !p.Overdue {
				pods = append(pods, p)
			}
		}
	}
	return pods
}

// free reports whether a gang can take its reservation once pods have gone. Reservations that
// were made later leave it alone by construction.
func (v *View) free(h *reserved, g *Gang, gone []*Pod) bool {
	i := slices.Index(v.reservations, h)
	p := newPlanner(v.after(gone, v.reservations[:i], v.reservations[i:]), *g)
	if p.leafMissing() || p.exceeded(chargeOf(h.pods())) != nil {
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
					come += rank(a.Node == node && slices.Contains(g.Roles[i].Members, a.Member))
				}
			}
		}
		if come > l.Most {
			return false
		}
	}
	return true
}

// clashes reports whether a pod that is charged to the node cannot be beside the others.
func (n *node) clashes(p *Pod) bool {
	var others map[string]int
	if len(p.Request.HostPorts) > 0 {
		others = maps.Clone(n.used.ports)
	}
	for _, port := range p.Request.HostPorts {
		count(others, port, -1)
	}
	taken := func(port string) bool { return portTaken(others, port) }
	return slices.ContainsFunc(p.Request.HostPorts, taken) || p.Request.Mode.shared() && n.used.memoryOnly > 0 && n.used.withCore > 0
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

func rank(first bool) int {
	if first {
		return 1
	}
	return 0
}
