package placement

import (
	"slices"
)

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
