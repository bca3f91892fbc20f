package fragmentation

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Requests for few of the GPUs are no reason to keep room.
func TestUsualDemands(t *testing.T) {
	gpus := func(n int) placement.Demand { return placement.Demand{Mode: placement.ModeTopology, GPUs: n} }
	half := placement.Demand{Mode: placement.ModeShare, GPUs: 1, MemoryGiB: 8}
	w := placement.Workload{gpus(1): 60, gpus(2): 35, half: 4, gpus(8): 1, {MilliCPU: 1}: 1000}
	assert.Equal(t, placement.Workload{gpus(1): 60, gpus(2): 35, gpus(8): 1}, usual(w))
	w = placement.Workload{gpus(1): 150, gpus(2): 3, gpus(8): 1, half: 2}
	assert.Equal(t, placement.Workload{gpus(1): 150, gpus(8): 1}, usual(w), "by GPUs, not by members")
	assert.Equal(t, placement.Workload{half: 1}, usual(placement.Workload{half: 1}))
	assert.Empty(t, usual(placement.Workload{}))
	w = placement.Workload{half: 1500, gpus(64): 1, gpus(1_000_000): 1}
	assert.Equal(t, placement.Workload{half: 1500}, usual(w), "one big request, and one that no machine serves, do not outweigh all others")
}
