package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	typedfake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// runs makes a gang that is bound to a node, with GPUs from first on.
func (b *bench) runs(name, node string, members, gpus, first int) []*corev1.Pod {
	b.Helper()
	pods := b.gangPods(name, members, gpus)
	for i, pod := range pods {
		record := contract.Allocation{Gang: "ns/" + name, Node: node}
		for range gpus {
			record.GPUs = append(record.GPUs, first)
			first++
		}
		annotations, err := record.Annotations()
		require.NoError(b, err)
		pods[i].Spec.NodeName, pod.Annotations = node, annotations
	}
	b.handle.bound = append(b.handle.bound, pods...)
	b.submit(pods)
	return pods
}

// end ends a pod.
func (b *bench) end(pod *corev1.Pod) {
	b.Helper()
	b.plugin.work.add(b.cache.RemovePod(pod.UID))
	b.work()
}

// replaced ends a pod, and makes the one that comes after it.
func (b *bench) replaced(pod *corev1.Pod) *corev1.Pod {
	b.Helper()
	b.end(pod)
	next := pod.DeepCopy()
	next.UID += "-again"
	next.Spec.NodeName, next.Annotations, next.DeletionTimestamp, next.Status = "", nil, nil, corev1.PodStatus{}
	if b.live(pod) != nil {
		require.NoError(b, b.handle.client.CoreV1().Pods("ns").Delete(b.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	_, err := b.handle.client.CoreV1().Pods("ns").Create(b.Context(), next, metav1.CreateOptions{})
	require.NoError(b, err)
	return next
}

// setLeaves sets a quota tree of leaves below its root.
func (b *bench) setLeaves(leaves ...any) {
	b.Helper()
	change, err := b.cache.SetQuotaTree(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{"children": leaves}}}})
	require.NoError(b, err)
	b.plugin.work.add(change)
}

// live reads a pod from the API server; nil when it is gone.
func (b *bench) live(pod *corev1.Pod) *corev1.Pod {
	b.Helper()
	live, err := b.handle.client.CoreV1().Pods("ns").Get(b.Context(), pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b, err)
	return live
}

// urgent makes the pods of a gang of higher priority.
func (b *bench) urgent(name string, members, gpus int) []*corev1.Pod {
	b.Helper()
	pods := b.gangPods(name, members, gpus)
	priority := int32(10)
	for _, pod := range pods {
		pod.Spec.Priority = &priority
	}
	return pods
}

func TestPreemption(t *testing.T) {
	b := newBench(t, "a")
	low := b.runs("low", "a", 2, 2, 0)
	other := b.runs("other", "a", 2, 2, 4)
	big := b.urgent("big", 1, 4)
	b.submit(big)

	_, status := b.cycle(big[0])
	assert.Contains(t, status.Message(), "Reserved: waits for gang ns/")
	b.work()
	assert.Equal(t, "a", b.live(big[0]).Status.NominatedNodeName)
	assert.Equal(t, "a", b.handle.nominated["big-0"], "stock pods leave it the room, too")
	victims, others := low, other
	if b.live(low[0]) != nil {
		victims, others = other, low
	}
	for i := range 2 {
		assert.Nil(t, b.live(victims[i]))
		assert.NotNil(t, b.live(others[i]), "one gang is enough")
	}
	assert.Contains(t, <-b.handle.recorder.Events, "Preempted evicted from node a to make room for gang ns/big")
	assert.EqualValues(t, 2, b.evicted(metrics.ForPriority))
	assert.Zero(t, b.evicted(metrics.ForQuota))

	b.end(victims[0])
	thief := b.gangPods("thief", 1, 1)
	b.submit(thief)
	_, status = b.cycle(thief[0])
	assert.Contains(t, status.Message(), "Held back by the reservation of gang ns/big")
	b.handle.takeActivated()
	b.end(victims[1])
	assert.Contains(t, b.handle.takeActivated(), "big-0")
	node, status := b.cycle(big[0])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)
}

