package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// sharedNode is a node of four GPUs of 16 GiB.
func sharedNode(t *testing.T, name string, mode placement.Mode, milliCPU int64) placement.Node {
	t.Helper()
	m := machine(t, "ack-sample-4xv100")
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = 16 << 10
	}
	table, err := gpu.NewTable(m)
	require.NoError(t, err)
	n := node(name, "p", mode, table)
	n.Allocatable.MilliCPU = milliCPU
	return n
}

func share(gib, milliCPU int64) placement.Request {
	return placement.Request{Mode: placement.ModeShare, MemoryGiB: gib, Resources: placement.Resources{MilliCPU: milliCPU}}
}

func TestWorkloadChoosesTheGPUThatFragmentsLeast(t *testing.T) {
	v := placement.NewView()
	v.SetNode(sharedNode(t, "n", placement.ModeShare, 80_000))
	v.AddPod(placement.Pod{ID: "a", Node: "n", Request: share(8, 0), Shares: []placement.GPUShare{{GPU: 1, MemoryGiB: 8}}})
	v.AddPod(placement.Pod{ID: "b", Node: "n", Request: share(4, 0), Shares: []placement.GPUShare{{GPU: 2, MemoryGiB: 4}}})
	v.AddPod(placement.Pod{ID: "c", Node: "n", Request: share(16, 0), Shares: []placement.GPUShare{{GPU: 3, MemoryGiB: 16}}})
	four := gang("ml/x", 1, share(4, 0))
	device := func() int { return v.Plan(four).Placement.Assignments[0].Shares[0].GPU }

	assert.Equal(t, 1, device(), "without a mix the tightest: 8 GiB left of GPU 1")
	workload := placement.NewWorkload()
	v.SetWorkload(workload)
	workload.Observe(gang("ml/eight", 9, share(8, 0)))
	workload.Observe(gang("ml/twelve", 1, share(12, 0)))
	assert.Equal(t, 2, device(), "GPU 2 keeps 8 of its 12 GiB: nothing is lost for requests of 8")
}

func TestWorkloadKeepsCPUForGPUs(t *testing.T) {
	v := placement.NewView()
	v.SetNode(sharedNode(t, "a", placement.ModeShare, 16_000))
	v.SetNode(sharedNode(t, "b", placement.ModeShare, 64_000))
	workload := placement.NewWorkload()
	v.SetWorkload(workload)
	worker := gang("ml/x", 1, share(16, 4_000))
	workload.Observe(worker)
	cpuOnly := gang("ml/cpu", 1, placement.Request{Resources: placement.Resources{MilliCPU: 8_000}})
	assert.Equal(t, "b", v.Plan(cpuOnly).Placement.Assignments[0].Node, "on a it would leave two GPUs without CPU")
	workload.Observe(cpuOnly)
	again := v.Plan(cpuOnly)
	assert.Equal(t, again, v.Plan(cpuOnly), "remembered trials give the same")
	assert.Equal(t, "b", again.Placement.Assignments[0].Node)
	v.SetWorkload(nil)
	assert.Equal(t, "a", v.Plan(cpuOnly).Placement.Assignments[0].Node)
}

func TestWorkloadTradesBandwidth(t *testing.T) {
	// n0 is empty; n1 has GPUs 0 and 5 left, which only PCIe connects.
	v := topologyView(2)
	v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: wholeGPUs(6), Own: gpu.SetOf(1, 2, 3, 4, 6, 7)})
	workload := placement.NewWorkload()
	v.SetWorkload(workload)
	pair := gang("ml/x", 1, wholeGPUs(2))
	workload.Observe(gang("ml/whole", 9, wholeGPUs(8)))
	workload.Observe(pair)
	assert.Equal(t, "n0", v.Plan(pair).Placement.Assignments[0].Node, "the ring comes first")
	workload.Trade(1000)
	assert.Equal(t, "n1", v.Plan(pair).Placement.Assignments[0].Node, "that n0 stays whole is worth more than the ring")
}

func TestWorkloadOfKindsThatDoNotMeet(t *testing.T) {
	workload := placement.NewWorkload()
	workload.Observe(gang("ml/core", 3, placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 4, CorePercent: 50}))
	workload.Observe(gang("ml/whole", 3, placement.Request{Mode: placement.ModeDefault, GPUs: 2}))
	workload.Observe(gang("ml/two", 3, placement.Request{Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 8}))
	v := placement.NewView()
	v.SetWorkload(workload)
	v.SetNode(sharedNode(t, "share", placement.ModeShare, 64_000))
	v.SetNode(sharedNode(t, "core", placement.ModeCoreMem, 64_000))
	place(t, v, gang("ml/a", 2, share(4, 0)))
	assert.Len(t, v.Pods("share"), 2, "on the other node the requests with cores would lose their place")
	place(t, v, gang("ml/b", 1, placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 4, CorePercent: 50}))
	place(t, v, gang("ml/c", 3, placement.Request{Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 8}))
	assert.Len(t, v.Pods("core"), 1)
}
