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

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

const namespace = "gpuplan"

// Results of planning a gang.
const (
	placed        = "placed"
	unschedulable = "refused"
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

	planning  *metrics.HistogramVec
	rollbacks *metrics.Counter
	evictions *metrics.CounterVec
	givenUp   *metrics.Counter
	starts    *metrics.Histogram
	workload  *metrics.CounterVec

	mu sync.Mutex
	// constraints is the first constraint in the verdict of each gang that was refused last.
	constraints map[string]placement.Code
}

// New returns the metrics of a scheduler with this cache. They count from the moment
// that they are registered.
func New(cache *clustercache.Cache) *Metrics {
	return &Metrics{
		cache:       cache,
		constraints: map[string]placement.Code{},
		planning: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Name: "plan_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time to plan a whole gang, by result: placed, or refused with a verdict.",
			Buckets: metrics.ExponentialBuckets(0.0001, 2.5, 12),
		}, []string{"result"}),
		rollbacks: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Name: "gang_rollbacks_total", StabilityLevel: metrics.ALPHA,
			Help: "Gangs that were planned and then given up because another plugin refused a member, or a member went away.",
		}),
		evictions: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Name: "evictions_total", StabilityLevel: metrics.ALPHA,
			Help: "Pods that were evicted, by reason: reclaim by the quota of another leaf, priority of another gang, partial because the rest of their own gang does not fit, or stale because their own gang has lost members for too long.",
		}, []string{"reason"}),
		givenUp: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Name: "nominations_given_up_total", StabilityLevel: metrics.ALPHA,
			Help: "Places that gangs had claimed from others and cannot have any more.",
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
}

// Register adds the metrics to a registry, once: the arguments are its MustRegister and
// CustomMustRegister.
func (m *Metrics) Register(register func(...metrics.Registerable), custom func(...metrics.StableCollector)) {
	register(m.planning, m.rollbacks, m.evictions, m.givenUp, m.starts, m.workload)
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

// Planned counts a gang that was planned, by its key.
func (m *Metrics) Planned(key string, took time.Duration, result placement.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if result.Placement != nil {
		m.planning.WithLabelValues(placed).Observe(took.Seconds())
		delete(m.constraints, key)
		return
	}
	m.planning.WithLabelValues(unschedulable).Observe(took.Seconds())
	if reasons := result.Verdict.Reasons; len(reasons) > 0 {
		m.constraints[key] = reasons[0].Code
	}
}

// RolledBack counts a gang that was planned and given up.
func (m *Metrics) RolledBack() { m.rollbacks.Inc() }

// Evicted counts a pod that was evicted.
func (m *Metrics) Evicted(reason Eviction) { m.evictions.WithLabelValues(string(reason)).Inc() }

// GaveUpNomination counts a claimed place that cannot be had any more.
func (m *Metrics) GaveUpNomination() { m.givenUp.Inc() }

// WorkloadFailed counts that the record of the requests that arrive could not be read or written.
func (m *Metrics) WorkloadFailed(access WorkloadAccess) {
	m.workload.WithLabelValues(string(access)).Inc()
}

// Started counts a gang whose members are all bound, after the time since they existed.
func (m *Metrics) Started(took time.Duration) { m.starts.Observe(took.Seconds()) }
