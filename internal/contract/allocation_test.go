package contract_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestAllocationRoundTrip(t *testing.T) {
	for name, want := range map[string]contract.Allocation{
		"whole GPUs": {Version: contract.AllocationVersion, Gang: "default/vgg16", Node: "n1",
			GPUs: []int{3}, Visible: []int{0, 1, 2, 3}, RingGBps: 50, NVLinkRings: 2},
		"shared GPUs": {Version: contract.AllocationVersion, Node: "n1",
			Shares: []contract.GPUShare{{GPU: 2, MemoryGiB: 8, CorePercent: 50}}},
		"no GPUs": {Version: contract.AllocationVersion, Gang: "default/launcher", Node: "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			annotations, err := want.Annotations()
			require.NoError(t, err)
			got, ok, err := contract.AllocationFrom(annotations)
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, want, got)
		})
	}
}

func TestAllocationIsReadableByArena(t *testing.T) {
	annotations, err := contract.Allocation{Node: "n1", GPUs: []int{1, 3}, Visible: []int{0, 1, 2, 3}}.Annotations()
	require.NoError(t, err)
	assert.Equal(t, "1,3", annotations["topology.kubernetes.io/gpu-group"])
	assert.Equal(t, "0,1,2,3", annotations["topology.kubernetes.io/gpu-visible"])

	annotations, err = contract.Allocation{Node: "n1"}.Annotations()
	require.NoError(t, err)
	assert.Len(t, annotations, 1, "a pod without GPUs has no empty list, which splits into one element")
}

func TestAllocationFrom(t *testing.T) {
	_, ok, err := contract.AllocationFrom(map[string]string{contract.GPUsAnnotation: "1"})
	assert.False(t, ok)
	assert.NoError(t, err)

	for text, want := range map[string]string{
		"GPUs 1,2":                  "not an allocation record",
		`{"version":2,"node":"n1"}`: "has version 2; this program reads version 1",
		`{"node":"n1"}`:             "has version 0",
		`{"version":1,"gpus":"1"}`:  "not an allocation record",
	} {
		_, ok, err := contract.AllocationFrom(map[string]string{contract.AllocationAnnotation: text})
		assert.True(t, ok, text)
		assert.ErrorContains(t, err, want)
	}
}

// Whoever may write pods may write what reads as a record.
func FuzzAllocationFrom(f *testing.F) {
	f.Add(`{"version":1,"gang":"default/g","node":"n1","gpus":[1],"visible":[0,1],"ringGBps":1e300,"nvlinkRings":2}`)
	f.Add(`{"version":1,"node":"n1","shares":[{"gpu":-1,"memoryGiB":9223372036854775807,"corePercent":50}],"notAsPlanned":"\ud800"}`)
	f.Add(`{"version":1,"gpus":[1e3,"\xff`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		record, ok, err := contract.AllocationFrom(map[string]string{contract.AllocationAnnotation: text})
		assert.True(t, ok)
		if err != nil {
			assert.Zero(t, record)
			assert.Less(t, len(err.Error()), 1000, "it is an event")
			return
		}
		written, err := record.Annotations()
		require.NoError(t, err)
		again, ok, err := contract.AllocationFrom(written)
		require.NoError(t, err)
		assert.True(t, ok)
		same, err := again.Annotations()
		require.NoError(t, err)
		assert.Equal(t, written, same)
	})
}
