package backfill_test

import (
	"fmt"
	"testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// BenchmarkReserveBlocked has places reserved on a full cluster of 5,000 nodes, in one pool or several, for which 1,000
// gangs wait.
func BenchmarkReserveBlocked(b *testing.B) {
	for _, pools := range []int{1, 8} {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			v := snapshot.NewView()
			for i := range 5_000 {
				pool := fmt.Sprintf("p%d", i%pools)
				v.SetNode(placementtest.Node(fmt.Sprintf("n%d", i), pool, placement.ModeTopology, placementtest.V100()))
				runs := inPool(fmt.Sprintf("ml/runs-%d", i), pool, 8)
				placementtest.Place(b, v, runs)
			}
			var waiting []placement.Gang
			for i := range 1_000 {
				waiting = append(waiting, inPool(fmt.Sprintf("ml/waits-%d", i), fmt.Sprintf("p%d", i%pools), 1+i%8))
			}
			for b.Loop() {
				backfill.ReserveBlocked(v, waiting)
			}
		})
	}
}
