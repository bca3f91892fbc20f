package planner_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// TestStart: what starts late is placed beside its gang once, and where it has no room nothing of the gang stays.
func TestStart(t *testing.T) {
	v := placementtest.TopologyView(1)
	node, _ := v.Node("n0")
	node.Allocatable.MilliCPU = 5_000
	v.SetNode(node)
	cores := func(r placement.Request, n int64) placement.Request { r.MilliCPU = 1000 * n; return r }
	free := func() int { return v.FreeGPUs("n0").Len() }

	gang := placementtest.Gang("ml/gang", 2, cores(placementtest.WholeGPUs(1), 1))
	launcher := placementtest.Role("launcher", 1, cores(placement.Request{}, 3))
	launcher.Late = true
	gang.Roles = append(gang.Roles, launcher)
	place := func() placement.Placement {
		placed := planner.Place(v, gang)
		require.NotNil(t, placed)
		return *placed
	}

	running, undo, why := planner.Start(v, gang, place())
	require.Nil(t, why)
	assert.Len(t, running, 3)
	assert.Equal(t, 6, free())
	undo()
	assert.Equal(t, 8, free())

	started := gang
	started.Running, undo, _ = planner.Start(v, gang, place())
	again, _, why := planner.Start(v, started, placement.Placement{})
	require.Nil(t, why)
	assert.Equal(t, started.Running, again, "the launcher runs already")
	undo()

	gang.Roles[1].Request.MilliCPU = 4_000
	_, _, why = planner.Start(v, gang, place())
	require.NotNil(t, why)
	assert.Contains(t, why.String(), "CPU")
	assert.Equal(t, 8, free())
}
