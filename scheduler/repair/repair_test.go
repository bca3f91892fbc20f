package repair

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a controller over a cache that the test fills, and a client that holds the
// same pods and nodes.
type world struct {
	t      *testing.T
	cache  *clustercache.Cache
	kube   *fake.Clientset
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
	*Controller
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, cache: clustercache.New(), kube: fake.NewClientset(), clock: clocktesting.NewFakeClock(start), events: events.NewFakeRecorder(100)}
	w.Controller = newController(w.cache, time.Minute, w.clock)
	dynamic := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	dynamic.PrependReactor("patch", "podgroups", func(action clienttesting.Action) (bool, runtime.Object, error) {
		group := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &group.Object))
		require.Equal(t, "status", action.GetSubresource())
		w.setPodGroup(group)
		return true, group, nil
	})
	w.Clients = Clients{Kube: w.kube, Dynamic: dynamic, Events: w.events}
	w.running.Store(true)
	t.Cleanup(w.queue.ShutDown)
	return w
}

// setPodGroup takes in the PodGroup "ns/job" with the status of another one. The
// controller hears of it.
func (w *world) setPodGroup(from *unstructured.Unstructured) {
	group := from.DeepCopy()
	group.SetAPIVersion(contract.PodGroupAPIVersion)
	group.SetKind(contract.PodGroupKind)
	group.SetNamespace("ns")
	group.SetName("job")
	require.NoError(w.t, unstructured.SetNestedField(group.Object, int64(2), "spec", "minMember"))
	w.heard(w.cache.SetPodGroup(group))
}

// heard queues what a change of the cache would.
func (w *world) heard(change clusterstate.Change) {
	if change.Node != "" {
		w.queue.Add(item{node: change.Node})
	}
	if change.Gang != "" {
		w.queue.Add(item{gang: change.Gang})
	}
	if change.Bound != "" {
		w.queue.Add(item{bound: change.Bound})
	}
}

func (w *world) addNode(name string, taints ...corev1.Taint) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
	change, err := w.cache.SetNode(node)
	require.NoError(w.t, err)
	w.heard(change)
	require.NoError(w.t, w.kube.Tracker().Add(node))
}

// addMember adds a member of the gang "ns/job" that runs on GPU 0 of a node.
func (w *world) addMember(name, node string, change func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	annotations, err := contract.Allocation{Gang: "ns/job", Node: node, GPUs: []int{0}}.Annotations()
	require.NoError(w.t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Annotations: annotations,
			Labels:          map[string]string{contract.PodGroupLabel: "job"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "PyTorchJob", Name: "job", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node, SchedulerName: contract.SchedulerName},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(pod)
	}
	w.heard(w.cache.SetPod(pod))
	require.NoError(w.t, w.kube.Tracker().Add(pod))
	return pod
}

// run does what is queued.
func (w *world) run() {
	w.t.Helper()
	for w.queue.Len() > 0 {
		next, _ := w.queue.Get()
		require.NoError(w.t, w.sync(w.t.Context(), next))
		w.queue.Forget(next)
		w.queue.Done(next)
	}
}

