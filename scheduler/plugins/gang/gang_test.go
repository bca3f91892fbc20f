package gang

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

func TestPodsWaitForTheirGang(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 3, 1)
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[0]).Message(), "the scheduler has not taken the pod into its view yet")
	b.submit(pods[:2])
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[0]).Message(), "1 more pod of gang ns/job must appear")
	b.submit(pods[2:])

	assert.True(t, b.plugin.PreEnqueue(t.Context(), pods[2]).IsSuccess(), "the last to appear is the first")
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[0]).Message(), "follows")

	stock := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "stock"}}
	assert.True(t, b.plugin.PreEnqueue(t.Context(), stock).IsSuccess())
}

func TestGangIsAssumedTogether(t *testing.T) {
	b := newBench(t, "a", "b")
	pods := b.gangPods("job", 3, 2)
	b.submit(pods)

	node, status := b.cycle(pods[2])
	assert.True(t, status.IsWait())
	assert.Equal(t, "a", node)
	assert.Equal(t, []string{"job-0", "job-1", "job-2"}, b.handle.takeActivated())
	assert.Empty(t, b.handle.nominated, "its members come next")
	assert.True(t, b.plugin.PreEnqueue(t.Context(), pods[0]).IsSuccess(), "an assumed member is activated")
	_, status = b.cycle(pods[0])
	assert.True(t, status.IsWait())

	_, status = b.cycle(pods[1])
	assert.True(t, status.IsSuccess())
	assert.True(t, b.handle.waiting["job-0"].allowed)
	assert.True(t, b.handle.waiting["job-2"].allowed)

	other := b.gangPods("other", 2, 8)
	b.submit(other)
	_, status = b.cycle(other[1])
	assert.Contains(t, status.Message(), "1 of 2", "assumed pods are charged before anything is bound")

	for _, pod := range pods {
		b.bind(pod, node)
	}
	b.work()
	assert.NotContains(t, b.plugin.gangs, "ns/job")
}

// The first pod of a gang that may run with fewer members need not be among those planned.
func TestFirstPodIsPlacedWithout(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 8)
	elastic(pods, 0)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	assert.Contains(t, status.Message(), "placed without it")
	assert.Equal(t, []string{"job-0"}, b.handle.takeActivated())
	_, status = b.cycle(pods[0])
	assert.True(t, status.IsSuccess())
}

// An API server copies labels of the node to the pod that it binds: that frees nothing.
func TestBindingThatAddsLabels(t *testing.T) {
	b := newBench(t, "a")
	pod := b.gangPods("job", 1, 1)[0]
	b.submit([]*corev1.Pod{pod})
	node, status := b.cycle(pod)
	require.True(t, status.IsSuccess(), status.Message())
	bound := pod.DeepCopy()
	bound.Spec.NodeName, bound.Labels[corev1.LabelTopologyZone] = node, "z"
	assert.Equal(t, clusterstate.Change{Bound: "ns/job", Placed: true}, b.cache.SetPod(bound))
	labelled := bound.DeepCopy()
	labelled.Labels["role"] = "primary"
	assert.Equal(t, clusterstate.Change{Gang: "ns/job", Placed: true}, b.cache.SetPod(labelled))
	charged := labelled.DeepCopy()
	charged.Labels[contract.QuotaLabel] = "team"
	assert.Equal(t, clusterstate.Change{Gang: "ns/job", Placed: true, Freed: true}, b.cache.SetPod(charged))
}

// A gang that has to run near another's pod is admitted when that one is placed, or gets the label that makes it one.
func TestGangNearAnotherPod(t *testing.T) {
	for name, before := range map[string]func(*corev1.Pod){
		"it is bound":    func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"it is labelled": func(p *corev1.Pod) { p.Labels = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b")
			after := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cache", UID: "cache", Labels: map[string]string{"app": "cache"}},
				Spec:       corev1.PodSpec{NodeName: "b"},
			}
			cache := after.DeepCopy()
			before(cache)
			pods := b.gangPods("job", 1, 8)
			pods[0].Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cache"}},
			}}}}
			b.cache.SetPod(cache)
			b.submit(pods)
			_, status := b.cycle(pods[0])
			require.Contains(t, status.Message(), "0 of 1")
			b.handle.takeActivated()
			b.plugin.work.observe(b.cache.SetPod(after))
			b.work()
			b.elapse()
			b.work()
			assert.Contains(t, b.handle.takeActivated(), "job-0")
			node, status := b.cycle(pods[0])
			require.True(t, status.IsSuccess(), status.Message())
			assert.Equal(t, "b", node)
		})
	}
}

// A launcher starts once its gang runs, though it came before and another member waits.
func TestLauncherOfAGangThatRunsInPart(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 3, 8)
	pods[2].Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	elastic(pods, 0)
	b.submit(pods)
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[2]).Message(), "starts once gang ns/job runs")
	node, status := b.cycle(pods[0])
	require.True(t, status.IsSuccess(), status.Message())
	b.plugin.PreEnqueue(t.Context(), pods[2])
	bound := pods[0].DeepCopy()
	bound.Spec.NodeName = node
	b.bind(pods[0], node)
	_, status = b.cycle(pods[1])
	assert.Contains(t, status.Message(), "there is no room for more")
	b.handle.takeActivated()
	b.plugin.work.add(b.cache.SetPod(bound))
	b.work()
	assert.Contains(t, b.handle.takeActivated(), "job-2")
	launcher := pods[2].DeepCopy()
	launcher.Spec.NodeName = node
	b.plugin.work.add(b.cache.SetPod(launcher))
	b.work()
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[1]).Message(), "runs with 1 member;", "a launcher is none")
}

