package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

func registered(cache *clustercache.Cache) (*Metrics, metrics.KubeRegistry) {
	m, registry := New(cache), metrics.NewKubeRegistry()
	m.Register(registry.MustRegister, registry.CustomMustRegister)
	return m, registry
}

// pod asks for GPUs; it runs on a node, or waits when node is "".
func pod(name string, gpus int64, node string) *corev1.Pod {
	list := corev1.ResourceList{contract.ResourceTopologyGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
	}
	if node != "" {
		var indexes []int
		for i := range int(gpus) {
			indexes = append(indexes, i)
		}
		p.Annotations, _ = contract.Allocation{Node: node, GPUs: indexes}.Annotations()
	}
	return p
}

// setNode makes a node with eight GPUs.
func setNode(t *testing.T, cache *clustercache.Cache, name string) {
	t.Helper()
	eight := corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("110")}
	_, err := cache.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{contract.NodeModeLabel: "topology", contract.NodePoolNameLabel: "v100"}},
		Status:     corev1.NodeStatus{Capacity: eight, Allocatable: eight},
	})
	require.NoError(t, err)
}

func cluster(t *testing.T) *clustercache.Cache {
	t.Helper()
	cache := clustercache.New()
	setNode(t, cache, "n1")
	setNode(t, cache, "n2")
	_, err := cache.SetQuotaTree(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{
		"children": []any{map[string]any{"name": "team", "namespaces": []any{"default"},
			"min": map[string]any{contract.ResourceTopologyGPU: "4"}, "max": map[string]any{contract.ResourceTopologyGPU: "16", "cpu": "500m"}}},
	}}}})
	require.NoError(t, err)
	cache.SetPod(pod("runs", 5, "n1"))
	return cache
}

func TestCluster(t *testing.T) {
	cache := cluster(t)
	m, registry := registered(cache)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(""), "gpuplan_gangs"), "a replica that stands by is silent")
	m.Lead()
	cache.SetPod(pod("waits", 8, ""))
	cache.SetPod(pod("greedy", 9, ""))
	for _, key := range []string{"pod/default/waits", "pod/default/greedy"} {
		_, result, ok := cache.Plan(key, nil)
		require.True(t, ok)
		m.Planned(key, time.Millisecond, result)
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP gpuplan_gpus [ALPHA] GPUs by pool, mode of the node, and state: free, used whole or in part, or unhealthy.
# TYPE gpuplan_gpus gauge
gpuplan_gpus{mode="topology",pool="v100",state="free"} 11
gpuplan_gpus{mode="topology",pool="v100",state="used"} 5
# HELP gpuplan_gangs [ALPHA] Gangs and pods on their own that ask for GPUs, by state: running, waiting, or incomplete while members are missing.
# TYPE gpuplan_gangs gauge
gpuplan_gangs{state="incomplete"} 0
gpuplan_gangs{state="running"} 1
gpuplan_gangs{state="waiting"} 2
# HELP gpuplan_gangs_waiting [ALPHA] Gangs that wait, by the constraint that keeps the next member from most nodes, or Preempting when others have to leave first.
# TYPE gpuplan_gangs_waiting gauge
gpuplan_gangs_waiting{constraint="NotEnoughGPUs"} 1
# HELP gpuplan_idle_gpus [ALPHA] Idle GPUs, the idle parts of shared GPUs included.
# TYPE gpuplan_idle_gpus gauge
gpuplan_idle_gpus 11
# HELP gpuplan_quota_max [ALPHA] What a leaf of the quota tree may use at most.
# TYPE gpuplan_quota_max gauge
gpuplan_quota_max{leaf="root/team",resource="aliyun.com/gpu"} 16
gpuplan_quota_max{leaf="root/team",resource="cpu"} 0.5
# HELP gpuplan_quota_min [ALPHA] What is guaranteed to a leaf of the quota tree.
# TYPE gpuplan_quota_min gauge
gpuplan_quota_min{leaf="root/team",resource="aliyun.com/gpu"} 4
# HELP gpuplan_quota_used [ALPHA] What runs in a leaf of the quota tree: CPU in cores, memory in bytes, everything else as it is.
# TYPE gpuplan_quota_used gauge
gpuplan_quota_used{leaf="root/team",resource="aliyun.com/gpu"} 5
gpuplan_quota_used{leaf="root/team",resource="cpu"} 0
`), "gpuplan_gpus", "gpuplan_gangs", "gpuplan_gangs_waiting", "gpuplan_idle_gpus", "gpuplan_quota_used", "gpuplan_quota_min", "gpuplan_quota_max"))

	cache.RemovePod("greedy")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(""), "gpuplan_gangs_waiting"), "a gang that is gone waits no more")
}

// On a node with a pod that others have bound, and of which nobody knows which GPUs it has, none is free.
func TestGPUsOfPodsWithoutARecord(t *testing.T) {
	cache := cluster(t)
	m, registry := registered(cache)
	m.Lead()
	bare := pod("bare", 2, "n1")
	bare.Annotations = nil
	cache.SetPod(bare)
	other := pod("other", 3, "n2")
	other.Annotations, other.Spec.SchedulerName = nil, "default-scheduler"
	cache.SetPod(other)
	setNode(t, cache, "n3")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP gpuplan_gpus [ALPHA] GPUs by pool, mode of the node, and state: free, used whole or in part, or unhealthy.
# TYPE gpuplan_gpus gauge
gpuplan_gpus{mode="topology",pool="v100",state="free"} 8
gpuplan_gpus{mode="topology",pool="v100",state="used"} 16
# HELP gpuplan_idle_gpus [ALPHA] Idle GPUs, the idle parts of shared GPUs included.
# TYPE gpuplan_idle_gpus gauge
gpuplan_idle_gpus 8
`), "gpuplan_gpus", "gpuplan_idle_gpus"))
}

