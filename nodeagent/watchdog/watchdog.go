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

	mu sync.Mutex
	// pending is the read under way, nil for none.
	pending *pending
}

type pending struct {
	since   time.Time
	done    chan struct{}
	reading hardware.Reading
	err     error
}

// Read reads, or says since when a read is under way that does not end. There is one read
// at a time; one that ends late is the answer to the next call.
func (s *Source) Read(ctx context.Context) (hardware.Reading, error) {
	read := s.begin(ctx)
	timer := time.NewTimer(s.Limit)
	defer timer.Stop()
	select {
	case <-read.done:
	case <-ctx.Done():
		return hardware.Reading{}, context.Cause(ctx)
	case <-timer.C:
		return hardware.Reading{}, fmt.Errorf("the driver has not answered since %s", read.since.UTC().Format(time.RFC3339))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == read {
		s.pending = nil
	}
	return read.reading, read.err
}

// begin starts a read, unless one is under way. It outlives the context: what it finds is
// told by the next call.
func (s *Source) begin(ctx context.Context) *pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		read := &pending{since: time.Now(), done: make(chan struct{})}
		s.pending = read
		go func() {
			defer close(read.done)
			read.reading, read.err = s.Source.Read(context.WithoutCancel(ctx))
		}()
	}
	return s.pending
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
