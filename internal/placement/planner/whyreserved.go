package planner

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/explanation"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Unschedulable explains why a gang has no place, and whose reservation keeps it from one.
func Unschedulable(v *snapshot.View, p *packing.Packer) placement.Result {
	verdict := explanation.Of(p)
	verdict.ReservedBy = reservedBy(v, &p.Gang, func(c snapshot.Cluster) bool {
		_, ok := packing.NewPacker(c, p.Gang).Place()
		return ok
	})
	return placement.Result{Verdict: verdict}
}

// Grown tells of a gang that runs, and for which more members wait than get a place, whose
// reservation keeps it from growing.
func Grown(v *snapshot.View, p *packing.Packer, result placement.Result) placement.Result {
	if p.Total > 0 && len(result.Placement.Assignments) == 0 {
		result.Verdict.ReservedBy = reservedBy(v, &p.Gang, func(c snapshot.Cluster) bool {
			more, ok := packing.NewPacker(c, p.Gang).Place()
			return ok && len(more.Placement.Assignments) > 0
		})
	}
	return result
}

// reservedBy returns the gang whose reservation keeps another from a place that it would have
// in the cluster without, "" when that is not what keeps it.
func reservedBy(v *snapshot.View, g *placement.Gang, fits func(snapshot.Cluster) bool) string {
	kept, lifted := v.ReservationsFor(g)
	if len(kept) == 0 || !fits(v.Unreserved()) {
		return ""
	}
	for i, h := range kept {
		others := slices.Delete(slices.Clone(kept), i, i+1)
		if fits(v.SeenAfter(nil, others, append(slices.Clone(lifted), h))) {
			return h.Gang.ID
		}
	}
	return kept[0].Gang.ID
}
