package clustercache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// A gang that has waited for a place takes its planned one where that is free, which is kept for another attempt, and its
// allocation records say why where it is not.
func TestPlannedPlaceOfAGangThatHasWaited(t *testing.T) {
	for name, test := range map[string]struct {
		gone []string
		node string
		why  string
	}{
		"free":  {gone: []string{"first", "second"}, node: "b"},
		"taken": {gone: []string{"first"}, node: "a", why: "GPU 0, 1, 2, 3, 4, 5, 6, 7 of node b, where big was planned, cannot be had"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a", "b")
			whole := []int{0, 1, 2, 3, 4, 5, 6, 7}
			for node, id := range map[string]string{"a": "first", "b": "second"} {
				c.SetPod(podtest.New(id, podtest.OnNode(node), podtest.Asks(contract.ResourceTopologyGPU, 8), podtest.Recorded(contract.Allocation{Node: node, GPUs: whole})))
			}
			big := podtest.New("big", podtest.Asks(contract.ResourceTopologyGPU, 8))
			big.Annotations = map[string]string{contract.PlannedPlacementAnnotation: `{"version":1,"nodes":[{"node":"b","members":{"big":[0,1,2,3,4,5,6,7]}}]}`}
			c.SetPod(big)
			const key = "pod/ns/big"
			require.True(t, c.ReserveBlocked([]string{key}, nil))
			r, ok := c.Reservation(key)
			require.True(t, ok)
			require.Equal(t, "a", r.Placement.Assignments[0].Node)
			for _, id := range test.gone {
				c.RemovePod(podtest.New(id).UID)
			}
			d, _, err := c.Decide(key, Limits{}, accept)
			require.NoError(t, err)
			require.Len(t, d.Assumed, 1)
			assert.Equal(t, test.node, d.Assumed[0].Record.Node)
			assert.Equal(t, test.why, d.Assumed[0].Record.NotAsPlanned)

			require.NotNil(t, d.Taken)
			c.Restore(key, *d.Taken)
			c.Forget(big.UID)
			r, _ = c.Reservation(key)
			assert.Equal(t, test.node, r.Placement.Assignments[0].Node)
			again, _, err := c.Decide(key, Limits{}, accept)
			require.NoError(t, err)
			assert.Equal(t, d.Assumed, again.Assumed)
		})
	}
}

// The place that is kept for another attempt is the one that was given back, also of a gang that has grown while it waited.
func TestPlaceOfAGangThatHasGrown(t *testing.T) {
	c := newCache(t, "a", "b")
	whole := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for node, id := range map[string]string{"a": "first", "b": "second"} {
		c.SetPod(podtest.New(id, podtest.OnNode(node), podtest.Asks(contract.ResourceTopologyGPU, 8), podtest.Recorded(contract.Allocation{Node: node, GPUs: whole})))
	}
	gang := podtest.Gang(2)
	for _, p := range gang {
		podtest.Asks(contract.ResourceTopologyGPU, 4)(p)
		p.Labels[contract.LightGangMinLabel] = "1"
	}
	c.SetPod(gang[0])
	const key = "ns/job"
	require.True(t, c.ReserveBlocked([]string{key}, nil))
	c.SetPod(gang[1])
	c.RemovePod(podtest.New("first").UID)
	d, _, err := c.Decide(key, Limits{}, accept)
	require.NoError(t, err)
	require.Len(t, d.Assumed, 2)
	require.NotNil(t, d.Taken)
	c.Restore(key, *d.Taken)
	for _, a := range d.Assumed {
		c.Forget(a.Pod.UID)
	}
	c.SetPod(podtest.New("small", podtest.Asks(contract.ResourceTopologyGPU, 4)))
	other, _, err := c.Decide("pod/ns/small", Limits{}, accept)
	require.NoError(t, err)
	assert.Empty(t, other.Assumed)
}