// preempts has the gang big, of one pod, wait until the members of the gang low have left it node a.
func (b *bench) preempts(members, gpus int) (low, big []*corev1.Pod) {
	b.Helper()
	low, big = b.runs("low", "a", members, gpus, 0), b.urgent("big", 1, 8)
	b.submit(big)
	_, status := b.cycle(big[0])
	require.Contains(b, status.Message(), "evicted for it: gang ns/low")
	return low, big
}

// The scheduler's own cache may show a victim a moment longer than the view does. The place that it has
// left is kept meanwhile, but not when the node is refused again without them.
func TestPlaceIsKeptWhenItIsRefusedOnce(t *testing.T) {
	b := newBench(t, "a")
	victims, big := b.preempts(2, 4)
	b.work()
	b.end(victims[0])
	b.end(victims[1])
	thief := b.gangPods("thief", 1, 1)
	b.submit(thief)

	for range 3 {
		b.refuse(big[0])
		b.work()
		_, status := b.cycle(thief[0])
		assert.Contains(t, status.Message(), "Held back by the reservation of gang ns/big")
		assert.Contains(t, b.elapse(), retryDelay)
	}

	b.handle.bound = nil
	b.refuse(big[0])
	b.work()
	node, status := b.cycle(thief[0])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)
}

// So it is when another plugin fails for the first time after the filters.
func TestPlaceIsKeptWhenAnAttemptFailsOnce(t *testing.T) {
	b := newBench(t, "a")
	victims, big := b.preempts(2, 4)
	b.work()
	b.end(victims[0])
	b.end(victims[1])
	thief := b.gangPods("thief", 1, 1)
	b.submit(thief)
	for _, keeps := range []bool{true, false} {
		node, status := b.attempt(big[0])
		require.True(t, status.IsSuccess(), status.Message())
		b.plugin.Unreserve(t.Context(), b.states[big[0].UID], big[0], node)
		b.work()
		_, status = b.cycle(thief[0])
		assert.Equal(t, keeps, status.IsRejected(), status.Message())
	}
}

// An elastic gang loses members that it does not need, and runs on.
func TestPreemptionOfAnElasticGangsMembers(t *testing.T) {
	b := newBench(t, "a")
	low := b.runs("low", "a", 4, 2, 0)
	elastic(low, 0)
	b.submit(low)
	big := b.urgent("big", 1, 4)
	b.submit(big)
	_, status := b.cycle(big[0])
	assert.Contains(t, status.Message(), "Reserved: waits for 2 members of gang ns/low; evicted for it: 2 members of gang ns/low.")
	b.work()
	for i, pod := range low {
		assert.Equal(t, i < 2, b.live(pod) != nil, pod.Name)
	}
	b.end(low[3])
	b.end(low[2])
	node, status := b.cycle(big[0])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)

	again := b.gangPods("again", 2, 2)
	for _, pod := range again {
		pod.Labels[contract.TopologyGroupLabel] = "low"
	}
	elastic(again, 0)
	b.submit(again)
	_, status = b.cycle(again[0])
	assert.Contains(t, status.Message(), "gang ns/low runs with 2 members; there is no room for more.")
}

// A scheduler that starts holds the place again, and evicts nobody but the rest of the
// gang of which members leave already.
func TestPreemptionAfterRestart(t *testing.T) {
	b := newBench(t, "a", "b")
	low := b.runs("low", "a", 2, 4, 0)
	other := b.runs("other", "b", 2, 4, 0)
	big := b.urgent("big", 2, 4)
	big[0].Status.NominatedNodeName = "b"
	gone := other[0].DeepCopy()
	now := metav1.Now()
	gone.DeletionTimestamp = &now
	b.cache.SetPod(gone)
	thief := b.gangPods("thief", 1, 4)
	b.submit(append(thief, big...))

	_, status := b.cycle(thief[0])
	assert.Contains(t, status.Message(), "0 of 1", "the gang that held a place comes first")
	b.work()
	assert.NotNil(t, b.live(other[0]), "it is leaving already")
	assert.Nil(t, b.live(other[1]), "the rest of its gang follows")
	for _, pod := range low {
		assert.NotNil(t, b.live(pod))
	}
	b.plugin.work.add(b.cache.RemovePod(other[0].UID))
	b.end(other[1])
	node, status := b.cycle(big[1])
	assert.True(t, status.IsWait(), status.Message())
	assert.Equal(t, "b", node)
}