// A gang that waits is counted as one whatever makes it wait, and none that has its place.
func TestPlanned(t *testing.T) {
	const key = "pod/default/waits"
	reserved := placement.Reservation{Evicts: true, Placement: placement.Placement{Assignments: []placement.Assignment{{Member: "waits", Node: "n1"}}}}
	refused := placement.Result{Verdict: placement.Verdict{Reasons: []placement.Reason{{Code: placement.NotEnoughGPUs}}}}
	for name, test := range map[string]struct {
		result         placement.Result
		label, waitsBy string
	}{
		"has a place":                 {placement.Result{Placement: &reserved.Placement}, "placed", ""},
		"fits nowhere":                {refused, "unschedulable", "NotEnoughGPUs"},
		"waits for victims":           {reserved.Result(), "unschedulable", "Preempting"},
		"runs, with no room for more": {placement.Result{Placement: &placement.Placement{}}, "unschedulable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cache := cluster(t)
			cache.SetPod(pod("waits", 8, ""))
			m, registry := registered(cache)
			m.Lead()
			m.Planned(key, time.Millisecond, refused)
			m.searches.Reset()
			m.Planned(key, time.Millisecond, test.result)
			assert.Equal(t, map[string]float64{test.label: 1}, series(t, registry, "gpuplan_scheduling_algorithm_duration_seconds", "result"))
			want := map[string]float64{}
			if test.waitsBy != "" {
				want[test.waitsBy] = 1
			}
			assert.Equal(t, want, series(t, registry, "gpuplan_gangs_waiting", "constraint"))
		})
	}
}

