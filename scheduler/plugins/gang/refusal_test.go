package gang

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	webhooks "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes"
	typedfake "k8s.io/client-go/kubernetes/fake"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	kubetesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// refusing is an API server that does not delete some pods.
type refusing struct {
	// answer is what it says, nil to delete them; lenient means that it says so only when it is
	// in earnest, and not in a dry run.
	answer  error
	lenient bool
	// asked counts how often it was asked to delete one of them.
	asked int
	// unaware means that a webhook which guards pods does not support dry runs.
	unaware bool
}

// protected is what a webhook answers.
func protected() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "low-0", errors.New(`admission webhook "guard.example.com" denied the request: it is protected`))
}

// refuseDeletion has the API server refuse to delete pods.
func (b *bench) refuseDeletion(answer error, pods ...string) *refusing {
	b.Helper()
	r := &refusing{answer: answer}
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(b, ok)
	fake.PrependReactor("delete", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		d, ok := action.(kubetesting.DeleteAction)
		if !ok || !slices.Contains(pods, d.GetName()) || r.lenient && isDryRun(action) {
			return false, nil, nil
		}
		if r.unaware && isDryRun(action) {
			return true, nil, webhooks.NewDryRunUnsupportedErr("guard.example.com")
		}
		r.asked++
		return r.answer != nil, nil, r.answer
	})
	return r
}

// says is why the gang of a pod is kept out of the queue.
func (b *bench) says(pod *corev1.Pod) string {
	return b.plugin.PreEnqueue(b.Context(), pod).Message()
}

// planAgain runs the cycle of a pod when it has been activated, and reports whether it was.
func (b *bench) planAgain(pod *corev1.Pod) bool {
	b.Helper()
	activated := slices.Contains(b.handle.takeActivated(), pod.Name)
	if activated {
		b.cycle(pod)
		b.work()
	}
	return activated
}

// A victim that the API server refuses to delete is none: nobody waits for it, nobody is evicted beside it,
// and its preemptor gets whatever place becomes free.
func TestVictimThatCannotBeDeleted(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	low, mate := b.runs("low", "a", 1, 8, 0), b.runs("mate", "b", 1, 8, 0)
	other := b.urgent("other", 1, 8)
	b.submit(other)
	node, status := b.cycle(other[0])
	require.True(t, status.IsSuccess(), status.Message())
	b.bind(other[0], node)
	b.work()
	refusing := b.refuseDeletion(protected(), "low-0")

	big := b.urgent("big", 2, 8)
	b.submit(big)
	_, status = b.cycle(big[0])
	require.Contains(t, status.Message(), "Reserved: waits for gang ns/low, gang ns/mate")
	b.work()
	assert.NotNil(t, b.live(mate[0]), "nobody is evicted in vain")
	assert.False(t, b.marked(low[0].Name))
	require.True(t, b.planAgain(big[0]), "it is planned again")
	_, held := b.cache.Reservation("ns/big")
	assert.False(t, held)
	assert.Contains(t, b.says(big[0]), `The API server refuses to delete pod ns/low-0: pods "low-0" is forbidden: admission webhook "guard.example.com" denied the request: it is protected.`)

	next := b.urgent("next", 1, 8)
	b.submit(next)
	_, status = b.cycle(next[0])
	assert.Contains(t, status.Message(), "evicted for it: gang ns/mate", "others do not wait for it either")
	b.plugin.work.add(b.cache.RemovePod(next[0].UID))
	b.work()

	b.handle.takeActivated()
	b.plugin.work.add(b.cache.RemovePod(mate[0].UID))
	b.end(other[0])
	require.Contains(t, b.handle.takeActivated(), "big-0")
	_, status = b.cycle(big[0])
	assert.True(t, status.IsWait(), status.Message())
	assert.NotNil(t, b.live(low[0]))
	assert.Equal(t, 1, refusing.asked)
}

// spread makes a gang that is bound to nodes, one member of eight GPUs on each.
func (b *bench) spread(name string, nodes ...string) []*corev1.Pod {
	b.Helper()
	pods := b.gangPods(name, len(nodes), 8)
	for i, pod := range pods {
		annotations, err := (&contract.Allocation{Gang: "ns/" + name, Node: nodes[i], GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}).Annotations()
		require.NoError(b, err)
		pod.Spec.NodeName, pod.Annotations = nodes[i], annotations
	}
	b.handle.bound = append(b.handle.bound, pods...)
	b.submit(pods)
	return pods
}

