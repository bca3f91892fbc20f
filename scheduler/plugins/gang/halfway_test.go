package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Evictions that end half-way: what their victim, and others that count on its end, make of that.

// nominates has a gang of one pod hold the place that another leaves.
func (b *bench) nominates(name string) []*corev1.Pod {
	b.Helper()
	pods := b.urgent(name, 1, 8)
	b.submit(pods)
	_, status := b.cycle(pods[0])
	require.Contains(b, status.Message(), "gang ns/low")
	return pods
}

// Gangs that count on pods which another gang evicts evict them themselves when that one goes.
func TestOthersCountOnTheVictimsOfAGangThatGoes(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	low := b.spread("low", "a", "b", "c")
	var starts []func()
	b.plugin.aside.start = func(f func()) { starts = append(starts, f) }
	first := b.nominates("first")
	others := [][]*corev1.Pod{b.nominates("second"), b.nominates("third")}
	b.plugin.aside.start = func(f func()) { f() }
	b.end(first[0])
	for _, start := range starts {
		start()
	}
	activated := b.handle.takeActivated()
	for _, pods := range others {
		if assert.Contains(t, activated, pods[0].Name) {
			b.cycle(pods[0])
		}
	}
	b.work()
	for _, pod := range low {
		assert.Nil(t, b.live(pod), pod.Name)
	}
}

// A gang does not start before all pods of its victim are being deleted: nobody would delete the others then.
func TestPlaceIsTakenWhenTheWholeVictimGoes(t *testing.T) {
	for i, late := range []string{"low-0", "low-1"} {
		t.Run(late, func(t *testing.T) {
			b := newBench(t, "a", "b")
			low := b.spread("low", "a", "b")
			refusing := b.refuseDeletion(apierrors.NewInternalError(assert.AnError), late)
			refusing.lenient = true
			big := b.nominates("big")
			b.work()
			require.NotNil(t, b.live(low[i]))
			require.Nil(t, b.live(low[1-i]))
			b.handle.takeActivated()
			b.end(low[1-i])
			assert.NotContains(t, b.handle.takeActivated(), "big-0")
			_, status := b.cycle(big[0])
			assert.False(t, status.IsSuccess())

			refusing.answer = nil
			b.elapse()
			assert.Nil(t, b.live(low[i]))
			b.end(low[i])
			assert.Contains(t, b.handle.takeActivated(), "big-0")
			_, status = b.cycle(big[0])
			assert.True(t, status.IsSuccess(), status.Message())
		})
	}
}

// blocks has another plugin refuse a gang whatever the node.
func (b *bench) blocks(pod *corev1.Pod) {
	b.Helper()
	key, _ := b.cache.PlanKey(pod)
	b.plugin.block(b.Context(), key, pod, `persistentvolumeclaim "data" not found`)
	b.work()
}

// A gang that other plugins refuse holds no place, and evicts nobody for one.
func TestBlockedGangHoldsNoPlace(t *testing.T) {
	b := newBench(t, "a")
	low := b.spread("low", "a")
	b.plugin.aside.start = func(func()) {}
	big := b.nominates("big")
	b.blocks(big[0])
	key, _ := b.cache.PlanKey(big[0])
	_, held := b.cache.Reservation(key)
	assert.False(t, held)
	b.plugin.makeRoom(t.Context(), key)
	assert.NotNil(t, b.live(low[0]))
}

// A gang that is being evicted itself evicts nobody: it gets no place before its pods have been made again.
func TestGangThatIsEvictedEvictsNobody(t *testing.T) {
	b := newBench(t, "a", "b")
	low := b.spread("low", "b")
	var starts []func()
	b.plugin.aside.start = func(f func()) { starts = append(starts, f) }
	middle := b.urgent("middle", 2, 8)
	record, err := (&contract.Allocation{Gang: "ns/middle", Node: "a", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}).Annotations()
	require.NoError(t, err)
	middle[0].Spec.NodeName, middle[0].Annotations = "a", record
	b.submit(middle)
	_, status := b.cycle(middle[1])
	require.Contains(t, status.Message(), "evicted for it: gang ns/low")

	urgent := b.urgent("urgent", 1, 8)
	urgent[0].Spec.Priority, urgent[0].Spec.NodeSelector = ptr.To[int32](20), map[string]string{corev1.LabelHostname: "a"}
	b.submit(urgent)
	_, status = b.cycle(urgent[0])
	require.Contains(t, status.Message(), "evicted for it: gang ns/middle")
	starts[0]()
	assert.NotNil(t, b.live(low[0]))
}

