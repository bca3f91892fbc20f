package fragmentation_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

func share(gib, milliCPU int64) placement.Request {
	return placement.Request{Mode: placement.ModeShare, MemoryGiB: gib, Resources: placement.Resources{MilliCPU: milliCPU}}
}

// workload is the distribution of what the gangs ask for.
func workload(gangs ...placement.Gang) placement.Workload {
	w := placement.Workload{}
	for _, g := range gangs {
		w.Count(g)
	}
	return w
}

func TestWorkloadChoosesTheGPUThatFragmentsLeast(t *testing.T) {
	v := snapshot.NewView()
	v.SetNode(placementtest.SharedNode(t, "n", placement.ModeShare, 80_000))
	v.AddPod(placement.Pod{ID: "a", Node: "n", Request: share(8, 0), Shares: []placement.GPUShare{{GPU: 1, MemoryGiB: 8}}})
	v.AddPod(placement.Pod{ID: "b", Node: "n", Request: share(4, 0), Shares: []placement.GPUShare{{GPU: 2, MemoryGiB: 4}}})
	v.AddPod(placement.Pod{ID: "c", Node: "n", Request: share(16, 0), Shares: []placement.GPUShare{{GPU: 3, MemoryGiB: 16}}})
	four := placementtest.Gang("ml/x", 1, share(4, 0))
	device := func() int { return planner.Plan(v, four).Placement.Assignments[0].Shares[0].GPU }

	assert.Equal(t, 1, device(), "without a workload the tightest: 8 GiB left of GPU 1")
	v.SetWorkload(workload(placementtest.Gang("ml/eight", 9, share(8, 0))))
	assert.Equal(t, 2, device(), "GPU 2 keeps 8 of its 12 GiB: nothing is lost for requests of 8")
}

func TestWorkloadKeepsCPUForGPUs(t *testing.T) {
	v := snapshot.NewView()
	v.SetNode(placementtest.SharedNode(t, "a", placement.ModeShare, 16_000))
	v.SetNode(placementtest.SharedNode(t, "b", placement.ModeShare, 64_000))
	worker := placementtest.Gang("ml/x", 1, share(16, 4_000))
	v.SetWorkload(workload(worker))
	cpuOnly := placementtest.Gang("ml/cpu", 1, placement.Request{Resources: placement.Resources{MilliCPU: 8_000}})
	assert.Equal(t, []string{"b", "a"}, planner.Rank(v, cpuOnly))
	assert.Equal(t, "b", planner.Plan(v, cpuOnly).Placement.Assignments[0].Node, "on a it would leave two GPUs without CPU")
	v.SetWorkload(workload(worker, cpuOnly))
	again := planner.Plan(v, cpuOnly)
	assert.Equal(t, again, planner.Plan(v, cpuOnly), "remembered trials give the same")
	assert.Equal(t, "b", again.Placement.Assignments[0].Node)
	v.SetWorkload(nil)
	assert.Equal(t, "a", planner.Plan(v, cpuOnly).Placement.Assignments[0].Node)
	assert.Equal(t, []string{"a", "b"}, planner.Rank(v, cpuOnly))
	cpuOnly.Roles[0].NodeSelector = map[string]string{"only": "there"}
	assert.Empty(t, planner.Rank(v, cpuOnly), "where it may not be it is not ranked")
}

// What fragmentation looks at is the same for all shared modes, and by the GPU.
func TestDemand(t *testing.T) {
	for name, test := range map[string]struct {
		request placement.Request
		want    placement.Demand
	}{
		"none":     {placement.Request{Resources: placement.Resources{MilliCPU: 500}}, placement.Demand{MilliCPU: 500}},
		"whole":    {placement.Request{Mode: placement.ModeTopology, GPUs: 4}, placement.Demand{Mode: placement.ModeTopology, GPUs: 4}},
		"memory":   {placement.Request{Mode: placement.ModeMPS, MemoryGiB: 8}, placement.Demand{Mode: placement.ModeShare, GPUs: 1, MemoryGiB: 8}},
		"cores":    {placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 8, CorePercent: 25}, placement.Demand{Mode: placement.ModeCoreMem, GPUs: 1, MemoryGiB: 8, CorePercent: 25}},
		"two GPUs": {placement.Request{Mode: placement.ModeCGPU, GPUs: 2, MemoryGiB: 8}, placement.Demand{Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 4}},
	} {
		assert.Equal(t, test.want, (&placement.Role{Request: test.request}).Demand(), name)
	}
}

func TestOutgrown(t *testing.T) {
	for _, test := range []struct {
		counted, more int64
		want          bool
	}{{0, 0, false}, {0, 1, true}, {3, 1, true}, {4, 1, false}, {4, 2, true}, {8000, 2000, false}, {8000, 2001, true}} {
		assert.Equal(t, test.want, placement.Outgrown(test.counted, test.more), "%+v", test)
	}
}

