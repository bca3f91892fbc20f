package tally

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

var (
	begin = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	eight = placement.Demand{Mode: placement.ModeTopology, GPUs: 8}
	half  = placement.Demand{Mode: placement.ModeShare, GPUs: 1, MemoryGiB: 8, MilliCPU: 4000}
)

// after is a time, in seconds after the beginning.
func after(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }

func (t *Tally) arriveAt(seconds, n int, d placement.Demand) {
	for range n {
		t.Arrive(Arrival{Created: after(seconds), Demand: d})
	}
}

// write records what is due, as a watch would tell of it.
func (t *Tally) write(tb testing.TB, seconds int) placement.Workload {
	tb.Helper()
	next, until, ok := t.Due(after(seconds))
	require.True(tb, ok, "nothing is due")
	t.Record(next, until, after(seconds))
	return next
}

func (t *Tally) requireNothingDue(tb testing.TB, seconds int) {
	tb.Helper()
	next, _, ok := t.Due(after(seconds))
	require.False(tb, ok, "%v is due", next)
}

func TestArrivalsAreCountedOnce(t *testing.T) {
	var first Tally
	first.requireNothingDue(t, 100)
	first.arriveAt(0, 4, eight)
	first.arriveAt(3, 1, half)
	first.requireNothingDue(t, 4) // others may have been created since then that nobody has seen
	assert.Equal(t, placement.Workload{eight: 4}, first.write(t, 6), "what was created less than five seconds ago waits")
	first.requireNothingDue(t, 9)
	first.arriveAt(5, 1, half)
	assert.Equal(t, placement.Workload{eight: 4, half: 2}, first.write(t, 12), "a quarter more")

	var next Tally // a scheduler that starts, or has stood by: it sees all pods that are there
	next.arriveAt(0, 4, eight)
	next.arriveAt(3, 1, half)
	next.arriveAt(20, 2, half)
	next.Record(first.Counted, first.Until, after(20))
	next.arriveAt(5, 1, half)
	assert.Equal(t, placement.Workload{eight: 4, half: 4}, next.write(t, 30))
}

func TestCountsAreHalvedBeyondTheirBound(t *testing.T) {
	var t1 Tally
	t1.Record(placement.Workload{eight: mostPods - 1, {Mode: placement.ModeTopology, GPUs: 2}: 1}, after(0), after(1))
	t1.arriveAt(1, mostPods/4+1, half)
	assert.Equal(t, placement.Workload{eight: (mostPods - 1) / 2, half: (mostPods/4 + 1) / 2}, t1.write(t, 60), "what has come once goes")
}

func TestRecordBeyondTheBoundIsReplaced(t *testing.T) {
	var t1 Tally
	t1.Record(placement.Workload{eight: 10*mostPods + 1}, after(0), after(1))
	t1.arriveAt(1, 1, half)
	assert.Equal(t, placement.Workload{eight: 10 * mostPods / 16}, t1.write(t, 60), "without a quarter more of arrivals")
	t1.requireNothingDue(t, 120)
}

func TestRecordOfTheFuture(t *testing.T) {
	var t1 Tally
	t1.Record(placement.Workload{eight: 4}, after(3_000_000), after(10))
	t1.arriveAt(9, 1, half)
	t1.arriveAt(11, 2, half)
	assert.Equal(t, placement.Workload{eight: 4, half: 2}, t1.write(t, 20), "what comes is counted")
	assert.Equal(t, after(11), t1.Until)
}

// A record is read again at each event of it; what has arrived in between is not part of it.
func TestRecordOfTheFutureIsReadAgain(t *testing.T) {
	var t1 Tally
	for seconds := 10; seconds < 50; seconds += 10 {
		t1.Record(placement.Workload{eight: 4}, after(3_000_000), after(seconds))
		t1.arriveAt(seconds+1, 1, half)
	}
	assert.Equal(t, placement.Workload{eight: 4, half: 4}, t1.write(t, 60))
}

// A clock that is ahead does not make it drop what arrives by the API server's.
func TestClockThatIsAhead(t *testing.T) {
	var t1 Tally
	t1.arriveAt(1, 4, eight)
	t1.write(t, 3600)
	t1.arriveAt(2, 2, half)
	assert.Equal(t, placement.Workload{eight: 4, half: 2}, t1.write(t, 3601))
}

func TestRareDemandsGo(t *testing.T) {
	var t1 Tally
	w := placement.Workload{}
	for i := range mostDemands + 10 {
		w[placement.Demand{Mode: placement.ModeTopology, GPUs: 1, MilliCPU: int64(i)}] = int64(1 + i%7)
	}
	t1.Record(w, after(0), after(1))
	t1.arriveAt(1, int(w.Members()), half)
	next := t1.write(t, 60)
	assert.Len(t, next, mostDemands)
	maps.DeleteFunc(w, func(_ placement.Demand, n int64) bool { return n == 1 })
	for d, n := range w {
		assert.Equal(t, n, next[d], "%+v is not rare", d)
	}
}

func TestFewArrivalsWait(t *testing.T) {
	var t1 Tally
	for i := range 3 * mostPods {
		t1.arriveAt(i, 1, eight)
	}
	assert.LessOrEqual(t, len(t1.Waiting), 2*mostPods)
	assert.Equal(t, after(3*mostPods-1), t1.Waiting[len(t1.Waiting)-1].Created, "the latest wait")
}