// A gang of which one pod cannot be deleted stays as a whole, wherever the place is that it was to leave.
func TestRestOfAVictimStays(t *testing.T) {
	for _, refused := range []string{"low-0", "low-1"} {
		t.Run(refused, func(t *testing.T) {
			b := newBench(t, "a", "b")
			low := b.spread("low", "a", "b")
			b.refuseDeletion(protected(), refused)
			big := b.urgent("big", 1, 8)
			b.submit(big)
			_, status := b.cycle(big[0])
			require.Contains(t, status.Message(), "evicted for it: gang ns/low")
			b.work()
			for range 3 {
				b.elapse()
				b.planAgain(big[0])
				assert.NotNil(t, b.live(low[0]))
				assert.NotNil(t, b.live(low[1]))
			}
			assert.Zero(t, b.evicted(metrics.ForPriority))
			assert.Contains(t, b.says(big[0]), "The API server refuses to delete pod ns/"+refused)
		})
	}
}

// A pod whose dry run says nothing costs others no more than one life: it goes first once that is known.
func TestPodThatIsRefusedInEarnestOnly(t *testing.T) {
	for name, test := range map[string]struct {
		refusing refusing
		lost     []int
	}{
		"a webhook allows dry runs":            {refusing{answer: protected(), lenient: true}, []int{0, 1}}, // both are evicted at a time
		"a webhook does not support dry runs":  {refusing{answer: protected(), unaware: true}, []int{0}},
		"one of those lets the pod be deleted": {refusing{unaware: true}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b")
			low, mate := b.runs("low", "a", 1, 8, 0), b.runs("mate", "b", 1, 8, 0)
			*b.refuseDeletion(nil, "low-0") = test.refusing
			big := b.urgent("big", 2, 8)
			b.submit(big)
			b.cycle(big[0])
			b.work()
			lost := 0
			for range 6 {
				if b.live(mate[0]) == nil {
					lost++
					if test.refusing.answer == nil {
						break
					}
					b.end(mate[0])
					mate[0] = mate[0].DeepCopy()
					mate[0].UID += "-again"
					_, err := b.handle.client.CoreV1().Pods("ns").Create(t.Context(), mate[0], metav1.CreateOptions{})
					require.NoError(t, err)
					b.submit(mate)
				}
				b.elapse()
				b.planAgain(big[0])
				b.planAgain(big[0])
			}
			assert.Contains(t, test.lost, lost)
			assert.Equal(t, test.refusing.answer == nil, b.live(low[0]) == nil)
		})
	}
}

// A nomination that nobody knows as given up, because its victim may be deleted again by then, evicts after all.
func TestRefusalThatIsOverAtOnce(t *testing.T) {
	b := newBench(t, "a")
	low := b.runs("low", "a", 1, 8, 0)
	refusing := b.refuseDeletion(protected(), "low-0")
	refusing.unaware = true
	big := b.urgent("big", 1, 8)
	b.submit(big)
	b.cycle(big[0])
	<-b.plugin.work.ready
	b.plugin.do(b.Context(), b.plugin.work.take())
	require.Equal(t, 1, refusing.asked)
	require.NotNil(t, b.live(low[0]))
	refusing.answer = nil
	b.elapse() // before the worker has looked at the gang
	_, held := b.cache.Reservation("ns/big")
	require.True(t, held)
	b.elapse()
	assert.Nil(t, b.live(low[0]))
}

// Once a pod is refused in earnest, no other is evicted whose eviction has not begun.
func TestRefusalStopsEvictions(t *testing.T) {
	b := newBench(t, "a", "b", "c", "d")
	var low []*corev1.Pod
	var pods []string
	for _, node := range []string{"a", "b", "c", "d"} {
		low = append(low, b.runs("low-"+node, node, 8, 1, 0)...)
	}
	for _, pod := range low {
		pods = append(pods, pod.Name)
	}
	b.refuseDeletion(protected(), pods...).lenient = true
	big := b.urgent("big", 4, 8)
	b.submit(big)
	b.cycle(big[0])
	before := len(marks(b))
	b.work()
	assert.LessOrEqual(t, len(marks(b))-before, evictions, "pods were marked as evicted")
}

// marks are the patches of pods' status that mark them as evicted.
func marks(b *bench) (found []kubetesting.Action) {
	b.Helper()
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(b, ok)
	for _, action := range fake.Actions() {
		if patch, ok := action.(kubetesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), "preempting to accommodate") {
			found = append(found, action)
		}
	}
	return found
}