// A launcher that comes first waits a moment for members, also where one is enough. One that is in the queue already when they
// come does not start before them, nor does it keep them out.
func TestLauncherThatComesFirst(t *testing.T) {
	b := newBench(t, "a")
	launcher, worker := b.launcherFirst()
	b.handle.takeActivated()
	b.submit([]*corev1.Pod{worker})
	assert.Contains(t, b.handle.takeActivated(), worker.Name)
	_, status := b.cycle(launcher)
	assert.Contains(t, status.Message(), "starts once gang ns/job runs")
	require.True(t, b.plugin.PreEnqueue(t.Context(), worker).IsSuccess())
	node, status := b.cycle(worker)
	assert.True(t, status.IsSuccess(), status.Message())
	_, status = b.cycle(launcher)
	assert.Contains(t, status.Message(), "starts once gang ns/job runs", "its member may still lose its place")
	b.bind(worker, node)
	b.work()
	assert.Contains(t, b.handle.takeActivated(), launcher.Name)
	_, status = b.plugin.PreFilter(t.Context(), framework.NewCycleState(), launcher, nil)
	assert.True(t, status.IsSkip(), status.Message())
}

// launcherFirst makes a launcher, which enters the queue as all of its gang, and the member that it is for, which nobody has seen yet.
func (b *bench) launcherFirst() (launcher, worker *corev1.Pod) {
	b.Helper()
	pods := b.gangPods("job", 1, 1)
	elastic(pods, 0)
	launcher, worker = launcherOf(pods), pods[0]
	b.create(launcher)
	b.submit([]*corev1.Pod{launcher})
	assert.Contains(b, b.plugin.PreEnqueue(b.Context(), launcher).Message(), "up to 1 more pods of gang ns/job")
	b.elapse()
	require.True(b, b.plugin.PreEnqueue(b.Context(), launcher).IsSuccess(), "it may be all of its gang")
	return launcher, worker
}

// A launcher that has been given a place as all of its gang when a member appears is bound there, or gives it back: it keeps
// the member from none.
func TestLauncherWithAPlace(t *testing.T) {
	places := func(b *bench, pod *corev1.Pod) {
		b.Helper()
		require.True(b, b.plugin.PreEnqueue(b.Context(), pod).IsSuccess())
		node, status := b.cycle(pod)
		require.True(b, status.IsSuccess(), status.Message())
		b.bind(pod, node)
		b.work()
	}
	for name, test := range map[string]func(b *bench, launcher, worker *corev1.Pod){
		"another plugin refuses its node": func(b *bench, launcher, worker *corev1.Pod) {
			state := framework.NewCycleState()
			_, status := b.plugin.PreFilter(b.Context(), state, launcher, nil)
			require.True(b, status.IsSuccess(), status.Message())
			b.submit([]*corev1.Pod{worker})
			b.plugin.PostFilter(b.Context(), state, launcher, framework.NewDefaultNodeToStatus())
			b.elapse()
			assert.Contains(b, b.handle.takeActivated(), worker.Name)
			places(b, worker)
			assert.Contains(b, b.handle.takeActivated(), launcher.Name)
		},
		"its binding fails": func(b *bench, launcher, worker *corev1.Pod) {
			node, status := b.cycle(launcher)
			require.True(b, status.IsSuccess(), status.Message())
			b.submit([]*corev1.Pod{worker})
			b.plugin.Unreserve(b.Context(), b.states[launcher.UID], launcher, node)
			b.handle.takeActivated()
			places(b, launcher)
			assert.Contains(b, b.handle.takeActivated(), worker.Name)
			places(b, worker)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			launcher, worker := b.launcherFirst()
			test(b, launcher, worker)
		})
	}
}

// A gang that says how many members it has is planned with all of them. It waits while
// they appear one after the other, and goes without those that do not.
func TestElasticGangIsPlannedWhole(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 4, 1)
	elastic(pods, 4)
	b.submit(pods[:1])
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[0]).Message(), "up to 3 more pods of gang ns/job")
	b.submit(pods[1:2])
	assert.Equal(t, []time.Duration{moreToCome, moreToCome}, b.pauses(), "each that appears begins the wait again")
	b.timers[0].due()
	b.work()
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[0]).Message(), "up to 2 more pods of gang ns/job")
	b.submit(pods[2:])
	assert.True(t, b.plugin.PreEnqueue(t.Context(), pods[3]).IsSuccess(), "they are all there")
	b.handle.takeActivated()
	_, status := b.cycle(pods[3])
	assert.True(t, status.IsWait())
	assert.Len(t, b.handle.takeActivated(), 4, "all of them are planned")

	fewer := b.gangPods("fewer", 4, 1)
	elastic(fewer, 4)
	b.submit(fewer[:2])
	b.handle.takeActivated()
	b.elapse()
	assert.NotEmpty(t, b.handle.takeActivated())
	assert.True(t, b.plugin.PreEnqueue(t.Context(), fewer[0]).IsSuccess(), "it does not wait for pods that do not appear")
}

func TestOnlyThePlannedNode(t *testing.T) {
	b := newBench(t, "a", "b")
	pods := b.gangPods("job", 1, 1)
	b.submit(pods)
	b.cycle(pods[0])
	for name, want := range map[string]bool{"a": true, "b": false} {
		info := framework.NewNodeInfo()
		info.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		assert.Equal(t, want, b.plugin.Filter(t.Context(), b.states["job-0"], pods[0], info).IsSuccess(), name)
		assert.True(t, b.plugin.Filter(t.Context(), framework.NewCycleState(), pods[0], info).IsSuccess(), "not planned")
	}
}

func TestRejectedNodeIsExcluded(t *testing.T) {
	b := newBench(t, "a", "b")
	pods := b.gangPods("job", 2, 1)
	b.submit(pods)
	refuse := func() {
		_, status := b.cycle(pods[1])
		require.True(t, status.IsWait())
		b.handle.takeActivated()
		state := framework.NewCycleState()
		_, status = b.plugin.PreFilter(t.Context(), state, pods[0], nil)
		require.True(t, status.IsSuccess())
		_, status = b.plugin.PostFilter(t.Context(), state, pods[0], framework.NewDefaultNodeToStatus())
		assert.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code(), "no preemption for single members")
		assert.True(t, b.handle.waiting["job-1"].rejected)
		assert.Empty(t, b.handle.takeActivated(), "not before everybody has left")
		_, status = b.plugin.PreFilter(t.Context(), framework.NewCycleState(), pods[0], nil)
		assert.Contains(t, status.Message(), "planned again")
		b.plugin.Unreserve(t.Context(), b.states["job-1"], pods[1], "a")
		b.plugin.Unreserve(t.Context(), b.states["job-1"], pods[1], "a") // must be idempotent
		assert.Empty(t, b.handle.nominated)
	}

	refuse()
	assert.Empty(t, b.handle.takeActivated(), "a second look after a pause")
	assert.Equal(t, []time.Duration{retryDelay}, b.elapse())
	assert.Len(t, b.handle.takeActivated(), 1, "a first pod comes back")
	refuse()
	assert.Len(t, b.handle.takeActivated(), 1)

	node, status := b.cycle(pods[0])
	assert.True(t, status.IsWait())
	assert.Equal(t, "b", node)
}

