package clustercache

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

func newCache(t *testing.T, nodes ...string) *Cache {
	t.Helper()
	c := New()
	for _, name := range nodes {
		_, err := c.SetNode(podtest.Node(name, 8))
		require.NoError(t, err)
	}
	return c
}

func TestCachePlansOnceTheGangIsThere(t *testing.T) {
	c := newCache(t, "a")
	pods := podtest.Gang(4)
	for i, p := range pods {
		change := c.SetPod(p)
		assert.Equal(t, "ns/job", change.Gang)
		missing := c.GangStatus("ns/job", p.UID).MissingText
		assert.Equal(t, []string{
			"3 more pods of gang ns/job must appear before it can start", "2 more pods of gang ns/job must appear before it can start",
			"1 more pod of gang ns/job must appear before it can start", "",
		}[i], missing)
	}
	state, result, ok := c.Plan("ns/job", nil)
	require.True(t, ok)
	require.NotNil(t, result.Placement)
	assert.Len(t, result.Placement.Assignments, 4)
	assert.Same(t, pods[2], state.Pods["worker-2"])
}

func TestCacheForgets(t *testing.T) {
	c := newCache(t, "a")
	var changes []clusterstate.Change
	c.Subscribe(func(change clusterstate.Change) { changes = append(changes, change) })
	pending := podtest.Gang(1)[0]
	c.SetPod(pending)
	bound := pending.DeepCopy()
	podtest.OnNode("a")(bound)
	podtest.Recorded(contract.Allocation{GPUs: []int{3}})(bound)
	c.Assume(bound)
	c.Forget(bound.UID)
	assert.Equal(t, gpu.Full(8), c.state.View.FreeGPUs("a"))
	assert.Equal(t, []clusterstate.Change{{RolledBack: true}}, changes)

	c.RemovePod(pending.UID)
	c.Assume(bound)
	assert.Equal(t, gpu.Full(8), c.state.View.FreeGPUs("a"), "a pod that is deleted cannot be assumed")
}

func TestCacheQuota(t *testing.T) {
	c := newCache(t, "a")
	object := func(limit string) *unstructured.Unstructured {
		return podtest.QuotaTree(map[string]any{"name": "root", "children": []any{
			map[string]any{"name": "team", "namespaces": []any{"ns"}, "max": map[string]any{"cpu": limit}},
		}})
	}
	change, err := c.SetQuotaTree(object("2"))
	require.NoError(t, err)
	assert.True(t, change.Freed)
	assert.Equal(t, "team", c.Leaf(podtest.New("pod")))
	running := podtest.New("running", podtest.OnNode("a"))
	c.SetPod(running)
	assert.Empty(t, c.OverQuota(podtest.New("pod")))
	c.SetPod(podtest.New("another", podtest.OnNode("a")))
	assert.Contains(t, c.OverQuota(podtest.New("pod")), "root/team")

	_, err = c.SetQuotaTree(podtest.QuotaTree(map[string]any{"name": "root", "max": map[string]any{"cpu": "much"}}))
	require.ErrorContains(t, err, "root: max cpu")
	assert.NotEmpty(t, c.OverQuota(podtest.New("pod")), "the tree before stays in force")

	_, err = c.SetQuotaTree(nil)
	require.NoError(t, err)
	assert.Empty(t, c.OverQuota(podtest.New("pod")))
	assert.Empty(t, c.Leaf(podtest.New("pod")))
}

func TestGangStatus(t *testing.T) {
	c := newCache(t, "a")
	pods := podtest.Gang(4)
	launcher := podtest.New("job-launcher", podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "4"))
	for _, p := range append(pods, launcher) {
		c.SetPod(p)
	}
	assert.Equal(t, inventory.GangStatus{Known: true, Present: 4}, c.GangStatus("ns/job", pods[0].UID))
	assert.Equal(t, inventory.GangStatus{Present: 4}, c.GangStatus("ns/job", "another"))
	assert.Equal(t, inventory.GangStatus{Known: true, Present: 4, Late: true}, c.GangStatus("ns/job", launcher.UID))
	assert.False(t, c.Planned(launcher))
	assert.True(t, c.Planned(pods[0]))
	assert.Empty(t, c.Partial())
	for i, p := range pods {
		bound := p.DeepCopy()
		podtest.OnNode("a")(bound)
		c.SetPod(bound)
		status := c.GangStatus("ns/job", launcher.UID)
		assert.Equal(t, i < 3, status.Partial)
		assert.Equal(t, i == 3, status.Runs)
		assert.Equal(t, i < 3, len(c.Partial()) == 1)
	}
}