// series returns the values of a metric, the number of observations of a histogram, by a label.
func series(t *testing.T, registry metrics.KubeRegistry, name, label string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, metric := range f.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == label {
					values[pair.GetValue()] = metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return values
}

// What is counted of gangs that wait is as much as there are, also where nobody asks for it.
func TestNothingIsKeptOfGangsThatHaveGone(t *testing.T) {
	cache := cluster(t)
	m := New(cache)
	const key = "pod/default/greedy"
	cache.SetPod(pod("greedy", 9, ""))
	_, result, ok := cache.Plan(key, nil)
	require.True(t, ok)
	m.Planned(key, time.Millisecond, result)
	m.forget(clusterstate.Change{Gang: key, Freed: true})
	assert.Len(t, m.constraints, 1, "it waits")
	m.forget(cache.RemovePod("greedy"))
	assert.Empty(t, m.constraints)
	m.Planned(key, time.Millisecond, result)
	assert.Empty(t, m.constraints, "it went while it was planned")
}

// Fragments are measured by what nodes are chosen by, and by what is in the cluster while that
// is nothing.
func TestWorkload(t *testing.T) {
	cache := cluster(t) // five GPUs of eight are used on one node of two
	m, registry := registered(cache)
	m.Lead()
	cache.SetPod(pod("waits", 8, ""))
	want := func(pods, fragments int) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP gpuplan_fragmented_gpus [ALPHA] Idle GPUs that a request cannot use on average, over the requests that arrive, as far as the scheduler has recorded them, else over those of all gangs in the cluster.
# TYPE gpuplan_fragmented_gpus gauge
gpuplan_fragmented_gpus %d
# HELP gpuplan_workload_pods [ALPHA] Pods in the record of the requests that arrive, by which nodes are chosen; 0 while they are chosen by the tightest fit.
# TYPE gpuplan_workload_pods gauge
gpuplan_workload_pods %d
`, fragments, pods)), "gpuplan_fragmented_gpus", "gpuplan_workload_pods"))
	}
	want(0, 3) // three GPUs for two requests, of five and of eight
	cache.SetWorkload(placement.Workload{{Mode: placement.ModeTopology, GPUs: 2}: 1000})
	want(1000, 0)
}

func TestWork(t *testing.T) {
	cache := cluster(t)
	m, registry := registered(cache)
	_, fits, _ := cache.Plan("pod/default/runs", nil)
	m.Planned("pod/default/runs", 2*time.Millisecond, fits)
	m.RolledBack()
	m.Evicted(ForQuota)
	m.Evicted(Partial)
	m.GaveUpNomination()
	m.Started(time.Second)
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			counts[f.GetName()] += metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	assert.Subset(t, counts, map[string]float64{
		"gpuplan_scheduling_algorithm_duration_seconds": 1, "gpuplan_gang_rollbacks_total": 1, "gpuplan_gang_start_duration_seconds": 1,
		"gpuplan_evictions_total": 2, "gpuplan_nominations_given_up_total": 1,
	})
}

func TestReservations(t *testing.T) {
	tree := func(most string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{
			"children": []any{map[string]any{"name": "team", "namespaces": []any{"default"},
				"min": map[string]any{contract.ResourceTopologyGPU: "4"}, "max": map[string]any{contract.ResourceTopologyGPU: most}}},
		}}}}
	}
	const key = "pod/default/waits"
	nomination := func(c *clustercache.Cache) {
		_, _, _ = c.Decide(key, clustercache.Limits{}, func(*clustercache.Decision) bool { return true })
	}
	head := func(c *clustercache.Cache) { c.ReserveBlocked([]string{key}, nil) }
	grant := func(c *clustercache.Cache) {
		_, _ = c.Grant(clusterstate.NewToCome([]*corev1.Pod{pod("comes", 1, "")}), nil)
	}
	for name, test := range map[string]struct {
		most                             string
		gpus                             int64
		priority                         int32
		hold                             func(*clustercache.Cache)
		nomination, head, granted, quota int
	}{
		"none":       {most: "20", gpus: 4, hold: func(*clustercache.Cache) {}},
		"nomination": {most: "20", gpus: 4, priority: 10, hold: nomination, nomination: 1},
		"backfill":   {most: "20", gpus: 4, hold: head, head: 1},
		"granted":    {most: "20", gpus: 16, hold: grant, granted: 1},
		"quota":      {most: "14", gpus: 2, hold: head, quota: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cache := cluster(t)
			_, err := cache.SetQuotaTree(tree(test.most))
			require.NoError(t, err)
			cache.SetPod(pod("also", 8, "n2"))
			waits := pod("waits", test.gpus, "")
			waits.Spec.Priority = &test.priority
			cache.SetPod(waits)
			test.hold(cache)
			m, registry := registered(cache)
			m.Lead()
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP gpuplan_reservations [ALPHA] Reservations for gangs that wait, by kind: nomination when others are evicted for it, backfill for a blocked gang until it takes its place, granted for one that is still to come, quota for one that waits for quota, without nodes.
# TYPE gpuplan_reservations gauge
gpuplan_reservations{kind="nomination"} %d
gpuplan_reservations{kind="backfill"} %d
gpuplan_reservations{kind="granted"} %d
gpuplan_reservations{kind="quota"} %d
`, test.nomination, test.head, test.granted, test.quota)), "gpuplan_reservations"))
		})
	}
}
