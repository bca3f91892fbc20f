package clusterstate

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// QueuedGang is the place of a gang in the scheduler's queue.
type QueuedGang struct {
	// Partial means that some members run, but not as many as the gang needs.
	Partial  bool
	Priority int32
	// Since is when the gang's first pod was created, in Unix nanoseconds.
	Since int64
	Key   string
}

// Compare is the order of the queue: gangs that run in part, then priority, then arrival.
func (t QueuedGang) Compare(o QueuedGang) int {
	return cmp.Or(
		-cmp.Compare(rank(t.Partial), rank(o.Partial)),
		-cmp.Compare(t.Priority, o.Priority),
		cmp.Compare(t.Since, o.Since),
		cmp.Compare(t.Key, o.Key),
	)
}

// Queued is the place of the gang of that key in the queue.
func Queued(key string, gang inventory.GangState) QueuedGang {
	t := QueuedGang{Key: key, Priority: gang.Gang.Priority, Since: math.MaxInt64}
	for _, p := range gang.Pods {
		t.Since = min(t.Since, p.CreationTimestamp.UnixNano())
	}
	return t
}

// Waiting lists the gangs that our scheduler would let run if there was room, by key in the
// order of the queue: all members that they need are there, and some are not bound.
func (s *Snapshot) Waiting() []string {
	var queued []QueuedGang
	for key := range s.gangs {
		state, ok := s.Gang(key)
		if !ok || state.MissingText != "" || !wants(state) {
			continue
		}
		t := Queued(key, state)
		t.Partial = s.GangStatus(key).Partial
		queued = append(queued, t)
	}
	slices.SortFunc(queued, QueuedGang.Compare)
	keys := make([]string, len(queued))
	for i, t := range queued {
		keys[i] = t.Key
	}
	return keys
}

// wants reports whether members are not bound, and nothing but room keeps them from it that
// their pods tell of.
func wants(gang inventory.GangState) bool {
	pending := false
	for _, p := range gang.Pods {
		switch {
		case p.Spec.NodeName != "":
		case p.Spec.SchedulerName != contract.SchedulerName || len(p.Spec.SchedulingGates) > 0:
			return false
		default:
			pending = true
		}
	}
	return pending
}

func rank(first bool) int {
	if first {
		return 1
	}
	return 0
}
