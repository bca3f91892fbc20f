package gang

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	typedfake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// message is what a pod says about its scheduling at the API server.
func (b *bench) message(pod *corev1.Pod) string {
	b.Helper()
	for _, c := range b.live(pod).Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// written counts the patches of pods and the events since it was called last.
func (b *bench) written() (patches map[string]int, notes []string) {
	b.Helper()
	patches = map[string]int{}
	client := b.handle.client.(*typedfake.Clientset)
	for _, action := range client.Actions() {
		if patch, ok := action.(kubetesting.PatchAction); ok {
			patches[patch.GetName()]++
		}
	}
	client.ClearActions()
	for {
		select {
		case note := <-b.handle.recorder.Events:
			notes = append(notes, note)
		default:
			return patches, notes
		}
	}
}

// record has the writer look at why a gang of pods waits.
func (b *bench) record(why wait, pods []*corev1.Pod) {
	b.Helper()
	b.plugin.mu.Lock()
	g := b.plugin.gang("ns/"+pods[0].Labels[contract.TopologyGroupLabel], pods[0])
	g.wait(why, &inventory.GangState{}, inventory.GangStatus{})
	b.plugin.mu.Unlock()
	b.plugin.statuses.add(g.key)
	b.work()
}

// A new cause reaches every member at once, and each has one event; new numbers reach the
// first member only: once at once, then every 30 seconds. However often causes change, what is written is
// bounded.
func TestWhatIsWrittenOfAGangThatWaits(t *testing.T) {
	b := newBench(t)
	pods := b.gangPods("job", 3, 8)
	b.submit(pods)
	b.written()
	all, first := map[string]int{"job-0": 1, "job-1": 1, "job-2": 1}, map[string]int{"job-0": 1}

	b.record(wait{"GPUs", "1 of 3."}, pods)
	patches, notes := b.written()
	assert.Equal(t, all, patches)
	assert.Equal(t, []string{
		"Warning FailedScheduling 1 of 3.",
		"Warning FailedScheduling 1 of 3. The latest numbers are on pod job-0.",
		"Warning FailedScheduling 1 of 3. The latest numbers are on pod job-0.",
	}, notes)

	for i := range 20 {
		b.record(wait{"GPUs", fmt.Sprint(i, " of 3.")}, pods)
	}
	patches, notes = b.written()
	assert.Equal(t, first, patches, "one correction at once")
	assert.Empty(t, notes)
	assert.Equal(t, "0 of 3.", b.message(pods[0]))
	assert.Equal(t, []time.Duration{recordInterval}, b.elapse())
	patches, notes = b.written()
	assert.Equal(t, first, patches)
	assert.Empty(t, notes, "numbers are no event")
	assert.Equal(t, "19 of 3.", b.message(pods[0]))
	assert.Empty(t, b.timers)

	b.record(wait{"Quota", "quota."}, pods)
	patches, notes = b.written()
	assert.Equal(t, all, patches)
	assert.Equal(t, []string{"Warning FailedScheduling quota."}, notes, "each of the others has one")

	for i := range 100 {
		cause := []string{"GPUs", "Quota"}[i%2]
		b.record(wait{cause, fmt.Sprint(cause, i)}, pods)
	}
	patches, notes = b.written()
	assert.LessOrEqual(t, patches["job-0"], causesAtOnce)
	assert.LessOrEqual(t, len(notes), causesAtOnce)
	for len(b.timers) > 0 {
		b.elapse()
	}
	for _, pod := range pods {
		assert.Contains(t, b.message(pod), "Quota", "the last cause reaches everybody")
	}
	assert.Equal(t, "Quota99", b.message(pods[0]))
}

// What is written is bounded also when the gang is activated each time before all its pods are told.
func TestInterruptedTextsCount(t *testing.T) {
	b := newBench(t)
	pods := b.gangPods("job", 3, 8)
	b.submit(pods)
	b.written()
	b.handle.client.(*typedfake.Clientset).PrependReactor("patch", "pods", func(kubetesting.Action) (bool, k8sruntime.Object, error) {
		b.plugin.mu.Lock()
		b.plugin.interrupted = true
		b.plugin.mu.Unlock()
		return false, nil, nil
	})
	for i := range 20 {
		b.record(wait{fmt.Sprint("cause ", i), fmt.Sprint("text ", i)}, pods)
	}
	patches, _ := b.written()
	assert.NotZero(t, patches["job-0"])
	assert.LessOrEqual(t, patches["job-0"], causesAtOnce)
}

// What is true again is written again, though the cache does not show yet that something else was
// written in between.
func TestTextsThatTheCacheDoesNotShowYet(t *testing.T) {
	b := newBench(t)
	pod := b.gangPods("job", 1, 8)[0]
	b.submit([]*corev1.Pod{pod})
	first, second := wait{"GPUs", "no GPU."}, wait{"Reserved", "held back."}
	b.record(first, []*corev1.Pod{pod})
	require.Equal(t, first.text, b.message(pod))
	b.cache.SetPod(b.live(pod)) // all that the cache gets to see

	b.record(second, []*corev1.Pod{pod})
	require.Equal(t, second.text, b.message(pod))
	b.record(first, []*corev1.Pod{pod})
	assert.Equal(t, first.text, b.message(pod))
}

// A pod that kube-scheduler told something else while its gang did not wait is told again why it waits, once it does.
func TestTextsThatAreOverwrittenMeanwhile(t *testing.T) {
	for name, recorded := range map[string]bool{"after they were written": true, "before any was written": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pods := b.gangPods("job", 3, 8)
			b.submit(pods)
			why := wait{"GPUs", "no GPU."}
			b.record(why, pods)
			b.plugin.gangs["ns/job"].reopen()
			if !recorded {
				for i := range pods {
					pods[i] = b.live(pods[i])
				}
				b.submit(pods)
				delete(b.plugin.recorded, "ns/job")
			}
			overwritten := b.live(pods[1]).DeepCopy()
			overwritten.Status.Conditions[0].Message = "running PreBind plugin: no volume"
			_, err := b.handle.client.CoreV1().Pods("ns").UpdateStatus(t.Context(), overwritten, metav1.UpdateOptions{})
			require.NoError(t, err)
			b.failed(pods[1], fwk.NewStatus(fwk.Error, "no volume"))
			require.Contains(t, b.message(pods[1]), "no volume")
			b.record(why, pods)
			assert.Contains(t, b.message(pods[1]), why.text)
		})
	}
}