// later lets time pass and does what is due then.
func (w *world) later(pause time.Duration) {
	w.t.Helper()
	w.clock.Step(pause)
	require.Eventually(w.t, func() bool { return w.queue.Len() > 0 }, time.Minute, time.Millisecond, "nothing is due")
	w.run()
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.kube.CoreV1().Pods("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return pod
}

// condition is the PodGroup's: "True NodeLost: text".
func (w *world) condition() string {
	w.t.Helper()
	have, err := degraded(w.cache.Health("ns/job").PodGroup)
	require.NoError(w.t, err)
	if have == nil {
		return ""
	}
	return string(have.Status) + " " + have.Reason + ": " + have.Message
}

// eventsSoFar lists the events since the last call.
func (w *world) eventsSoFar() (list []string) {
	for {
		select {
		case event := <-w.events.Events:
			list = append(list, event)
		default:
			return list
		}
	}
}

func TestNodeThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.addNode("n0")
	w.addNode("n1")
	w.setPodGroup(&unstructured.Unstructured{Object: map[string]any{}})
	lost := w.addMember("a", "n0", nil)
	w.addMember("b", "n1", nil)
	w.addMember("foreign", "n0", func(p *corev1.Pod) {
		p.Spec.SchedulerName, p.Labels = "default-scheduler", map[string]string{contract.PodGroupLabel: "other"}
	})
	w.addMember("alone", "n0", func(p *corev1.Pod) { p.Labels = nil })
	w.run()
	assert.Empty(t, w.condition())

	w.heard(w.cache.RemoveNode("n0"))
	w.run()
	assert.Equal(t, corev1.PodRunning, w.pod("a").Status.Phase, "the API server still has the node")

	require.NoError(t, w.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n0"))
	w.heard(w.cache.RemoveNode("n0"))
	w.run()
	status := w.pod("a").Status
	assert.Equal(t, corev1.PodFailed, status.Phase)
	require.Len(t, status.Conditions, 1)
	assert.Equal(t, corev1.DisruptionTarget, status.Conditions[0].Type)
	assert.Equal(t, "node n0 is gone", status.Conditions[0].Message)
	gang, _ := w.cache.Gang("ns/job")
	assert.Len(t, gang.Gang.Running, 1, "known before the API server shows it")
	for _, name := range []string{"b", "foreign", "alone"} {
		assert.Equal(t, corev1.PodRunning, w.pod(name).Status.Phase, name)
	}
	text := "NodeLost: node n0 is gone, and with it a of the gang"
	assert.Equal(t, "True "+text, w.condition())
	assert.Len(t, w.eventsSoFar(), 2, "the PodGroup and the member that is left")

	w.heard(w.cache.RemovePod(lost.UID))
	w.run()
	assert.Equal(t, "True "+text, w.condition(), "the member has no successor yet")
	w.later(removeAfter)
	assert.Nil(t, w.pod("a"), "the job's operator has seen it fail")

	successor := w.addMember("a", "", func(p *corev1.Pod) { p.UID = "a-again" })
	w.run()
	assert.Equal(t, "True "+text, w.condition())
	bound := successor.DeepCopy()
	bound.Spec.NodeName = "n1"
	w.cache.Assume(bound)
	w.heard(w.cache.SetPod(bound))
	w.run()
	assert.Equal(t, "False Recovered: no member is on a lost node or an unhealthy GPU", w.condition())
	assert.Empty(t, w.eventsSoFar())
}

func TestFailedPodsGo(t *testing.T) {
	w := newWorld(t)
	w.addMember("owned", "n0", nil)
	w.addMember("bare", "n0", func(p *corev1.Pod) { p.OwnerReferences = nil })
	w.addMember("leaving", "n0", func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: start}, []string{"kept.example.com/by-the-test"}
	})
	w.run()
	assert.NotNil(t, w.pod("owned"))
	deleted := func() (names []string) {
		for _, action := range w.kube.Actions() {
			if d, ok := action.(clienttesting.DeleteAction); ok {
				names = append(names, d.GetName())
			}
		}
		return names
	}
	assert.Equal(t, []string{"leaving"}, deleted())
	w.later(removeAfter)
	assert.Equal(t, []string{"leaving", "owned"}, deleted())
	assert.Equal(t, corev1.PodFailed, w.pod("bare").Status.Phase, "nobody would recreate it")
}

func TestEarlierSchedulersFailedPodsGo(t *testing.T) {
	w := newWorld(t)
	w.addNode("n0")
	w.addMember("old", "n0", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reasonNodeLost} })
	w.addMember("other", "n0", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"} })
	w.checkAll(t.Context())
	w.run()
	w.later(removeAfter)
	assert.Nil(t, w.pod("old"))
	assert.NotNil(t, w.pod("other"))
}

func TestUnreachableNode(t *testing.T) {
	w := newWorld(t)
	w.addNode("n0", corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: start}})
	w.addMember("a", "n0", nil)
	w.run()
	w.clock.Step(59 * time.Second)
	w.queue.Add(item{node: "n0"})
	w.run()
	assert.Equal(t, corev1.PodRunning, w.pod("a").Status.Phase)
	w.later(time.Second)
	assert.Equal(t, corev1.PodFailed, w.pod("a").Status.Phase)
	assert.Equal(t, "node n0 has been unreachable since 2026-03-01T12:00:00Z", w.pod("a").Status.Message)
}

// A node that comes back before its members are failed has them as it had.
func TestNodeThatComesBack(t *testing.T) {
	w := newWorld(t)
	w.addNode("n0", corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: start}})
	w.addMember("a", "n0", nil)
	away := true
	w.kube.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("the API server is away")
	})
	w.clock.Step(time.Hour)
	require.Error(t, w.sync(t.Context(), item{node: "n0"}))
	assert.False(t, w.cache.Health("ns/job").Whole, "it counts no more")

	away = false
	var changes []clusterstate.Change
	w.cache.Subscribe(func(change clusterstate.Change) { changes = append(changes, change) })
	change, err := w.cache.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}})
	require.NoError(t, err)
	w.heard(change)
	w.run()
	assert.Equal(t, corev1.PodRunning, w.pod("a").Status.Phase)
	assert.True(t, w.cache.Health("ns/job").Whole)
	assert.Equal(t, []clusterstate.Change{{Gang: "ns/job"}}, changes, "who waits for the gang is told, once")
}

