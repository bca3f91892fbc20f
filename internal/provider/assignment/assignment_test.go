package assignment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

func TestPlanned(t *testing.T) {
	two := gpu.Machine{ // at positions 0 and 1
		GPUs:  []gpu.GPU{{Index: 4}, {Index: 6}},
		Links: [][]gpu.Link{make([]gpu.Link, 2), make([]gpu.Link, 2)},
	}
	table, err := gpu.NewTable(two)
	require.NoError(t, err)
	got := assignment.Planned([]placement.Assignment{
		{Member: "worker-0", Node: "n1", Own: gpu.SetOf(1), Ring: gpu.Ring{GBps: 50, NVLinkRings: 2}},
		{Member: "worker-1", Node: "n1", Shares: []placement.GPUShare{{GPU: 0, MemoryGiB: 2}}},
		{Member: "launcher-0", Node: "n2"},
	}, func(node string) *gpu.Table { return map[string]*gpu.Table{"n1": table}[node] })
	assert.Equal(t, []assignment.Model{
		{Member: "worker-0", Node: "n1", GPUs: []int64{6}, RingGBps: 50, NVLinkRings: 2},
		{Member: "worker-1", Node: "n1", GPUs: []int64{4}},
		{Member: "launcher-0", Node: "n2", GPUs: []int64{}},
	}, got)
}

func TestActual(t *testing.T) {
	whole := contract.Allocation{GPUs: []int{3, 1}, RingGBps: 25, NVLinkRings: 1}
	assert.Equal(t, assignment.Model{Member: "worker-0", Node: "n1", GPUs: []int64{1, 3}, RingGBps: 25, NVLinkRings: 1},
		assignment.Actual("worker-0", "n1", whole))
	shared := contract.Allocation{Shares: []contract.GPUShare{{GPU: 2, MemoryGiB: 4}, {GPU: 2, MemoryGiB: 1}}}
	assert.Equal(t, assignment.Model{Member: "worker-0", Node: "n1", GPUs: []int64{2}}, assignment.Actual("worker-0", "n1", shared))
}

// The record has the ring of a node's GPUs, whoever comes first there.
func TestRecordOfAMemberWithoutGPUs(t *testing.T) {
	record := assignment.Record([]assignment.Model{
		{Member: "driver-0", Node: "n"}, {Member: "worker-0", Node: "n", GPUs: []int64{0, 1}, RingGBps: 50, NVLinkRings: 2},
	})
	require.Len(t, record.Nodes, 1)
	assert.InDelta(t, 50, record.Nodes[0].RingGBps, 0)
	assert.Equal(t, 2, record.Nodes[0].NVLinkRings)
}
