package main

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The kinds of requests of agents.
const (
	written = "writes"
	watched = "watches"
	other   = "reads"
)

// requests are those that agents have made.
type requests struct {
	mu     sync.Mutex
	counts map[string]int
	errors int
	// took is the time of each write.
	took []time.Duration
}

func newRequests() *requests { return &requests{counts: map[string]int{}} }

// reset forgets what was counted until now.
func (r *requests) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts, r.errors, r.took = map[string]int{}, 0, nil
}

// taken is what was counted until now.
func (r *requests) taken() *requests {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &requests{counts: maps.Clone(r.counts), errors: r.errors, took: slices.Sorted(slices.Values(r.took))}
}

func (r *requests) kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.counts))
}

func (r *requests) count(kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[kind]
}

func (r *requests) failed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors
}

// latency is the time of a write; r is of taken.
func (r *requests) latency() (p50, p99, most time.Duration) {
	n := len(r.took)
	if n == 0 {
		return 0, 0, 0
	}
	return r.took[n/2], r.took[min(n-1, n*99/100)], r.took[n-1]
}

func (r *requests) add(kind string, took time.Duration, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[kind]++
	if failed {
		r.errors++
	}
	if kind == written {
		r.took = append(r.took, took)
	}
}

// counted counts what goes through a connection.
type counted struct {
	http.RoundTripper
	requests *requests
}

// RoundTrip sends a request on.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	kind := written
	switch {
	case request.URL.Query().Get("watch") == "true":
		kind = watched
	case request.Method == http.MethodGet:
		kind = other
	}
	began := time.Now()
	answer, err := c.RoundTripper.RoundTrip(request)
	if request.Context().Err() == nil { // else the agent has been ended
		c.requests.add(kind, time.Since(began), err != nil || answer.StatusCode >= http.StatusBadRequest)
	}
	return answer, err
}
