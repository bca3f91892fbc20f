package clusterchoice

import (
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Place finds the place that a cluster has for the gangs of a job that are still to come, one beside the other, and evicts nobody for them;
// why says of one of them why it has none. What the policy says of the cluster is left out of the offer.
func Place(view *snapshot.View, gangs []placement.Gang) (offer Offer, why string) {
	offer.AsPlanned = true
	beside := view
	for i, gang := range gangs {
		result := planner.Plan(beside, gang)
		if result.Placement == nil {
			return Offer{}, result.Verdict.String()
		}
		offer.Placements = append(offer.Placements, *result.Placement)
		offer.AsPlanned = offer.AsPlanned && len(gang.Planned) > 0 && result.Verdict.NotAsPlanned == ""
		if i == len(gangs)-1 {
			break
		}
		if i == 0 {
			beside = view.Clone()
		}
		beside.AddReservation(placement.Reservation{Gang: gang, Placement: *result.Placement, Granted: true})
	}
	offer.LeftGPUs = leftGPUs(view, offer.Placements)
	return offer, ""
}

// leftGPUs counts the GPUs of the nodes of places that nobody has, with these places, or is promised.
func leftGPUs(view *snapshot.View, places []placement.Placement) (left int) {
	taken := map[string]gpu.Set{}
	take := func(p placement.Placement) {
		for _, a := range p.Assignments {
			taken[a.Node] |= a.Own
			for _, share := range a.Shares {
				taken[a.Node] |= gpu.SetOf(share.GPU)
			}
		}
	}
	nodes := map[string]bool{}
	for _, p := range places {
		take(p)
		for _, a := range p.Assignments {
			nodes[a.Node] = true
		}
	}
	for _, held := range view.Held() {
		take(held.Placement)
	}
	for name := range nodes {
		if node := view.State(name); node != nil {
			left += (node.FreeGPUs(node.HealthyGPUs()) &^ taken[name]).Len()
		}
	}
	return left
}
