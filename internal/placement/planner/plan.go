// Package planner plans one gang on a view: a placement, or a verdict why there is none. It
// evicts nobody; package preemption does.
package planner

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Plan places a gang, or says why it cannot be. It does not change the view. Places
// that are held for others ([snapshot.View.AddReservation]) are left alone.
//
// A gang of members of one shape is placed whenever it can be. With several shapes
// packing is a bin-packing problem: the planner fills node after node with the biggest
// shapes first, then tries one shape after the other, then the smallest first, and may
// miss a placement that only another order finds.
func Plan(v *snapshot.View, g placement.Gang) placement.Result {
	followed, why, ok := Follow(v, &g, nil)
	if ok {
		return followed
	}
	g.Planned = nil
	p := packing.NewPacker(v.Seen(&g, nil), g)
	result, done := p.Place()
	if done {
		result = Grown(v, p, result)
	} else {
		result = Unschedulable(v, p)
	}
	result.Verdict.NotAsPlanned = why
	return result
}

// Place is Plan for callers that ask neither why nor where an earlier plan put the gang: it returns nil when the gang
// does not fit.
func Place(v *snapshot.View, g placement.Gang) *placement.Placement {
	if v.CachedUnschedulable(&g) {
		return nil
	}
	result, ok := packing.NewPacker(v.Seen(&g, nil), g).Place()
	if !ok {
		v.CacheUnschedulable(&g)
	}
	return result.Placement
}

// Rank returns the nodes on which a pod on its own fits, by name, the best first: [Place] takes the
// first. It is for those who have other reasons to choose a node, too.
func Rank(v *snapshot.View, g placement.Gang) []string {
	return packing.NewPacker(v.Seen(&g, nil), g).Rank()
}

// Infeasible reports whether a gang could not be placed even if nothing else ran: only a
// change of nodes or of the quota tree can help it. Pods of others near which its members have to run
// may come anywhere, so that does not count.
func Infeasible(v *snapshot.View, g placement.Gang) bool {
	return v.CachedInfeasible(&g, func(alone snapshot.Cluster) bool {
		anywhere := g
		anywhere.Roles = slices.Clone(g.Roles)
		for i := range anywhere.Roles {
			if role := &anywhere.Roles[i]; !g.SufficesFor(role) {
				role.Neighbors = slices.DeleteFunc(slices.Clone(role.Neighbors), func(n placement.Neighbor) bool { return !n.Apart })
			}
		}
		_, fits := packing.NewPacker(alone, anywhere).Place()
		return !fits
	})
}
