package gang

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	typedfake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// fakeHandle is the part of the framework that the plugin uses. Calls of any other
// method panic.
type fakeHandle struct {
	fwk.Handle
	client   kubernetes.Interface
	recorder *events.FakeRecorder
	// activating guards activated: cycles and bindings activate pods at the same time.
	activating sync.Mutex
	activated  map[string]bool
	waiting    map[types.UID]*fakeWaiting
	nominated  map[types.UID]string
	// bound and nodes are what the framework's snapshot holds.
	bound []*corev1.Pod
	nodes []*corev1.Node
	// rejects is what another plugin says of a pod beside those that a node has; nil for nothing.
	rejects func(pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status
	// refuses is what another plugin says of a pod whatever the node; nil for nothing.
	refuses func(pod *corev1.Pod) *fwk.Status
	// queue is told of activations, too, nil for none.
	queue *queue.PriorityQueue
	// dryRuns counts how often PreFilter was run.
	dryRuns int
}

func (h *fakeHandle) RunPreFilterPlugins(_ context.Context, _ fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	h.dryRuns++
	if h.refuses != nil {
		return nil, h.refuses(pod), nil
	}
	return nil, nil, nil
}

func (h *fakeHandle) RunFilterPlugins(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if h.rejects == nil {
		return nil
	}
	return h.rejects(pod, node)
}

func (h *fakeHandle) RunPreFilterExtensionAddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (h *fakeHandle) RunPreFilterExtensionRemovePod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister {
	return cache.NewSnapshot(h.bound, h.nodes)
}

func (h *fakeHandle) ClientSet() kubernetes.Interface           { return h.client }
func (h *fakeHandle) EventRecorder() events.EventRecorderLogger { return h.recorder }

func (h *fakeHandle) Activate(logger klog.Logger, pods map[string]*corev1.Pod) {
	if h.queue != nil {
		h.queue.Activate(logger, pods)
	}
	h.activating.Lock()
	defer h.activating.Unlock()
	for _, pod := range pods {
		h.activated[pod.Name] = true
	}
}

func (*fakeHandle) APICacher() fwk.APICacher { return nil }

func (h *fakeHandle) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if w, ok := h.waiting[uid]; ok {
		return w
	}
	return nil
}

func (h *fakeHandle) AddNominatedPod(_ klog.Logger, info fwk.PodInfo, nominating *fwk.NominatingInfo) {
	h.nominated[info.GetPod().UID] = nominating.NominatedNodeName
}

func (h *fakeHandle) DeleteNominatedPodIfExists(pod *corev1.Pod) { delete(h.nominated, pod.UID) }

// takeActivated returns the names of the pods that were activated since the last call.
func (h *fakeHandle) takeActivated() []string {
	h.activating.Lock()
	defer h.activating.Unlock()
	names := slices.Sorted(maps.Keys(h.activated))
	h.activated = map[string]bool{}
	return names
}

// fakeWaiting is a pod that waits at Permit.
type fakeWaiting struct {
	fwk.WaitingPod
	allowed, rejected bool
}

func (w *fakeWaiting) Allow(string) { w.allowed = true }

func (w *fakeWaiting) Reject(string, string) bool {
	w.rejected = true
	return true
}

// bench drives the plugin as the framework does.
type bench struct {
	*testing.T
	plugin *Plugin
	handle *fakeHandle
	cache  *clustercache.Cache
	meters basemetrics.KubeRegistry
	states map[types.UID]fwk.CycleState
	timers []timer
	// clock is the time by which texts are written.
	clock time.Time
}

// timer is a function that is due after a pause.
type timer struct {
	pause time.Duration
	due   func()
}

// pauses returns the pauses that are under way.
func (b *bench) pauses() (list []time.Duration) {
	for _, t := range b.timers {
		list = append(list, t.pause)
	}
	return list
}