func TestRejectedEverywhere(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 1, 1)
	b.submit(pods)
	refuse := func() {
		state := framework.NewCycleState()
		_, status := b.plugin.PreFilter(t.Context(), state, pods[0], nil)
		require.True(t, status.IsSuccess())
		b.plugin.PostFilter(t.Context(), state, pods[0], framework.NewDefaultNodeToStatus())
		b.work()
	}
	waits := func() {
		refuse()
		b.elapse()
		refuse()
		_, status := b.cycle(pods[0])
		require.False(t, status.IsSuccess())
		b.handle.takeActivated()
		b.work()
		assert.Empty(t, b.handle.takeActivated(), "its own roll-back must not bring it back")
	}
	waits()
	assert.Equal(t, []time.Duration{minBackoff}, b.elapse())
	assert.Equal(t, []string{"job-0"}, b.handle.takeActivated())
	waits()
	assert.Equal(t, []time.Duration{2 * minBackoff}, b.elapse(), "the pause doubles")
	waits()

	b.addNode("b")
	b.work()
	assert.Equal(t, []string{"job-0"}, b.handle.takeActivated(), "a change of the cluster is not waited out")
	assert.True(t, b.plugin.PreEnqueue(t.Context(), pods[0]).IsSuccess())
}

func TestGangThatDoesNotFitLeavesTheQueue(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 8)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	assert.Contains(t, status.Message(), "1 of 2 members fit")
	b.failed(pods[1], status)
	for i, pod := range pods {
		assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pod).Message(), "1 of 2 members fit")
		live, err := b.handle.client.CoreV1().Pods("ns").Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Len(t, live.Status.Conditions, 1)
		text := status.Message()
		if i > 0 {
			text += " The latest numbers are on pod job-0."
		}
		assert.Equal(t, text, live.Status.Conditions[0].Message)
	}
	b.handle.takeActivated()
	b.addNode("b")
	b.work()
	assert.Len(t, b.handle.takeActivated(), 1)
	_, status = b.cycle(pods[0])
	assert.True(t, status.IsWait())
}

// A pod that joins a gang that waits learns why.
// A pod must not be bound while it is being told why it waits: it would say so for ever.
func TestGangIsNotActivatedWhileItsVerdictIsWritten(t *testing.T) {
	b := newBench(t, "a")
	before := b.runs("before", "a", 1, 8, 0)
	job := b.gangPods("job", 1, 8)
	b.submit(job)
	_, status := b.cycle(job[0])
	require.Contains(t, status.Message(), "0 of 1")
	b.work()
	b.handle.takeActivated()

	state, _ := b.cache.Gang("ns/job")
	assert.Contains(t, b.plugin.beginRecording("ns/job", state).text, "0 of 1")
	assert.False(t, b.plugin.isInterrupted())
	b.end(before[0])
	assert.True(t, b.plugin.isInterrupted())
	assert.Empty(t, b.handle.takeActivated())
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), job[0]).Message(), "the scheduler is still writing what gang")
	b.plugin.endRecording()
	b.work()
	assert.Equal(t, []string{"job-0"}, b.handle.takeActivated())
	assert.True(t, b.plugin.PreEnqueue(t.Context(), job[0]).IsSuccess())
}

func TestJoinerLearnsWhyTheGangWaits(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 8)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	b.failed(pods[1], status)
	b.end(pods[0])
	again := pods[0].DeepCopy()
	again.UID = "again"
	again.Status = corev1.PodStatus{}
	require.NoError(t, b.handle.client.CoreV1().Pods("ns").Delete(t.Context(), again.Name, metav1.DeleteOptions{}))
	_, err := b.handle.client.CoreV1().Pods("ns").Create(t.Context(), again, metav1.CreateOptions{})
	require.NoError(t, err)
	b.submit([]*corev1.Pod{again})
	live, err := b.handle.client.CoreV1().Pods("ns").Get(t.Context(), again.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, live.Status.Conditions, 1)
	assert.Equal(t, status.Message(), live.Status.Conditions[0].Message)
}

// A gang that has run keeps what is left of it, also when the only member that waits is one that it
// had too many from the begin.
func TestGangThatRanKeepsItsRest(t *testing.T) {
	b := newBench(t, "a", "b")
	made := metav1.NewTime(time.Unix(1000, 0))
	pods := b.gangPods("job", 3, 8)
	for i, pod := range pods {
		delete(pod.Labels, contract.TopologyReplicasLabel)
		pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = "job", "2"
		pod.CreationTimestamp = made
		if i == 2 {
			continue
		}
		pod.Spec.NodeName = []string{"a", "b"}[i]
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: made}}
		annotations, err := contract.Allocation{Node: pod.Spec.NodeName, GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}.Annotations()
		require.NoError(t, err)
		pod.Annotations = annotations
	}
	b.submit(pods)
	b.plugin.work.add(b.cache.RemoveNode("b"))
	b.end(pods[1])
	_, status := b.cycle(pods[2])
	b.work()
	assert.Contains(t, status.Message(), "1 of 2 members fit")
	assert.NotNil(t, b.live(pods[0]))
	assert.Zero(t, b.evicted(metrics.Partial))
}

