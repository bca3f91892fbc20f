package clustercache

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

func withPriority(value int32) podtest.Change {
	return func(p *corev1.Pod) { p.Spec.Priority = &value }
}

// accept takes any decision.
func accept(*Decision) bool { return true }

// What victims leave is their preemptor's quota, whether a pod that comes in between is planned or not.
func TestQuotaIsKeptForAPreemptor(t *testing.T) {
	c := newCache(t, "a")
	cpu := func(amount int) map[string]any { return map[string]any{"cpu": amount} }
	_, err := c.SetQuotaTree(podtest.QuotaTree(map[string]any{"name": "root", "max": cpu(8), "min": cpu(8), "children": []any{
		map[string]any{"name": "team", "namespaces": []any{"ns"}, "max": cpu(8), "min": cpu(8)},
		map[string]any{"name": "other", "namespaces": []any{"other"}, "max": cpu(8)},
	}}))
	require.NoError(t, err)
	var victims []*corev1.Pod
	for i := range 4 {
		victims = append(victims, podtest.New(fmt.Sprint("borrows-", i), podtest.InNamespace("other"), podtest.OnNode("a"),
			podtest.Asks("cpu", 2), podtest.Asks(contract.ResourceTopologyGPU, 1), podtest.Recorded(contract.Allocation{GPUs: []int{i}})))
		c.SetPod(victims[i])
	}
	preemptor := podtest.New("preemptor", podtest.Asks("cpu", 8), podtest.Asks(contract.ResourceTopologyGPU, 1))
	c.SetPod(preemptor)
	d, _, err := c.Decide("pod/ns/preemptor", Limits{}, accept)
	require.NoError(t, err)
	require.NotNil(t, d.Result.Reservation)
	require.True(t, d.Result.Reservation.Evicts)

	newcomers := []*corev1.Pod{
		podtest.New("new"), podtest.New("new", podtest.InNamespace("other")), podtest.New("new", withPriority(10)),
	}
	keptOut := func(when any) {
		t.Helper()
		for _, p := range newcomers {
			assert.Contains(t, c.OverQuota(p), "max of cpu is 8", "%v", when)
		}
	}
	keptOut("nobody has gone")
	for _, p := range victims {
		c.RemovePod(p.UID)
		keptOut(p.Name)
	}
	d, _, err = c.Decide("pod/ns/preemptor", Limits{}, accept)
	require.NoError(t, err)
	require.Len(t, d.Assumed, 1)
	keptOut("the preemptor has its place")
	c.Forget(preemptor.UID)
	for _, p := range newcomers {
		assert.Empty(t, c.OverQuota(p), "it has given the place back, and holds none")
	}
}

// Pods that are not planned ask while others are planned: the race detector looks on.
func TestQuotaIsAskedForWhileOthersArePlanned(t *testing.T) {
	c := newCache(t, "a")
	_, err := c.SetQuotaTree(oneTeam)
	require.NoError(t, err)
	runs := podtest.New("runs", podtest.OnNode("a"), podtest.Asks("cpu", 1))
	c.SetPod(runs)
	c.SetPod(podtest.New("big", podtest.Asks("cpu", 2), podtest.Asks(contract.ResourceTopologyGPU, 1)))
	var group sync.WaitGroup
	for _, do := range []func(){
		func() { c.ReserveBlocked([]string{"pod/ns/big"}, nil); c.ReserveBlocked(nil, nil) },
		func() { c.OverQuota(podtest.New("new")) },
		func() { c.RemovePod(runs.UID); c.SetPod(runs) },
	} {
		group.Go(func() {
			for range 100 {
				do()
			}
		})
	}
	group.Wait()
	require.True(t, c.ReserveBlocked([]string{"pod/ns/big"}, nil))
	assert.NotEmpty(t, c.OverQuota(podtest.New("new")))
}

// Quota that is held for a gang which has waited too long is kept from pods without GPUs as from those
// that are planned: what they are told is what they get when they are planned.
func TestQuotaIsKeptForABlockedGang(t *testing.T) {
	gang := func(name string) podtest.Change { return podtest.Label(contract.TopologyGroupLabel, name) }
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		free bool
	}{
		"another pod":                         {podtest.New("new"), false},
		"one that is more important":          {podtest.New("new", withPriority(10)), true},
		"of another leaf":                     {podtest.New("new", podtest.InNamespace("other")), true},
		"the launcher of a gang that runs":    {podtest.New("job-launcher", gang("job")), true},
		"the launcher of one that waits":      {podtest.New("idle-launcher", gang("idle")), false},
		"the launcher of that gang":           {podtest.New("big-launcher", gang("big")), true},
		"more than the leaf has now":          {podtest.New("new", withPriority(10), podtest.Asks("cpu", 2)), false},
		"another pod, which asks for nothing": {podtest.New("new", podtest.Asks("cpu", 0)), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			_, err := c.SetQuotaTree(podtest.QuotaTree(map[string]any{"name": "root", "children": []any{
				map[string]any{"name": "team", "namespaces": []any{"ns"}, "max": map[string]any{"cpu": 5}},
				map[string]any{"name": "other", "namespaces": []any{"other"}, "max": map[string]any{"cpu": 5}},
			}}))
			require.NoError(t, err)
			for i, p := range podtest.Workers(4, gang("job"), podtest.OnNode("a")) {
				podtest.Recorded(contract.Allocation{GPUs: []int{i}})(p)
				c.SetPod(p)
			}
			c.SetPod(podtest.New("big-worker", gang("big"), podtest.Asks("cpu", 5), podtest.Asks(contract.ResourceTopologyGPU, 1)))
			c.SetPod(podtest.New("idle-worker", gang("idle"), podtest.Asks(contract.ResourceTopologyGPU, 1)))
			var changes []clusterstate.Change
			c.Subscribe(func(change clusterstate.Change) { changes = append(changes, change) })
			require.True(t, c.ReserveBlocked([]string{"ns/big"}, nil))
			c.SetPod(test.pod)
			assert.Equal(t, test.free, c.OverQuota(test.pod) == "", c.OverQuota(test.pod))
			if key, ok := c.Manage(test.pod); ok {
				d, _ := c.Consider(key, Limits{})
				assert.Equal(t, test.free, d.Result.Placement != nil && d.Result.Reservation == nil, "planned")
			}
			changes = nil
			require.True(t, c.ReserveBlocked(nil, nil))
			assert.Equal(t, []clusterstate.Change{{Lifted: true}}, changes)
			assert.Equal(t, name != "more than the leaf has now", c.OverQuota(test.pod) == "", "nothing is held any more")
		})
	}
}
