package placement

import (
	"maps"
	"slices"
)

// reserved is a reservation that a view keeps.
type reserved struct {
	Reservation
	// come are the reserved gang's pods by node; "" when only quota is reserved.
	come map[string][]*Pod
	// usage is what they take of each node.
	usage map[string]usage
	// after are the IDs of the pods that the reservation waits for, by node.
	after map[string][]string
}

// AddReservation keeps a reservation's place from now on, in place of any that its gang has. On
// each node the place takes what it needs beyond what the pods that it waits for still
// use, so that it fits at any moment as soon as the last of them has gone, whatever is
// planned in between. A reservation that waits for gangs to end, and does not evict
// them, gives way to gangs of higher priority and to lost members of gangs that run.
// gaveWay means that a place is not held any more.
func (v *View) AddReservation(r Reservation) (gaveWay bool) {
	gaveWay = v.drop(func(h *reserved) bool { return h.yields(&r.Gang) })
	h := &reserved{Reservation: r, come: map[string][]*Pod{}, usage: map[string]usage{}, after: map[string][]string{}}
	for _, p := range r.Gang.pods(r.Placement.Assignments) {
		if r.QuotaOnly {
			p.Node = ""
		}
		h.come[p.Node] = append(h.come[p.Node], p)
		used := h.usage[p.Node]
		used.charge(p, 1)
		h.usage[p.Node] = used
	}
	for _, victim := range r.After {
		for _, id := range victim.Pods {
			if p := v.pods[id]; p != nil {
				h.after[p.Node] = append(h.after[p.Node], id)
			}
		}
	}
	v.changed()
	v.reservations = append(v.reservations, h)
	v.refreshReserved(h)
	return gaveWay
}

// Release gives up the place that a gang holds, and reports whether it held one.
func (v *View) Release(gang string) bool {
	return v.drop(func(h *reserved) bool { return h.Gang.ID == gang })
}

// Reservation returns the reservation that a gang holds.
func (v *View) Reservation(gang string) (Reservation, bool) {
	if h := v.reservationOf(gang); h != nil {
		return h.Reservation, true
	}
	return Reservation{}, false
}

// Reservations returns all that are held, in the order in which they were made.
func (v *View) Reservations() []Reservation {
	list := make([]Reservation, len(v.reservations))
	for i, h := range v.reservations {
		list[i] = h.Reservation
	}
	return list
}

// reservationOf returns the reservation that a gang holds, nil for none.
func (v *View) reservationOf(gang string) *reserved {
	for _, h := range v.reservations {
		if h.Gang.ID == gang {
			return h
		}
	}
	return nil
}

// drop gives up some places, and reports whether there were any.
func (v *View) drop(which func(*reserved) bool) bool {
	var dropped []*reserved
	v.reservations = slices.DeleteFunc(slices.Clone(v.reservations), func(h *reserved) bool {
		if !which(h) {
			return false
		}
		dropped = append(dropped, h)
		return true
	})
	for _, h := range dropped {
		v.changed()
		v.refreshReserved(h)
	}
	return len(dropped) > 0
}

func (v *View) refreshReserved(h *reserved) {
	for name := range h.usage {
		if n := v.nodes[name]; n != nil {
			v.refresh(n)
		}
	}
}

// yields reports whether a gang need not leave the reservation alone.
func (h *reserved) yields(g *Gang) bool {
	switch {
	case h.Gang.ID == g.ID:
		return true
	case h.Evicts:
		return false
	case g.Priority > h.Gang.Priority:
		return true
	}
	return len(g.Running) > 0 && g.Minimum > 0 && g.Missing() > 0
}

// remaining computes what is left of a node beside what is held on it.
func (v *View) remaining(n *node) *capacity {
	if !slices.ContainsFunc(v.reservations, func(h *reserved) bool { return h.on(n.Name) }) {
		return n.capacity()
	}
	return v.without(n, n.used, nil, v.reservations).free
}

// pods returns the reserved gang's pods.
func (h *reserved) pods() []*Pod { return slices.Concat(slices.Collect(maps.Values(h.come))...) }