// counted returns the value of a counter with these labels.
func (b *bench) counted(name string, labels map[string]string) (sum float64) {
	b.Helper()
	families, err := b.meters.Gather()
	require.NoError(b, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && testutil.LabelsMatch(metric, labels) {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// evicted returns how many pods were evicted for a reason.
func (b *bench) evicted(reason metrics.Eviction) float64 {
	b.Helper()
	return b.counted("gpuplan_evictions_total", map[string]string{"reason": string(reason)})
}

// failOnce lets the next call of the verb about a pod fail.
func (b *bench) failOnce(verb string) {
	b.Helper()
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(b, ok)
	fails := true
	fake.PrependReactor(verb, "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		handled := fails
		fails = false
		return handled, nil, errors.New("the API server is away")
	})
}

// marked reports whether a pod was given the standard condition of pods that are evicted.
func (b *bench) marked(pod string) bool {
	b.Helper()
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(b, ok)
	return slices.ContainsFunc(fake.Actions(), func(action kubetesting.Action) bool {
		patch, ok := action.(kubetesting.PatchAction)
		return ok && patch.GetName() == pod && patch.GetSubresource() == "status" && strings.Contains(string(patch.GetPatch()), string(corev1.DisruptionTarget))
	})
}

// elapse lets the pauses pass that are under way, and returns them.
func (b *bench) elapse() (pauses []time.Duration) {
	b.Helper()
	timers := b.timers
	b.timers = nil
	for _, t := range timers {
		pauses = append(pauses, t.pause)
		b.clock = b.clock.Add(t.pause)
		t.due()
	}
	b.work()
	return pauses
}

// newBench makes a cluster of nodes with eight V100 GPUs each, in mode topology.
func newBench(t *testing.T, nodes ...string) *bench {
	t.Helper()
	b := &bench{
		T:     t,
		cache: clustercache.New(),
		handle: &fakeHandle{
			client: newClient(), recorder: events.NewFakeRecorder(100),
			activated: map[string]bool{}, waiting: map[types.UID]*fakeWaiting{}, nominated: map[types.UID]string{},
		},
		meters: basemetrics.NewKubeRegistry(),
		states: map[types.UID]fwk.CycleState{},
		clock:  time.Unix(0, 0),
	}
	meter := metrics.New(b.cache)
	meter.Register(b.meters.MustRegister, b.meters.CustomMustRegister)
	b.plugin = newPlugin(b.cache, meter, b.handle, fake.NewSimpleDynamicClient(runtime.NewScheme()))
	b.plugin.aside.start = func(f func()) { f() }
	b.plugin.rechecks.start = b.plugin.aside.start
	b.plugin.synced = func(context.Context) error { return nil }
	b.plugin.leading.Store(true)
	b.plugin.now = func() time.Time { return b.clock }
	var mu sync.Mutex // pods are evicted several at a time
	b.plugin.after = func(pause time.Duration, f func()) {
		mu.Lock()
		defer mu.Unlock()
		b.timers = append(b.timers, timer{pause, f})
	}
	b.cache.Subscribe(b.plugin.work.add)
	for _, name := range nodes {
		b.addNode(name)
	}
	return b
}

// newClient returns an API server that knows dry runs of deletions.
func newClient() *typedfake.Clientset {
	client := typedfake.NewClientset()
	client.PrependReactor("delete", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if !isDryRun(action) {
			return false, nil, nil
		}
		_, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), action.(kubetesting.DeleteAction).GetName())
		return true, nil, err
	})
	return client
}

func isDryRun(action kubetesting.Action) bool {
	d, ok := action.(kubetesting.DeleteActionImpl)
	return ok && len(d.DeleteOptions.DryRun) > 0
}

func (b *bench) addNode(name string) {
	b.Helper()
	node := v100(name)
	b.handle.nodes = append(b.handle.nodes, node)
	change, err := b.cache.SetNode(node)
	require.NoError(b, err)
	b.plugin.work.add(change)
}

// v100 returns a node with eight V100 GPUs, in mode topology.
func v100(name string) *corev1.Node {
	offers := corev1.ResourceList{
		corev1.ResourceCPU:           resource.MustParse("80"),
		corev1.ResourcePods:          resource.MustParse("110"),
		contract.ResourceTopologyGPU: resource.MustParse("8"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname:   name,
			contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge",
		}},
		Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}
}

// gangPods makes the pods of a gang, which the API server knows but the cache does not yet.
func (b *bench) gangPods(name string, members, gpus int) []*corev1.Pod {
	b.Helper()
	pods := make([]*corev1.Pod, members)
	for i := range pods {
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: fmt.Sprintf("%s-%d", name, i), UID: types.UID(fmt.Sprintf("%s-%d", name, i)),
				CreationTimestamp: metav1.Now(),
				Labels: map[string]string{
					contract.TopologyGroupLabel: name, contract.TopologyReplicasLabel: strconv.Itoa(members),
				},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:           resource.MustParse("1"),
				contract.ResourceTopologyGPU: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
			}}}}},
		}
		b.create(pods[i])
	}
	return pods
}