// The API server is asked again after pauses that double. Once it answers otherwise, or the pod changes, the pod
// is a victim again; who asks no more evicts nobody.
func TestRefusedDeletionIsTriedAgain(t *testing.T) {
	for name, lenient := range map[string]bool{"refused in a dry run": false, "refused in earnest": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			low := b.runs("low", "a", 1, 8, 0)
			refusing := b.refuseDeletion(protected(), "low-0")
			refusing.lenient = lenient
			big := b.urgent("big", 1, 8)
			b.submit(big)
			b.cycle(big[0])
			b.work()
			b.planAgain(big[0])
			for i := range 12 {
				assert.Equal(t, i+1, refusing.asked)
				assert.Contains(t, b.says(big[0]), "The API server refuses to delete pod ns/low-0")
				assert.Contains(t, b.pauses(), min(minBackoff<<i, maxBackoff))
				live := b.live(low[0])
				require.NotNil(t, live)
				assert.Empty(t, live.Status.Conditions, "it is not evicted")
				b.elapse()
				b.planAgain(big[0])
				b.planAgain(big[0])
			}
			assert.Zero(t, b.evicted(metrics.ForPriority))

			refusing.answer = nil
			b.elapse()
			b.planAgain(big[0])
			assert.Nil(t, b.live(low[0]))
			assert.EqualValues(t, 1, b.evicted(metrics.ForPriority))
			b.elapse()
			assert.EqualValues(t, 1, b.evicted(metrics.ForPriority), "once")
		})
	}
	t.Run("its protection is taken off", func(t *testing.T) {
		b := newBench(t, "a")
		low := b.runs("low", "a", 1, 8, 0)
		refusing := b.refuseDeletion(protected(), "low-0")
		big := b.urgent("big", 1, 8)
		b.submit(big)
		b.cycle(big[0])
		b.work()
		b.planAgain(big[0])
		refusing.answer = nil
		changed := low[0].DeepCopy()
		changed.Labels["example.com/protected"] = "false"
		b.plugin.work.add(b.cache.SetPod(changed))
		b.work()
		require.True(t, b.planAgain(big[0]))
		assert.Nil(t, b.live(low[0]))
	})
	t.Run("nobody asks any more", func(t *testing.T) {
		b := newBench(t, "a")
		b.runs("low", "a", 1, 8, 0)
		refusing := b.refuseDeletion(protected(), "low-0")
		big := b.urgent("big", 1, 8)
		b.submit(big)
		b.cycle(big[0])
		b.work()
		b.planAgain(big[0])
		b.end(big[0])
		for range 3 {
			b.elapse()
		}
		assert.Equal(t, 1, refusing.asked)
		assert.Zero(t, b.cache.Undeletable("low-0"))
	})
}

// An answer that may be another one a moment later counts when it was given for a while; that there is none never does.
func TestDeletionThatFailsForAMoment(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		after  int // how often it is given before it counts, 0 for never
	}{
		"refused":               {protected(), 1},
		"refused as gone":       {apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "low-0"), 1},
		"refused as a conflict": {apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "low-0", errors.New("no")), 1},
		"refused by a policy":   {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "low-0", nil), 1},
		"a webhook is away":     {apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": context deadline exceeded`)), 3},
		"a server is busy":      {apierrors.NewTooManyRequestsError("later"), 3},
		"the API server leaves": {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable}}, 3},
		"no answer":             {errors.New("connection reset by peer"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			b.runs("low", "a", 1, 8, 0)
			b.refuseDeletion(test.answer, "low-0")
			big := b.urgent("big", 1, 8)
			b.submit(big)
			b.cycle(big[0])
			b.work()
			for i := range 5 {
				if i+1 == test.after {
					assert.Positive(t, b.cache.Undeletable("low-0"))
					return
				}
				require.Zero(t, b.cache.Undeletable("low-0"))
				assert.Equal(t, []time.Duration{evictAgain << i}, without(b.pauses(), b.plugin.reserveAfter))
				b.elapse()
			}
			assert.Zero(t, test.after)
		})
	}
}

// without leaves out the timer of a gang that waits for a reservation.
func without(pauses []time.Duration, reserveAfter time.Duration) []time.Duration {
	return slices.DeleteFunc(pauses, func(p time.Duration) bool { return p > reserveAfter/2 })
}

