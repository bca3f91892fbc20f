package placement

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Requests that are rare are no reason to keep room.
func TestUsualDemands(t *testing.T) {
	gpus := func(n int) Demand { return Demand{Mode: ModeTopology, GPUs: n} }
	half := Demand{Mode: ModeShare, GPUs: 1, MemoryGiB: 8}
	w := Workload{gpus(1): 60, gpus(2): 35, half: 4, gpus(8): 1, {MilliCPU: 1}: 1000}
	assert.Equal(t, Workload{gpus(1): 60, gpus(2): 35, gpus(8): 1}, w.usual())
	assert.Equal(t, Workload{half: 1}, Workload{half: 1}.usual())
	assert.Empty(t, Workload{}.usual())
}
