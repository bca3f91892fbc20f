package hooks

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// What the hooks do is known of one version of Kubernetes only.
func TestVersion(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	required := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (\S+)`).FindSubmatch(mod)
	require.NotNil(t, required)
	require.Equal(t, Kubernetes, string(required[1]),
		"k8s.io/kubernetes has another version than package hooks was written for: read again what it wraps "+
			"(Scheduler.FailureHandler, Scheduler.NextPod, frameworkImpl.RunPreFilterPlugins, DefaultPreemption and its Evaluator), and whether the queue still loses pods "+
			"(TestFailedPodIsTriedAgain without KeepFailed), then set the constant")
}

// stock is kube-scheduler in a cluster without nodes.
type stock struct {
	*scheduler.Scheduler
	client   *fake.Clientset
	recorder *events.FakeRecorder
}

func newStock(t *testing.T) *stock {
	t.Helper()
	s := &stock{client: fake.NewClientset(), recorder: events.NewFakeRecorder(100)}
	factory := informers.NewSharedInformerFactory(s.client, 0)
	var err error
	s.Scheduler, err = scheduler.New(t.Context(), s.client, factory, nil, profile.RecorderFactory(func(string) events.EventRecorderLogger { return s.recorder }))
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return s
}

// patches are those of a pod.
func (s *stock) patches(pod string) (list []string) {
	for _, action := range s.client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetName() == pod {
			list = append(list, string(patch.GetPatch()))
		}
	}
	return list
}

// kube-scheduler calls what is hooked into it, and a quiet profile writes nominations and
// nothing else, where kube-scheduler writes an event and a condition.
func TestHooks(t *testing.T) {
	s := newStock(t)
	var asked atomic.Int64
	BeforeNextPod(s.Scheduler, func() { asked.Add(1) })
	failed := make(chan string, 10)
	OnFailure(s.Scheduler, func(handle FailureHandler) FailureHandler {
		return func(ctx context.Context, profile framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
			name := info.Pod.Name
			if name == "nominated" {
				nominating = &fwk.NominatingInfo{NominatedNodeName: "some-node", NominatingMode: fwk.ModeOverride}
			}
			if name != "loud" {
				profile = Quiet(ctx, profile)
			}
			handle(ctx, profile, info, status, nominating, start)
			failed <- name
		}
	})
	go s.Run(t.Context())
	// A pod that comes later is looked at later, and the last one is written about.
	for _, name := range []string{"quiet", "nominated", "loud"} {
		s.create(t, name)
		select {
		case handled := <-failed:
			require.Equal(t, name, handled)
		case <-time.After(time.Minute):
			require.Fail(t, "kube-scheduler did not call the failure handler", name)
		}
	}
	require.Eventually(t, func() bool { return len(s.patches("loud")) > 0 && len(s.patches("nominated")) > 0 }, time.Minute, time.Millisecond)
	assert.Contains(t, strings.Join(s.patches("loud"), "\n"), "Unschedulable")
	assert.Empty(t, s.patches("quiet"))
	for _, patch := range s.patches("nominated") {
		assert.Contains(t, patch, "some-node")
		assert.NotContains(t, patch, "Unschedulable")
	}
	require.Len(t, s.recorder.Events, 1, "one pod of three is told of")
	assert.Contains(t, <-s.recorder.Events, "FailedScheduling")
	assert.GreaterOrEqual(t, asked.Load(), int64(3))
}

// create creates a pod.
func (s *stock) create(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{Name: "main"}}},
	}
	_, err := s.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

// submit creates a pod and waits until it is in the queue.
func (s *stock) submit(t *testing.T, name string) {
	t.Helper()
	s.create(t, name)
	require.Eventually(t, func() bool { return s.queued(name) }, time.Minute, time.Millisecond)
}

func (s *stock) queued(name string) bool {
	_, ok := s.SchedulingQueue.GetPod(name, "default")
	return ok
}

// fail ends an attempt for a pod as kube-scheduler does, and writes nothing.
func (s *stock) fail(t *testing.T, info *framework.QueuedPodInfo) {
	profile := s.Profiles[corev1.DefaultSchedulerName]
	status := fwk.NewStatus(fwk.Unschedulable).WithError(&framework.FitError{
		Pod: info.Pod, Diagnosis: framework.Diagnosis{UnschedulablePlugins: sets.New("Some"), NodeToStatus: framework.NewDefaultNodeToStatus()},
	})
	s.FailureHandler(t.Context(), Quiet(t.Context(), profile), info, status, nil, time.Now())
}

// A pod that is activated while its attempt is being rolled back is tried again, whatever the
// moment in which the queue hands it out.
func TestFailedPodIsTriedAgain(t *testing.T) {
	s := newStock(t)
	KeepFailed(s.Scheduler)
	s.submit(t, "again")
	logger := klog.FromContext(t.Context())
	taken := make(chan *framework.QueuedPodInfo)
	go func() {
		for {
			info, err := s.NextPod(logger)
			if err != nil || info == nil {
				return // it is closed
			}
			taken <- info
		}
	}()
	defer s.SchedulingQueue.Close()
	for attempt := range 20_000 {
		select {
		case info := <-taken:
			s.SchedulingQueue.Activate(logger, map[string]*corev1.Pod{"again": info.Pod})
			s.fail(t, info)
		case <-time.After(time.Minute):
			require.Failf(t, "the pod is lost", "after %d attempts", attempt)
		}
	}
}

// Whatever becomes of a pod whose attempt has failed, it is in the queue once, unless it is gone.
func TestKeepFailed(t *testing.T) {
	s := newStock(t)
	OnFailure(s.Scheduler, func(handle FailureHandler) FailureHandler {
		return func(ctx context.Context, profile framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
			if info.Pod.Name == "kept" {
				handle(ctx, profile, info, status, nominating, start)
				return
			}
			s.SchedulingQueue.Done(info.Pod.UID) // as if the queue had dropped it
		}
	})
	KeepFailed(s.Scheduler)
	logger := klog.FromContext(t.Context())
	for _, name := range []string{"kept", "lost", "gone"} {
		s.submit(t, name)
		info, err := s.NextPod(logger)
		require.NoError(t, err)
		require.Equal(t, name, info.Pod.Name)
		if name == "gone" {
			require.NoError(t, s.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
			pods := s.Profiles[corev1.DefaultSchedulerName].SharedInformerFactory().Core().V1().Pods().Lister().Pods("default")
			require.Eventually(t, func() bool {
				_, err := pods.Get(name)
				return err != nil
			}, time.Minute, time.Millisecond)
		}
		s.fail(t, info)
		assert.Equal(t, name != "gone", s.queued(name), name)
		if s.queued(name) {
			s.SchedulingQueue.Delete(info.Pod)
		}
		assert.False(t, s.queued(name), "%s is there once", name)
	}
}

// What plugins are handed can run PreFilter.
func TestHandle(t *testing.T) {
	s := newStock(t)
	handle, err := HandleOf(s.Profiles[corev1.DefaultSchedulerName])
	require.NoError(t, err)
	_, status, _ := handle.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}})
	assert.True(t, status.IsSuccess(), status.Message())

	_, err = HandleOf(nil)
	assert.ErrorContains(t, err, "cannot run PreFilter")
}

// chooser has kube-scheduler's preemption choose nobody, and notes that it was asked.
type chooser struct {
	*defaultpreemption.DefaultPreemption
	asked *atomic.Int64
}

func (c chooser) SelectVictimsOnNode(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo, []*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	c.asked.Add(1)
	return nil, 0, fwk.NewStatus(fwk.Unschedulable)
}

// Kube-scheduler's preemption asks who was put in its place.
func TestChoose(t *testing.T) {
	s := newStock(t)
	profile := s.Profiles[corev1.DefaultSchedulerName]
	stock, err := Preemption(t.Context(), profile)
	require.NoError(t, err)
	c := chooser{stock, &atomic.Int64{}}
	Choose(stock, "Other", c)
	node := framework.NewNodeInfo()
	node.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	_, _, err = stock.Evaluator.DryRunPreemption(t.Context(), framework.NewCycleState(), &corev1.Pod{}, []fwk.NodeInfo{node}, nil, 0, 1)
	require.NoError(t, err)
	assert.EqualValues(t, 1, c.asked.Load())
	assert.Equal(t, "Other", stock.Evaluator.PluginName)
}