// What is left of a gang stays whole when a part of it cannot be evicted.
func TestRestOfAGangThatCannotBeDeleted(t *testing.T) {
	b := newBench(t, "a")
	b.plugin.staleAfter, b.plugin.reserveAfter = time.Minute, -1
	pods := b.gangPods("job", 3, 4)
	long := metav1.NewTime(time.Now().Add(-2 * time.Hour).Truncate(time.Second))
	for _, pod := range pods {
		pod.CreationTimestamp = long
	}
	for _, pod := range pods[:2] {
		pod.Spec.NodeName = "a"
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: long}}
	}
	pods[2].CreationTimestamp = metav1.NewTime(long.Add(time.Hour))
	refusing := b.refuseDeletion(protected(), "job-1")
	b.submit(pods)
	b.cycle(pods[2])
	b.work()
	assert.NotNil(t, b.live(pods[0]))
	b.work()
	assert.Contains(t, b.says(pods[2]), "The API server refuses to delete pod ns/job-1")
	asked := refusing.asked
	for range 5 {
		b.plugin.work.add(clusterstate.Change{Freed: true})
		b.work()
	}
	assert.Equal(t, asked, refusing.asked, "it is asked again after a pause")
	refusing.answer = nil
	b.elapse()
	b.work()
	assert.Nil(t, b.live(pods[0]))
	assert.Nil(t, b.live(pods[1]))
	assert.EqualValues(t, 2, b.evicted(metrics.Stale))
}

// A gang that finds a place before what is left of it is evicted keeps all its members.
func TestRestOfAGangThatFindsAPlace(t *testing.T) {
	for name, late := range map[string]bool{"before the API server is asked": false, "while it is asked": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			b.plugin.staleAfter, b.plugin.reserveAfter = time.Minute, -1
			pods := b.gangPods("job", 2, 8)
			long := metav1.NewTime(time.Now().Add(-2 * time.Hour).Truncate(time.Second))
			for _, pod := range pods {
				pod.CreationTimestamp = long
			}
			pods[0].Spec.NodeName = "a"
			var starts []func()
			b.plugin.aside.start = func(f func()) { starts = append(starts, f) }
			b.submit(pods)
			b.cycle(pods[1])
			b.work()
			require.Len(t, starts, 1)
			place := func() {
				b.addNode("b")
				b.work()
				node, status := b.cycle(pods[1])
				require.True(t, status.IsSuccess(), status.Message())
				assert.Equal(t, "b", node)
			}
			if late {
				fake, ok := b.handle.client.(*typedfake.Clientset)
				require.True(t, ok)
				fake.PrependReactor("delete", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
					require.True(t, isDryRun(action))
					place()
					return true, nil, nil
				})
			} else {
				place()
			}
			starts[0]()
			assert.NotNil(t, b.live(pods[0]))
			assert.Zero(t, b.evicted(metrics.Stale))
		})
	}
}

// A pod whose deletion was accepted is not deleted again for the same gang, whatever the cache shows.
func TestAcceptedDeletionIsNotRepeated(t *testing.T) {
	b := newBench(t, "a")
	pods := b.gangPods("job", 2, 4)
	b.submit(pods)
	_, err := b.plugin.dismiss(t.Context(), "ns/job", pods[0], "it goes")
	require.NoError(t, err)
	for range 2 {
		assert.Equal(t, pods[1:], b.plugin.notDeleted("ns/job", pods))
	}
}

// deletingClient is an API server that answers deletions of pods as a function does.
type deletingClient struct {
	kubernetes.Interface
	answer func(pod string) error
}

func (c *deletingClient) CoreV1() typedcore.CoreV1Interface {
	return &deletingCore{c.Interface.CoreV1(), c}
}

type deletingCore struct {
	typedcore.CoreV1Interface
	client *deletingClient
}

func (c *deletingCore) Pods(namespace string) typedcore.PodInterface {
	return &deletingPods{c.CoreV1Interface.Pods(namespace), c.client}
}

type deletingPods struct {
	typedcore.PodInterface
	client *deletingClient
}

func (p *deletingPods) Delete(_ context.Context, pod string, _ metav1.DeleteOptions) error {
	return p.client.answer(pod)
}

