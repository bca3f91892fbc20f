package gang

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// The contended cluster: 1,000 nodes of eight GPUs, full with 500 gangs of 16, in 50
// leaves that are guaranteed 160 each. Half of the leaves have 18 gangs, and so have
// borrowed from the other half, which have two and ask for eight more each.
const (
	contendedNodes  = 1000
	contendedLeaves = 50
	lentGangs       = 18
	keptGangs       = 2
	reclaimingGangs = 200
	arrivingGangs   = 200
	arrivingPods    = 10 // of a gang
)

// BenchmarkContention measures how long kube-scheduler's queue waits for the plugin while
// 200 gangs take back what was lent and 2,000 pods of others arrive. PreEnqueue and
// Less are called under the queue's lock, cycles one after the other. Nobody who is
// evicted leaves meanwhile.
func BenchmarkContention(b *testing.B) {
	for b.Loop() {
		newContention(b).run()
	}
}

// contention drives a plugin from as many goroutines as the scheduler has.
type contention struct {
	*testing.B
	plugin     *Plugin
	cache      *clustercache.Cache
	reclaiming []*corev1.Pod
	arriving   []*corev1.Pod
}

// idleHandle is a framework that does nothing, from several goroutines.
type idleHandle struct {
	*fakeHandle
	snapshot fwk.SharedLister
}

func (h *idleHandle) SnapshotSharedLister() fwk.SharedLister                        { return h.snapshot }
func (h *idleHandle) Activate(klog.Logger, map[string]*corev1.Pod)                  {}
func (h *idleHandle) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (h *idleHandle) DeleteNominatedPodIfExists(*corev1.Pod)                        {}
func (h *idleHandle) GetWaitingPod(types.UID) fwk.WaitingPod                        { return nil }
func (h *idleHandle) RunPreFilterPlugins(context.Context, fwk.CycleState, *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	return nil, nil, nil
}

func newContention(b *testing.B) *contention {
	b.Helper()
	c := &contention{B: b, cache: clustercache.New()}
	handle := &idleHandle{fakeHandle: &fakeHandle{client: newClient(), recorder: &events.FakeRecorder{}}}
	var nodes []*corev1.Node
	for i := range contendedNodes {
		node := v100(fmt.Sprintf("n%03d", i))
		nodes = append(nodes, node)
		_, err := c.cache.SetNode(node)
		require.NoError(b, err)
	}
	_, err := c.cache.SetQuotaTree(contendedTree())
	require.NoError(b, err)
	var bound []*corev1.Pod
	node := 0
	for leaf := range contendedLeaves {
		gangs := keptGangs
		if leaf < contendedLeaves/2 {
			gangs = lentGangs
		}
		for i := range gangs {
			for _, pod := range contendedGang(fmt.Sprintf("runs-%d-%d", leaf, i), leaf, 2, 8) {
				pod.Spec.NodeName = nodes[node].Name
				record, err := contract.Allocation{Version: 1, Node: pod.Spec.NodeName, GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}.Annotations()
				require.NoError(b, err)
				pod.Annotations = record
				c.cache.SetPod(pod)
				bound = append(bound, pod)
				node++
			}
		}
	}
	require.Equal(b, contendedNodes, node)
	handle.snapshot = cache.NewSnapshot(bound, nodes)
	c.plugin = newPlugin(c.cache, metrics.New(c.cache), handle, fake.NewSimpleDynamicClient(runtime.NewScheme()))
	c.plugin.leading.Store(true)
	c.plugin.synced = func(context.Context) error { return nil }
	c.cache.Subscribe(c.plugin.work.observe)
	for i := range reclaimingGangs {
		leaf := contendedLeaves/2 + i%(contendedLeaves/2)
		c.reclaiming = append(c.reclaiming, contendedGang(fmt.Sprintf("reclaims-%d", i), leaf, 2, 8)...)
	}
	for i := range arrivingGangs {
		c.arriving = append(c.arriving, contendedGang(fmt.Sprintf("arrives-%d", i), i%(contendedLeaves/2), arrivingPods, 1)...)
	}
	return c
}

func contendedTree() *unstructured.Unstructured {
	var leaves []any
	for i := range contendedLeaves {
		leaves = append(leaves, map[string]any{
			"name": leafName(i), "namespaces": []any{leafName(i)},
			"min": map[string]any{contract.ResourceTopologyGPU: int64(8 * contendedNodes / contendedLeaves)},
			"max": map[string]any{contract.ResourceTopologyGPU: int64(8 * contendedNodes)},
		})
	}
	whole := map[string]any{contract.ResourceTopologyGPU: int64(8 * contendedNodes)}
	return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{
		"name": "root", "min": whole, "max": whole, "children": leaves,
	}}}}
}