// Gangs wait in the order of the queue, as the planner has it and users are told it: by the highest priority of a
// gang's pods and the oldest of them, whichever was seen first.
func TestOrderOfGangsThatWait(t *testing.T) {
	begin := time.Now().Add(-time.Minute)
	at := func(second int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(begin.Add(time.Duration(second) * time.Second))
		}
	}
	of := func(priority int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Priority = &priority }
	}
	for name, test := range map[string]struct {
		first, second, rival []func(*corev1.Pod)
	}{
		"the second pod is more important": {[]func(*corev1.Pod){at(9)}, []func(*corev1.Pod){at(9), of(10)}, []func(*corev1.Pod){at(1), of(5)}},
		"the second pod is older":          {[]func(*corev1.Pod){at(9)}, []func(*corev1.Pod){at(1)}, []func(*corev1.Pod){at(5)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			change := func(pod *corev1.Pod, changes []func(*corev1.Pod)) {
				for _, c := range changes {
					c(pod)
				}
			}
			full := b.runs("full", "a", 1, 8, 0)
			most := full[0].DeepCopy()
			of(100)(most)
			b.plugin.work.add(b.cache.SetPod(most))
			job, rival := b.gangPods("job", 2, 4), b.gangPods("rival", 1, 8)
			change(job[0], test.first)
			change(job[1], test.second)
			change(rival[0], test.rival)
			for _, pods := range [][]*corev1.Pod{job, rival} {
				b.submit(pods)
				_, status := b.cycle(pods[0])
				require.True(t, status.IsRejected())
				b.work()
			}
			b.handle.takeActivated()
			b.end(most)
			assert.Equal(t, []string{"job-0"}, b.handle.takeActivated())
		})
	}
}

// A scheduler that starts finds a gang of which a member was lost, and whose members beyond the minimum have waited
// since before the others were bound: they do not tell that it never ran.
func TestElasticGangSurvivesARestart(t *testing.T) {
	b := newBench(t, "a")
	made := metav1.NewTime(time.Unix(1000, 0))
	pods := b.gangPods("job", 7, 2)
	for i, pod := range pods {
		delete(pod.Labels, contract.TopologyReplicasLabel)
		pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = "job", "4"
		pod.CreationTimestamp = made
		if i > 2 {
			continue
		}
		pod.Spec.NodeName = "a"
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: made}}
		annotations, err := contract.Allocation{Node: "a", GPUs: []int{2 * i, 2*i + 1}}.Annotations()
		require.NoError(t, err)
		pod.Annotations = annotations
	}
	b.runs("other", "a", 1, 2, 6)
	b.submit(pods)
	_, status := b.cycle(pods[3])
	b.failed(pods[3], status)
	require.True(t, status.IsRejected())
	assert.NotNil(t, b.live(pods[0]))
	assert.Zero(t, b.evicted(metrics.Partial))
}

// Of a gang that is evicted as a whole the first replacement does not start beside those that leave.
func TestReplacementWaitsForTheOthers(t *testing.T) {
	b := newBench(t, "a", "b")
	made := metav1.NewTime(time.Unix(1000, 0))
	pods := b.gangPods("job", 2, 8)
	for i, pod := range pods {
		pod.Spec.NodeName, pod.CreationTimestamp = []string{"a", "b"}[i], made
		podtest.OwnedBy("owner")(pod)
		annotations, err := contract.Allocation{Node: pod.Spec.NodeName, GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}.Annotations()
		require.NoError(t, err)
		pod.Annotations = annotations
	}
	b.submit(pods)
	leaves := pods[1].DeepCopy()
	leaves.DeletionTimestamp = &made
	b.plugin.work.add(b.cache.SetPod(leaves))
	first := b.replaced(pods[0])
	b.submit([]*corev1.Pod{first})
	status := b.plugin.PreEnqueue(t.Context(), first)
	assert.Contains(t, status.Message(), "1 more pod of gang ns/job must appear")

	b.submit([]*corev1.Pod{b.replaced(leaves)})
	_, status = b.cycle(first)
	assert.Equal(t, fwk.Wait, status.Code(), status.Message())
}

// Where the members of a gang leave one after the other, and are made again meanwhile, as in a drain, the new ones are placed together.
func TestReplacementsOfAGangThatLeavesOneByOne(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 2)
	for i, pod := range pods {
		pod.Spec.NodeName = "a"
		podtest.OwnedBy("owner")(pod)
		annotations, err := contract.Allocation{Node: "a", GPUs: []int{2 * i, 2*i + 1}}.Annotations()
		require.NoError(t, err)
		pod.Annotations = annotations
	}
	b.submit(pods)
	b.clock = time.Unix(1000, 0)
	loses := func(pod *corev1.Pod) *corev1.Pod {
		change := b.cache.RemovePod(pod.UID)
		b.plugin.departs(change)
		b.plugin.work.add(change)
		again := b.replaced(pod)
		b.submit([]*corev1.Pod{again})
		return again
	}
	first := loses(pods[0])
	status := b.plugin.PreEnqueue(t.Context(), first)
	assert.Equal(t, "members of gang ns/job are leaving one after the other, and those that replace them are placed together", status.Message())
	loses(pods[1])
	b.elapse()
	_, status = b.cycle(first)
	assert.Equal(t, fwk.Wait, status.Code(), status.Message())
}

// A member that alone was lost is replaced when no other has left for a moment.
func TestReplacementOfOneMember(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 2)
	for i, pod := range pods {
		pod.Spec.NodeName = "a"
		annotations, err := contract.Allocation{Node: "a", GPUs: []int{2 * i, 2*i + 1}}.Annotations()
		require.NoError(t, err)
		pod.Annotations = annotations
	}
	b.submit(pods)
	b.clock = time.Unix(1000, 0)
	change := b.cache.RemovePod(pods[0].UID)
	b.plugin.departs(change)
	b.plugin.work.add(change)
	again := b.replaced(pods[0])
	b.submit([]*corev1.Pod{again})
	require.NotNil(t, b.plugin.PreEnqueue(t.Context(), again))
	assert.Contains(t, b.elapse(), departurePause)
	assert.Nil(t, b.plugin.PreEnqueue(t.Context(), again))
	node, status := b.cycle(again)
	assert.Equal(t, "a", node, status.Message())
}

