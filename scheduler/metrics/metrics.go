// Package metrics measures gangs, GPUs and quota for Prometheus. What the scheduler
// does is counted as it happens; what the cluster looks like is computed from the
// cache when it is asked for, by the scheduler that leads only, so that replicas are
// not added up.
package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

const namespace = "gpuplan"

// Results of the search for a gang's placement.
const (
	placed        = "placed"
	unschedulable = "unschedulable"
)

// Eviction is why a scheduler deletes a pod that has a node.
type Eviction string

// Reasons of evictions.
const (
	// ForQuota is that the pod's leaf borrowed what another leaf is guaranteed.
	ForQuota Eviction = "reclaim"
	// ForPriority is that a gang of higher priority takes the place.
	ForPriority Eviction = "priority"
	// Partial is that the pod's own gang was cut short and cannot be completed.
	Partial Eviction = "partial"
	// Stale is that the pod's own gang has lost members, and finds no place for others.
	Stale Eviction = "stale"
)

// WorkloadAccess is what a scheduler does with the record of the requests that arrive.
type WorkloadAccess string

// Kinds of access.
const (
	ReadWorkload  WorkloadAccess = "read"
	WriteWorkload WorkloadAccess = "write"
)

// Metrics measures one scheduler.
type Metrics struct {
	cache   *clustercache.Cache
	leading atomic.Bool

	searches  *metrics.HistogramVec
	rollbacks *metrics.Counter
	evictions *metrics.CounterVec
	givenUp   *metrics.Counter
	starts    *metrics.Histogram
	workload  *metrics.CounterVec

	mu sync.Mutex
	// constraints is what makes each gang wait that got no place last.
	constraints map[string]string
}

// New returns the metrics of a scheduler with this cache. They count from the moment
// that they are registered.
func New(cache *clustercache.Cache) *Metrics {
	m := &Metrics{
		cache:       cache,
		constraints: map[string]string{},
		searches: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Name: "scheduling_algorithm_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time to find a placement for a whole gang, by result: placed, or unschedulable when the gang waits, for victims as well.",
			Buckets: metrics.ExponentialBuckets(0.0001, 2.5, 12),
		}, []string{"result"}),
		rollbacks: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Name: "gang_rollbacks_total", StabilityLevel: metrics.ALPHA,
			Help: "Gangs that were placed and then rolled back because another plugin refused a member, or a member went away.",
		}),
		evictions: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Name: "evictions_total", StabilityLevel: metrics.ALPHA,
			Help: "Pods that were evicted, by reason: reclaim by the quota of another leaf, priority of another gang, partial because the rest of their own gang does not fit, or stale because their own gang has lost members for too long.",
		}, []string{"reason"}),
		givenUp: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Name: "nominations_given_up_total", StabilityLevel: metrics.ALPHA,
			Help: "Nominations that were given up because the gang cannot have the place any more.",
		}),
		starts: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: namespace, Name: "gang_start_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time from the moment that a gang's members exist until all planned members are bound.",
			Buckets: metrics.ExponentialBuckets(0.01, 3, 15),
		}),
		workload: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Name: "workload_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "How often the record of the requests that arrive could not be read or written. While it cannot be read, nodes are chosen by the tightest fit.",
		}, []string{"operation"}),
	}
	cache.Subscribe(m.forget)
	return m
}

// forget drops what was found out about a gang whose last pod goes.
func (m *Metrics) forget(change clusterstate.Change) {
	for _, key := range []string{change.Gang, change.Left} {
		if key != "" && !m.cache.HasPods(key) {
			m.mu.Lock()
			delete(m.constraints, key)
			m.mu.Unlock()
		}
	}
}

// Register adds the metrics to a registry, once: the arguments are its MustRegister and
// CustomMustRegister.
func (m *Metrics) Register(register func(...metrics.Registerable), custom func(...metrics.StableCollector)) {
	register(m.searches, m.rollbacks, m.evictions, m.givenUp, m.starts, m.workload)
	custom(newClusterCollector(m))
	for _, reason := range []Eviction{ForQuota, ForPriority, Partial, Stale} {
		m.evictions.WithLabelValues(string(reason)) // zero, so that the first one is an increase
	}
	for _, access := range []WorkloadAccess{ReadWorkload, WriteWorkload} {
		m.workload.WithLabelValues(string(access))
	}
}

// Lead notes that this scheduler leads.
func (m *Metrics) Lead() { m.leading.Store(true) }

// Planned counts a search for a gang's placement, by the gang's key.
func (m *Metrics) Planned(key string, took time.Duration, result placement.Result) {
	label, constraint := outcome(result)
	m.searches.WithLabelValues(label).Observe(took.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.constraints, key)
	if constraint != "" && m.cache.HasPods(key) {
		m.constraints[key] = constraint
	}
}

// outcome returns what a search has found, and what makes a gang wait that does not run, "" for nothing.
func outcome(result placement.Result) (label, constraint string) {
	switch {
	case result.Reservation != nil:
		return unschedulable, string(explain.Preempting)
	case len(result.Verdict.Reasons) > 0:
		return unschedulable, string(result.Verdict.Reasons[0].Code)
	case result.Placement == nil || len(result.Placement.Assignments) == 0: // it runs, and there is no room for more members
		return unschedulable, ""
	}
	return placed, ""
}

// RolledBack counts a gang that was placed and rolled back.
func (m *Metrics) RolledBack() { m.rollbacks.Inc() }

// Evicted counts a pod that was evicted.
func (m *Metrics) Evicted(reason Eviction) { m.evictions.WithLabelValues(string(reason)).Inc() }

// GaveUpNomination counts a nomination whose place cannot be had any more.
func (m *Metrics) GaveUpNomination() { m.givenUp.Inc() }

// WorkloadFailed counts that the record of the requests that arrive could not be read or written.
func (m *Metrics) WorkloadFailed(access WorkloadAccess) {
	m.workload.WithLabelValues(string(access)).Inc()
}

// Started counts a gang whose members are all bound, after the time since they existed.
func (m *Metrics) Started(took time.Duration) { m.starts.Observe(took.Seconds()) }
