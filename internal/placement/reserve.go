package placement

import (
	"cmp"
	"slices"
)

// Reservation is the place that a blocked gang waits for.
type Reservation struct {
	Gang      Gang
	Placement Placement
	// After are the running gangs that have to end first.
	After []Victim
	// StartsAt is when the last of them ends, in Unix seconds; 0 when that is not known.
	StartsAt int64

	gone []*Pod
}

// Reserve finds the place that a gang gets when some of the running gangs have
// ended: those that end first, as far as ends are known, then those that free the
// most; none that the others make superfluous. ok is false when the gang would not
// fit even then.
func (v *View) Reserve(g Gang) (r Reservation, ok bool) {
	p := newPlanner(v.cluster(), g)
	if p.invalid() != nil {
		return Reservation{}, false
	}
	running := v.runningGangs(p)
	slices.SortStableFunc(running, func(a, b *runningGang) int {
		if a.endsAt == 0 || b.endsAt == 0 {
			return cmp.Or(cmp.Compare(b.endsAt, a.endsAt), cmp.Compare(b.gain, a.gain))
		}
		return cmp.Compare(a.endsAt, b.endsAt)
	})
	attempt := func(ended []*runningGang) *Placement {
		result, _ := newPlanner(v.changed(podsOf(ended), nil), g).place()
		return result.Placement
	}
	after, ok := fewest(running, func(ended []*runningGang) bool { return attempt(ended) != nil })
	if !ok {
		return Reservation{}, false
	}
	r = Reservation{Gang: g, Placement: *attempt(after), gone: podsOf(after)}
	known := true
	for _, ended := range after {
		r.After = append(r.After, ended.Victim)
		r.StartsAt = max(r.StartsAt, ended.endsAt)
		known = known && ended.endsAt > 0
	}
	if !known {
		r.StartsAt = 0
	}
	return r, true
}

// Backfill is Plan for a gang behind a blocked one: it never delays the reservation.
// A gang that certainly ends before the reservation starts may go anywhere; any other
// gets only what is free now and stays free once the reservation is in its place. So
// whatever is backfilled, the reserved placement fits as soon as the gangs it waits
// for have ended. The reservation must have been made on this view, and is to be made
// anew when a gang that it waits for has ended.
func (v *View) Backfill(g Gang, r Reservation) Result {
	if g.EndsAt > 0 && g.EndsAt <= r.StartsAt {
		return v.Plan(g)
	}
	later := v.changed(r.gone, r.Gang.pods(r.Placement.Assignments))
	p := newPlanner(v.cluster().both(later), g)
	if result, done := p.place(); done {
		return result
	}
	return Result{Verdict: p.explain()}
}
