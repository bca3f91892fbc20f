package gang

import (
	"maps"
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
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

// losses are the departures of each gang. Members of a gang may leave one by one, as in a drain, and be made again before the
// last has begun to: those that came back first would be placed beside the others, which do not stay.
type losses struct {
	mu    sync.Mutex
	gangs map[string]*departures
	// swept is when those were forgotten that have lost none for long.
	swept time.Time
}

// note notes that a member of a gang begins to leave.
func (l *losses) note(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > maxDeparturePause {
		maps.DeleteFunc(l.gangs, func(_ string, d *departures) bool { return now.Sub(d.last) > maxDeparturePause })
		l.swept = now
	}
	if l.gangs == nil {
		l.gangs = map[string]*departures{}
	}
	if l.gangs[key] == nil {
		l.gangs[key] = &departures{}
	}
	l.gangs[key].note(now)
}

// pause is how long the members that replace those of a gang have to wait, 0 when they need not.
func (l *losses) pause(key string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.gangs[key]; d != nil {
		return d.pause(now)
	}
	return 0
}

// departs notes that pods leave.
func (p *Plugin) departs(change clusterstate.Change) {
	if change.Departed {
		p.departures.note(p.now())
		p.losses.note(change.Departs, p.now())
	}
}

// evicts reports whether others are evicted for a result.
func evicts(r placement.Result) bool { return r.Reservation != nil && len(r.Reservation.Victims()) > 0 }