// on reports whether the place is on a node, in part.
func (h *reserved) on(node string) bool {
	_, ok := h.usage[node]
	return ok
}

// without returns a copy of a node that is used so much, once pods of the view have gone, and
// with reservations. Where several reservations wait for one pod, its room counts for the first of them only.
func (v *View) without(n *node, used usage, gone map[string]*Pod, reservations []*reserved) *node {
	c := *n
	c.used = used
	counted := map[string]bool{}
	for _, h := range reservations {
		if !h.on(n.Name) {
			continue
		}
		var waits usage
		for _, id := range h.after[n.Name] {
			if p := v.pods[id]; p != nil && gone[id] == nil && p.Node == n.Name && !counted[id] {
				waits.charge(p, 1)
				counted[id] = true
			}
		}
		place := h.usage[n.Name]
		c.used = c.used.clone()
		c.used.addBeyond(&place, &waits)
	}
	c.free = c.capacity()
	return &c
}

// seen returns the cluster as a gang sees it once pods have gone: with all reservations
// that it must leave alone.
func (v *View) seen(g *Gang, gone []*Pod) cluster {
	kept, lifted := v.reservationsFor(g)
	return v.after(gone, kept, lifted)
}

// before returns the cluster as a reservation finds it once pods have gone: with those that were
// made before it, or with all when the view does not keep it.
func (v *View) before(h *reserved, gone []*Pod) cluster {
	if i := slices.Index(v.reservations, h); i >= 0 {
		return v.after(gone, v.reservations[:i], v.reservations[i:])
	}
	return v.after(gone, v.reservations, []*reserved{h})
}

// unreserved returns the cluster as it is without reservations.
func (v *View) unreserved() cluster { return v.after(nil, nil, v.reservations) }

// reservationsFor returns the reservations that a gang must leave alone, and the others.
func (v *View) reservationsFor(g *Gang) (kept, lifted []*reserved) {
	for _, h := range v.reservations {
		if h.yields(g) {
			lifted = append(lifted, h)
		} else {
			kept = append(kept, h)
		}
	}
	return kept, lifted
}

// after returns the cluster once pods have gone, with some of the view's reservations and
// without the others. It costs only what they touch.
func (v *View) after(gone []*Pod, kept, lifted []*reserved) cluster {
	c := v.cluster()
	away := make(map[string]*Pod, len(gone))
	touched := map[string][]*Pod{}
	for _, p := range gone {
		away[p.ID] = p
		touched[p.Node] = append(touched[p.Node], p)
	}
	for _, h := range lifted {
		for name := range h.usage {
			touched[name] = append(touched[name], nil...)
		}
	}
	c.gone = away
	if len(touched) > 0 {
		c.nodes = slices.Clone(c.nodes)
		for i, n := range c.nodes {
			if here, ok := touched[n.Name]; ok {
				used := n.used.clone()
				for _, p := range here {
					used.charge(p, -1)
				}
				c.nodes[i] = v.without(n, used, away, kept)
			}
		}
	}
	if c.quota == nil {
		return c
	}
	if len(gone) > 0 {
		c.quota = v.quotaAfter(away)
	}
	for _, h := range kept {
		c.later = append(c.later, v.laterUsage(away, h))
	}
	if len(kept) > 1 {
		c.later = append(c.later, v.laterUsage(away, kept...))
	}
	return c
}

// awaitedBy returns the pods that reservations wait for.
func (v *View) awaitedBy(reservations ...*reserved) map[string]*Pod {
	all := map[string]*Pod{}
	for _, h := range reservations {
		for _, p := range v.awaited(h) {
			all[p.ID] = p
		}
	}
	return all
}

// evicted returns the pods that reservations which are held evict.
func (v *View) evicted() map[string]bool {
	ids := map[string]bool{}
	for _, h := range v.reservations {
		if !h.Evicts {
			continue
		}
		for _, list := range h.after {
			for _, id := range list {
				ids[id] = true
			}
		}
	}
	return ids
}

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
