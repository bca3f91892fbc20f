package fleet

import (
	"fmt"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Results of the search for a cluster, and answers of a member to the question for a place.
const (
	resultPlaced, resultUnschedulable         = "placed", "unschedulable"
	answerReserved, answerRefused, answerNone = "reserved", "refused", "none"
)

// stuckAfter is how long one decision may take, with every member cluster that it asks at its time-out.
const stuckAfter = 5 * time.Minute

// meters are what Prometheus reads.
type meters struct {
	metrics.BaseStableCollector
	*controller

	decisions                *metrics.HistogramVec
	sent, withdrawn, answers *metrics.CounterVec
	jobs, usable             *metrics.Desc
}

func newMeters(c *controller) *meters {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	gauge := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(name, help, labels, nil, metrics.ALPHA, "")
	}
	return &meters{
		controller: c,
		decisions: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "gpuplan_fleet_scheduling_algorithm_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time to find the cluster for a job, by result: placed, or unschedulable when it waits.",
			Buckets: metrics.ExponentialBuckets(0.0001, 2.5, 12),
		}, []string{"result"}),
		sent:      counter("gpuplan_fleet_sent_total", "Times that a job was sent to a cluster.", "cluster"),
		withdrawn: counter("gpuplan_fleet_withdrawn_total", "Times that a job was taken out of a cluster, which is removed, or in which it has waited, or had failed, for too long.", "cluster"),
		answers:   counter("gpuplan_fleet_reservations_total", "Questions for the place of a job, by the answer of the cluster's scheduler: reserved, refused, or none in time.", "cluster", "answer"),
		jobs:      gauge("gpuplan_fleet_jobs", "Jobs of the fleet's scheduler that have not gone, by state: held by the queue, waiting for a cluster, or sent to one.", "state", "cluster"),
		usable:    gauge("gpuplan_fleet_cluster_usable", "Whether the hub reaches a cluster, and all that it shows is known, so that jobs may be sent there: 1 or 0.", "cluster"),
	}
}

// register makes the metrics those of the process.
func (m *meters) register() {
	legacyregistry.MustRegister(m.decisions, m.sent, m.withdrawn, m.answers)
	legacyregistry.CustomMustRegister(m)
}

// DescribeWithStability implements metrics.StableCollector.
func (m *meters) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- m.jobs
	ch <- m.usable
}

// CollectWithStability implements metrics.StableCollector.
func (m *meters) CollectWithStability(ch chan<- metrics.Metric) {
	type where struct{ state, cluster string }
	jobs := map[where]int{{"held", ""}: 0, {"waiting", ""}: 0}
	usable := map[string]float64{}
	m.mu.Lock()
	for _, b := range m.bindings {
		switch {
		case b.Cluster() != "":
			jobs[where{"sent", b.Cluster()}]++
		case b.Spec.Suspension.Scheduling:
			jobs[where{"held", ""}]++
		default:
			jobs[where{"waiting", ""}]++
		}
	}
	incomplete := m.incomplete()
	for name := range m.clusters {
		usable[name] = 0
		if member := m.members[name]; member != nil && member.synced.Load() && m.ready(name) && !incomplete[name] {
			usable[name] = 1
		}
	}
	m.mu.Unlock()
	for at, n := range jobs {
		ch <- metrics.NewLazyConstMetric(m.jobs, metrics.GaugeValue, float64(n), at.state, at.cluster)
	}
	for name, value := range usable {
		ch <- metrics.NewLazyConstMetric(m.usable, metrics.GaugeValue, value, name)
	}
}

// decided notes how long the search for a cluster took.
func (m *meters) decided(since time.Time, placed bool) {
	result := resultUnschedulable
	if placed {
		result = resultPlaced
	}
	m.decisions.WithLabelValues(result).Observe(time.Since(since).Seconds())
}

// healthy says which decision is stuck.
func (c *controller) healthy() error {
	if at := c.busy.Load(); at != nil && time.Since(at.since) > stuckAfter {
		return fmt.Errorf("%s has been looked at for %s", at.key, time.Since(at.since).Round(time.Second))
	}
	return nil
}

// looking is what is decided about, since when.
type looking struct {
	key   string
	since time.Time
}
