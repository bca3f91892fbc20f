package gang

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// queued is a bench with kube-scheduler's own queue.
type queued struct {
	*bench
	queue *queue.PriorityQueue
	bound map[string]bool
}

func newQueued(t *testing.T) *queued {
	t.Helper()
	schedulermetrics.Register()
	b := newBench(t, "a")
	q := &queued{bench: b, bound: map[string]bool{}}
	events, err := b.plugin.EventsToRegister(t.Context())
	require.NoError(t, err)
	hints := queue.QueueingHintMap{}
	for _, e := range events {
		hints[e.Event] = append(hints[e.Event], &queue.QueueingHintFunction{PluginName: Name, QueueingHintFn: e.QueueingHintFn})
	}
	q.queue = queue.NewTestQueue(t.Context(), b.plugin.Less, queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": hints}),
		queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"": {Name: b.plugin}}))
	b.handle.queue = q.queue
	return q
}

// next takes the next pod out of the queue, whose back-off is over, nil when there is none.
func (q *queued) next() *framework.QueuedPodInfo {
	q.Helper()
	for _, pod := range q.queue.PodsInBackoffQ() {
		q.queue.Activate(klog.Background(), map[string]*corev1.Pod{pod.Name: pod})
	}
	if len(q.queue.PodsInActiveQ()) == 0 {
		return nil
	}
	info, err := q.queue.Pop(klog.Background())
	require.NoError(q, err)
	return info
}

// fail ends a pod's attempt as kube-scheduler does.
func (q *queued) fail(info *framework.QueuedPodInfo, status *fwk.Status) {
	q.Helper()
	q.plugin.Failures(func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status, *fwk.NominatingInfo, time.Time) {
		info.ClearRejectorPlugins()
		if status.IsRejected() {
			info.UnschedulablePlugins = sets.New(Name)
		}
		assert.NoError(q, q.queue.AddUnschedulableIfNotPresent(klog.Background(), info, q.queue.SchedulingCycle()))
	})(q.Context(), nil, info, status, nil, time.Time{})
}

// show shows a pod bound.
func (q *queued) show(pod *corev1.Pod, node string) {
	q.bound[pod.Name] = true
	on := pod.DeepCopy()
	on.Spec.NodeName = node
	q.plugin.work.observe(q.cache.SetPod(on))
}

// cycle tries a pod, whose binding may fail, and calls reached at each stage of that.
func (q *queued) cycle(info *framework.QueuedPodInfo, fails bool, reached func(stage)) {
	q.Helper()
	pod, state := info.Pod, framework.NewCycleState()
	reached(taken)
	result, status := q.plugin.PreFilter(q.Context(), state, pod, nil)
	reached(planned)
	switch {
	case status.IsSkip():
		q.queue.Done(pod.UID)
		q.show(pod, "a")
		return
	case !status.IsSuccess():
		q.plugin.PostFilter(q.Context(), state, pod, framework.NewDefaultNodeToStatus())
		q.fail(info, status)
		return
	}
	node := result.NodeNames.UnsortedList()[0]
	require.True(q, q.plugin.Reserve(q.Context(), state, pod, node).IsSuccess())
	reached(isReserved)
	status, _ = q.plugin.Permit(q.Context(), state, pod, node)
	require.True(q, status.IsSuccess(), "each is alone in its attempt")
	q.queue.Done(pod.UID)
	q.plugin.prepare(assumedIn(state))
	reached(binds)
	if fails {
		q.plugin.Unreserve(q.Context(), state, pod, node)
		q.fail(info, fwk.AsStatus(fmt.Errorf("the API server is away")))
	} else {
		q.plugin.PostBind(q.Context(), state, pod, node)
		q.show(pod, node)
	}
	reached(ended)
}

// stage is how far a pod's attempt is.
type stage string

const (
	taken      stage = "is taken out of the queue"
	planned    stage = "is planned"
	isReserved stage = "is reserved"
	binds      stage = "is being bound"
	ended      stage = "is bound, or is not"
)