// TestCacheTellsWhatGangsNeed: members beyond the minimum of a gang go before it goes as a
// whole; a launcher is no member.
// kube-scheduler asks for the status of a gang once for each of its pods and extension points, so what takes all
// its members is done once after each change: else the cost of a gang grows with the square of its size.
func TestGangStatusLooksAtMembersOncePerChange(t *testing.T) {
	c := newCache(t)
	pods := podtest.Gang(500)
	for _, p := range pods {
		c.SetPod(p)
	}
	const key = "ns/job"
	first := pods[0]
	require.Equal(t, 500, c.GangStatus(key, first.UID).Present)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.GangStatus(key, first.UID) }))
	c.RemovePod(first.UID)
	assert.Equal(t, 499, c.GangStatus(key, first.UID).Present)
	assert.False(t, c.GangStatus(key, first.UID).Known)
}

// Who asks for a gang that has gone leaves nothing behind: keys of pods do not come again.
func TestNothingIsKeptOfGangsThatHaveGone(t *testing.T) {
	c := newCache(t, "a")
	p := podtest.Gang(1)[0]
	c.SetPod(p)
	assert.Equal(t, 1, c.GangStatus("ns/job", p.UID).Present)
	assert.Len(t, c.counted, 1)
	c.RemovePod(p.UID)
	assert.Zero(t, c.GangStatus("ns/job", p.UID).Present)
	c.InOrder([]string{"ns/job"})
	assert.Empty(t, c.counted)
	assert.Empty(t, c.queued)
}

func TestCacheTellsWhatGangsNeed(t *testing.T) {
	c := newCache(t, "a")
	in := podtest.Label(contract.PodGroupLabel, "job")
	pods := podtest.Workers(4, in, podtest.OnNode("a"))
	launcher := podtest.New("job-launcher", in, podtest.OnNode("a"))
	for i, p := range pods {
		podtest.Recorded(contract.Allocation{GPUs: []int{2 * i, 2*i + 1}})(p)
		c.SetPod(p)
	}
	c.SetPod(launcher)
	urgent := podtest.New("urgent", podtest.Asks(contract.ResourceTopologyGPU, 4))
	urgent.Spec.Priority = new(int32)
	*urgent.Spec.Priority = 10
	c.SetPod(urgent)
	group := func(minMember int64) {
		c.SetPodGroup(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "ns", "name": "job"}, "spec": map[string]any{"minMember": minMember},
		}})
	}
	victims := func() []string {
		d, ok := c.Consider("pod/ns/urgent", Limits{})
		require.True(t, ok)
		require.Len(t, d.Result.Victims, 1)
		return d.Result.Victims[0].Pods
	}
	ids := func(pods ...*corev1.Pod) (ids []string) {
		for _, p := range pods {
			ids = append(ids, inventory.PodID(p))
		}
		slices.Sort(ids)
		return ids
	}
	all := ids(append(slices.Clone(pods), launcher)...)
	assert.Equal(t, all, victims(), "without its PodGroup the gang may need all of them")
	group(2)
	assert.Equal(t, ids(pods[2], pods[3]), victims())
	group(3)
	assert.Equal(t, all, victims())
	group(2)
	c.RemovePod(pods[0].UID)
	assert.Equal(t, ids(pods[3]), victims(), "worker-0's GPUs are free, and worker-1 and worker-2 are needed")
}

// A snapshot may be computed with while the cache goes on: the race detector looks on.
func TestSnapshotsWithAWorkload(t *testing.T) {
	cache := New()
	cache.SetWorkload(placement.Workload{{Mode: placement.ModeTopology, GPUs: 8, MilliCPU: 64_000}: 12, {Mode: placement.ModeShare, GPUs: 2, MemoryGiB: 4}: 3})
	eight := corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourcePods: resource.MustParse("9")}
	_, err := cache.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{contract.NodeModeLabel: "topology"}},
		Status:     corev1.NodeStatus{Capacity: eight, Allocatable: eight},
	})
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	list := corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("2")}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
	cache.SetPod(pod)
	snapshot := cache.Snapshot()
	state, ok := snapshot.Gang("pod/default/p")
	require.True(t, ok)
	done := make(chan placement.Result)
	go func() { done <- planner.Plan(snapshot.View, state.Gang) }()
	_, here, _ := cache.Plan("pod/default/p", nil)
	there := <-done
	require.NotNil(t, here.Placement)
	assert.Equal(t, here.Placement.Assignments, there.Placement.Assignments)
}

// kube-scheduler makes plugins in the order of a map: one may subscribe when another has begun to follow.
func TestSubscribeWhileTheCacheFollows(t *testing.T) {
	c := New()
	var first, second atomic.Int64
	c.Subscribe(func(clusterstate.Change) { first.Add(1) })
	go func() {
		for range 100 {
			c.notify(clusterstate.Change{})
		}
	}()
	c.Subscribe(func(clusterstate.Change) { second.Add(1) })
	c.notify(clusterstate.Change{})
	assert.Eventually(t, func() bool { return first.Load() == 101 && second.Load() > 0 }, time.Minute, time.Millisecond)
}
