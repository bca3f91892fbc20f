package gang

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedfake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// Bindings that the API server refuses, and what comes of the gang.

var podResource = schema.GroupResource{Resource: "pods"}

func forbidden() error { return apierrors.NewForbidden(podResource, "job-3", assert.AnError) }

// starts has the members of a gang that are not bound pass their cycles.
func (b *bench) starts(pods []*corev1.Pod) {
	b.Helper()
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			_, status := b.cycle(pod)
			require.True(b, status.IsSuccess() || status.IsWait(), status.Message())
		}
	}
}

// confirms has the API server show members bound that have passed their cycles.
func (b *bench) confirms(pods ...*corev1.Pod) {
	b.Helper()
	for i, pod := range pods {
		record := assumedIn(b.states[pod.UID]).record
		annotations, err := record.Annotations()
		require.NoError(b, err)
		pods[i] = pod.DeepCopy()
		pods[i].Spec.NodeName, pods[i].Annotations = record.Node, annotations
		pods[i].Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(pod.CreationTimestamp.Add(time.Second)),
		}}
		b.bind(pod, record.Node)
		b.plugin.work.add(b.cache.SetPod(pods[i]))
	}
	b.work()
}

// answers has the API server give an answer to a member's binding a number of times.
func (b *bench) answers(pod *corev1.Pod, answer error, times int) {
	b.Helper()
	for i := range times {
		if i > 0 {
			_, status := b.cycle(pod)
			if !status.IsSuccess() {
				return // it does not try any more
			}
		}
		b.plugin.Unreserve(b.Context(), b.states[pod.UID], pod, assumedIn(b.states[pod.UID]).node)
		b.failed(pod, fwk.AsStatus(answer))
	}
}

// A gang of which the API server refuses to bind a member, again and again and for good, does not run in part: those that are bound
// are evicted, unless it can run with them or did so.
func TestMemberThatTheAPIServerRefusesToBind(t *testing.T) {
	refused := func(answer error, times int) func(*bench, []*corev1.Pod) {
		return func(b *bench, pods []*corev1.Pod) {
			b.starts(pods)
			b.confirms(pods[:3]...)
			b.answers(pods[3], answer, times)
		}
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "job-3", nil)
	for name, test := range map[string]struct {
		bind  func(b *bench, pods []*corev1.Pod)
		stays bool
	}{
		"forbidden":      {bind: refused(forbidden(), unbindableAfter)},
		"invalid":        {bind: refused(invalid, unbindableAfter)},
		"not often":      {bind: refused(forbidden(), unbindableAfter-1), stays: true},
		"a conflict":     {bind: refused(apierrors.NewConflict(podResource, "job-3", nil), 9), stays: true},
		"a time-out":     {bind: refused(apierrors.NewTimeoutError("slow", 1), 9), stays: true},
		"internal":       {bind: refused(apierrors.NewInternalError(assert.AnError), 9), stays: true},
		"nobody answers": {bind: refused(assert.AnError, 9), stays: true},
		"others bind yet": {bind: func(b *bench, pods []*corev1.Pod) {
			b.starts(pods)
			b.answers(pods[3], forbidden(), unbindableAfter)
			b.confirms(pods[:3]...)
		}},
		"two of them": {bind: func(b *bench, pods []*corev1.Pod) {
			b.starts(pods)
			b.confirms(pods[:2]...)
			b.answers(pods[3], forbidden(), unbindableAfter)
			require.NotNil(b, b.live(pods[0]), "the other may be bound yet")
			b.answers(pods[2], forbidden(), 1)
		}},
		"after a scheduler that was killed": {bind: func(b *bench, pods []*corev1.Pod) {
			b.starts(pods)
			b.confirms(pods[:3]...)
			b.plugin.free(assumedIn(b.states[pods[3].UID]))
			clear(b.plugin.gangs)
			clear(b.plugin.begun)
			b.submit(pods[3:])
			b.starts(pods[3:])
			b.answers(pods[3], forbidden(), unbindableAfter)
		}},
		"of a gang that runs without it": {bind: func(b *bench, pods []*corev1.Pod) {
			elastic(pods, 4)
			b.submit(pods)
			refused(forbidden(), 9)(b, pods)
		}, stays: true},
		"of a gang that ran": {bind: func(b *bench, pods []*corev1.Pod) {
			b.starts(pods)
			b.confirms(pods...)
			again := b.replaced(pods[3])
			b.submit([]*corev1.Pod{again})
			b.starts([]*corev1.Pod{again})
			b.answers(again, forbidden(), 9)
		}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			pods := b.gangPods("job", 4, 2)
			b.submit(pods)
			test.bind(b, pods)
			if test.stays {
				assert.NotNil(t, b.live(pods[0]))
				assert.Zero(t, b.evicted(metrics.Partial))
				assert.Len(t, b.plugin.gangs["ns/job"].assumed, 1, "the other keeps its place")
				return
			}
			for _, pod := range pods[:2] {
				assert.Nil(t, b.live(pod), pod.Name)
				b.end(pod)
			}
			assert.NotZero(t, b.evicted(metrics.Partial))
			assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[3]).Message(), "must appear")
			rival := b.gangPods("rival", 1, 4)
			b.submit(rival)
			_, status := b.cycle(rival[0])
			assert.True(t, status.IsSuccess(), "its GPUs are free: %s", status.Message())
		})
	}
}

