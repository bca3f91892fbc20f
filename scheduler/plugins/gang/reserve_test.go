package gang

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A gang that has waited long enough has a reservation; those behind it leave it alone.
func TestBlockedGangReserves(t *testing.T) {
	b := newBench(t, "a", "b")
	first := b.runs("first", "a", 1, 4, 0)
	b.runs("second", "b", 1, 4, 0)
	big := b.gangPods("big", 1, 8)
	big[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-contract.DefaultReserveAfter + time.Minute))
	b.submit(big)
	_, status := b.cycle(big[0])
	assert.Contains(t, status.Message(), "0 of 1")
	require.Len(t, b.timers, 1)
	assert.LessOrEqual(t, b.timers[0].pause, time.Minute)
	b.plugin.reserveAfter = contract.DefaultReserveAfter - 2*time.Minute
	b.elapse()
	b.cycle(big[0])

	small := b.gangPods("small", 1, 4)
	b.submit(small)
	node, status := b.cycle(small[0])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "b", node, "a is reserved")
	late := b.gangPods("late", 1, 1)
	b.submit(late)
	_, status = b.cycle(late[0])
	assert.Contains(t, status.Message(), "Held back by the reservation of gang ns/big")
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), big[0]).Message(), "Reserved: waits for gang ns/first.")

	b.handle.takeActivated()
	b.end(first[0])
	assert.Contains(t, b.handle.takeActivated(), "big-0")
	node, status = b.cycle(big[0])
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)
}

// No place is held for a gang where one before it in the queue is about to be.
func TestBlockedGangBehindOneThatFits(t *testing.T) {
	b := newBench(t, "a")
	b.runs("first", "a", 1, 4, 0)
	second := b.runs("second", "a", 1, 4, 4)
	next, big := b.gangPods("next", 1, 4), b.gangPods("big", 1, 8)
	next[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
	big[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	b.submit(append(next, big...))
	b.cycle(next[0])
	b.cycle(big[0])
	b.elapse()
	b.end(second[0])
	assert.Contains(t, b.handle.takeActivated(), "next-0")
	_, status := b.cycle(next[0])
	assert.True(t, status.IsSuccess(), status.Message())
}

// blocked submits a gang of eight GPUs that has waited too long, and lets its place be held.
func (b *bench) blocked() *corev1.Pod {
	b.Helper()
	big := b.gangPods("big", 1, 8)
	big[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	b.submit(big)
	b.cycle(big[0])
	b.elapse()
	b.cycle(big[0])
	b.work()
	return big[0]
}

// No place is held for a gang that other plugins refuse there: others would leave it room that it
// cannot take. A pause later they are asked again.
func TestNoReservationWhereOtherPluginsRefuse(t *testing.T) {
	b := newBench(t, "a", "b")
	b.runs("first", "a", 1, 4, 0)
	b.runs("second", "b", 1, 6, 0)
	b.handle.rejects = refuseOn("a")
	big := b.blocked()
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), big).Message(), "Reserved: waits for gang ns/second.", "the first choice is refused")
	onFirst := b.gangPods("on-first", 1, 4)
	b.submit(onFirst)
	node, status := b.cycle(onFirst[0])
	require.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)
	b.bind(onFirst[0], node)
}

// Where other plugins refuse a gang everywhere, no place is held for it, and they are asked again only
// after pauses that double, whatever ends meanwhile; where one refuses its pod whatever the node, when that plugin says so.
func TestNoReservationForAGangThatIsRefused(t *testing.T) {
	for name, refuse := range map[string]func(*fakeHandle, bool){
		"on every node": func(h *fakeHandle, refuses bool) {
			h.rejects = func(pod *corev1.Pod, _ fwk.NodeInfo) *fwk.Status { return refusal(pod, refuses) }
		},
		"whatever the node": func(h *fakeHandle, refuses bool) {
			h.refuses = func(pod *corev1.Pod) *fwk.Status { return refusal(pod, refuses) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a", "b")
			b.runs("first", "a", 1, 4, 0)
			b.runs("second", "b", 1, 6, 0)
			refuse(b.handle, true)
			big := b.blocked()
			for i := range 2 {
				small := b.gangPods(fmt.Sprint("small", i), 1, 4)
				b.submit(small)
				node, status := b.cycle(small[0])
				require.True(t, status.IsSuccess(), status.Message())
				b.bind(small[0], node)
				b.end(small[0])
				b.cycle(big)
				b.work()
			}
			assert.Empty(t, b.cache.Reserved())
			if name == "on every node" {
				asked := b.handle.dryRuns
				assert.Contains(t, b.elapse(), 2*minBackoff, "the first has passed")
				b.cycle(big)
				b.work()
				assert.Greater(t, b.handle.dryRuns, asked)
				assert.Contains(t, b.pauses(), 4*minBackoff)
			}

			refuse(b.handle, false)
			b.elapse()
			b.cycle(big)
			b.work()
			b.cycle(big)
			b.work()
			assert.Equal(t, map[string]bool{"ns/big": true}, b.cache.Reserved())
		})
	}
}