// A gang that has run does not vouch for what replaces it: when it was evicted as a whole, and only the
// first of the next run was bound, that is evicted, too.
func TestNextRunThatIsCutShort(t *testing.T) {
	b := newBench(t, "a", "b")
	made := metav1.NewTime(time.Unix(1000, 0))
	bound := func(pod *corev1.Pod, node string) {
		pod.Spec.NodeName, pod.CreationTimestamp = node, made
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: made}}
		annotations, err := contract.Allocation{Node: node, GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}.Annotations()
		require.NoError(t, err)
		pod.Annotations = annotations
	}
	pods := b.gangPods("job", 2, 8)
	bound(pods[0], "a")
	bound(pods[1], "b")
	b.submit(pods)
	first := b.replaced(pods[0])
	b.submit([]*corev1.Pod{first})
	second := b.replaced(pods[1])
	first = first.DeepCopy()
	bound(first, "a")
	b.plugin.work.add(b.cache.RemoveNode("b"))
	b.submit([]*corev1.Pod{first, second})
	_, status := b.cycle(second)
	b.work()
	assert.Contains(t, status.Message(), "1 of 2 members fit")
	assert.Nil(t, b.live(first))
	assert.NotZero(t, b.evicted(metrics.Partial))
}

// A member that is deleted while its gang is being bound does not make a gang of the others, however much
// later it is made again.
func TestMemberGoesWhileTheGangIsBound(t *testing.T) {
	for name, whole := range map[string]bool{"before the gang ran": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b")
			made := metav1.NewTime(time.Unix(1000, 0))
			pods := b.gangPods("job", 2, 8)
			pods[0].CreationTimestamp, pods[1].CreationTimestamp = made, made
			b.submit(pods)
			for _, pod := range pods {
				_, status := b.cycle(pod)
				require.True(t, status.IsSuccess() || status.IsWait(), status.Message())
			}
			bound := func(pod *corev1.Pod) *corev1.Pod {
				pod = pod.DeepCopy()
				record := assumedIn(b.states[pod.UID]).record
				annotations, err := record.Annotations()
				require.NoError(t, err)
				pod.Annotations, pod.Spec.NodeName = annotations, record.Node
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: made}}
				b.plugin.work.add(b.cache.SetPod(pod))
				return pod
			}
			first, lost := bound(pods[0]), assumedIn(b.states[pods[1].UID]).node
			b.bind(pods[0], first.Spec.NodeName)
			if whole {
				bound(pods[1])
				b.bind(pods[1], lost)
			}
			b.work()
			again := b.replaced(pods[1])
			again.CreationTimestamp = metav1.NewTime(made.Add(time.Hour))
			b.work()
			b.plugin.work.add(b.cache.RemoveNode(lost))
			b.submit([]*corev1.Pod{again})
			_, status := b.cycle(again)
			b.work()
			assert.Contains(t, status.Message(), "1 of 2 members fit")
			assert.Equal(t, whole, b.live(first) != nil)
			assert.Equal(t, !whole, b.evicted(metrics.Partial) == 1)
		})
	}
}

// A gang that was cut short and does not fit any more is recreated as a whole; one
// that ran and lost a member keeps the others.
func TestPartialGangIsEvicted(t *testing.T) {
	made := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		pendingSince time.Time
		fails        string // the call that fails once
		deleted      bool
	}{
		"cut short":                     {made, "", true},
		"cut short, not marked at once": {made, "patch", true},
		"cut short, not gone at once":   {made, "delete", true},
		"a replacement":                 {made.Add(time.Hour), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			pods := b.gangPods("job", 2, 8)
			pods[0].Spec.NodeName = "a"
			pods[0].CreationTimestamp = metav1.NewTime(made)
			pods[0].Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(made.Add(time.Second)),
			}}
			pods[1].CreationTimestamp = metav1.NewTime(test.pendingSince)
			annotations, err := contract.Allocation{Node: "a", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}.Annotations()
			require.NoError(t, err)
			pods[0].Annotations = annotations
			b.submit(pods)
			if test.fails != "" {
				b.failOnce(test.fails)
			}
			_, status := b.cycle(pods[1])
			assert.Contains(t, status.Message(), "1 of 2")
			b.work()
			if test.fails != "" {
				assert.Zero(t, b.evicted(metrics.Partial))
				assert.Equal(t, []time.Duration{evictAgain}, b.elapse())
			}
			_, err = b.handle.client.CoreV1().Pods("ns").Get(t.Context(), pods[0].Name, metav1.GetOptions{})
			assert.Equal(t, test.deleted, apierrors.IsNotFound(err))
			assert.Equal(t, test.deleted, b.evicted(metrics.Partial) == 1)
			assert.Equal(t, test.deleted, b.marked(pods[0].Name), "the standard condition of pods that are evicted")
		})
	}
}

// Once its gang is binding, a member whose binding fails keeps its GPUs.
func TestFailedBindingKeepsThePodAssumed(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 4)
	b.submit(pods)
	b.cycle(pods[0])
	node, status := b.cycle(pods[1])
	require.True(t, status.IsSuccess())
	b.bind(pods[0], node)
	b.plugin.Unreserve(t.Context(), b.states["job-1"], pods[1], node)
	b.work()

	rival := b.gangPods("rival", 1, 1)
	b.submit(rival)
	_, status = b.cycle(rival[0])
	assert.Contains(t, status.Message(), "0 of 1")
	again, status := b.cycle(pods[1])
	assert.True(t, status.IsSuccess())
	assert.Equal(t, node, again)
}

