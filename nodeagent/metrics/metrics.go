// Package metrics counts what the node agent sees and does, for Prometheus.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
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
}

// New returns metrics without values.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		usable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpuplan_card_usable", Help: "1 when work may be put on the card, else 0.",
		}, []string{"node", "card", "uuid"}),
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpuplan_card_state", Help: "1 for the state in which the card is: Healthy, Suspect, Unhealthy or Recovering.",
		}, []string{"node", "card", "state"}),
		signals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpuplan_card_signals_total", Help: "Errors that the card has reported, by kind and, for XID, number.",
		}, []string{"node", "card", "kind", "xid"}),
		publications: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpuplan_publications_total", Help: "Attempts to publish the node's hardware, by result: ok or error.",
		}, []string{"node", "result"}),
	}
	m.registry.MustRegister(m.usable, m.state, m.signals, m.publications)
	return m
}

// Seen takes a reading of a node with the verdicts on its cards.
func (m *Metrics) Seen(node string, reading hardware.Reading, verdicts []health.Verdict) {
	here := prometheus.Labels{"node": node}
	m.usable.DeletePartialMatch(here)
	m.state.DeletePartialMatch(here)
	for i, verdict := range verdicts {
		card := reading.Machine.Cards[i]
		usable := 0.0
		if verdict.Usable() {
			usable = 1
		}
		m.usable.WithLabelValues(node, strconv.Itoa(card.Index), card.UUID).Set(usable)
		m.state.WithLabelValues(node, strconv.Itoa(card.Index), string(verdict.State)).Set(1)
	}
	for _, s := range reading.Signals {
		xid := ""
		if s.Kind == hardware.XID {
			xid = strconv.FormatUint(s.Number, 10)
		}
		m.signals.WithLabelValues(node, strconv.Itoa(s.Card), string(s.Kind), xid).Inc()
	}
}

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
	here := prometheus.Labels{"node": node}
	for _, metric := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.usable, m.state, m.signals, m.publications} {
		metric.DeletePartialMatch(here)
	}
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