// A nomination whose place cannot be had any more leaves no nominations behind, and others get what
// it held.
func TestNominationIsGivenUp(t *testing.T) {
	b := newBench(t, "a", "b")
	low := b.runs("low", "a", 1, 8, 0)
	big := b.urgent("big", 2, 8)
	b.submit(big)
	b.cycle(big[0])
	b.work()
	small := b.gangPods("small", 1, 1)
	b.submit(small)
	_, status := b.cycle(small[0])
	assert.Contains(t, status.Message(), "Held back by the reservation of gang ns/big")
	for _, pod := range big {
		b.plugin.work.add(b.cache.SetPod(b.live(pod)))
	}
	b.cache.RemoveNode("a")
	b.end(low[0])
	b.handle.takeActivated()
	_, status = b.cycle(big[0])
	assert.Contains(t, status.Message(), "1 of 2")
	b.work()
	for _, pod := range big {
		assert.Empty(t, b.live(pod).Status.NominatedNodeName)
	}
	assert.Empty(t, b.handle.nominated)
	assert.Contains(t, b.handle.takeActivated(), "small-0")
	assert.EqualValues(t, 1, b.counted("gpuplan_nominations_given_up_total", nil))
}

// leaf is a leaf of a quota tree, of which min is the owner's.
func leaf(name, lowest string) map[string]any {
	return map[string]any{
		"name": name, "min": map[string]any{contract.ResourceTopologyGPU: lowest}, "max": map[string]any{contract.ResourceTopologyGPU: "8"},
	}
}

// in charges pods to a leaf.
func (b *bench) in(leaf string, pods []*corev1.Pod) []*corev1.Pod {
	for _, pod := range pods {
		pod.Labels[contract.QuotaLabel] = leaf
		b.plugin.work.add(b.cache.SetPod(pod))
	}
	return pods
}

// What a leaf has borrowed goes back to its owner, and is counted as that.
func TestReclaimByQuota(t *testing.T) {
	b := newBench(t, "a")
	b.setLeaves(leaf("left", "4"), leaf("right", "4"))
	b.in("left", b.runs("borrower", "a", 2, 4, 0))
	owner := b.in("right", b.gangPods("owner", 1, 4))
	b.submit(owner)
	b.cycle(owner[0])
	b.work()
	assert.EqualValues(t, 2, b.evicted(metrics.ForQuota))
	assert.Zero(t, b.evicted(metrics.ForPriority))
}

// Nobody is evicted for an elastic gang while members of it are being bound; those who must
// leave do so right after.
func TestPreemptionByAGangThatIsBeingBound(t *testing.T) {
	b := newBench(t, "a")
	b.setLeaves(leaf("left", "0"), leaf("right", "8"))
	borrower := b.in("left", b.runs("borrower", "a", 1, 4, 0))
	owner := b.gangPods("owner", 2, 4)
	elastic(owner, 2)
	b.submit(b.in("right", owner))
	node, status := b.cycle(owner[0])
	require.True(t, status.IsSuccess(), status.Message())
	_, status = b.cycle(owner[1])
	require.Contains(t, status.Message(), "evicted for it: gang ns/borrower")
	b.work()
	require.NotNil(t, b.live(borrower[0]))

	b.bind(owner[0], node)
	b.work()
	assert.Nil(t, b.live(borrower[0]))
	b.end(borrower[0])
	node, status = b.cycle(owner[1])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)
}

