package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

const (
	beginLatency = "<!-- latency -->\n"
	endLatency   = "<!-- end of latency -->\n"
	// storms is how often something breaks in the simulated node, and mostXIDs how many events of GPUs that has at most.
	storms   = 100
	mostXIDs = 16
)

// Things break all the time, and each of them has several GPUs report errors within two seconds. The clock is the test's, so what
// counts is how the agent batches its writes.
func TestTimeToPublication(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.round()
	random := rand.New(rand.NewPCG(1, 0))
	var took []time.Duration
	for range storms {
		w.now = w.now.Add(time.Duration(random.ExpFloat64() * float64(10*time.Minute)))
		took = append(took, a.storm(random)...)
		w.eventsSoFar()
	}
	slices.Sort(took)
	of := func(percent int) time.Duration { return took[(len(took)-1)*percent/100] }
	assert.Less(t, of(99), 2*time.Second)
	documented(t, beginLatency, endLatency, fmt.Sprintf(
		"Of %d XIDs of %d storms, each of up to %d from the GPUs of one node within two seconds, half were published within %.1f seconds, 99 of 100 within %.1f, and all within %.1f, beside the time that a read and a request take.\n",
		len(took), storms, mostXIDs, of(50).Seconds(), of(99).Seconds(), of(100).Seconds()))
}

// storm has GPUs report errors, and returns how long it took until each was published.
func (a *agent) storm(random *rand.Rand) (took []time.Duration) {
	begin := a.w.now
	due := make([]time.Time, 1+random.IntN(mostXIDs))
	for i := range due {
		due[i] = begin.Add(time.Duration(random.Int64N(int64(2 * time.Second))))
	}
	slices.SortFunc(due, time.Time.Compare)
	codes := []uint64{48, 63, 74, 79, 94, 95, 119}
	var noted []time.Time
	for again := begin; len(due) > 0 || len(noted) > 0; {
		a.w.now = again
		if len(due) > 0 && (len(noted) == 0 || due[0].Before(again)) {
			a.w.now, noted = due[0], append(noted, due[0])
			a.source.report(hardware.Signal{GPU: fmt.Sprintf("GPU-%d", random.IntN(8)), Kind: hardware.XID, Number: codes[random.IntN(len(codes))]})
			due = due[1:]
		}
		a.look(a.w.ctx)
		later, err := a.publish(a.w.ctx)
		require.NoError(a.t, err)
		again = a.w.now.Add(later)
		if later == 0 {
			for _, at := range noted {
				took = append(took, a.w.now.Sub(at))
			}
			noted = nil
		}
	}
	for i := range 8 { // all of them are reset
		a.source.report(hardware.Signal{GPU: fmt.Sprintf("GPU-%d", i), Kind: hardware.WasReset})
	}
	a.after(30 * time.Second)
	return took
}