// refusal is what another plugin says of the pods of gang big.
func refusal(pod *corev1.Pod, refuses bool) *fwk.Status {
	if !refuses || pod.Name != "big-0" {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "no volume can be had").WithPlugin("Volumes")
}

// When all have ended that a gang waits for, it gets its place, whoever is looked at between that
// and its cycle.
func TestBlockedGangIsNotOvertaken(t *testing.T) {
	b := newBench(t, "a")
	first := b.runs("first", "a", 1, 4, 0)
	second := b.runs("second", "a", 1, 4, 4)
	big := b.blocked()
	late := b.gangPods("late", 1, 1)
	b.submit(late)
	b.cycle(late[0])
	b.end(first[0])
	b.end(second[0])
	b.handle.takeActivated()
	b.plugin.work.add(clusterstate.Change{Gang: "ns/late"})
	b.work()
	assert.NotContains(t, b.handle.takeActivated(), "late-0")
	newcomer := b.gangPods("newcomer", 1, 1)
	b.submit(newcomer)
	_, status := b.cycle(newcomer[0])
	assert.Contains(t, status.Message(), "Held back by the reservation of gang ns/big")
	node, status := b.cycle(big)
	assert.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)
}

// What changes while a gang is being told to wait is looked at at once.
func TestRoomThatIsFreedDuringACycle(t *testing.T) {
	meanwhile := map[string]func(b *bench, first, big *corev1.Pod){
		"room is freed": func(b *bench, first, _ *corev1.Pod) { b.end(first) },
		"a place is given back": func(b *bench, first, _ *corev1.Pod) {
			b.cache.RemovePod(first.UID)
			b.plugin.work.add(clusterstate.Change{RolledBack: true})
			b.work()
		},
		"the gang changes": func(b *bench, first, big *corev1.Pod) {
			b.cache.RemovePod(first.UID)
			changed := big.DeepCopy()
			changed.Labels["example.com/changed"] = "true"
			b.plugin.work.add(b.cache.SetPod(changed))
			b.work()
		},
	}
	for name, happens := range meanwhile {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			first := b.runs("first", "a", 1, 4, 0)
			big := b.gangPods("big", 1, 8)
			big[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			b.submit(big)
			once := false
			b.handle.rejects = func(*corev1.Pod, fwk.NodeInfo) *fwk.Status {
				if !once {
					once = true
					happens(b, first[0], big[0])
					b.handle.takeActivated() // who is activated in its cycle asks to enter after it
				}
				return nil
			}
			b.handle.takeActivated()
			_, status := b.cycle(big[0])
			require.True(t, once)
			require.True(t, status.IsRejected())
			b.work()
			assert.Equal(t, []string{"big-0"}, b.handle.takeActivated())
		})
	}
}

// A gang that could never fit holds nothing, and is not tried again while pods come and go.
func TestInfeasibleGang(t *testing.T) {
	b := newBench(t, "a")
	huge := b.gangPods("huge", 2, 8)
	huge[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	b.submit(huge)
	_, status := b.cycle(huge[1])
	assert.Contains(t, status.Message(), "1 of 2")
	b.elapse()
	small := b.gangPods("small", 1, 8)
	b.submit(small)
	node, status := b.cycle(small[0])
	assert.True(t, status.IsSuccess(), status.Message())
	b.bind(small[0], node)
	b.work()
	assert.True(t, b.cache.Infeasible("ns/huge"))
	b.handle.takeActivated()
	b.addNode("b")
	assert.False(t, b.cache.Infeasible("ns/huge"), "a node has come")
	b.end(small[0])
	assert.Len(t, b.handle.takeActivated(), 1)
}

func TestArgs(t *testing.T) {
	args, err := decode(&runtime.Unknown{Raw: []byte(`{"reserveAfter":"90s"}`), ContentType: runtime.ContentTypeJSON})
	require.NoError(t, err)
	assert.Equal(t, 90*time.Second, args.ReserveAfter.Duration)
	args, err = decode(nil)
	require.NoError(t, err)
	assert.Equal(t, contract.DefaultReserveAfter, args.ReserveAfter.Duration)
	_, err = decode(&runtime.Unknown{Raw: []byte(`{"reserveAfter":5}`), ContentType: runtime.ContentTypeJSON})
	assert.ErrorContains(t, err, "read the arguments")
}