// A member that waits takes no place of a gang that is being evicted: it would stay there alone.
func TestEvictedGangGetsNoMembers(t *testing.T) {
	for name, joins := range map[string]bool{"a member waits before": false, "a member joins meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			low := b.runs("low", "a", 4, 2, 0)
			fifth := b.gangPods("fifth", 1, 2)[0]
			fifth.Labels = low[0].Labels
			if !joins {
				b.submit([]*corev1.Pod{fifth})
				_, status := b.cycle(fifth)
				require.Contains(t, status.Message(), "runs with 4 members")
			}
			urgent := b.urgent("urgent", 1, 2)
			b.submit(urgent)
			_, status := b.cycle(urgent[0])
			require.Contains(t, status.Message(), "evicted for it: gang ns/low")
			b.handle.takeActivated()
			b.end(low[3]) // before the last of them is being deleted
			assert.NotContains(t, b.handle.takeActivated(), fifth.Name)
			if joins {
				b.submit([]*corev1.Pod{fifth})
			}
			_, status = b.cycle(fifth)
			assert.Contains(t, status.Message(), "gang ns/low is being evicted for gang ns/urgent")
			b.handle.takeActivated()

			b.end(urgent[0]) // the others stay
			assert.Contains(t, b.handle.takeActivated(), fifth.Name)
			node, _ := b.cycle(fifth)
			assert.Equal(t, "a", node)
		})
	}
}

// Capacity is reserved for a gang that has waited long enough also when it was being evicted first.
func TestEvictedGangIsReservedFor(t *testing.T) {
	b := newBench(t, "a")
	b.plugin.reserveAfter = time.Hour
	low := b.runs("low", "a", 2, 4, 0)
	b.plugin.aside.start = func(func()) {}
	urgent := b.urgent("urgent", 1, 4)
	b.submit(urgent)
	b.cycle(urgent[0])
	next := b.replaced(low[1])
	b.runs("other", "a", 1, 4, 4)
	b.submit([]*corev1.Pod{next})
	_, status := b.cycle(next)
	require.Contains(t, status.Message(), "is being evicted for gang ns/urgent")
	b.timers = nil
	b.handle.takeActivated()
	b.end(urgent[0])
	require.NotContains(t, b.handle.takeActivated(), next.Name)
	var pauses []time.Duration
	for _, timer := range b.timers {
		pauses = append(pauses, timer.pause.Round(time.Minute))
	}
	assert.Contains(t, pauses, time.Hour)
}

// Who would leave for members beyond the minimum stays until the gang's launcher runs: it could take their place.
func TestLauncherComesBeforeGrowth(t *testing.T) {
	b := newBench(t, "a")
	b.setLeaves(leaf("left", "0"), leaf("right", "8"))
	b.in("left", b.runs("borrower", "a", 1, 4, 0))
	owner := b.gangPods("owner", 3, 4)
	elastic(owner, 0)
	launcher := owner[2]
	launcher.Labels[contract.JobReplicaTypeLabel] = "launcher"
	delete(launcher.Spec.Containers[0].Resources.Requests, contract.ResourceTopologyGPU)
	b.submit(b.in("right", owner))
	node, _ := b.cycle(owner[0])
	b.bind(owner[0], node)
	b.work()
	_, status := b.cycle(owner[1])
	assert.Contains(t, status.Message(), "there is no room for more")
	b.handle.takeActivated()

	bound := launcher.DeepCopy()
	bound.Spec.NodeName = "a"
	b.plugin.work.add(b.cache.SetPod(bound))
	b.work()
	assert.Contains(t, b.handle.takeActivated(), owner[1].Name)
	_, status = b.cycle(owner[1])
	assert.Contains(t, status.Message(), "evicted for it: gang ns/borrower")
}

