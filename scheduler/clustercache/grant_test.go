package clustercache

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// gangOf are the pods of a gang of that name with so many GPUs each, which are not there yet.
func gangOf(name string, members int, gpus int64) []*corev1.Pod {
	pods := make([]*corev1.Pod, members)
	for i := range pods {
		pods[i] = podtest.New(fmt.Sprintf("%s-worker-%d", name, i), podtest.Worker(i), podtest.Asks(contract.ResourceTopologyGPU, gpus),
			podtest.Label(contract.TopologyGroupLabel, name), podtest.Label(contract.TopologyReplicasLabel, strconv.Itoa(members)))
	}
	return pods
}

func TestGrantedPlaces(t *testing.T) {
	c := newCache(t, "a", "b")
	first, second := gangOf("first", 2, 4), gangOf("second", 2, 8)
	granted, why := c.Grant(clusterstate.NewToCome(first), nil)
	require.Empty(t, why)
	require.Len(t, granted, 1)
	assert.Equal(t, "ns/first", granted[0].Name)
	require.Len(t, granted[0].Nodes, 1)
	assert.Equal(t, map[string][]int{"worker-0": {0, 1, 2, 3}, "worker-1": {4, 5, 6, 7}}, granted[0].Nodes[0].Members)
	assert.True(t, c.Granted("ns/first"))

	again, why := c.Grant(clusterstate.NewToCome(first), nil)
	require.Empty(t, why)
	assert.Equal(t, granted, again, "the place stays")
	_, why = c.Grant(clusterstate.NewToCome(second), nil)
	assert.Contains(t, why, "gang ns/second: ")
	assert.False(t, c.Granted("ns/second"))

	// Beside another gang that cannot be there nothing is promised.
	third := gangOf("third", 1, 4)
	_, why = c.Grant(clusterstate.NewToCome(append(third, second...)), nil)
	assert.NotEmpty(t, why)
	assert.False(t, c.Granted("ns/third"), "all gangs of a job or none")

	for _, pod := range second {
		c.SetPod(pod)
	}
	d, _, err := c.Decide("ns/second", Limits{}, accept)
	require.NoError(t, err)
	assert.Empty(t, d.Assumed, "who is there waits for what is promised")
	for _, pod := range first {
		c.SetPod(pod)
	}
	there, why := c.Grant(clusterstate.NewToCome(first), nil)
	require.Empty(t, why)
	assert.Equal(t, granted, there, "its pods are there, and have no places yet")
	d, _, err = c.Decide("ns/first", Limits{}, accept)
	require.NoError(t, err)
	require.Len(t, d.Assumed, 2)
	for _, a := range d.Assumed {
		assert.Equal(t, granted[0].Nodes[0].Members[a.Member], a.Record.GPUs)
	}
	assert.False(t, c.Granted("ns/first"), "it has its place")
	none, why := c.Grant(clusterstate.NewToCome(first), nil)
	require.Empty(t, why)
	assert.Empty(t, none)

	require.NotNil(t, d.Taken)
	for _, a := range d.Assumed {
		c.Forget(a.Pod.UID)
	}
	c.Restore("ns/first", *d.Taken)
	assert.True(t, c.Granted("ns/first"), "what was rolled back is promised still")
	c.Revoke("ns/other")
	assert.True(t, c.Granted("ns/first"))
	c.Revoke("ns/first")
	assert.False(t, c.Granted("ns/first"))
}

// What was promised before is held again where it was, or not at all.
func TestPlacesThatWerePromised(t *testing.T) {
	c := newCache(t, "a", "b")
	pods := gangOf("job", 1, 4)
	at := map[string][]contract.PlannedNode{"ns/job": {{Node: "b", Members: map[string][]int{"worker-0": {4, 5, 6, 7}}}}}
	granted, why := c.Grant(clusterstate.NewToCome(pods), at)
	require.Empty(t, why)
	assert.Equal(t, at["ns/job"][0].Members, granted[0].Nodes[0].Members)
	assert.Equal(t, "b", granted[0].Nodes[0].Node)
	c.Revoke("ns/job")

	c.SetPod(podtest.New("other", podtest.OnNode("b"), podtest.Asks(contract.ResourceTopologyGPU, 1), podtest.Recorded(contract.Allocation{Node: "b", GPUs: []int{7}})))
	_, why = c.Grant(clusterstate.NewToCome(pods), at)
	assert.Contains(t, why, "cannot be had")
	assert.False(t, c.Granted("ns/job"))
}

// A gang that starts with its minimum has the places of the others still, which come later.
func TestPlacesOfMembersThatComeLater(t *testing.T) {
	c := newCache(t, "a")
	pods := make([]*corev1.Pod, 4)
	for i := range pods {
		pods[i] = podtest.New(fmt.Sprintf("gang-worker-%d", i), podtest.Worker(i), podtest.Asks(contract.ResourceTopologyGPU, 2),
			podtest.Label(contract.LightGangLabel, "gang"), podtest.Label(contract.LightGangMinLabel, "2"))
	}
	granted, why := c.Grant(clusterstate.NewToCome(pods), nil)
	require.Empty(t, why)
	other := gangOf("other", 1, 2)[0]
	at := map[string][]int{}
	take := func(pods ...*corev1.Pod) {
		t.Helper()
		for _, pod := range pods {
			c.SetPod(pod)
		}
		d, _, err := c.Decide("ns/gang", Limits{}, accept)
		require.NoError(t, err)
		require.Len(t, d.Assumed, len(pods))
		for _, a := range d.Assumed {
			at[a.Member] = a.Record.GPUs
		}
	}
	take(pods[0], pods[1])
	c.SetPod(other)
	d, _, err := c.Decide("ns/other", Limits{}, accept)
	require.NoError(t, err)
	assert.Empty(t, d.Assumed, "the others are promised theirs")
	take(pods[3])
	assert.True(t, c.Granted("ns/gang"))
	again, why := c.Grant(clusterstate.NewToCome(pods), nil)
	require.Empty(t, why)
	require.Len(t, again, 1)
	assert.Equal(t, map[string][]int{"worker-2": granted[0].Nodes[0].Members["worker-2"]}, again[0].Nodes[0].Members)
	take(pods[2])
	assert.Equal(t, granted[0].Nodes[0].Members, at)
	assert.False(t, c.Granted("ns/gang"))
}

// Whose members nobody knew by name before takes a place, and nothing is left of what was kept for it.
func TestPlaceOfMembersOfOtherNames(t *testing.T) {
	c := newCache(t, "a")
	pods := gangOf("gang", 2, 4)
	_, why := c.Grant(clusterstate.NewToCome(pods), nil)
	require.Empty(t, why)
	for i := range pods {
		c.SetPod(podtest.New(fmt.Sprintf("gang-worker-%d", 7+i), podtest.Worker(7+i), podtest.Asks(contract.ResourceTopologyGPU, 4),
			podtest.Label(contract.TopologyGroupLabel, "gang"), podtest.Label(contract.TopologyReplicasLabel, "2")))
	}
	d, _, err := c.Decide("ns/gang", Limits{}, accept)
	require.NoError(t, err)
	assert.Len(t, d.Assumed, 2)
	assert.False(t, c.Granted("ns/gang"))
}