// whole and surplus are the marks of pods that are evicted with their gang, and that it does not need.
const (
	surplus = markedBy + "preempting to accommodate gang ns/big"
	whole   = surplus + wholeMark
)

// marks has a pod say a minute after it was made that it is evicted.
func (b *bench) marks(pod *corev1.Pod, mark string) *corev1.Pod {
	b.Helper()
	marked := pod.DeepCopy()
	marked.Status.Conditions = append(marked.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler, Message: mark,
		LastTransitionTime: metav1.NewTime(pod.CreationTimestamp.Add(time.Minute)),
	})
	b.plugin.work.add(b.cache.SetPod(marked))
	b.clock = pod.CreationTimestamp.Add(time.Minute)
	return marked
}

// leaves has a pod be deleted a minute after it was made, with the mark of an eviction or without.
func (b *bench) leaves(pod *corev1.Pod, mark string) {
	b.Helper()
	if mark != "" {
		pod = b.marks(pod, mark)
	}
	b.deletes(pod, time.Minute)
}

// deletes has a pod be deleted some time after it was made.
func (b *bench) deletes(pod *corev1.Pod, after time.Duration) {
	b.Helper()
	leaving := pod.DeepCopy()
	leaving.DeletionTimestamp, leaving.DeletionGracePeriodSeconds = &metav1.Time{Time: pod.CreationTimestamp.Add(after + 30*time.Second)}, ptr.To[int64](30)
	b.plugin.work.add(b.cache.SetPod(leaving))
	b.work()
}

