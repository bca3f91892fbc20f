package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
)

// A gang that has waited long enough has a reservation; those behind it leave it alone.
func TestBlockedGangReserves(t *testing.T) {
	b := newBench(t, "a", "b")
	first := b.runs("first", "a", 1, 4, 0)
	b.runs("second", "b", 1, 4, 0)
	big := b.gangPods("big", 1, 8)
	big[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-DefaultReserveAfter + time.Minute))
	b.submit(big)
	_, status := b.cycle(big[0])
	assert.Contains(t, status.Message(), "0 of 1")
	require.Len(t, b.timers, 1)
	assert.LessOrEqual(t, b.timers[0].pause, time.Minute)
	b.plugin.reserveAfter = DefaultReserveAfter - 2*time.Minute
	b.elapse()

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
	return big[0]
}

// A place that waits for others to end may move. Its gang is not nominated, or others would
// be refused where the place was.
func TestBlockedGangIsNotNominated(t *testing.T) {
	b := newBench(t, "a")
	b.runs("first", "a", 1, 4, 0)
	big := b.blocked()
	_, status := b.cycle(big)
	b.work()
	assert.Contains(t, status.Message(), "Reserved: waits for gang ns/first.")
	assert.Empty(t, b.handle.nominated)
	assert.Empty(t, b.live(big).Status.NominatedNodeName)
}

// The reason names those that a gang waits for still, and not those that have ended.
func TestBlockedGangSaysWhomItWaitsFor(t *testing.T) {
	b := newBench(t, "a")
	first := b.runs("first", "a", 1, 4, 0)
	b.runs("second", "a", 1, 4, 4)
	big := b.blocked()
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), big).Message(), "Reserved: waits for gang ns/first, gang ns/second.")
	b.end(first[0])
	assert.Contains(t, b.plugin.PreEnqueue(t.Context(), big).Message(), "Reserved: waits for gang ns/second.")
}

// When a reservation is given up, gangs that waited because of it are tried again.
func TestBlockedGangIsDeleted(t *testing.T) {
	b := newBench(t, "a")
	b.runs("first", "a", 1, 4, 0)
	big := b.blocked()
	small := b.gangPods("small", 1, 1)
	b.submit(small)
	_, status := b.cycle(small[0])
	assert.Contains(t, status.Message(), "Held back by the reservation of gang ns/big")
	b.handle.takeActivated()
	b.end(big)
	assert.Contains(t, b.handle.takeActivated(), "small-0")
}

// A scheduler that starts holds the place before it plans anything.
func TestBlockedGangReservesAfterRestart(t *testing.T) {
	b := newBench(t, "a")
	b.runs("first", "a", 1, 4, 0)
	big := b.gangPods("big", 1, 8)
	big[0].CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	small := b.gangPods("small", 1, 1)
	b.submit(append(big, small...))
	_, status := b.cycle(small[0])
	assert.Contains(t, status.Message(), "Held back by the reservation of gang ns/big")
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
	assert.Equal(t, DefaultReserveAfter, args.ReserveAfter.Duration)
	_, err = decode(&runtime.Unknown{Raw: []byte(`{"reserveAfter":5}`), ContentType: runtime.ContentTypeJSON})
	assert.ErrorContains(t, err, "read the arguments")
}