// A member that appears at any moment of its launcher's attempt is placed, also when its own cycle is under way while it is activated.
func TestMemberThatAppearsAtAnyMoment(t *testing.T) {
	for _, at := range []stage{taken, planned, isReserved, binds, ended} {
		for how, appears := range map[string]func(q *queued, worker *corev1.Pod) (inFlight *framework.QueuedPodInfo){
			"the queue hears of it first": func(q *queued, worker *corev1.Pod) *framework.QueuedPodInfo {
				q.queue.Add(q.Context(), worker)
				q.plugin.work.observe(q.cache.SetPod(worker))
				q.work()
				return nil
			},
			"the view hears of it first": func(q *queued, worker *corev1.Pod) *framework.QueuedPodInfo {
				q.plugin.work.observe(q.cache.SetPod(worker))
				q.work()
				q.queue.Add(q.Context(), worker)
				return nil
			},
			"its cycle is under way": func(q *queued, worker *corev1.Pod) *framework.QueuedPodInfo {
				q.plugin.work.observe(q.cache.SetPod(worker))
				q.queue.Add(q.Context(), worker)
				return q.next()
			},
		} {
			for _, fails := range []bool{false, true} {
				t.Run(fmt.Sprintf("its launcher %s, %s, binding fails: %v", at, how, fails), func(t *testing.T) {
					q := newQueued(t)
					launcher, worker := q.launcherFirst()
					q.queue.Add(t.Context(), launcher)
					var inFlight *framework.QueuedPodInfo
					var refused *fwk.Status
					q.cycle(q.next(), fails, func(s stage) {
						if s != at {
							return
						}
						if inFlight = appears(q, worker); inFlight != nil && s != taken && s != ended {
							state := framework.NewCycleState()
							_, refused = q.plugin.PreFilter(t.Context(), state, worker, nil)
							q.plugin.PostFilter(t.Context(), state, worker, framework.NewDefaultNodeToStatus())
						}
					})
					q.work()
					switch {
					case inFlight != nil && refused != nil && !refused.IsSuccess():
						q.fail(inFlight, refused)
					case inFlight != nil:
						q.cycle(inFlight, false, func(stage) {})
					}
					for range 20 {
						q.work()
						if info := q.next(); info != nil {
							q.cycle(info, false, func(stage) {})
						} else if len(q.timers) > 0 {
							q.elapse()
						}
					}
					assert.True(t, q.bound[worker.Name], "the member runs")
					assert.True(t, q.bound[launcher.Name], "the launcher runs")
				})
			}
		}
	}
}

// A pod that waits is placed by what it is now, whoever hears of the change first: the queue asks about the pod that it knows.
func TestPodThatChangesWhileItWaits(t *testing.T) {
	for name, test := range map[string]struct{ before, change func(p *corev1.Pod) }{
		"it leaves its gang": {
			before: func(p *corev1.Pod) { p.Labels[contract.TopologyReplicasLabel] = "2" },
			change: func(p *corev1.Pod) { p.Labels = nil },
		},
		"it has another gang": {
			before: func(p *corev1.Pod) { p.Labels[contract.TopologyReplicasLabel] = "2" },
			change: func(p *corev1.Pod) { p.Labels = map[string]string{contract.TopologyGroupLabel: "other"} },
		},
		"its gate is taken away": {
			before: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}} },
			change: func(p *corev1.Pod) { p.Spec.SchedulingGates = nil },
		},
	} {
		for _, viewFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the view hears of it first: %v", name, viewFirst), func(t *testing.T) {
				q := newQueued(t)
				before := q.gangPods("job", 1, 1)[0]
				test.before(before)
				q.submit([]*corev1.Pod{before})
				q.queue.Add(t.Context(), before)
				require.Nil(t, q.next())
				now := before.DeepCopy()
				test.change(now)
				view := func() {
					q.plugin.work.observe(q.cache.SetPod(now))
					q.work()
				}
				if viewFirst {
					view()
					q.queue.Update(t.Context(), before, now)
				} else {
					q.queue.Update(t.Context(), before, now)
					view()
				}
				info := q.next()
				require.NotNil(t, info)
				q.cycle(info, false, func(stage) {})
				assert.True(t, q.bound[now.Name])
			})
		}
	}
}
