// Package tally is what is recorded of the requests for GPUs that arrive, and when it is out of
// date. It is a plain value without a clock, so that the scheduler and a replay weigh alike.
package tally

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
	// Seen is how long after its creation a pod has been seen for sure, the difference of two
	// clocks included.
	Seen = 5 * time.Second
)

// Tally is what is recorded of the requests that have arrived, and what is not yet.
type Tally struct {
	Counted placement.Workload
	// Until is until when arrivals were counted: when the last of them was created.
	Until time.Time
	// Waiting are the arrivals after that, in the order in which they were seen.
	Waiting []Arrival
}

// Arrival is a pod that asks for GPUs.
type Arrival struct {
	Created time.Time
	Demand  placement.Demand
}

// Arrive takes in a pod, unless it was counted.
func (t *Tally) Arrive(a Arrival) {
	if !a.Created.After(t.Until) {
		return
	}
	t.Waiting = append(t.Waiting, a)
	if len(t.Waiting) > 2*mostPods {
		t.Waiting = slices.Clone(t.Waiting[mostPods:])
	}
}

// Record takes in what is recorded: arrivals wait no longer that are part of it. Whatever the record
// says, nobody has counted what is still to come: such a record counts until when it is first read.
func (t *Tally) Record(counted placement.Workload, until, now time.Time) {
	switch {
	case !until.After(now):
	case t.Until.IsZero():
		until = now
	default:
		until = t.Until
	}
	t.Counted, t.Until = counted, until
	t.Waiting = slices.DeleteFunc(t.Waiting, func(a Arrival) bool { return !a.Created.After(until) })
}

// Due returns what is to be recorded; ok is false while too little has arrived, and no more is recorded than
// may be.
func (t *Tally) Due(now time.Time) (next placement.Workload, until time.Time, ok bool) {
	seen := now.Add(-Seen).Truncate(time.Second) // times of creation have whole seconds
	more, until := int64(0), t.Until
	for _, a := range t.Waiting {
		if a.Created.After(seen) {
			continue
		}
		more++
		if a.Created.After(until) {
			until = a.Created
		}
	}
	if counted := t.Counted.Members(); counted <= mostPods && !placement.Outgrown(counted, more) {
		return nil, time.Time{}, false
	}
	next = placement.Workload{}
	maps.Copy(next, t.Counted)
	for _, a := range t.Waiting {
		if !a.Created.After(until) {
			next[a.Demand]++
		}
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
