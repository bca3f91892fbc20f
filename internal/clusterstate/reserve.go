package clusterstate

import (
	"slices"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// ReserveBlocked reserves places in the view, as the scheduler does ([backfill.ReserveBlocked]),
// for the gangs that wait for room and whose first pod is so old by now; for none when after is
// negative. It is for a cluster that was listed: the scheduler's own view has its reservations. gangOf
// tells as what a gang is placed; ok is false for one that more than room keeps from starting.
func (s *Snapshot) ReserveBlocked(now time.Time, after time.Duration, gangOf func(inventory.GangState) (g placement.Gang, ok bool)) {
	if after < 0 {
		return
	}
	var blocked []placement.Gang
	for _, key := range s.Waiting() {
		state, _ := s.Gang(key)
		if now.Sub(time.Unix(0, Queued(key, state).Since)) < after {
			continue
		}
		if g, ok := gangOf(state); ok {
			blocked = append(blocked, g)
		}
	}
	backfill.ReserveBlocked(s.View, blocked)
}

// ReserveGranted reserves the places in the view that the scheduler has granted to gangs that are still to come, as it says itself. It is
// for a cluster that was listed, as [Snapshot.ReserveBlocked] is.
func (s *Snapshot) ReserveGranted(gangs ToCome, granted []contract.GrantedGang) {
	for _, gang := range gangs {
		at := slices.IndexFunc(granted, func(g contract.GrantedGang) bool { return g.Name == gang.Key })
		if _, there := s.Gang(gang.Key); there || at < 0 {
			continue
		}
		members := slices.Clone(gang.Members)
		inventory.MarkGated(members)
		state, ok := inventory.StateOf(members, s.podGroups[gang.Key], s.tree, s.bar, s.gpusOf)
		if !ok {
			continue
		}
		state.Gang.Planned = inventory.PlannedMembers(granted[at].Nodes)
		if place := planner.Plan(s.View, state.Gang).Placement; place != nil {
			s.View.AddReservation(placement.Reservation{Gang: state.Gang, Placement: *place, Granted: true})
		}
	}
}
