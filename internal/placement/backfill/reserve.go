package backfill

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// ReserveEach has a view keep a place for each of the gangs that does not fit, and take the place of each
// that does, in their order: for who looks at a cluster in which they have places already.
func ReserveEach(v *snapshot.View, gangs []placement.Gang) {
	for _, g := range gangs {
		if placed := placeNow(v, g); placed != nil {
			v.Apply(g, *placed)
		} else if r, ok := Reserve(v, g); ok {
			v.AddReservation(r)
		}
	}
}

// Reserve finds the place that a blocked gang gets when some of the running gangs have
// ended: those that are being deleted, then those that end first, as far as ends are
// known, then those that free the most; none that the others make superfluous. A gang
// that its quota stops gets a reservation of quota only: it waits for gangs that use that
// quota, and no node is kept for it. Where the gang's planned place is free by then, it is that one.
// ok is false when the gang would not fit even on the empty cluster, and while it loses members:
// it will need more than it lacks now. Pods near which it has to run are not waited for to end.
func Reserve(v *snapshot.View, g placement.Gang) (r placement.Reservation, ok bool) {
	p := packing.NewPacker(v.Seen(&g, nil), g)
	if p.Invalid() != nil {
		return placement.Reservation{}, false
	}
	leaving, running := preemption.RunningGangs(v, g.ID, func(pod *placement.Pod) bool { return !g.DependsOn(pod) })
	if preemption.Loses(leaving, g.ID) {
		return placement.Reservation{}, false
	}
	preemption.SortEnds(v, running, p)
	after, ok := preemption.Fewest(v, g, slices.Concat(leaving, running))
	if !ok {
		return placement.Reservation{}, false
	}
	gone := preemption.PodsOf(after)
	result, _, followed := planner.Follow(v, &g, gone)
	if !followed {
		placed := packing.NewPacker(v.Seen(&g, gone), g)
		placed.Elastic = false
		result, _ = placed.Place()
	}
	return placement.Reservation{
		Gang: g, Placement: *result.Placement, After: preemption.VictimsOf(after), QuotaOnly: p.Allowed() < p.Needed,
	}, true
}
