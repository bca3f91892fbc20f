package queue

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

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