// A gang that cannot be told loses its members all the same, and is told when it can be.
func TestMembersAreFailedThoughTheirGangCannotBeTold(t *testing.T) {
	w := newWorld(t)
	w.addNode("n0", corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
	w.setPodGroup(&unstructured.Unstructured{Object: map[string]any{}})
	w.addMember("a", "n0", nil)
	w.addMember("b", "n0", nil)
	refused := true
	w.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refused, nil, errors.New("a webhook refuses it")
	})
	busy := true
	w.kube.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.(clienttesting.PatchAction).GetName() == "a" && busy, nil, errors.New("the API server is busy")
	})
	err := w.sync(t.Context(), item{node: "n0"})
	require.ErrorContains(t, err, "a webhook refuses it")
	require.ErrorContains(t, err, "fail pod ns/a: the API server is busy")
	assert.Equal(t, corev1.PodRunning, w.pod("a").Status.Phase)
	assert.Equal(t, corev1.PodFailed, w.pod("b").Status.Phase)

	busy = false
	require.ErrorContains(t, w.sync(t.Context(), item{node: "n0"}), "a webhook refuses it")
	assert.Equal(t, corev1.PodFailed, w.pod("a").Status.Phase)
	assert.Empty(t, w.condition())

	refused = false
	for _, name := range []string{"a", "b"} {
		w.cache.SetPod(w.pod(name))
	}
	w.later(time.Second)
	assert.Contains(t, w.condition(), "True NodeLost: node n0 is out of service")
}

// The API server refuses a change of a pod whose name another has by now, and one that meets another change.
func TestPodThatCannotBeFailedNow(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*world) error
		fails     bool
	}{
		"another has its name": {meanwhile: func(w *world) error {
			other := w.pod("a").DeepCopy()
			other.UID = "a-again"
			return w.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), other, "ns")
		}},
		"it is gone": {meanwhile: func(w *world) error {
			return w.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "a")
		}},
		"it is written at the same time": {meanwhile: func(*world) error { return nil }, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := w.addMember("a", "n0", nil)
			conflicts := true
			w.kube.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return conflicts, nil, apierrors.NewConflict(corev1.Resource("pods"), "a", errors.New("it has changed"))
			})
			require.NoError(t, test.meanwhile(w))
			err := w.fail(t.Context(), pod, "node n0 is gone")
			if !test.fails {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsConflict(err), "%v", err)
			conflicts = false
			require.NoError(t, w.fail(t.Context(), pod, "node n0 is gone"))
			assert.Equal(t, corev1.PodFailed, w.pod("a").Status.Phase)
		})
	}
}

func TestLossOf(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Effect: effect, TimeAdded: &metav1.Time{Time: start}}
	}
	for name, test := range map[string]struct {
		taint corev1.Taint
		after time.Duration
		text  string
		left  time.Duration
	}{
		"healthy":           {taint: taint("dedicated", corev1.TaintEffectNoExecute), after: time.Hour},
		"out of service":    {taint: corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}, text: "node n is out of service"},
		"not ready":         {taint: taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), after: time.Minute, text: "node n has been not ready since 2026-03-01T12:00:00Z"},
		"grace":             {taint: taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), after: 20 * time.Second, left: 40 * time.Second},
		"no pods evicted":   {taint: taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), after: time.Hour},
		"nobody says since": {taint: corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{test.taint}}}
			text, left := lossOf(node, time.Minute, start.Add(test.after))
			assert.Equal(t, test.text, text)
			assert.Equal(t, test.left, left)
		})
	}
}

func TestUnhealthyGPU(t *testing.T) {
	w := newWorld(t)
	hardware := func(health, reason string) {
		_, err := w.cache.SetGPUNode(&contract.GPUNode{
			ObjectMeta: metav1.ObjectMeta{Name: "n0"},
			Status: contract.GPUNodeStatus{Links: []string{"X SYS", "SYS X"}, GPUs: []contract.GPUInfo{
				{Index: 0, Health: health, Reason: reason}, {Index: 1, Health: contract.Healthy},
			}},
		})
		require.NoError(t, err)
		w.queue.Add(item{node: "n0"})
	}
	w.addNode("n0")
	w.addNode("n1")
	w.setPodGroup(&unstructured.Unstructured{Object: map[string]any{}})
	hardware(contract.Healthy, "")
	w.addMember("a", "n0", nil)
	w.addMember("b", "n1", nil)
	w.run()
	assert.Empty(t, w.condition())

	hardware(contract.Unhealthy, "XID 79")
	w.run()
	assert.Equal(t, "True GPUUnhealthy: GPU 0 of node n0, which a has, is unhealthy: XID 79", w.condition())
	assert.Len(t, w.eventsSoFar(), 3, "the PodGroup and both members")
	assert.Equal(t, corev1.PodRunning, w.pod("a").Status.Phase, "nothing that runs is evicted")
	w.queue.Add(item{node: "n0"})
	w.run()
	assert.Empty(t, w.eventsSoFar(), "once")

	hardware(contract.Healthy, "")
	w.run()
	assert.Equal(t, "False Recovered: no member is on a lost node or an unhealthy GPU", w.condition())
}
