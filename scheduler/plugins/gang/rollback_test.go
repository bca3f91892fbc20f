package gang

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// interruptedHandle lets something else happen when a nomination is taken back: while pods
// are being given, and while they are being freed.
type interruptedHandle struct {
	*fakeHandle
	meanwhile func()
}

func (h *interruptedHandle) DeleteNominatedPodIfExists(pod *corev1.Pod) {
	h.fakeHandle.DeleteNominatedPodIfExists(pod)
	h.meanwhile()
}

// refuse runs a cycle of a pod whose planned node another plugin refuses.
func (b *bench) refuse(pod *corev1.Pod) {
	b.Helper()
	state := framework.NewCycleState()
	_, status := b.plugin.PreFilter(b.Context(), state, pod, nil)
	require.True(b, status.IsSuccess(), status.Message())
	b.plugin.PostFilter(b.Context(), state, pod, framework.NewDefaultNodeToStatus())
}

// awaitLock waits until another goroutine that runs a function waits for a lock.
func awaitLock(function string) {
	stacks := make([]byte, 1<<20)
	for {
		for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, function) && strings.Contains(stack, "[sync.Mutex.Lock") {
				return
			}
		}
		runtime.Gosched()
	}
}

// Members whose quota or gang changes by their labels before they are bound are planned by what they are now.
func TestMembersThatAreRelabelledWhileTheyArePlaced(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *corev1.Pod)
		from   int // the first of those that change
		says   string
	}{
		"another leaf":                        {func(p *corev1.Pod) { p.Labels[contract.QuotaLabel] = "full" }, 0, "root/full"},
		"not preemptible, beyond the minimum": {func(p *corev1.Pod) { p.Labels[contract.PreemptibleLabel] = "false" }, 0, "root/left"},
		"another gang":                        {func(p *corev1.Pod) { p.Labels[contract.TopologyGroupLabel] = "other" }, 1, "must appear"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b")
			b.setLeaves(leaf("left", "0"), leaf("full", "8"))
			full := b.gangPods("full", 1, 8)
			b.submit(b.in("full", full))
			node, _ := b.cycle(full[0])
			b.bind(full[0], node)
			b.work()
			pods := b.in("left", b.gangPods("job", 2, 2))
			b.submit(pods)
			at, status := b.cycle(pods[0])
			require.True(t, status.IsWait(), status.Message())
			for _, pod := range pods[test.from:] {
				relabelled := pod.DeepCopy()
				test.change(relabelled)
				b.plugin.work.add(b.cache.SetPod(relabelled))
			}
			b.work()
			require.True(t, b.handle.waiting[pods[0].UID].rejected)
			b.plugin.Unreserve(t.Context(), b.states[pods[0].UID], pods[0], at)
			b.work()
			assert.False(t, b.cache.Assumed(pods[1].UID))
			_, status = b.cycle(pods[0])
			assert.True(t, status.IsRejected())
			assert.Contains(t, status.Message(), test.says)
		})
	}
}

// A member that changes its gang while it is placed belongs to the other one once it has given its place back: that
// is complete then, and nobody else tells it so.
func TestGangThatGetsItsLastMemberFromAnother(t *testing.T) {
	b := newBench(t, "a", "b")
	pods := b.gangPods("job", 2, 2)
	b.submit(pods)
	at, status := b.cycle(pods[0])
	require.True(t, status.IsWait(), status.Message())
	b.submit(b.gangPods("other", 2, 2)[:1])
	relabelled := pods[1].DeepCopy()
	relabelled.Labels[contract.TopologyGroupLabel] = "other"
	b.plugin.work.add(b.cache.SetPod(relabelled))
	b.work()
	b.handle.takeActivated()
	b.plugin.Unreserve(t.Context(), b.states[pods[0].UID], pods[0], at)
	b.work()
	assert.Contains(t, b.handle.takeActivated(), "job-1", "the first of the other gang")
}

// The worker may look at a gang just when an attempt of it ends. It must not take the gang for one
// that runs because its members were charged a moment ago: nobody would activate it again.
func TestGangIsNotDoneWhenARoundEnds(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 1)
	b.submit(pods)
	_, status := b.cycle(pods[0])
	require.True(t, status.IsWait())
	b.handle.takeActivated()

	settled := make(chan struct{})
	b.plugin.mu.Lock()
	go func() {
		defer close(settled)
		b.plugin.reconcile(t.Context(), "ns/job")
	}()
	awaitLock("gang.(*Plugin).reconcile")
	for _, pod := range pods { // as close does
		b.cache.Forget(pod.UID)
	}
	g := b.plugin.gangs["ns/job"]
	g.attempt, g.assumed = nil, map[types.UID]*assumedPod{}
	b.plugin.mu.Unlock()
	<-settled
	b.plugin.activate(t.Context(), "ns/job")
	assert.Len(t, b.handle.takeActivated(), 1, "a first pod comes back")
}