func leafName(i int) string { return fmt.Sprintf("leaf%02d", i) }

func contendedGang(name string, leaf, members, gpus int) (pods []*corev1.Pod) {
	for i := range members {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: leafName(leaf), Name: fmt.Sprintf("%s-%d", name, i), UID: types.UID(fmt.Sprintf("%s-%d", name, i)),
				Labels: map[string]string{contract.TopologyGroupLabel: name, contract.TopologyReplicasLabel: strconv.Itoa(members)},
			},
			Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				contract.ResourceTopologyGPU: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
			}}}}},
		})
	}
	return pods
}

// run lets informers, queue, cycles and worker go on beside each other until every gang
// has had its cycle.
func (c *contention) run() {
	ctx, done := c.Context(), make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-c.plugin.work.ready:
				c.plugin.do(ctx, c.plugin.work.take())
			}
		}
	})
	appeared := make(chan *corev1.Pod, len(c.reclaiming)+len(c.arriving))
	others.Go(func() {
		defer close(appeared)
		for _, pod := range c.pods() {
			c.plugin.work.observe(c.cache.SetPod(pod))
			appeared <- pod
		}
	})
	ready := make(chan *corev1.Pod, len(c.reclaiming)+len(c.arriving))
	cycled := make(chan struct{})
	var cycle latencies
	others.Go(func() {
		defer close(cycled)
		for pod := range ready {
			cycle.measure(func() { _, _ = c.plugin.PreFilter(ctx, framework.NewCycleState(), pod, nil) })
		}
	})
	preEnqueue, less := c.queue(ctx, appeared, ready, cycled)
	close(done)
	others.Wait()
	preEnqueue.report(c.B, "PreEnqueue")
	less.report(c.B, "Less")
	cycle.report(c.B, "cycle")
	for i := 0; i < len(c.reclaiming); i += 2 {
		key, _ := inventory.PlanKey(c.reclaiming[i])
		_, nominated := c.cache.Reservation(key)
		require.True(c, nominated, key)
	}
}

// pods are those that arrive, in their order: a gang that reclaims after each of the others.
func (c *contention) pods() (pods []*corev1.Pod) {
	for i := range reclaimingGangs {
		pods = append(pods, c.arriving[i*arrivingPods:(i+1)*arrivingPods]...)
		pods = append(pods, c.reclaiming[2*i:2*i+2]...)
	}
	return pods
}

// queue asks as kube-scheduler's queue does: about pods that appear, and each millisecond about
// one that waits, as when pods are moved.
func (c *contention) queue(ctx context.Context, appeared <-chan *corev1.Pod, ready chan<- *corev1.Pod, cycled <-chan struct{}) (preEnqueue, less latencies) {
	last := c.queued(c.arriving[0])
	ask := func(pod *corev1.Pod) (status *fwk.Status) {
		info := c.queued(pod)
		preEnqueue.measure(func() { status = c.plugin.PreEnqueue(ctx, pod) })
		less.measure(func() { c.plugin.Less(last, info) })
		last = info
		return status
	}
	moves := time.NewTicker(time.Millisecond)
	defer moves.Stop()
	for i := 0; ; i++ {
		select {
		case pod, ok := <-appeared:
			switch {
			case !ok:
				appeared = nil
				close(ready)
			case ask(pod).IsSuccess():
				ready <- pod
			}
		case <-moves.C:
			ask(c.arriving[i%len(c.arriving)])
		case <-cycled:
			return preEnqueue, less
		}
	}
}

func (c *contention) queued(pod *corev1.Pod) fwk.QueuedPodInfo {
	info, err := framework.NewPodInfo(pod)
	require.NoError(c, err)
	return &framework.QueuedPodInfo{PodInfo: info}
}

// latencies are how long calls took.
type latencies []time.Duration

func (l *latencies) measure(call func()) {
	begin := time.Now()
	call()
	*l = append(*l, time.Since(begin))
}

// report adds the quantiles to the benchmark's results, in milliseconds.
func (l latencies) report(b *testing.B, name string) {
	b.Helper()
	slices.Sort(l)
	require.NotEmpty(b, l)
	for quantile, label := range map[float64]string{0.5: "p50", 0.99: "p99", 0.999: "p99.9", 1: "max"} {
		at := l[min(int(quantile*float64(len(l))), len(l)-1)]
		b.ReportMetric(float64(at.Microseconds())/1000, fmt.Sprintf("ms-%s-%s", name, label))
	}
}
