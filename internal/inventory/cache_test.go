package inventory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

func newCache(t *testing.T, nodes ...string) *Cache {
	t.Helper()
	c := NewCache()
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

func TestCacheKeepsAssumedPods(t *testing.T) {
	c := newCache(t, "a")
	pending := podtest.Gang(1)[0]
	c.SetPod(pending)
	bound := pending.DeepCopy()
	podtest.OnNode("a")(bound)
	podtest.Recorded(contract.Allocation{GPUs: []int{3}})(bound)

	c.Assume(bound)
	assert.False(t, c.view.FreeGPUs("a").Has(3))
	assert.True(t, c.GangStatus("ns/job", pending.UID).Partial)

	c.SetPod(pending.DeepCopy()) // an update from before the binding
	assert.False(t, c.view.FreeGPUs("a").Has(3), "a late update must not free the GPU")

	c.SetPod(bound)
	c.Forget(bound.UID)
	assert.False(t, c.view.FreeGPUs("a").Has(3), "a pod that is bound cannot be forgotten")

	done := bound.DeepCopy()
	podtest.InPhase(corev1.PodSucceeded)(done)
	change := c.SetPod(done)
	assert.True(t, change.Freed)
	assert.Equal(t, gpu.Full(8), c.view.FreeGPUs("a"))
}

func TestCacheForgets(t *testing.T) {
	c := newCache(t, "a")
	var changes []Change
	c.Subscribe(func(change Change) { changes = append(changes, change) })
	pending := podtest.Gang(1)[0]
	c.SetPod(pending)
	bound := pending.DeepCopy()
	podtest.OnNode("a")(bound)
	podtest.Recorded(contract.Allocation{GPUs: []int{3}})(bound)
	c.Assume(bound)
	c.Forget(bound.UID)
	assert.Equal(t, gpu.Full(8), c.view.FreeGPUs("a"))
	assert.Equal(t, []Change{{RolledBack: true}}, changes)

	c.RemovePod(pending.UID)
	c.Assume(bound)
	assert.Equal(t, gpu.Full(8), c.view.FreeGPUs("a"), "a pod that is deleted cannot be assumed")
}

func TestCacheRemovesPods(t *testing.T) {
	c := newCache(t, "a")
	p := podtest.Gang(1)[0]
	podtest.OnNode("a")(p)
	podtest.Recorded(contract.Allocation{GPUs: []int{0}})(p)
	c.SetPod(p)
	assert.Equal(t, gpu.Full(8)&^gpu.SetOf(0), c.view.FreeGPUs("a"))
	assert.Equal(t, Change{Gang: "ns/job", Freed: true, Departed: true}, c.RemovePod(p.UID))
	assert.Equal(t, gpu.Full(8), c.view.FreeGPUs("a"))
	_, ok := c.Gang("ns/job")
	assert.False(t, ok)
	assert.Equal(t, Change{}, c.RemovePod(p.UID))
}

// A pod departs when someone begins to delete it, once, and not to make room.
func TestDepartures(t *testing.T) {
	leaving := func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }
	evicted := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	}
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	for name, test := range map[string]struct {
		before []podtest.Change
		after  []podtest.Change // nil: the pod is gone
		want   bool
	}{
		"deleted":                 {nil, []podtest.Change{leaving}, true},
		"gone at once":            {nil, nil, true},
		"gone after its deletion": {[]podtest.Change{leaving}, nil, false},
		"seen again":              {[]podtest.Change{leaving}, []podtest.Change{leaving}, false},
		"evicted":                 {nil, []podtest.Change{evicted, leaving}, false},
		"evicted, gone at once":   {[]podtest.Change{evicted}, nil, false},
		"ended":                   {nil, []podtest.Change{failed}, true},
		"deleted after it failed": {[]podtest.Change{failed}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			p := podtest.New("pod", append(test.before, podtest.OnNode("a"))...)
			c.SetPod(p)
			change := Change{}
			if test.after == nil {
				change = c.RemovePod(p.UID)
			} else {
				change = c.SetPod(podtest.New("pod", append(test.after, podtest.OnNode("a"))...))
			}
			assert.Equal(t, test.want, change.Departed)
		})
	}
}

func TestCacheTakesHardwareFromGPUNode(t *testing.T) {
	c := newCache(t)
	hardware := &contract.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: contract.GPUNodeStatus{
		GPUs:  []contract.GPUInfo{{Index: 0, Health: contract.Healthy}, {Index: 2, Health: contract.Healthy}},
		Links: []string{"X PIX", "PIX X"},
	}}
	_, err := c.SetGPUNode(hardware)
	require.NoError(t, err)
	p := podtest.Gang(1)[0]
	podtest.OnNode("a")(p)
	podtest.Recorded(contract.Allocation{GPUs: []int{2}})(p)
	c.SetPod(p) // before its node
	change, err := c.SetNode(podtest.Node("a", 8))
	require.NoError(t, err)
	assert.True(t, change.Freed)
	assert.Equal(t, gpu.SetOf(0), c.view.FreeGPUs("a"), "index 2 is the second GPU")

	change, err = c.SetNode(podtest.Node("a", 8))
	require.NoError(t, err)
	assert.Equal(t, Change{}, change, "nothing new")

	_, err = c.RemoveGPUNode("a")
	require.NoError(t, err)
	assert.Equal(t, gpu.Full(8)&^gpu.SetOf(2), c.view.FreeGPUs("a"), "the catalogue's machine has eight GPUs")
}