// The same holds while a gang is being planned: its members are charged before they are assumed.
func TestGangIsNotDoneWhileItIsPlanned(t *testing.T) {
	b := newBench(t, "a", "b")
	pods := b.gangPods("job", 1, 1)
	b.submit(pods)
	b.refuse(pods[0])
	b.elapse()
	b.handle.rejects = func(pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
		return map[bool]*fwk.Status{true: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "its volume is elsewhere").WithPlugin("Volumes")}[node.Node().Name == "a"]
	}
	looks := 0
	b.plugin.handle = &interruptedHandle{b.handle, func() {
		looks++
		b.plugin.reconcile(t.Context(), "ns/job")
	}}
	node, status := b.cycle(pods[0])
	require.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "b", node)
	assert.Positive(t, looks)
	rejected, _ := b.plugin.rejectedFor("ns/job")
	assert.Contains(t, rejected.String(), "1 node refused by Volumes", "what is known of the gang is not lost")
}

// A member that is taken off its node while the others run is tried again, whenever the worker
// looks.
func TestGangIsNotDoneWhileAMemberMoves(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 1)
	b.submit(pods)
	for _, pod := range pods {
		_, status := b.cycle(pod)
		require.False(t, status.IsRejected())
	}
	b.bind(pods[0], "a")
	b.plugin.Unreserve(t.Context(), b.states[pods[1].UID], pods[1], "a")
	b.plugin.handle = &interruptedHandle{b.handle, func() { b.plugin.reconcile(t.Context(), "ns/job") }}
	b.refuse(pods[1])
	assert.Equal(t, []time.Duration{retryDelay}, b.elapse())
	b.handle.takeActivated()
	b.refuse(pods[1])
	b.elapse()
	assert.Equal(t, []string{"job-1"}, b.handle.takeActivated(), "it is known which node was refused before")
	_, status := b.cycle(pods[1])
	assert.Contains(t, status.Message(), "1 node refused")
}

// While the pods of an attempt that failed are being freed, its gang is not planned: those whose
// pods are still to be released would count as running, and the others be bound without them.
func TestNobodyIsPlannedWhileAnAttemptAborts(t *testing.T) {
	b := newBench(t, "a", "b")
	pods := b.gangPods("job", 3, 1)
	b.submit(pods)
	for _, pod := range pods[1:] {
		_, status := b.cycle(pod)
		require.True(t, status.IsWait())
	}
	freed := 0
	b.cache.Subscribe(func(change clusterstate.Change) {
		if !change.RolledBack {
			return
		}
		freed++
		for _, pod := range pods {
			_, status := b.plugin.PreFilter(t.Context(), framework.NewCycleState(), pod, nil)
			assert.Contains(t, status.Message(), "planned again")
		}
	})
	state := framework.NewCycleState()
	_, status := b.plugin.PreFilter(t.Context(), state, pods[0], nil)
	require.True(t, status.IsSuccess())
	b.plugin.PostFilter(t.Context(), state, pods[0], framework.NewDefaultNodeToStatus())
	b.handle.takeActivated()
	for _, pod := range pods[1:] {
		b.plugin.Unreserve(t.Context(), b.states[pod.UID], pod, "a")
	}
	assert.Equal(t, 3, freed)
	assert.Equal(t, []time.Duration{retryDelay}, b.elapse())
	assert.Len(t, b.handle.takeActivated(), 1, "a first pod comes back")
}

// A member that is deleted ends its attempt.
func TestDeletedMemberAbortsTheAttempt(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 4)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	require.True(t, status.IsWait())
	b.plugin.work.add(b.cache.RemovePod("job-0"))
	b.work()
	assert.True(t, b.handle.waiting["job-1"].rejected)
	b.plugin.Unreserve(t.Context(), b.states["job-1"], pods[1], "a")
	b.work()

	rival := b.gangPods("rival", 1, 8)
	b.submit(rival)
	_, status = b.cycle(rival[0])
	assert.True(t, status.IsSuccess(), status.Message())
}

// Nobody is bound before other plugins have made what all members need, and nobody at all when
// they cannot.
func TestNobodyIsBoundBeforeAllArePrepared(t *testing.T) {
	for name, fails := range map[string]bool{"it works": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			pods := b.gangPods("job", 2, 4)
			b.submit(pods)
			for _, pod := range pods {
				_, status := b.attempt(pod)
				require.False(t, status.IsRejected())
			}
			binding := make(chan *fwk.Status)
			go func() { binding <- b.plugin.awaitOthers(t.Context(), assumedIn(b.states[pods[0].UID])) }()
			select {
			case <-b.plugin.prepare(assumedIn(b.states[pods[0].UID])):
				t.Fatal("bound alone")
			default:
			}
			if !fails {
				assert.True(t, b.plugin.awaitOthers(t.Context(), assumedIn(b.states[pods[1].UID])).IsSuccess())
				assert.True(t, (<-binding).IsSuccess())
				return
			}
			b.handle.takeActivated()
			b.plugin.Unreserve(t.Context(), b.states[pods[1].UID], pods[1], "a")
			status := <-binding
			assert.Contains(t, status.Message(), "planned again")
			b.plugin.Unreserve(t.Context(), b.states[pods[0].UID], pods[0], "a")
			assert.Empty(t, b.handle.takeActivated(), "it pauses")
			rival := b.gangPods("rival", 1, 8)
			b.submit(rival)
			_, status = b.cycle(rival[0])
			assert.True(t, status.IsSuccess(), "the room is free again")
		})
	}
}

