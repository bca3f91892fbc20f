// Package metrics counts what the node agent sees and does, for Prometheus.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

// Metrics are the metrics of one agent process, which may serve many nodes.
type Metrics struct {
	registry     *prometheus.Registry
	usable       *prometheus.GaugeVec
	state        *prometheus.GaugeVec
	signals      *prometheus.CounterVec
	publications *prometheus.CounterVec
	readable     *prometheus.GaugeVec
	followed     *prometheus.GaugeVec
	yields       *prometheus.GaugeVec

	mu sync.Mutex
	// indexes are those of GPUs by their identities, of each node.
	indexes map[string]map[string]int
}

// New returns metrics without values.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		indexes:  map[string]map[string]int{},
		usable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpuplan_gpu_usable", Help: "1 when work may be put on the GPU, else 0.",
		}, []string{"node", "gpu", "uuid"}),
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpuplan_gpu_state", Help: "1 for the state in which the GPU is: Healthy, Suspect, Unhealthy or Recovering.",
		}, []string{"node", "gpu", "state"}),
		signals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpuplan_gpu_signals_total", Help: "Errors that the GPU has reported, by UUID, kind and, for XID, number.",
		}, []string{"node", "uuid", "kind", "xid"}),
		publications: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpuplan_publications_total", Help: "Attempts to publish the node's hardware, by result: ok or error.",
		}, []string{"node", "result"}),
		readable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpuplan_gpus_readable", Help: "1 while the node's GPUs can be read, else 0.",
		}, []string{"node"}),
		followed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpuplan_gpu_events_followed", Help: "1 while the driver reports events of the node's GPUs, such as XIDs, else 0.",
		}, []string{"node"}),
		yields: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpuplan_agent_yields", Help: "1 while another agent publishes the node, else 0.",
		}, []string{"node"}),
	}
	m.registry.MustRegister(m.collectors()...)
	return m
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.usable, m.state, m.signals, m.publications, m.readable, m.followed, m.yields}
}

// Seen takes a reading of a node with the verdicts on its GPUs; readable means that it is
// how they are now, and not only how they were.
func (m *Metrics) Seen(node string, reading hardware.Reading, verdicts []health.Verdict, readable bool) {
	here := prometheus.Labels{"node": node}
	m.usable.DeletePartialMatch(here)
	m.state.DeletePartialMatch(here)
	m.readable.WithLabelValues(node).Set(flag(readable))
	m.followed.WithLabelValues(node).Set(flag(readable && reading.Blind == ""))
	indexes := map[string]int{}
	defer m.number(node, indexes)
	for i, verdict := range verdicts {
		gpu := reading.Machine.GPUs[i]
		indexes[hardware.ID(gpu)] = gpu.Index
		index := strconv.Itoa(gpu.Index)
		m.usable.WithLabelValues(node, index, text(gpu.UUID)).Set(flag(readable && verdict.Usable()))
		m.state.WithLabelValues(node, index, string(verdict.State)).Set(1)
	}
}

// number takes the indexes of a node's GPUs.
func (m *Metrics) number(node string, indexes map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexes[node] = indexes
}

// Index returns the index of a GPU, by its identity ([hardware.ID]), with which it was seen last: the one that is published.
func (m *Metrics) Index(node, id string) (index int, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	index, known = m.indexes[node][id]
	return index, known
}

// Signalled counts what a node's GPUs have reported.
func (m *Metrics) Signalled(node string, signals []hardware.Signal) {
	for _, s := range signals {
		xid := ""
		if s.Kind == hardware.XID {
			xid = strconv.FormatUint(s.Number, 10)
		}
		m.signals.WithLabelValues(node, text(s.GPU), string(s.Kind), xid).Inc()
	}
}

// Yields notes whether another agent publishes a node.
func (m *Metrics) Yields(node string, yields bool) {
	m.yields.WithLabelValues(node).Set(flag(yields))
}

func flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// text makes a label of what hardware says of itself: Prometheus takes only valid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Published counts an attempt to publish.
func (m *Metrics) Published(node string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.publications.WithLabelValues(node, result).Inc()
}

// Gone forgets a node.
func (m *Metrics) Gone(node string) {
	m.mu.Lock()
	delete(m.indexes, node)
	m.mu.Unlock()
	here := prometheus.Labels{"node": node}
	for _, metric := range m.collectors() {
		if vector, ok := metric.(interface {
			DeletePartialMatch(prometheus.Labels) int
		}); ok {
			vector.DeletePartialMatch(here)
		}
	}
}

// Add serves what another collector tells, too.
func (m *Metrics) Add(c prometheus.Collector) error {
	if err := m.registry.Register(c); err != nil {
		return fmt.Errorf("serve more metrics: %w", err)
	}
	return nil
}

// Handler serves the metrics in Prometheus' text form.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Serve serves /metrics on an address until ctx ends.
func (m *Metrics) Serve(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics on %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", address, err)
	}
	return nil
}
