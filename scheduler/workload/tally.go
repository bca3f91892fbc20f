package workload

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

const (
	// mostPods is how many pods are counted at most: beyond it all counts are halved, so that
	// the workload follows what arrives lately. No more wait to be counted either.
	mostPods = 10_000
	// mostDemands bounds the record, which must stay readable and small; the rarest go.
	mostDemands = 250
	// seen is how long after its creation a pod has been seen for sure, the difference of two
	// clocks included.
	seen = 5 * time.Second
)

// tally is what is recorded of the requests that have arrived, and what is not yet.
type tally struct {
	counted placement.Workload
	// until is until when arrivals were counted.
	until time.Time
	// waiting are the arrivals after that, in the order in which they were seen.
	waiting []arrival
}

// arrival is a pod that asks for GPUs.
type arrival struct {
	created time.Time
	demand  placement.Demand
}

// arrive takes in a pod, unless it was counted.
func (t *tally) arrive(a arrival) {
	if !a.created.After(t.until) {
		return
	}
	t.waiting = append(t.waiting, a)
	if len(t.waiting) > 2*mostPods {
		t.waiting = slices.Clone(t.waiting[mostPods:])
	}
}

// record takes in what is recorded: arrivals wait no longer that are part of it.
func (t *tally) record(counted placement.Workload, until time.Time) {
	t.counted, t.until = counted, until
	t.waiting = slices.DeleteFunc(t.waiting, func(a arrival) bool { return !a.created.After(until) })
}

// due returns what is to be recorded; ok is false while too little has arrived.
func (t *tally) due(now time.Time) (next placement.Workload, until time.Time, ok bool) {
	until = now.Add(-seen).Truncate(time.Second) // times of creation have whole seconds
	next, more := placement.Workload{}, int64(0)
	maps.Copy(next, t.counted)
	for _, a := range t.waiting {
		if !a.created.After(until) {
			next[a.demand]++
			more++
		}
	}
	if !placement.Outgrown(t.counted.Members(), more) {
		return nil, time.Time{}, false
	}
	for next.Members() > mostPods {
		halve(next)
	}
	return mostFrequent(next), until, true
}

func halve(w placement.Workload) {
	for d, n := range w {
		w[d] = n / 2
	}
	maps.DeleteFunc(w, func(_ placement.Demand, n int64) bool { return n == 0 })
}

// mostFrequent keeps as many demands as the record may have.
func mostFrequent(w placement.Workload) placement.Workload {
	demands := w.Demands()
	slices.SortStableFunc(demands, func(a, b placement.Demand) int { return cmp.Compare(w[b], w[a]) })
	for _, d := range demands[min(mostDemands, len(demands)):] {
		delete(w, d)
	}
	return w
}
