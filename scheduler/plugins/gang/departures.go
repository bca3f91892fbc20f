package gang

import (
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

const (
	// departurePause is how long after a pod has begun to leave another of its job may follow.
	// The garbage collector deletes the pods of a job within a fraction of it.
	departurePause = time.Second
	// maxDeparturePause bounds how long evictions are put off while one pod leaves after the other.
	maxDeparturePause = 10 * time.Second
)

// departures are pods that end, or that someone deletes and not to make room. A job that ends or is
// deleted loses its pods one by one, and a namespace its jobs: who evicted others in between would
// evict them for room that is free a moment later.
type departures struct {
	mu sync.Mutex
	// first and last are when pods began to leave, without a pause in between.
	first, last time.Time
}

// note notes that a pod begins to leave.
func (d *departures) note(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.last) >= departurePause {
		d.first = now
	}
	d.last = now
}

// pause is how long evictions have to wait, 0 when they need not.
func (d *departures) pause(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, min(d.last.Add(departurePause).Sub(now), d.first.Add(maxDeparturePause).Sub(now)))
}

// evicts reports whether others are evicted for a result.
func evicts(r placement.Result) bool { return r.Reservation != nil && len(r.Reservation.Victims()) > 0 }