// After an attempt that other plugins let fail after their filters, a gang pauses as a pod of kube-scheduler's does. The pause
// begins again when an attempt succeeds, and when the gang has other members.
func TestPauseAfterAFailedAttempt(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 2)
	b.submit(pods)
	attempt := func() {
		t.Helper()
		for _, pod := range pods {
			_, status := b.attempt(pod)
			require.False(t, status.IsRejected(), status.Message())
		}
	}
	fail := func(want time.Duration) {
		t.Helper()
		attempt()
		b.handle.takeActivated()
		for _, pod := range pods {
			b.plugin.Unreserve(t.Context(), b.states[pod.UID], pod, "a")
		}
		b.work()
		assert.Empty(t, b.handle.takeActivated())
		assert.Contains(t, b.pauses(), want)
		b.elapse()
		assert.Len(t, b.handle.takeActivated(), 1)
	}
	for _, seconds := range []int{1, 2, 4, 8, 10, 10} {
		fail(time.Duration(seconds) * time.Second)
	}
	b.end(pods[1])
	pods[1] = b.gangPods("other", 1, 2)[0]
	pods[1].Labels = pods[0].Labels
	b.submit(pods[1:])
	fail(time.Second)
	fail(2 * time.Second)

	attempt()
	for _, pod := range pods {
		b.plugin.prepare(assumedIn(b.states[pod.UID]))
	}
	assert.Zero(t, b.plugin.gangs["ns/job"].pause)
}

// A scheduler that ends lets nobody wait.
func TestAwaitOthersEndsWithTheScheduler(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 4)
	b.submit(pods)
	b.attempt(pods[0])
	ctx, stop := context.WithCancel(t.Context())
	stop()
	assert.ErrorIs(t, b.plugin.awaitOthers(ctx, assumedIn(b.states[pods[0].UID])).AsError(), context.Canceled)
}

// The framework has a member wait only some time after Permit said so: an attempt that fails just
// then sends it back a moment later, and not when the framework gives up.
func TestMemberThatBeginsToWaitLate(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 4)
	b.submit(pods)
	_, status := b.cycle(pods[1])
	require.True(t, status.IsWait())
	late := b.handle.waiting["job-1"]
	delete(b.handle.waiting, "job-1")
	b.plugin.work.add(b.cache.RemovePod("job-0"))
	b.work()
	b.handle.waiting["job-1"] = late
	require.False(t, late.rejected)
	assert.Contains(t, b.elapse(), retryDelay)
	assert.True(t, late.rejected)
	b.plugin.Unreserve(t.Context(), b.states["job-1"], pods[1], "a")
	assert.NotContains(t, b.elapse(), retryDelay, "nobody is looked for any more")
}

// A binding whose answer was lost may have succeeded: when another plugin refuses the member's node in its
// next cycle, the API server is asked before anybody else gets its GPUs.
func TestMemberThatMayBeBoundKeepsItsGPUs(t *testing.T) {
	for name, test := range map[string]struct {
		bound, silent bool
		keeps         bool
	}{
		"bound":            {bound: true, keeps: true},
		"not bound":        {},
		"nobody can tell":  {silent: true, keeps: true},
		"bound, no answer": {bound: true, silent: true, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			pods, rival := b.gangPods("job", 2, 4), b.gangPods("rival", 1, 4)
			b.submit(pods)
			for _, pod := range pods {
				_, status := b.cycle(pod)
				require.False(t, status.IsRejected())
			}
			b.bind(pods[0], "a")
			if test.bound {
				bound := pods[1].DeepCopy()
				bound.Spec.NodeName = "a"
				_, err := b.handle.client.CoreV1().Pods("ns").Update(t.Context(), bound, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			b.plugin.Unreserve(t.Context(), b.states[pods[1].UID], pods[1], "a")
			if test.silent {
				b.failOnce("get")
			}
			b.refuse(pods[1])
			b.submit(rival)
			_, status := b.cycle(rival[0])
			assert.Equal(t, test.keeps, status.IsRejected(), status.Message())
			if !test.silent {
				return
			}
			b.elapse()
			b.refuse(pods[1])
			b.elapse()
			_, status = b.cycle(rival[0])
			assert.Equal(t, test.bound, status.IsRejected(), "the API server answers again")
		})
	}
}