// A gang of which some pods were evicted, and which cannot run without them, is evicted whole, also when nobody takes its place.
func TestRestOfAGangThatWasEvictedInPart(t *testing.T) {
	interrupted := func(end func(*bench, *corev1.Pod)) func(*bench, []*corev1.Pod) {
		return func(b *bench, low []*corev1.Pod) {
			refusing := b.refuseDeletion(apierrors.NewInternalError(assert.AnError), "low-1")
			refusing.lenient = true
			big := b.nominates("big")
			b.leaves(low[0], whole)
			refusing.answer = nil
			end(b, big[0])
		}
	}
	for name, test := range map[string]struct {
		evict func(b *bench, low []*corev1.Pod)
		stays bool
	}{
		"and has gone, before the next was deleted": {evict: func(b *bench, low []*corev1.Pod) {
			b.marks(low[1], whole)
			b.end(low[0])
			require.NotNil(b, b.live(low[1]), "it may be made again in a moment")
			b.elapse()
		}},
		"and has gone, and the pod is made again a moment later": {evict: func(b *bench, low []*corev1.Pod) {
			b.marks(low[1], whole)
			b.end(low[0])
			again := low[0].DeepCopy()
			again.UID, again.Spec.NodeName, again.Annotations = "again", "", nil
			b.plugin.work.add(b.cache.SetPod(again))
			b.elapse()
		}, stays: true},
		"and has gone, by a scheduler before this one": {evict: func(b *bench, low []*corev1.Pod) {
			b.plugin.leading.Store(false)
			b.marks(low[1], whole)
			b.end(low[0])
			b.clock = b.clock.Add(markCounts - time.Second)
			b.plugin.Lead()
			b.work()
		}},
		"and has gone, long ago": {evict: func(b *bench, low []*corev1.Pod) {
			b.marks(low[1], whole)
			b.clock = b.clock.Add(markCounts)
			b.end(low[0])
		}, stays: true},
		"long ago, and a user deletes the pod": {evict: func(b *bench, low []*corev1.Pod) {
			b.deletes(b.marks(low[0], whole), time.Minute+markCounts)
		}, stays: true},
		"of which all pods are there": {evict: func(b *bench, low []*corev1.Pod) {
			b.marks(low[1], whole)
			b.work()
		}, stays: true},
		"and has gone, and the pod was made again": {evict: func(b *bench, low []*corev1.Pod) {
			again := low[0].DeepCopy()
			again.UID, again.Spec.NodeName, again.Annotations = "again", "", nil
			b.marks(low[1], whole)
			b.plugin.work.add(b.cache.RemovePod(low[0].UID))
			b.plugin.work.add(b.cache.SetPod(again))
			b.work()
		}, stays: true},
		"and has gone, and it runs without it": {evict: func(b *bench, low []*corev1.Pod) {
			for i, pod := range low {
				low[i] = pod.DeepCopy()
			}
			elastic(low, 2)
			b.submit(low)
			b.marks(low[1], whole)
			b.end(low[0])
		}, stays: true},
		"and has gone, and another gang evicts the rest": {evict: func(b *bench, low []*corev1.Pod) {
			var starts []func()
			b.plugin.aside.start = func(f func()) { starts = append(starts, f) }
			b.nominates("big")
			b.marks(low[1], whole)
			b.end(low[0])
			require.NotEmpty(b, starts)
			for _, start := range starts[1:] { // without that gang's evictions
				start()
			}
		}, stays: true},
		"by a scheduler before this one": {evict: func(b *bench, low []*corev1.Pod) {
			b.plugin.leading.Store(false)
			b.leaves(low[0], whole)
			require.NotNil(b, b.live(low[1]))
			b.plugin.Lead()
			b.work()
		}},
		"for a gang that goes":       {evict: interrupted((*bench).end)},
		"for a gang that is refused": {evict: interrupted((*bench).blocks)},
		"where that fails at first": {evict: func(b *bench, low []*corev1.Pod) {
			refusing := b.refuseDeletion(apierrors.NewInternalError(assert.AnError), "low-1")
			b.leaves(low[0], whole)
			b.leaves(low[0], whole)
			require.NotNil(b, b.live(low[1]))
			require.Len(b, b.timers, 1, "it is tried again once")
			refusing.answer = nil
			b.elapse()
		}},
		"of which a user deletes a pod": {evict: func(b *bench, low []*corev1.Pod) { b.leaves(low[0], "") }, stays: true},
		"that runs without it": {evict: func(b *bench, low []*corev1.Pod) {
			for i, pod := range low {
				low[i] = pod.DeepCopy()
			}
			elastic(low, 2)
			b.submit(low)
			b.leaves(low[0], whole)
		}, stays: true},
		"that a surplus member leaves when another one fails": {evict: func(b *bench, low []*corev1.Pod) {
			b.leaves(low[0], surplus)
		}, stays: true},
		"whose pod is of the next run": {evict: func(b *bench, low []*corev1.Pod) {
			later := low[1].DeepCopy()
			later.CreationTimestamp = metav1.Time{Time: low[0].CreationTimestamp.Add(60 * time.Second)}
			b.plugin.work.add(b.cache.SetPod(later))
			b.leaves(low[0], whole)
		}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b")
			low := b.spread("low", "a", "b")
			test.evict(b, low)
			if test.stays {
				assert.NotNil(t, b.live(low[1]))
				return
			}
			assert.Nil(t, b.live(low[1]))
			assert.True(t, b.marked("low-1"))
		})
	}
}

// Pods that come after those of a gang which is evicted wait until the last of these is being deleted, not until it has gone.
func TestEvictedGangStartsElsewhereAtOnce(t *testing.T) {
	b := newBench(t, "a", "b")
	low := b.spread("low", "a", "b")
	b.nominates("big")
	b.work()
	for _, pod := range low {
		leaving := pod.DeepCopy()
		now := metav1.Now()
		leaving.DeletionTimestamp = &now
		b.plugin.work.add(b.cache.SetPod(leaving))
	}
	b.work()
	b.addNode("c")
	b.addNode("d")
	var next []*corev1.Pod
	for _, pod := range low {
		again := pod.DeepCopy()
		again.UID += "-again"
		again.Spec.NodeName, again.Annotations = "", nil
		next = append(next, again)
	}
	b.submit(next)
	node, status := b.cycle(next[0])
	assert.Contains(t, []string{"c", "d"}, node, status.Message())
}