func TestCacheSharesTables(t *testing.T) {
	c := newCache(t, "a", "b")
	assert.Same(t, c.gpusOf("a"), c.gpusOf("b"))
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
	assert.Equal(t, GangStatus{Known: true, Present: 4}, c.GangStatus("ns/job", pods[0].UID))
	assert.Equal(t, GangStatus{Present: 4}, c.GangStatus("ns/job", "another"))
	assert.Equal(t, GangStatus{Known: true, Present: 4, Late: true}, c.GangStatus("ns/job", launcher.UID))
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

func TestPlanKey(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want string
		ok   bool
	}{
		"gang":                   {podtest.Gang(1)[0], "ns/job", true},
		"one pod with GPUs":      {podtest.New("pod", podtest.Asks(contract.ResourceTopologyGPU, 1)), "pod/ns/pod", true},
		"one pod without GPUs":   {podtest.New("pod"), "", false},
		"one pod with GPU parts": {podtest.New("pod", podtest.Asks(contract.ResourceGPUMemory, 1)), "pod/ns/pod", true},
	}
	for name, test := range tests {
		key, ok := PlanKey(test.pod)
		assert.Equal(t, test.ok, ok, name)
		if ok {
			assert.Equal(t, test.want, key, name)
		}
	}
}

func TestCachePodGroup(t *testing.T) {
	c := newCache(t, "a")
	p := podtest.New("pod", podtest.Label(contract.PodGroupLabel, "group"), podtest.Asks(contract.ResourceTopologyGPU, 1))
	c.SetPod(p)
	const groupless = "PodGroup ns/group must appear before its pods can start"
	assert.Equal(t, groupless, c.GangStatus("ns/group", p.UID).MissingText)
	assert.Equal(t, Change{Gang: "ns/group"}, c.SetPodGroup(podtest.PodGroup(3)))
	assert.Contains(t, c.GangStatus("ns/group", p.UID).MissingText, "2 more pods")
	assert.Equal(t, Change{Gang: "ns/group"}, c.RemovePodGroup("ns", "group"))
	assert.Equal(t, groupless, c.GangStatus("ns/group", p.UID).MissingText)
	p = p.DeepCopy()
	p.Spec.NodeName = "a"
	c.SetPod(p)
	assert.Empty(t, c.GangStatus("ns/group", p.UID).MissingText, "what runs goes on without its PodGroup")
}

// TestCacheTellsWhatGangsNeed: members beyond the minimum of a gang go before it goes as a
// whole; a launcher is no member.
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
			ids = append(ids, podID(p))
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

// Whatever someone does to the record of a pod that runs, the GPUs that it was bound with
// stay taken, and each change is told once.
func TestCacheKeepsTheFirstRecord(t *testing.T) {
	c := newCache(t, "a")
	p := podtest.Gang(1)[0]
	podtest.OnNode("a")(p)
	podtest.Recorded(contract.Allocation{GPUs: []int{0, 1}})(p)
	c.SetPod(p)
	taken := c.view.FreeGPUs("a")

	for name, change := range map[string]func(*corev1.Pod){
		"removed":    func(p *corev1.Pod) { delete(p.Annotations, contract.AllocationAnnotation) },
		"others":     podtest.Recorded(contract.Allocation{GPUs: []int{4}}),
		"unreadable": func(p *corev1.Pod) { p.Annotations[contract.AllocationAnnotation] = "none" },
	} {
		t.Run(name, func(t *testing.T) {
			altered := p.DeepCopy()
			change(altered)
			told := c.SetPod(altered)
			require.NotNil(t, told.Altered)
			assert.False(t, told.Freed)
			assert.Nil(t, c.SetPod(altered.DeepCopy()).Altered, "it was told")
			assert.Equal(t, taken, c.view.FreeGPUs("a"))
			_, err := c.SetNode(podtest.Node("a", 8))
			require.NoError(t, err)
			assert.Equal(t, taken, c.view.FreeGPUs("a"))
			assert.Nil(t, c.SetPod(p).Altered, "it is as it was")
		})
	}

	done := p.DeepCopy()
	podtest.InPhase(corev1.PodSucceeded)(done)
	delete(done.Annotations, contract.AllocationAnnotation)
	assert.True(t, c.SetPod(done).Freed)
	assert.Equal(t, gpu.Full(8), c.view.FreeGPUs("a"))
}