// An API server that takes its time to delete a pod holds up neither the worker nor evictions for others.
func TestDeletionThatTakesLong(t *testing.T) {
	b := newBench(t, "a", "b")
	b.runs("low", "a", 1, 8, 0)
	other := b.urgent("other", 1, 8)
	b.submit(other)
	node, _ := b.cycle(other[0])
	require.Equal(t, "b", node)
	b.bind(other[0], node)
	b.work()
	waits, answers := make(chan struct{}), make(chan struct{})
	b.handle.client = &deletingClient{b.handle.client, func(pod string) error {
		if pod == "low-0" {
			close(waits)
			<-answers
		}
		return protected()
	}}
	var calls sync.WaitGroup
	b.plugin.aside.start = calls.Go
	first, second := b.urgent("first", 1, 8), b.urgent("second", 1, 8)
	b.submit(append(first, second...))
	b.cycle(first[0])
	b.cycle(second[0])
	b.work()
	<-waits
	b.handle.takeActivated()
	b.end(other[0])
	assert.Contains(t, b.handle.takeActivated(), "second-0")
	close(answers)
	calls.Wait()
	assert.Positive(t, b.cache.Undeletable("low-0"))
}

// Nothing else of a name is done while something is under way, and after it only the last that came meanwhile.
func TestAside(t *testing.T) {
	a := newAside(2)
	var starts []func()
	a.start = func(f func()) { starts = append(starts, f) }
	var done []string
	add := func(what string) func() { return func() { done = append(done, what) } }
	a.run("one", func() {
		add("first")()
		require.True(t, a.runs("one"))
		a.run("one", add("superseded"))
		a.run("one", add("last"))
		a.run("other", add("other"))
	})
	require.Len(t, starts, 1)
	starts[0]()
	assert.Equal(t, []string{"first", "last"}, done)
	require.Len(t, starts, 2)
	assert.False(t, a.runs("one"))
	starts[1]()
	assert.Equal(t, []string{"first", "last", "other"}, done)
	assert.Empty(t, a.next)
}

// A gang that is decided about again while it is nominated evicts nobody by what was decided before.
func TestPreemptorThatGoesEvictsNobody(t *testing.T) {
	b := newBench(t, "a")
	low, big := b.preempts(1, 8)
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(t, ok)
	fake.PrependReactor("patch", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(kubetesting.PatchAction); ok && patch.GetName() == "big-0" {
			b.plugin.work.add(b.cache.RemovePod(big[0].UID))
		}
		return false, nil, nil
	})
	b.work()
	assert.NotNil(t, b.live(low[0]))
	assert.Zero(t, b.evicted(metrics.ForPriority))
}

// What is evicted is what was asked about, for the decision of now.
func TestPreemptorThatIsDecidedAboutAgain(t *testing.T) {
	b := newBench(t, "a")
	low, big := b.preempts(1, 8)
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(t, ok)
	var mate []*corev1.Pod
	asked := map[string]bool{}
	fake.PrependReactor("patch", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(kubetesting.PatchAction); !ok || patch.GetName() != "big-0" || mate != nil {
			return false, nil, nil
		}
		mate = []*corev1.Pod{low[0].DeepCopy()}
		mate[0].Name, mate[0].UID, mate[0].Spec.NodeName = "mate-0", "mate-0", "b"
		mate[0].Labels[contract.TopologyGroupLabel] = "mate"
		record := contract.Allocation{Gang: "ns/mate", Node: "b", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}
		annotations, err := record.Annotations()
		require.NoError(t, err)
		mate[0].Annotations = annotations
		require.NoError(t, fake.Tracker().Add(mate[0]))
		b.addNode("b")
		b.cache.SetPod(mate[0])
		drained := v100("a")
		drained.Spec.Unschedulable = true
		change, err := b.cache.SetNode(drained)
		require.NoError(t, err)
		change.Freed = true
		b.plugin.work.add(change)
		b.work()
		assert.True(t, b.planAgain(big[0]))
		assert.Contains(t, b.says(big[0]), "evicted for it: gang ns/mate")
		return false, nil, nil
	})
	fake.PrependReactor("delete", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if d, ok := action.(kubetesting.DeleteAction); ok && isDryRun(action) {
			asked[d.GetName()] = true
		} else if ok {
			assert.True(t, asked[d.GetName()], d.GetName())
		}
		return false, nil, nil
	})
	var starts []func()
	b.plugin.aside.start = func(f func()) { starts = append(starts, f) }
	b.work()
	require.Len(t, starts, 1)
	starts[0]()
	require.NotNil(t, mate)
	assert.NotNil(t, b.live(low[0]))
	assert.Nil(t, b.live(mate[0]))
}