// Only an answer that will be the same a moment later, and is about the node, takes a member off it.
func TestBindingsThatAreRefused(t *testing.T) {
	pods := corev1.Resource("pods")
	for name, test := range map[string]struct {
		answer error
		want   bool
	}{
		"policy":       {apierrors.NewForbidden(pods, "job-0", errors.New("frozen")), true},
		"invalid":      {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), "job-0", nil), true},
		"conflict":     {apierrors.NewConflict(pods, "job-0", errors.New("it has a node")), false},
		"gone":         {apierrors.NewNotFound(pods, "job-0"), false},
		"webhook away": {apierrors.NewInternalError(errors.New("no endpoints")), false},
		"busy":         {apierrors.NewTooManyRequests("later", 1), false},
		"no answer":    {errors.New("EOF"), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, refusesBinding(test.answer))
		})
	}
	assert.False(t, refusesBinding(nil))
}

// A binding whose answer was lost worked all the same: the member is no longer assumed as
// soon as the API server shows the pod bound, before the failure is known or after.
func TestBindingThatWorkedAllTheSame(t *testing.T) {
	for name, shownFirst := range map[string]bool{"shown first": true, "shown later": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			pods := b.gangPods("job", 1, 4)
			b.submit(pods)
			node, status := b.cycle(pods[0])
			require.True(t, status.IsSuccess())
			bound := pods[0].DeepCopy()
			bound.Spec.NodeName = node
			show := func() { b.plugin.work.add(b.cache.SetPod(bound)) }
			fail := func() { b.plugin.Unreserve(t.Context(), b.states["job-0"], pods[0], node) }
			if shownFirst {
				show, fail = fail, show
			}
			fail()
			b.work()
			assert.Contains(t, b.plugin.gangs, "ns/job")
			show()
			b.work()
			assert.NotContains(t, b.plugin.gangs, "ns/job")
			assert.NotContains(t, b.plugin.begun, "ns/job", "it runs")
			assert.Contains(t, b.plugin.ran, "ns/job")
		})
	}
}

// A replica that stands by has a first pod in mind that the leading scheduler binds.
func TestFirstPodBoundByAnotherScheduler(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 8)
	elastic(pods, 0)
	b.submit(pods)
	b.handle.takeActivated()
	require.Equal(t, pods[0].UID, b.plugin.gangs["ns/job"].firstPod)
	bound := pods[0].DeepCopy()
	bound.Spec.NodeName = "a"
	b.plugin.work.add(b.cache.SetPod(bound))
	b.work()
	assert.Equal(t, []string{"job-1"}, b.handle.takeActivated())
}

// A pod that the queue has seen, but not the view, when its gang was done is activated later.
func TestPodAppearsWhenItsGangIsDone(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 4)
	elastic(pods, 0)
	b.submit(pods[:1])
	node, _ := b.cycle(pods[0])
	b.plugin.PreEnqueue(t.Context(), pods[1])
	b.bind(pods[0], node)
	b.work()
	b.handle.takeActivated()
	b.plugin.work.add(b.cache.SetPod(pods[1]))
	b.work()
	assert.Equal(t, []string{"job-1"}, b.handle.takeActivated())
}

// refusedAnyhow is a cycle in which another plugin refuses a pod whatever the node.
func (b *bench) refusedAnyhow(pod *corev1.Pod) {
	b.Helper()
	nodes := framework.NewDefaultNodeToStatus()
	nodes.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "volume claim not found"))
	_, status := b.plugin.PostFilter(b.Context(), framework.NewCycleState(), pod, nodes)
	assert.Empty(b, status.Message(), "the reason is the other plugin's")
}

// allowed is a cycle in which the other plugins let a pod by that one of them has refused: its gang is planned with it.
func (b *bench) allowed(pod *corev1.Pod) {
	b.Helper()
	require.True(b, b.plugin.PreEnqueue(b.Context(), pod).IsSuccess(), "that plugin's events bring it back")
	b.handle.takeActivated()
	_, status := b.cycle(pod)
	require.Contains(b, status.Message(), "is being planned with it")
	b.work()
}

// A gang that needs a pod which another plugin refuses whatever the node waits for it.
func TestGangThatNeedsARefusedPod(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 1)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	require.True(t, status.IsWait())
	b.refusedAnyhow(pods[0])
	assert.True(t, b.handle.waiting["job-1"].rejected)
	b.plugin.Unreserve(t.Context(), b.states["job-1"], pods[1], "a")
	b.work()
	assert.Equal(t, "gang ns/job cannot start: pod job-0: volume claim not found", b.says(pods[1]))
	b.allowed(pods[0])
	assert.Len(t, b.handle.takeActivated(), 1)
	_, status = b.cycle(pods[1])
	assert.True(t, status.IsWait())
}

// A pod that another plugin refuses whatever the node, and that is deleted then, is not waited for.
func TestRefusedPodIsReplaced(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 1)
	b.submit(pods)
	b.refusedAnyhow(pods[0])
	b.work()
	assert.Contains(t, b.says(pods[1]), "volume claim not found")
	b.plugin.work.add(b.cache.RemovePod(pods[0].UID))
	b.work()
	again := pods[0].DeepCopy()
	again.UID = "again"
	b.handle.takeActivated()
	b.submit([]*corev1.Pod{again})
	assert.Len(t, b.handle.takeActivated(), 1, "a first pod comes")
	for _, pod := range []*corev1.Pod{again, pods[1]} {
		_, status := b.cycle(pod)
		assert.False(t, status.IsRejected(), status.Message())
	}
}

// An attempt that a plugin's refusal has ended does not keep that pod out of the queue.
func TestRefusedPodMayComeBackAtOnce(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 1)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	require.True(t, status.IsWait())
	b.refusedAnyhow(pods[0])
	b.plugin.reconcile(t.Context(), "ns/job") // its members are charged still
	b.plugin.Unreserve(t.Context(), b.states["job-1"], pods[1], "a")
	assert.True(t, b.plugin.PreEnqueue(t.Context(), pods[0]).IsSuccess())
}

