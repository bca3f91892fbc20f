package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// A view that remembers what usage reservations lead to says the same of pods that are not planned as one
// that remembers nothing, whatever changes between.
func TestLaterUsageIsRememberedUntilItChanges(t *testing.T) {
	reserved, free := 0, 0
	for seed := range int64(50) {
		w := placementtest.NewWorld(t, seed)
		limit, all := quota.Resources{"cpu": 15_000}, quota.Resources{"cpu": 25_000}
		w.Spec = quota.Spec{Min: all, Max: all, Children: []quota.Spec{{Name: "a", Max: limit}, {Name: "b", Max: limit}}}
		placementtest.SetQuota(t, w.View, w.Spec)
		check := func() {
			for _, leaf := range []string{"a", "b"} {
				pod := placement.Gang{ID: "ns/pod/new", Leaf: leaf, Preemptible: true, Priority: int32(w.Intn(2))}
				for _, cpu := range []int64{500, 3_000, 8_000} {
					charge, forgetful := quota.Resources{"cpu": cpu}, w.View.Clone()
					want := forgetful.OverQuota(&pod, charge, forgetful.Held())
					require.Equal(t, want, w.View.OverQuota(&pod, charge, w.View.Held()), "seed %d", seed)
					switch {
					case want == "":
						free++
					case w.View.OverQuota(&pod, charge, nil) == "":
						reserved++
					}
				}
			}
		}
		for range 40 {
			backfill.ReserveEach(w.View, []placement.Gang{w.Gang(1)})
			check()
			disturb(w)
			for _, pod := range w.View.Pods(w.Nodes[0].Name) {
				w.View.RemovePod(pod.ID)
				check()
				w.View.AddPod(pod)
				check()
			}
		}
	}
	t.Logf("%d times refused by a reservation, %d times free", reserved, free)
	assert.Greater(t, reserved, 100)
	assert.Greater(t, free, 1_000)
}
