package clusterstate

import (
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
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
