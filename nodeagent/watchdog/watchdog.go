// Package watchdog keeps a driver that does not answer from freezing the agent: reads
// have a deadline, and whoever watches the agent is told what hangs.
package watchdog

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

const (
	// ReadLimit is how long a read may take. A machine with 16 GPUs takes well under a second.
	ReadLimit = 20 * time.Second
	// hangLimit is how long something may hang before the agent wants to be restarted.
	hangLimit = 5 * time.Minute
)

// Source is a source whose reads end in time.
type Source struct {
	hardware.Source
	// Limit is how long a read may take.
	Limit time.Duration

	reads Reads[hardware.Reading]
}

// Read reads, or says since when a read is under way that does not end. There is one read
// at a time; one that ends late is the answer to the next call.
func (s *Source) Read(ctx context.Context) (hardware.Reading, error) {
	return s.reads.Do(ctx, s.Limit, s.Source.Read)
}

// Reads are calls of a driver of which one is under way at a time.
type Reads[T any] struct {
	mu sync.Mutex
	// pending is the read under way, nil for none.
	pending *pending[T]
}

type pending[T any] struct {
	since time.Time
	done  chan struct{}
	found T
	err   error
}

// Do reads, and waits for it so long, or says since when a read is under way that does not end. One that ends late is the
// answer to the next call.
func (r *Reads[T]) Do(ctx context.Context, limit time.Duration, read func(context.Context) (T, error)) (found T, err error) {
	now := r.begin(ctx, read)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-now.done:
	case <-ctx.Done():
		return found, context.Cause(ctx)
	case <-timer.C:
		return found, fmt.Errorf("the driver has not answered since %s", now.since.UTC().Format(time.RFC3339))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == now {
		r.pending = nil
	}
	return now.found, now.err
}

// begin starts a read, unless one is under way. It outlives the context: what it finds is
// told by the next call.
func (r *Reads[T]) begin(ctx context.Context, read func(context.Context) (T, error)) *pending[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		begun := &pending[T]{since: time.Now(), done: make(chan struct{})}
		r.pending = begun
		go func() {
			defer close(begun.done)
			begun.found, begun.err = read(context.WithoutCancel(ctx))
		}()
	}
	return r.pending
}

// Alive means that the agent works, by what last happened in it.
type Alive struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

// Beat notes that the loop of a node goes round.
func (a *Alive) Beat(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]time.Time{}
	}
	a.seen[node] = time.Now()
}

// Gone forgets a node.
func (a *Alive) Gone(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.seen, node)
}

// hanging names a node whose loop does not go round, "" for none.
func (a *Alive) hanging(now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for node, seen := range a.seen {
		if now.Sub(seen) > hangLimit {
			return node
		}
	}
	return ""
}

// ServeHTTP answers a liveness probe.
func (a *Alive) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if node := a.hanging(time.Now()); node != "" {
		http.Error(w, "the loop of node "+node+" hangs", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// Serve answers liveness probes, GET /healthz on an address, until ctx ends.
func (a *Alive) Serve(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve /healthz on %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", a)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve /healthz on %s: %w", address, err)
	}
	return nil
}