// What a view was given does not change with the caller's, nor the caller's with it.
func TestWorkloadIsAValue(t *testing.T) {
	v, w := snapshot.NewView(), workload(placementtest.Gang("ml/x", 3, placementtest.WholeGPUs(2)))
	assert.Nil(t, v.Workload())
	v.SetWorkload(w)
	assert.Equal(t, w, v.Workload())
	w.Count(placementtest.Gang("ml/y", 1, placementtest.WholeGPUs(1)))
	v.Workload()[placement.Demand{}] = 7
	assert.Equal(t, workload(placementtest.Gang("ml/x", 3, placementtest.WholeGPUs(2))), v.Clone().Workload())
	v.SetWorkload(placement.Workload{})
	assert.Nil(t, v.Workload())
}

// Copies share the workload and nothing that planning changes: the race detector looks on.
func TestCopiesPlanAtTheSameTime(t *testing.T) {
	v := snapshot.NewView()
	for i := range 6 {
		v.SetNode(placementtest.SharedNode(t, fmt.Sprint("n", i), placement.ModeShare, 64_000))
	}
	v.SetWorkload(workload(placementtest.Gang("ml/eight", 9, share(8, 0)), placementtest.Gang("ml/twelve", 1, share(12, 0))))
	want := planner.Plan(v.Clone(), placementtest.Gang("ml/x", 1, share(4, 0)))
	var all sync.WaitGroup
	for range 4 {
		copied := v.Clone()
		all.Go(func() {
			for i := range 50 {
				placementtest.Place(t, copied, placementtest.Gang(fmt.Sprint("ml/", i), 1, share(4, 0)))
			}
		})
	}
	assert.Equal(t, want, planner.Plan(v, placementtest.Gang("ml/x", 1, share(4, 0))))
	all.Wait()
}

func TestWorkloadOfKindsThatDoNotMeet(t *testing.T) {
	v := snapshot.NewView()
	v.SetWorkload(workload(
		placementtest.Gang("ml/core", 3, placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 4, CorePercent: 50}),
		placementtest.Gang("ml/whole", 3, placement.Request{Mode: placement.ModeDefault, GPUs: 2}),
		placementtest.Gang("ml/two", 3, placement.Request{Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 8}),
	))
	v.SetNode(placementtest.SharedNode(t, "share", placement.ModeShare, 64_000))
	v.SetNode(placementtest.SharedNode(t, "core", placement.ModeCoreMem, 64_000))
	placementtest.Place(t, v, placementtest.Gang("ml/a", 2, share(4, 0)))
	assert.Len(t, v.Pods("share"), 2, "on the other node the requests with cores would lose their place")
	placementtest.Place(t, v, placementtest.Gang("ml/b", 1, placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 4, CorePercent: 50}))
	placementtest.Place(t, v, placementtest.Gang("ml/c", 3, placement.Request{Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 8}))
	assert.Len(t, v.Pods("core"), 1)
}

// Nodes that few others can replace are kept for those who need them.
func TestWorkloadKeepsScarceNodes(t *testing.T) {
	v := snapshot.NewView()
	for i := range 8 {
		n := placementtest.SharedNode(t, fmt.Sprintf("n%d", i), placement.ModeTopology, 64_000)
		n.Labels = map[string]string{"model": "plenty"}
		if i == 0 {
			n.Labels["model"] = "scarce"
			n.Allocatable.MilliCPU = 32_000 // the tightest fit
		}
		v.SetNode(n)
	}
	anywhere := placementtest.Gang("ml/any", 1, placementtest.WholeGPUs(1))
	where := func() string { return planner.Plan(v, anywhere).Placement.Assignments[0].Node }
	assert.Equal(t, "n0", where(), "the first of equal ones")

	bound := placementtest.Gang("ml/bound", 1, placementtest.WholeGPUs(1))
	bound.Roles[0].NodeSelector = map[string]string{"model": "scarce"}
	bound.Roles[0].Request.MilliCPU = 1
	w := workload(placementtest.Gang("ml/all", 18, placementtest.WholeGPUs(1)), bound)
	v.SetWorkload(w)
	assert.NotEqual(t, "n0", where(), "one in nineteen needs it")

	for i := range 7 {
		v.RemoveNode(fmt.Sprintf("n%d", i+1))
	}
	assert.Equal(t, "n0", where(), "there is nothing else")
}

// A node without memory left is of no use to those who ask for memory.
func TestWorkloadKeepsMemoryForGPUs(t *testing.T) {
	v := snapshot.NewView()
	for _, name := range []string{"a", "b"} {
		n := placementtest.SharedNode(t, name, placement.ModeShare, 64_000)
		n.Allocatable.MemoryBytes = 64 << 30
		v.SetNode(n)
	}
	placementtest.Place(t, v, placementtest.Gang("ml/first", 1, share(16, 0)))
	hungry := share(16, 0)
	hungry.MemoryBytes = 20 << 30
	v.SetWorkload(workload(placementtest.Gang("ml/hungry", 9, hungry)))
	eater := placementtest.Gang("ml/eater", 1, placement.Request{Resources: placement.Resources{MemoryBytes: 4 << 30}})
	assert.Equal(t, "a", planner.Plan(v, eater).Placement.Assignments[0].Node, "it has memory for three, and GPUs for three")
	eater.Roles[0].Request.MemoryBytes = 50 << 30
	assert.Equal(t, "a", planner.Plan(v, eater).Placement.Assignments[0].Node, "it has fewer GPUs to lose")
}