// The place that others have left for a gang is given back when it does not ask for it any more.
func TestPlaceOfAGangThatAsksNoMore(t *testing.T) {
	t.Run("a member that is to join a running gang goes", func(t *testing.T) {
		b := newBench(t, "a")
		b.setLeaves(leaf("left", "0"), leaf("right", "8"))
		borrower := b.in("left", b.runs("borrower", "a", 1, 4, 0))
		owner := b.gangPods("owner", 2, 4)
		elastic(owner, 2)
		b.submit(b.in("right", owner))
		node, _ := b.cycle(owner[0])
		b.bind(owner[0], node)
		b.work()
		_, status := b.cycle(owner[1])
		require.Contains(t, status.Message(), "evicted for it: gang ns/borrower")
		b.work()
		b.end(borrower[0])
		_, held := b.cache.Reservation("ns/owner")
		require.True(t, held)
		b.end(owner[1])
		_, held = b.cache.Reservation("ns/owner")
		assert.False(t, held)
		small := b.gangPods("small", 1, 4)
		b.submit(b.in("left", small))
		_, status = b.cycle(small[0])
		assert.True(t, status.IsSuccess(), status.Message())
	})
	for name, left := range map[string]func(*corev1.Pod){
		"a pod that is not ours yet is left": func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/later"}} },
		"a launcher is left": func(p *corev1.Pod) {
			p.Labels[contract.JobReplicaTypeLabel] = "launcher"
			delete(p.Spec.Containers[0].Resources.Requests, contract.ResourceTopologyGPU)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			b.setLeaves(leaf("left", "0"), leaf("right", "8"))
			borrower := b.in("left", b.runs("borrower", "a", 1, 4, 0))
			owner := b.gangPods("owner", 3, 4)
			elastic(owner, 0)
			left(owner[2])
			b.submit(b.in("right", owner[:2]))
			node, _ := b.cycle(owner[0])
			b.bind(owner[0], node)
			b.work()
			_, status := b.cycle(owner[1])
			require.Contains(t, status.Message(), "evicted for it: gang ns/borrower")
			b.submit(b.in("right", owner[2:]))
			b.work()
			b.end(borrower[0])
			_, held := b.cache.Reservation("ns/owner")
			require.True(t, held)
			b.end(owner[1])
			_, held = b.cache.Reservation("ns/owner")
			assert.False(t, held)
			assert.EqualValues(t, 1, b.counted("gpuplan_nominations_given_up_total", nil))
		})
	}
	t.Run("a member of a waiting gang goes for good", func(t *testing.T) {
		b := newBench(t, "a")
		low := b.runs("low", "a", 1, 8, 0)
		big := b.urgent("big", 2, 4)
		b.submit(big)
		_, status := b.cycle(big[0])
		require.Contains(t, status.Message(), "evicted for it: gang ns/low")
		b.work()
		b.end(low[0])
		for _, pod := range big {
			b.plugin.work.add(b.cache.SetPod(b.live(pod)))
		}
		b.end(big[1])
		_, held := b.cache.Reservation("ns/big")
		require.True(t, held, "it may be made again")
		b.plugin.gangs["ns/big"].incomplete = time.Now().Add(-patience)
		b.plugin.checkAgain("ns/big")
		b.work()
		_, held = b.cache.Reservation("ns/big")
		assert.False(t, held)
		assert.Empty(t, b.live(big[0]).Status.NominatedNodeName)
		assert.EqualValues(t, 1, b.counted("gpuplan_nominations_given_up_total", nil))
	})
}

// What is written about a pod is for that pod: one that has come under its name since is left alone.
func TestPatchesNameTheirPod(t *testing.T) {
	b := newBench(t, "a")
	pod := b.gangPods("job", 1, 8)[0]
	b.submit([]*corev1.Pod{pod})
	require.NoError(t, b.plugin.setNominated(t.Context(), pod, "a"))
	require.NoError(t, b.plugin.mark(t.Context(), pod, "it waits"))
	_, err := b.plugin.dismiss(t.Context(), "ns/job", pod, "it goes")
	require.NoError(t, err)
	fake, ok := b.handle.client.(*typedfake.Clientset)
	require.True(t, ok)
	patches := 0
	for _, action := range fake.Actions() {
		if patch, ok := action.(kubetesting.PatchAction); ok {
			patches++
			assert.Contains(t, string(patch.GetPatch()), `"uid":"job-0"`)
		}
	}
	assert.Equal(t, 3, patches)
}
