package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// meters are what Prometheus reads. The label is the path in the quota tree.
type meters struct {
	pending, active    *metrics.GaugeVec
	released, sentBack *metrics.CounterVec
	// paths are those that the gauges have.
	paths map[string]bool
}

// newMeters registers the metrics of this process.
func newMeters() *meters {
	gauge := func(name, help string) *metrics.GaugeVec {
		return metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: "gpuplan_queue", Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"quota"})
	}
	counter := func(name, help string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: "gpuplan_queue", Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"quota"})
	}
	m := &meters{
		pending:  gauge("pending_jobs", "Jobs that wait."),
		active:   gauge("active_jobs", "Jobs that were released, or run without having been queued, and have not finished."),
		released: counter("released_total", "Times that a job was released."),
		sentBack: counter("requeued_total", "Times that a job went back because its pods did not run in time."),
		paths:    map[string]bool{},
	}
	legacyregistry.MustRegister(m.pending, m.active, m.released, m.sentBack)
	return m
}

// observe takes the numbers of queues from a plan.
func (m *meters) observe(counts map[string]contract.QueueStatus) {
	for path := range m.paths {
		if _, ok := counts[path]; !ok {
			m.pending.Delete(map[string]string{"quota": path})
			m.active.Delete(map[string]string{"quota": path})
			delete(m.paths, path)
		}
	}
	for path, status := range counts {
		m.pending.WithLabelValues(path).Set(float64(status.Pending))
		m.active.WithLabelValues(path).Set(float64(status.Active))
		m.paths[path] = true
	}
}

// serve answers /metrics and /healthz on an address until ctx ends.
func serve(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", legacyregistry.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // the process ends
	}()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Metrics are not served any more")
		}
	}()
	return nil
}