// A gang goes on without a pod that another plugin refuses whatever the node, when it has as many others as it needs, whenever
// these come; the refused one joins it once that plugin lets it.
func TestGangWithoutARefusedPod(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 3, 1)
	elastic(pods, 0)
	run := func(pod *corev1.Pod) {
		t.Helper()
		require.Contains(t, b.handle.takeActivated(), pod.Name)
		require.True(t, b.plugin.PreEnqueue(t.Context(), pod).IsSuccess(), b.says(pod))
		node, status := b.cycle(pod)
		require.True(t, status.IsSuccess(), status.Message())
		record, err := assumedIn(b.states[pod.UID]).record.Annotations()
		require.NoError(t, err)
		b.bind(pod, node)
		bound := pod.DeepCopy()
		bound.Spec.NodeName, bound.Annotations = node, record
		b.plugin.work.add(b.cache.SetPod(bound))
		b.work()
	}
	b.submit(pods[:1])
	run(pods[0])
	b.submit(pods[1:2])
	require.True(t, b.plugin.PreEnqueue(t.Context(), pods[1]).IsSuccess())
	b.refusedAnyhow(pods[1])
	b.work()
	b.submit(pods[2:])
	run(pods[2])

	b.plugin.work.add(b.cache.RemovePod(pods[0].UID))
	b.work()
	again := pods[0].DeepCopy()
	again.UID = "again"
	b.submit([]*corev1.Pod{again})
	run(again)

	b.allowed(pods[1])
	run(pods[1])
	assert.NotContains(t, b.plugin.gangs, "ns/job")
}

// A gang that waits for room waits without a pod that another plugin refuses, which may come back all the same.
func TestRefusedPodOfAGangThatWaits(t *testing.T) {
	b := newBench(t, "a")
	low := b.spread("low", "a")
	pods := b.gangPods("job", 3, 4)
	elastic(pods, 0)
	b.submit(pods)
	_, status := b.cycle(pods[0])
	require.Contains(t, status.Message(), "0 of 1")
	b.refusedAnyhow(pods[0])
	b.work()
	assert.Contains(t, b.says(pods[1]), "0 of 1")
	b.handle.takeActivated()
	b.end(low[0])
	assert.Equal(t, []string{"job-1"}, b.handle.takeActivated())
	_, status = b.cycle(pods[1])
	assert.True(t, status.IsWait())
	assert.Len(t, b.plugin.gangs["ns/job"].assumed, 2)
	assert.True(t, b.plugin.PreEnqueue(t.Context(), pods[0]).IsSuccess())
}

func TestCrashedGangIsCompletedFirst(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 4)
	pods[0].Spec.NodeName = "a"
	annotations, err := contract.Allocation{Node: "a", GPUs: []int{0, 1, 2, 3}}.Annotations()
	require.NoError(t, err)
	pods[0].Annotations = annotations
	rival := b.gangPods("rival", 1, 4)
	b.submit(append(pods, rival...))

	_, status := b.cycle(rival[0])
	assert.Contains(t, status.Message(), "0 of 1", "the rest of the gang comes first")
	assert.Len(t, b.handle.nominated, 1, "other pods must leave it its room")
	_, status = b.cycle(pods[1])
	assert.True(t, status.IsSuccess())
}

func TestQueueOrder(t *testing.T) {
	b := newBench(t, "a")
	start := time.Unix(1000, 0)
	early, late := b.gangPods("early", 2, 1), b.gangPods("late", 2, 1)
	for i := range 2 {
		early[i].CreationTimestamp = metav1.NewTime(start)
		late[i].CreationTimestamp = metav1.NewTime(start.Add(time.Second))
	}
	urgent := b.gangPods("urgent", 1, 1)
	priority := int32(10)
	urgent[0].Spec.Priority = &priority
	b.submit(early)
	b.submit(late)
	b.submit(urgent)
	info := func(pod *corev1.Pod, queued time.Time) fwk.QueuedPodInfo {
		inner, err := framework.NewPodInfo(pod)
		require.NoError(t, err)
		return &framework.QueuedPodInfo{PodInfo: inner, Timestamp: queued}
	}
	later := start.Add(time.Hour)
	assert.True(t, b.plugin.Less(info(urgent[0], later), info(early[0], start)))
	assert.True(t, b.plugin.Less(info(early[1], later), info(late[0], start)), "members share the gang's position")
	assert.False(t, b.plugin.Less(info(late[0], start), info(early[1], later)))
	assert.True(t, b.plugin.Less(info(early[1], start), info(early[0], later)))

	lone := b.gangPods("lone", 1, 1)
	delete(lone[0].Labels, contract.TopologyGroupLabel)
	delete(lone[0].Labels, contract.TopologyReplicasLabel)
	lone[0].CreationTimestamp = metav1.NewTime(start.Add(-time.Second))
	assert.True(t, b.plugin.Less(info(lone[0], later), info(early[0], start)), "a pod on its own that was not seen yet")
	b.submit(lone)
	assert.True(t, b.plugin.Less(info(lone[0], later), info(early[0], start)), "a pod on its own keeps its arrival when it comes back")
	assert.False(t, b.plugin.Less(info(early[0], start), info(lone[0], later)))
	assert.Equal(t, []string{"pod/ns/lone-0", "ns/early", "ns/late"}, b.cache.InOrder([]string{"ns/late", "ns/early", "pod/ns/lone-0"}), "the worker's order")

	others := make([]*corev1.Pod, 2) // ask for no GPUs, so that they are in no gang
	for i := range others {
		others[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(rune('b' - i)), CreationTimestamp: metav1.NewTime(start)}}
	}
	assert.True(t, b.plugin.Less(info(others[0], start), info(others[1], later)), "as they were queued")
}

// TestGangThatMissingOneMemberAfterARestart: the member is planned in another pod's cycle, and
// activated although the queue took another pod of the gang for its first.
func TestGangThatMissingOneMemberAfterARestart(t *testing.T) {
	b := newBench(t, "n0", "n1")
	pods := b.gangPods("a", 5, 4)
	for _, pod := range pods {
		pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = "a", "4"
	}
	for i, record := range []contract.Allocation{
		{Node: "n0", GPUs: []int{0, 1, 2, 3}}, {Node: "n0", GPUs: []int{4, 5, 6, 7}}, {Node: "n1", GPUs: []int{0, 1, 2, 3}},
	} {
		annotations, err := record.Annotations()
		require.NoError(t, err)
		pods[1+i].Spec.NodeName, pods[1+i].Annotations = record.Node, annotations
	}
	b.submit(append(pods[1:], pods[0]))
	single := b.gangPods("b", 1, 8)
	b.submit(single)
	b.handle.takeActivated()

	b.cycle(single[0])
	assert.Equal(t, []string{"a-0"}, b.handle.takeActivated())
	node, status := b.cycle(pods[0])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "n1", node)
}

