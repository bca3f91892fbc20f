package placement

import "slices"

// ReserveBlocked reserves places for gangs that have waited too long, given in the order of
// the queue. One place on nodes is held, for the first that can have one: durations are
// unknown, and each further place would keep more GPUs idle. Beside it each leaf's
// first gang that its quota stops holds quota, for which no GPU idles. A gang that fits
// now, or could not fit even on the empty cluster, holds nothing; what the former is about
// to take is left alone by those behind it. A place that is held already stays where it is
// while it is valid, unless there is one that waits for fewer gangs; places of gangs that
// are not given are released.
func (v *View) ReserveBlocked(gangs []Gang) {
	before := map[string]*reserved{}
	v.drop(func(h *reserved) bool {
		if !h.Evicts {
			before[h.Gang.ID] = h
		}
		return !h.Evicts
	})
	onNodes := false
	leaves := map[string]bool{}
	for _, g := range gangs {
		if v.reservationOf(g.ID) != nil {
			continue
		}
		if now := v.Place(g); now != nil {
			v.AddReservation(Reservation{Gang: g, Placement: *now})
			continue
		}
		if g.Leaf != "" && leaves[g.Leaf] || onNodes && !v.stoppedByQuota(g) {
			continue
		}
		r, ok := v.blockedReservation(g, before[g.ID])
		if !ok || !r.QuotaOnly && onNodes {
			continue
		}
		v.AddReservation(r)
		leaves[g.Leaf] = true
		onNodes = onNodes || !r.QuotaOnly
	}
	v.drop(func(h *reserved) bool { return len(h.After) == 0 })
}

// stoppedByQuota reports whether a gang has too little quota, whatever is free on nodes.
func (v *View) stoppedByQuota(g Gang) bool {
	p := newPlanner(v.seen(&g, nil), g)
	return p.allowed() < p.needed
}

// blockedReservation finds the place of a gang, which may be the one that it had.
func (v *View) blockedReservation(g Gang, before *reserved) (Reservation, bool) {
	r, ok := v.Reserve(g)
	if before == nil || ok && len(r.After) < before.waits(v) {
		return r, ok
	}
	if v.valid(before, &g) {
		return before.Reservation, true
	}
	return r, ok
}

// waits counts the gangs that a reservation still waits for.
func (h *reserved) waits(v *View) int {
	n := 0
	for _, victim := range h.After {
		if slices.ContainsFunc(victim.Pods, func(id string) bool { _, runs := v.Pod(id); return runs }) {
			n++
		}
	}
	return n
}