// What waiting gangs are told follows the cluster, be it room that is taken or a node that
// goes, an infeasible gang's too; and nothing is done while nothing changes.
func TestTextsFollowTheCluster(t *testing.T) {
	b := newBench(t, "a", "b")
	b.plugin.reserveAfter = -1
	infeasible, patient := b.gangPods("infeasible", 3, 8), b.gangPods("patient", 2, 8)
	b.submit(infeasible)
	_, status := b.cycle(infeasible[0])
	require.Contains(t, status.Message(), "2 of 3")
	b.runs("one", "a", 1, 4, 0)
	b.submit(patient)
	_, status = b.cycle(patient[0])
	require.Contains(t, status.Message(), "1 of 2")
	require.Empty(t, b.timers, "nothing has changed since")
	require.True(t, b.cache.Infeasible("ns/infeasible"))

	b.runs("two", "b", 1, 4, 0)
	b.plugin.work.observe(clusterstate.Change{Bound: "ns/one"})
	b.plugin.work.observe(clusterstate.Change{Bound: "ns/two"})
	b.work()
	assert.Equal(t, []time.Duration{refreshAfter}, b.elapse(), "once for all changes")
	for _, pod := range infeasible {
		assert.Contains(t, b.message(pod), "0 of 3")
	}
	for _, pod := range patient {
		assert.Contains(t, b.message(pod), "0 of 2")
	}
	assert.Empty(t, b.timers)
	b.clock = b.clock.Add(recordInterval)

	b.plugin.work.observe(b.cache.RemoveNode("b"))
	b.work()
	b.elapse()
	assert.Contains(t, b.message(patient[0]), "1 node ", "not two any more")
	b.plugin.work.observe(clusterstate.Change{})
	b.work()
	assert.Empty(t, b.timers, "a change of nothing")
}

// A node that goes takes its domain with it: pods that are spread over domains may fit in another then.
func TestGangThatFitsOnceANodeHasGone(t *testing.T) {
	b := newBench(t, "a", "b")
	spread := func(pods []*corev1.Pod) []*corev1.Pod {
		for _, pod := range pods {
			pod.Labels["app"] = "spread"
			pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "spread"}},
			}}
		}
		return pods
	}
	b.runs("full", "b", 1, 8, 0)
	first := spread(b.gangPods("first", 1, 1))
	b.submit(first)
	node, status := b.cycle(first[0])
	require.True(t, status.IsSuccess(), status.Message())
	require.Equal(t, "a", node)
	b.bind(first[0], node)
	next := spread(b.gangPods("next", 1, 1))
	b.submit(next)
	_, status = b.cycle(next[0])
	require.True(t, status.IsRejected())
	b.work()
	b.handle.takeActivated()

	b.plugin.work.observe(b.cache.RemoveNode("b"))
	b.work()
	assert.Equal(t, []string{"next-0"}, b.handle.takeActivated())
}

// What the API server does not take is written again later.
func TestTextsThatCannotBeWritten(t *testing.T) {
	b := newBench(t, "a")
	job := b.gangPods("job", 2, 8)
	b.submit(job)
	aborted := true
	b.handle.client.(*typedfake.Clientset).PrependReactor("patch", "pods", func(kubetesting.Action) (bool, k8sruntime.Object, error) {
		return aborted, nil, errors.New("the API server is busy")
	})
	_, status := b.cycle(job[0])
	b.failed(job[0], status)
	assert.Empty(t, b.message(job[0]))
	aborted = false
	assert.Contains(t, b.elapse(), recordAfterFailure)
	for _, pod := range job {
		assert.Contains(t, b.message(pod), "1 of 2 members fit")
	}
	b.elapse()
	patches, notes := b.written()
	assert.Len(t, notes, 2, notes)
	b.elapse()
	assert.NotEmpty(t, patches)
	patches, notes = b.written()
	assert.Empty(t, patches)
	assert.Empty(t, notes)
}

// Every member says what its gang lacks now: a pod, or that the one which has come cannot be placed.
func TestWhatIsMissingIsACause(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 3, 1)
	pods[2].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}}
	b.submit(pods[:2])
	b.plugin.gangs["ns/job"].incomplete = time.Now().Add(-patience)
	b.plugin.checkAgain("ns/job")
	b.work()
	for _, pod := range pods[:2] {
		assert.Contains(t, b.message(pod), "1 more pod of gang ns/job must appear")
	}
	b.submit(pods[2:])
	for _, pod := range pods[:2] {
		assert.Contains(t, b.message(pod), "gang ns/job cannot start: pod job-2 has the scheduling gate example.com/hold")
	}
}