// Nothing is said of the plan to members that it did not name.
func TestMembersBeyondThePlan(t *testing.T) {
	b := newBench(t, "a")
	submit := func(name string, members int, plan string) []*corev1.Pod {
		pods := b.gangPods(name, members, 2)
		elastic(pods, members)
		for _, pod := range pods {
			pod.Annotations = map[string]string{contract.PlannedPlacementAnnotation: plan}
		}
		b.submit(pods)
		return pods
	}
	record := func(pod *corev1.Pod) contract.Allocation {
		return b.plugin.gangs["ns/"+pod.Labels[contract.TopologyGroupLabel]].assumed[pod.UID].record
	}

	pods := submit("job", 3, `{"version":1,"nodes":[{"node":"a","members":{"job-0":[6,7]}}]}`)
	for _, pod := range pods {
		_, status := b.cycle(pod)
		require.True(t, status.IsSuccess() || status.IsWait(), status.Message())
		assert.Empty(t, record(pod).NotAsPlanned, pod.Name)
	}
	assert.Equal(t, []int{6, 7}, record(pods[0]).GPUs)
	_, notes := b.written()
	assert.Empty(t, notes)

	pods = submit("taken", 1, `{"version":1,"nodes":[{"node":"a","members":{"taken-0":[6,7]}}]}`)
	_, status := b.cycle(pods[0])
	require.True(t, status.IsSuccess(), status.Message())
	assert.Contains(t, record(pods[0]).NotAsPlanned, "GPU 6, 7 of node a, where taken-0 was planned, cannot be had")
}

// Of a gang that cannot be where it was planned, the members say so that were planned.
func TestOnlyPlannedMembersAreNotAsPlanned(t *testing.T) {
	b := newBench(t, "a")
	b.submit(b.runs("other", "a", 1, 2, 6))
	pods := b.gangPods("job", 2, 2)
	elastic(pods, 2)
	for _, pod := range pods {
		pod.Annotations = map[string]string{contract.PlannedPlacementAnnotation: `{"version":1,"nodes":[{"node":"a","members":{"job-0":[6,7]}}]}`}
	}
	b.submit(pods)
	b.cycle(pods[0])
	assumed := b.plugin.gangs["ns/job"].assumed
	require.Len(t, assumed, 2)
	assert.Contains(t, assumed[pods[0].UID].record.NotAsPlanned, "cannot be had")
	assert.Empty(t, assumed[pods[1].UID].record.NotAsPlanned)
	_, notes := b.written()
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "NotAsPlanned")
}

// A member that others need something of goes up to its binding before they have their places, and is bound with them.
func TestMemberThatLeads(t *testing.T) {
	lead := func(t *testing.T) (b *bench, pods []*corev1.Pod, first *assumedPod) {
		b = newBench(t, "a")
		pods = b.gangPods("job", 3, 2)
		for _, pod := range pods {
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}
		b.submit(pods)
		state := framework.NewCycleState()
		b.states[pods[0].UID] = state
		_, status := b.plugin.PreFilter(t.Context(), state, pods[0], nil)
		require.True(t, status.IsSuccess(), status.Message())
		first = assumedIn(state)
		first.leads = true
		b.handle.takeActivated()
		require.True(t, b.plugin.Reserve(t.Context(), state, pods[0], "a").IsSuccess())
		assert.Empty(t, b.handle.takeActivated(), "nobody comes after it yet")
		status, _ = b.plugin.Permit(t.Context(), state, pods[0], "a")
		require.True(t, status.IsSuccess(), status.Message())
		_, status = b.attempt(pods[1])
		assert.Contains(t, status.Message(), "other members of gang ns/job come before it")
		b.failed(pods[1], status)
		assert.Empty(t, b.handle.takeActivated())
		return b, pods, first
	}
	t.Run("they follow", func(t *testing.T) {
		b, pods, first := lead(t)
		bound := make(chan *fwk.Status)
		go func() { bound <- b.plugin.awaitOthers(t.Context(), first) }()
		require.Eventually(t, func() bool {
			b.plugin.mu.Lock()
			defer b.plugin.mu.Unlock()
			return first.prepared
		}, time.Minute, time.Millisecond)
		_, status := b.attempt(pods[1])
		require.True(t, status.IsWait(), status.Message())
		_, status = b.attempt(pods[2])
		require.True(t, status.IsSuccess(), status.Message())
		b.plugin.prepare(assumedIn(b.states[pods[1].UID]))
		assert.Equal(t, phasePreparing, first.attempt.phase)
		b.plugin.prepare(assumedIn(b.states[pods[2].UID]))
		assert.True(t, (<-bound).IsSuccess())
		assert.Equal(t, phaseBinding, first.attempt.phase)
	})
	t.Run("one is told to wait at this moment", func(t *testing.T) {
		b, pods, first := lead(t)
		_, status := b.attempt(pods[1])
		b.plugin.prepare(first)
		b.failed(pods[1], status)
		assert.Equal(t, []string{"job-1"}, b.handle.takeActivated())
	})
	t.Run("another has no place", func(t *testing.T) {
		b, pods, first := lead(t)
		b.plugin.prepare(first)
		_, status := b.attempt(pods[1])
		require.True(t, status.IsWait(), status.Message())
		b.refuse(pods[2])
		assert.Contains(t, b.plugin.awaitOthers(t.Context(), first).Message(), "is being planned again")
		for _, pod := range pods[:2] {
			b.plugin.Unreserve(t.Context(), b.states[pod.UID], pod, "a")
		}
		assert.Equal(t, phaseClosing, first.attempt.phase)
		assert.False(t, b.cache.Assumed(pods[0].UID), "the places are free")
	})
}