// A gang that was refused waits as a whole, for a pause that doubles, and says why. Before it is bound the API server is asked about all
// of its members.
func TestGangWithAMemberThatCannotBeBound(t *testing.T) {
	b := newBench(t, "a")
	recorder := events.NewFakeRecorder(100)
	b.handle.recorder = recorder
	pods := b.gangPods("job", 4, 2)
	b.submit(pods)
	b.starts(pods)
	bound := append([]*corev1.Pod{}, pods[:3]...)
	b.confirms(bound...)
	b.answers(pods[3], forbidden(), unbindableAfter)
	told := ""
	for len(recorder.Events) > 0 {
		told += <-recorder.Events
	}
	assert.Contains(t, told, "PartialGangEvicted gang ns/job never ran as a whole, and the API server refuses to bind pod ns/job-3: pods \"job-3\" is forbidden")
	assert.Contains(t, b.live(pods[3]).Status.Conditions[0].Message, "the API server refuses to bind pod ns/job-3: pods \"job-3\" is forbidden")
	for i, pod := range bound {
		pods[i] = b.replaced(pod)
	}
	var answer error
	asked := 0
	ask := func(context.Context) error {
		asked++
		return answer
	}
	answer = forbidden()
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		b.submit(pods)
		assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[3]).Message(), "refuses to bind")
		assert.Contains(t, b.plugin.PreEnqueue(t.Context(), pods[0]).Message(), "refuses to bind")
		b.handle.takeActivated()
		require.Contains(t, b.pauses(), time.Duration(seconds)*time.Second)
		b.elapse()
		require.Contains(t, b.handle.takeActivated(), "job-3")
		require.True(t, b.plugin.PreEnqueue(t.Context(), pods[3]).IsSuccess())
		for i := range pods {
			_, status := b.attempt(pods[3-i])
			require.False(t, status.IsRejected(), status.Message())
		}
		status := b.plugin.askWhetherBindable(t.Context(), assumedIn(b.states[pods[3].UID]), ask)
		assert.Contains(t, status.Message(), "refuses to bind pod ns/job-3")
		for _, pod := range pods {
			b.plugin.Unreserve(t.Context(), b.states[pod.UID], pod, "a")
		}
		b.failed(pods[3], status)
		b.work()
	}
	assert.Equal(t, 11, asked)
	answer = nil
	b.elapse()
	require.True(t, b.plugin.PreEnqueue(t.Context(), pods[3]).IsSuccess())
	b.starts(pods[3:])
	b.starts(pods[:3])
	s := assumedIn(b.states[pods[3].UID])
	assert.True(t, b.plugin.askWhetherBindable(t.Context(), s, ask).IsSuccess())
	b.confirms(pods...)
	assert.NotContains(t, b.plugin.gangs, "ns/job", "it runs")
}

// A gang of which a member was refused evicts nobody before the API server would bind all.
func TestGangThatCannotBeBoundEvictsNobody(t *testing.T) {
	b := newBench(t, "a", "b")
	low := b.spread("low", "a", "b")
	big := b.urgent("big", 2, 8)
	b.submit(big)
	b.plugin.gangs["ns/big"].bindPause = time.Second
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(t, ok)
	var answer error
	fake.PrependReactor("create", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		bound, ok := action.(kubetesting.CreateAction).GetObject().(*corev1.Binding)
		require.True(t, ok)
		if bound.Name == "big-1" {
			return true, nil, answer
		}
		return true, nil, nil
	})
	answer = forbidden()
	_, status := b.cycle(big[0])
	b.work()
	assert.Contains(t, status.Message(), "refuses to bind pod ns/big-1")
	assert.NotNil(t, b.live(low[0]))
	answer = nil
	assert.Contains(t, b.elapse(), 2*time.Second)
	_, status = b.cycle(big[1])
	b.work()
	assert.Contains(t, status.Message(), "evicted for it: gang ns/low")
	assert.Nil(t, b.live(low[0]))
}
