package capacity_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// A pod that shares a GPU of which nobody knows which it is counts on each GPU with its
// part, and with no more: whatever GPU it is on, nobody gets too much of it.
func TestSharedPodWithoutRecord(t *testing.T) {
	v := snapshot.NewView()
	m := placementtest.Machine(t, "dgx1-v100")
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = 32 << 10
	}
	n := placementtest.Node("n0", "p", placement.ModeShare, placementtest.TableOf(t, m))
	v.SetNode(n)
	share := func(gib int64, gpus int) placement.Request {
		return placement.Request{Mode: placement.ModeShare, MemoryGiB: gib, GPUs: gpus}
	}
	const gib = 32
	v.AddPod(placement.Pod{ID: "foreign", Node: "n0", Request: share(10, 2)})
	assert.Nil(t, planner.Place(v, placementtest.Gang("ns/whole", 1, share(gib, 1))), "it may be on any GPU")
	fits := planner.Plan(v, placementtest.Gang("ns/rest", 8, share(gib-5, 1)))
	require.NotNil(t, fits.Placement, fits.Verdict.String())
	assert.Nil(t, planner.Place(v, placementtest.Gang("ns/much", 1, share(gib-4, 1))))
	v.RemovePod("foreign")
	assert.NotNil(t, planner.Place(v, placementtest.Gang("ns/whole", 8, share(gib, 1))), "it has gone without a trace")

	n.Mode = placement.ModeDefault
	v.SetNode(n)
	v.AddPod(placement.Pod{ID: "foreign", Node: "n0", Request: share(10, 2)})
	whole := placement.Request{Mode: placement.ModeDefault, GPUs: 1}
	assert.NotNil(t, planner.Place(v, placementtest.Gang("ns/six", 6, whole)))
	assert.Nil(t, planner.Place(v, placementtest.Gang("ns/seven", 7, whole)), "two GPUs are shared")
}
