package snapshot

import (
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Reserved is a reservation that a view keeps.
type Reserved struct {
	placement.Reservation
	// Come are the reserved gang's pods by node; "" when only quota is reserved.
	Come map[string][]*placement.Pod
	// Usage is what they take of each node.
	Usage map[string]capacity.Usage
	// after are the IDs of the pods that the reservation waits for, by node.
	after map[string][]string
	// waits are the IDs of those pods, evicts of those of them that are to be evicted for the reservation.
	waits, evicts map[string]bool
}

// AddReservation keeps a reservation's place from now on, in place of any that its gang has. On
// each node the place takes what it needs beyond what the pods that it waits for still
// use, so that it fits at any moment as soon as the last of them has gone, whatever is
// planned in between. A reservation that waits for gangs to end, and neither evicts
// them nor was granted, gives way to gangs of higher priority and to lost members of gangs that run.
// gaveWay means that a place is not held any more.
func (v *View) AddReservation(r placement.Reservation) (gaveWay bool) {
	gaveWay = v.DropReservations(func(h *Reserved) bool { return h.yields(&r.Gang) })
	h := &Reserved{Reservation: r, Come: map[string][]*placement.Pod{}, Usage: map[string]capacity.Usage{}, after: map[string][]string{}, waits: map[string]bool{}, evicts: map[string]bool{}}
	for _, p := range r.Gang.Pods(r.Placement.Assignments) {
		if r.QuotaOnly {
			p.Node = ""
		}
		h.Come[p.Node] = append(h.Come[p.Node], p)
		used := h.Usage[p.Node]
		used.Charge(p, 1)
		h.Usage[p.Node] = used
	}
	for _, victim := range r.After {
		for _, id := range victim.Pods {
			if p := v.pods[id]; p != nil {
				h.after[p.Node] = append(h.after[p.Node], id)
				h.waits[id] = true
				if r.Evicts && !victim.Leaving {
					h.evicts[id] = true
				}
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
	return v.DropReservations(func(h *Reserved) bool { return h.Gang.ID == gang })
}

// Reservation returns the reservation that a gang holds.
func (v *View) Reservation(gang string) (placement.Reservation, bool) {
	if h := v.ReservationOf(gang); h != nil {
		return h.Reservation, true
	}
	return placement.Reservation{}, false
}

// Reservations returns all that are held, in the order in which they were made.
func (v *View) Reservations() []placement.Reservation {
	list := make([]placement.Reservation, len(v.reservations))
	for i, h := range v.reservations {
		list[i] = h.Reservation
	}
	return list
}

// Held returns all that are held. Neither the list nor what is in it is changed any more.
func (v *View) Held() []*Reserved { return v.reservations }

// ReservationOf returns the reservation that a gang holds, nil for none.
func (v *View) ReservationOf(gang string) *Reserved {
	for _, h := range v.reservations {
		if h.Gang.ID == gang {
			return h
		}
	}
	return nil
}

// EvictedFor returns the gang for which another is being evicted as a whole, until the last pod of that is being
// deleted; "" for none.
func (v *View) EvictedFor(gang string) string {
	for _, h := range v.reservations {
		for _, victim := range h.Victims() {
			if victim.Gang == gang && !victim.Surplus && slices.ContainsFunc(victim.Pods, v.stays) && !v.Refused(h) {
				return h.Gang.ID
			}
		}
	}
	return ""
}

// stays reports whether a pod is there, and nobody deletes it.
func (v *View) stays(id string) bool {
	p := v.pods[id]
	return p != nil && !p.Leaving
}

// DropReservations gives up some places, and reports whether there were any.
func (v *View) DropReservations(which func(*Reserved) bool) bool {
	var dropped []*Reserved
	v.reservations = slices.DeleteFunc(slices.Clone(v.reservations), func(h *Reserved) bool {
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

func (v *View) refreshReserved(h *Reserved) {
	for name := range h.Usage {
		if n := v.nodes[name]; n != nil {
			v.refresh(n)
		}
	}
}

// yields reports whether a gang need not leave the reservation alone. What starts once its gang runs is
// like a lost member of it: the reservation may wait for that gang to end.
func (h *Reserved) yields(g *placement.Gang) bool {
	switch {
	case h.Gang.ID == g.ID:
		return true
	case h.Evicts, h.Granted:
		return false
	case g.Priority > h.Gang.Priority:
		return true
	}
	return len(g.Running) > 0 && (g.Minimum > 0 && g.Missing() > 0 || g.StartsLate())
}

// remaining computes what is left of a node beside what is held on it.
func (v *View) remaining(n *capacity.Node) *capacity.Capacity {
	if !slices.ContainsFunc(v.reservations, func(h *Reserved) bool { return h.On(n.Name) }) {
		return n.Capacity()
	}
	return v.Without(n, n.Used, nil, v.reservations).Free
}

// Pods returns the reserved gang's pods.
func (h *Reserved) Pods() []*placement.Pod {
	return slices.Concat(slices.Collect(maps.Values(h.Come))...)
}

// Charge returns what the reservation's gang, as it is now, is charged in its place, with what starts once it
// runs: a gang that has no quota left for that would hold its GPUs and wait.
func (h *Reserved) Charge(g *placement.Gang) quota.Resources {
	placed := *g
	placed.Running = slices.Concat(g.Running, h.Placement.Assignments)
	sum := placement.ChargeOf(h.Pods())
	for resource, amount := range placed.LateCharge() {
		sum[resource] += amount
	}
	return sum
}

// On reports whether the place is on a node, in part.
func (h *Reserved) On(node string) bool {
	_, ok := h.Usage[node]
	return ok
}

// Without returns a copy of a node that is used so much, once pods of the view have gone, and
// with reservations. Where several reservations wait for one pod, its room counts for the first of them only.
func (v *View) Without(n *capacity.Node, used capacity.Usage, gone map[string]*placement.Pod, reservations []*Reserved) *capacity.Node {
	c := *n
	c.Used = used
	counted := map[string]bool{}
	for _, h := range reservations {
		if !h.On(n.Name) {
			continue
		}
		var waits capacity.Usage
		for _, id := range h.after[n.Name] {
			if p := v.pods[id]; p != nil && gone[id] == nil && p.Node == n.Name && !counted[id] {
				waits.Charge(p, 1)
				counted[id] = true
			}
		}
		place := h.Usage[n.Name]
		c.Used = c.Used.Clone()
		c.Used.AddBeyond(&place, &waits)
	}
	c.Free = c.Capacity()
	return &c
}

// Seen returns the cluster as a gang sees it once pods have gone: with all reservations
// that it must leave alone.
func (v *View) Seen(g *placement.Gang, gone []*placement.Pod) Cluster {
	kept, lifted := v.ReservationsFor(g)
	return v.SeenAfter(gone, kept, lifted)
}

// SeenBy returns the cluster as a reservation finds it once pods have gone: with those that were
// made before it, or with all when the view does not keep it.
func (v *View) SeenBy(h *Reserved, gone []*placement.Pod) Cluster {
	if i := slices.Index(v.reservations, h); i >= 0 {
		return v.SeenAfter(gone, v.reservations[:i], v.reservations[i:])
	}
	return v.SeenAfter(gone, v.reservations, []*Reserved{h})
}

// Unreserved returns the cluster as it is without reservations.
func (v *View) Unreserved() Cluster { return v.SeenAfter(nil, nil, v.reservations) }

// ReservationsFor returns the reservations that a gang must leave alone, and the others.
func (v *View) ReservationsFor(g *placement.Gang) (kept, lifted []*Reserved) {
	for _, h := range v.reservations {
		if h.yields(g) {
			lifted = append(lifted, h)
		} else {
			kept = append(kept, h)
		}
	}
	return kept, lifted
}

// SeenAfter returns the cluster once pods have gone, with some of the view's reservations and
// without the others. It costs only what they touch.
func (v *View) SeenAfter(gone []*placement.Pod, kept, lifted []*Reserved) Cluster {
	c := v.Cluster()
	away := make(map[string]*placement.Pod, len(gone))
	touched := map[string][]*placement.Pod{}
	for _, p := range gone {
		away[p.ID] = p
		touched[p.Node] = append(touched[p.Node], p)
	}
	for _, h := range lifted {
		for name := range h.Usage {
			touched[name] = append(touched[name], nil...)
		}
	}
	c.Gone = away
	if len(touched) > 0 {
		c.Nodes = slices.Clone(c.Nodes)
		for i, n := range c.Nodes {
			if here, ok := touched[n.Name]; ok {
				used := n.Used.Clone()
				for _, p := range here {
					used.Charge(p, -1)
				}
				c.Nodes[i] = v.Without(n, used, away, kept)
			}
		}
	}
	if c.Quota == nil {
		return c
	}
	if len(gone) > 0 {
		c.Quota = v.quotaAfter(away)
	}
	c.Later = v.laterUsages(away, kept)
	return c
}

// AwaitedBy returns the pods that reservations wait for.
func (v *View) AwaitedBy(reservations ...*Reserved) map[string]*placement.Pod {
	all := map[string]*placement.Pod{}
	for _, h := range reservations {
		for _, p := range v.Awaited(h) {
			all[p.ID] = p
		}
	}
	return all
}

// EvictedBeside returns the pods that are evicted for other gangs than one. A gang that is planned gives up the
// reservation that it holds itself, and with it who has not been evicted for it yet.
func (v *View) EvictedBeside(gang string) map[string]bool {
	ids := map[string]bool{}
	for _, h := range v.reservations {
		if h.Gang.ID != gang && !v.Refused(h) {
			maps.Copy(ids, h.evicts)
		}
	}
	return ids
}

// Evicted reports whether all that are to be evicted for a reservation are being deleted, or have gone. Who took the
// place before would leave the others half a gang.
func (v *View) Evicted(h *Reserved) bool {
	for id := range h.evicts {
		if v.stays(id) {
			return false
		}
	}
	return true
}

// Abandoned reports whether a reservation waits for pods that were to be evicted for another gang, and are not any
// more.
func (v *View) Abandoned(h *Reserved) bool {
	if !h.Evicts {
		return false
	}
	for id := range h.waits {
		evicts := func(other *Reserved) bool { return other.evicts[id] && !v.Refused(other) }
		if v.stays(id) && !h.evicts[id] && !slices.ContainsFunc(v.reservations, evicts) {
			return true
		}
	}
	return false
}

// Refused reports whether a pod that was to be evicted for a reservation cannot be. Nobody is evicted beside it, whether
// the place needs its room or not: its gang would lose members, and keep its GPUs.
func (v *View) Refused(h *Reserved) bool {
	if h.Evicts {
		for id := range h.waits {
			if p := v.pods[id]; p != nil && p.Undeletable {
				return true
			}
		}
	}
	return false
}

// Awaited returns the pods that a reservation still waits for, but for those that are overdue, or were to be
// evicted and cannot be.
func (v *View) Awaited(h *Reserved) []*placement.Pod {
	var pods []*placement.Pod
	for _, ids := range h.after {
		for _, id := range ids {
			if p := v.pods[id]; p != nil && !p.Overdue && (!h.Evicts || !p.Undeletable) {
				pods = append(pods, p)
			}
		}
	}
	return pods
}