// Pods that are refused are asked about again beside the evictions, however many they are and however long that takes.
func TestPodsAreAskedAboutAgainBesideEvictions(t *testing.T) {
	b := newBench(t, "a")
	low := b.runs("low", "a", 8, 1, 0)
	big := b.urgent("big", 1, 8)
	b.submit(big)
	b.plugin.gangs["ns/big"].refusals = map[types.UID]string{}
	for _, pod := range low {
		b.plugin.gangs["ns/big"].refusals[pod.UID] = "no"
		b.plugin.refused(t.Context(), pod)
	}
	answers := make(chan struct{})
	b.handle.client = &deletingClient{b.handle.client, func(string) error {
		<-answers
		return protected()
	}}
	var calls sync.WaitGroup
	b.plugin.aside.start, b.plugin.rechecks.start = calls.Go, calls.Go
	timers := b.timers
	b.timers = nil
	for _, timer := range timers {
		timer.due()
	}
	done := make(chan struct{})
	b.plugin.aside.run("ns/other", func() { close(done) })
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it has waited")
	}
	b.plugin.after = func(time.Duration, func()) {}
	close(answers)
	calls.Wait()
}

// What failed for a moment is tried again after a moment, whenever the gang is looked at for other reasons, and not before.
func TestRestOfAGangIsTriedAgain(t *testing.T) {
	b := newBench(t, "a")
	b.plugin.staleAfter, b.plugin.reserveAfter = time.Hour, -1
	pods := b.gangPods("job", 2, 8)
	long := metav1.NewTime(time.Now().Add(-10 * time.Minute).Truncate(time.Second))
	for _, pod := range pods {
		pod.CreationTimestamp = long
	}
	pods[0].Spec.NodeName = "a"
	pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: long}}
	refusing := b.refuseDeletion(apierrors.NewInternalError(errors.New("later")), "job-0")
	var starts []func()
	b.plugin.aside.start = func(f func()) { starts = append(starts, f) }
	b.submit(pods)
	b.cycle(pods[1])
	b.work()
	require.Len(t, starts, 1)
	starts[0]()
	assert.Contains(t, b.pauses(), evictAgain)
	b.plugin.work.add(clusterstate.Change{Freed: true})
	b.work()
	assert.Len(t, starts, 1)
	refusing.answer = nil
	b.elapse()
	require.Len(t, starts, 2)
	starts[1]()
	assert.Nil(t, b.live(pods[0]))
}

// A pod that stays does not keep the condition of pods that are evicted, whatever the cache shows, and one that goes does.
func TestConditionOfPodsThatAreEvicted(t *testing.T) {
	lost := errors.New("connection reset by peer")
	for name, test := range map[string]struct {
		answer              error
		goes, shown, marked bool
	}{
		"refused": {answer: protected()},
		"refused, and the cache shows the condition of before": {answer: protected(), shown: true},
		"the answer is lost":                         {answer: lost},
		"the answer is lost, and the pod is leaving": {answer: lost, goes: true, marked: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			pod := b.runs("low", "a", 1, 8, 0)[0]
			b.submit(b.gangPods("big", 1, 8))
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
			_, err := b.handle.client.CoreV1().Pods("ns").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
			require.NoError(t, err)
			b.refuseDeletion(test.answer, "low-0")
			if test.shown {
				b.failOnce("delete")
				b.failAfter("patch", 1)
				_, err := b.plugin.dismiss(t.Context(), "ns/big", pod, "it goes")
				require.Error(t, err)
				pod = b.live(pod)
				require.Len(t, pod.Status.Conditions, 2)
			}
			if test.goes {
				fake := b.handle.client.(*typedfake.Clientset)
				fake.PrependReactor("get", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
					going := pod.DeepCopy()
					going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
					return true, going, nil
				})
			}
			_, err = b.plugin.dismiss(t.Context(), "ns/big", pod, "it goes")
			assert.Equal(t, test.goes, err == nil)
			object, err := b.handle.client.(*typedfake.Clientset).Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "low-0")
			require.NoError(t, err)
			assert.Equal(t, test.marked, slices.ContainsFunc(object.(*corev1.Pod).Status.Conditions, ours))
			assert.Equal(t, corev1.PodScheduled, object.(*corev1.Pod).Status.Conditions[0].Type)
		})
	}
}

// failAfter lets a later call of the verb about a pod fail, once.
func (b *bench) failAfter(verb string, calls int) {
	b.Helper()
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(b, ok)
	fake.PrependReactor(verb, "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		calls--
		return calls == -1, nil, errors.New("the API server is away")
	})
}
