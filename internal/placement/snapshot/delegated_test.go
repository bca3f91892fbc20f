package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// What others allocate limits no node that has none of it itself; one that has some has so much and no more, and a view
// and its copies go by what they were told last.
func TestDelegatedResources(t *testing.T) {
	const device = "example.com/foo"
	node := func(name string, has int64) placement.Node {
		n := placementtest.Node(name, "v100", placement.ModeTopology, placementtest.V100())
		n.Allocatable.Extended = map[string]int64{"example.com/other": 1}
		if has > 0 {
			n.Allocatable.Extended[device] = has
		}
		return n
	}
	request := placementtest.WholeGPUs(1)
	request.Extended = map[string]int64{device: 1}
	gang := placement.Gang{Roles: []placement.Role{{Request: request, Members: []string{"0"}}}}
	fits := func(v *snapshot.View, node string) int { return v.State(node).Free.Fits(&request, 100) }
	v := snapshot.NewView()
	for _, n := range []placement.Node{node("none", 0), node("none too", 0), node("two", 2)} {
		v.SetNode(n)
	}
	pod := placement.Pod{ID: "x", Node: "none", Request: request, Own: gpu.SetOf(0)}
	v.AddPod(pod)
	assert.Zero(t, fits(v, "none"))
	assert.False(t, v.Delegates(&gang))
	assert.Contains(t, v.State("none").Evicts(&pod), "too small")

	before, version := v.Clone(), v.Version()
	v.SetDelegated(placement.Delegated{device: true})
	assert.Greater(t, v.Version(), version)
	assert.True(t, v.Delegates(&gang))
	assert.Empty(t, v.State("none").Evicts(&pod))
	v.SetNode(node("late", 0))
	for name, want := range map[string]int{"none": 7, "none too": 8, "two": 2, "late": 8} {
		assert.Equal(t, want, fits(v, name), name)
		assert.Equal(t, want, fits(v.Clone(), name), name)
	}
	assert.NotContains(t, v.State("none").Free.Resources().Extended, device, "it is none of the node's")
	assert.Zero(t, fits(before, "none too"))
	taken := v.State("none").Free.Clone()
	taken.Take(&request, 7, nil)
	assert.Zero(t, taken.Fits(&request, 100), "the GPUs are")

	v.SetDelegated(nil)
	assert.Zero(t, fits(v, "none too"))
	assert.Equal(t, 2, fits(v, "two"))

	told := snapshot.NewView()
	n := node("says so", 0)
	n.Delegated = placement.Delegated{device: true}
	told.SetNode(n)
	assert.Equal(t, 8, fits(told, n.Name), "a view that was never told goes by its nodes")
	n.Delegated = placement.Delegated{placement.Unknown: true}
	told.SetNode(n)
	assert.Equal(t, 8, fits(told, n.Name), "it may be one")
	n.Delegated[device] = false
	told.SetNode(n)
	assert.Zero(t, fits(told, n.Name), "it is known to be none")
}
