// Package backfill holds places for gangs that have waited too long, around which others are
// planned without delaying them.
package backfill

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// ReserveBlocked reserves places for gangs that have waited too long, given in the order of
// the queue. On nodes that gangs compete for one place is waited for, by the first that can have one:
// durations are unknown, and each further place would keep more GPUs idle. Who may use none of those nodes, as in
// another pool, has a place of its own, up to [mostPlaces]. Beside them each leaf's
// first gang that its quota stops holds quota, and no node; gangs that ask for the same
// quota wait behind it. A gang that fits now, or could not fit even on the empty cluster,
// holds nothing; what the former is about to take is left alone by those behind it. But if
// a place was held for it, its new one is held until it takes it, beside those that are
// waited for: others may be planned before it gets to that. A place that is held already
// stays where it is while it is valid, unless there is one that waits for fewer gangs;
// places of gangs that are not given are released, but for those that were granted, or for which
// others are evicted.
func ReserveBlocked(v *snapshot.View, gangs []placement.Gang) {
	before := map[string]*snapshot.Reserved{}
	v.DropReservations(func(h *snapshot.Reserved) bool {
		blocked := !h.Evicts && !h.Granted
		if blocked {
			before[h.Gang.ID] = h
		}
		return blocked
	})
	var waited places
	leaves := map[string]bool{}
	for _, g := range gangs {
		if v.ReservationOf(g.ID) != nil {
			continue
		}
		if now := placeNow(v, g); now != nil {
			v.AddReservation(placement.Reservation{Gang: g, Placement: *now})
			continue
		}
		p := packing.NewPacker(v.Seen(&g, nil), g)
		stopped, open := p.Allowed() < p.Needed, waited.open(p)
		if stopped && g.Leaf != "" && leaves[g.Leaf] || !stopped && !open {
			continue
		}
		r, ok := blockedReservation(v, g, before[g.ID])
		if !ok || !r.QuotaOnly && !open {
			continue
		}
		v.AddReservation(r)
		if r.QuotaOnly {
			leaves[g.Leaf] = true
		} else {
			waited.add(p)
		}
	}
	v.DropReservations(func(h *snapshot.Reserved) bool { return len(h.After) == 0 && !h.Granted && before[h.Gang.ID] == nil })
}

// placeNow finds the place that a gang takes, nil when it does not fit: the planned one where it can have that. Most of those that
// wait fit nowhere, and [planner.Place] remembers that of their like.
func placeNow(v *snapshot.View, g placement.Gang) *placement.Placement {
	placed := planner.Place(v, g)
	if placed == nil {
		return nil
	}
	if followed, _, ok := planner.Follow(v, &g, nil); ok {
		return followed.Placement
	}
	return placed
}

// blockedReservation finds the place of a gang, which may be the one that it had.
func blockedReservation(v *snapshot.View, g placement.Gang, before *snapshot.Reserved) (placement.Reservation, bool) {
	r, ok := Reserve(v, g)
	if before == nil || ok && len(r.After) < waits(v, before) {
		return r, ok
	}
	if planner.ReservationValid(v, before, &g) {
		return planner.Renewed(before, &g), true
	}
	return r, ok
}

// waits counts the gangs that a reservation still waits for.
func waits(v *snapshot.View, h *snapshot.Reserved) int {
	n := 0
	for _, victim := range h.After {
		if slices.ContainsFunc(victim.Pods, func(id string) bool { _, runs := v.Pod(id); return runs }) {
			n++
		}
	}
	return n
}