// create lets the API server know a pod.
func (b *bench) create(pod *corev1.Pod) {
	b.Helper()
	_, err := b.handle.client.CoreV1().Pods(pod.Namespace).Create(b.Context(), pod, metav1.CreateOptions{})
	require.NoError(b, err)
}

// elastic makes one member enough for a gang that says how many it has, 0 when it does not.
func elastic(pods []*corev1.Pod, total int) {
	for _, pod := range pods {
		pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = pod.Labels[contract.TopologyGroupLabel], "1"
		delete(pod.Labels, contract.TopologyReplicasLabel)
		if total > 0 {
			pod.Labels[contract.TopologyReplicasLabel] = strconv.Itoa(total)
		}
	}
}

// submit lets the cache see pods, and the queue ask about them.
func (b *bench) submit(pods []*corev1.Pod) {
	b.Helper()
	for _, pod := range pods {
		b.plugin.work.add(b.cache.SetPod(pod))
		b.plugin.PreEnqueue(b.Context(), pod)
	}
	b.work()
}

// work does what the worker has to do.
func (b *bench) work() {
	b.Helper()
	for range 10 {
		select {
		case <-b.plugin.work.ready:
			b.plugin.do(b.Context(), b.plugin.work.take())
		case <-b.plugin.statuses.ready:
			b.plugin.publish(b.Context(), b.plugin.statuses.take())
		default:
			return
		}
	}
}

// cycle is attempt, and prepares all members when the last one has passed.
func (b *bench) cycle(pod *corev1.Pod) (node string, status *fwk.Status) {
	b.Helper()
	node, status = b.attempt(pod)
	if s := assumedIn(b.states[pod.UID]); s != nil && status.IsSuccess() {
		for _, member := range s.attempt.pods {
			b.plugin.prepare(member)
		}
	}
	return node, status
}

// attempt runs a pod's scheduling cycle up to Permit. The status is that of the
// extension point that ended it, Wait when the pod waits for others.
func (b *bench) attempt(pod *corev1.Pod) (node string, status *fwk.Status) {
	b.Helper()
	state := framework.NewCycleState()
	b.states[pod.UID] = state
	if b.handle.refuses != nil {
		if status := b.handle.refuses(pod); status.IsRejected() {
			nodes := framework.NewDefaultNodeToStatus()
			nodes.SetAbsentNodesStatus(status)
			b.plugin.PostFilter(b.Context(), state, pod, nodes)
			return "", status
		}
	}
	result, status := b.plugin.PreFilter(b.Context(), state, pod, nil)
	if !status.IsSuccess() {
		_, after := b.plugin.PostFilter(b.Context(), state, pod, framework.NewDefaultNodeToStatus())
		require.False(b, after.IsSuccess())
		return "", status
	}
	require.Len(b, result.NodeNames, 1)
	node = result.NodeNames.UnsortedList()[0]
	if status := b.plugin.Reserve(b.Context(), state, pod, node); !status.IsSuccess() {
		b.plugin.Unreserve(b.Context(), state, pod, node)
		return "", status
	}
	status, _ = b.plugin.Permit(b.Context(), state, pod, node)
	if status.IsWait() {
		b.handle.waiting[pod.UID] = &fakeWaiting{}
	}
	return node, status
}

// failed ends a pod's cycle as kube-scheduler does after a failure.
func (b *bench) failed(pod *corev1.Pod, status *fwk.Status) {
	b.Helper()
	info, err := framework.NewPodInfo(pod)
	require.NoError(b, err)
	b.plugin.Failures(func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status, *fwk.NominatingInfo, time.Time) {
	})(
		b.Context(), nil, &framework.QueuedPodInfo{PodInfo: info}, status, nil, time.Time{})
	b.work()
}

// bind ends a pod's binding cycle well.
func (b *bench) bind(pod *corev1.Pod, node string) {
	b.Helper()
	b.plugin.PostBind(b.Context(), b.states[pod.UID], pod, node)
}
