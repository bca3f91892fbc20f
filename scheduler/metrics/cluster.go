package metrics

import (
	"maps"
	"slices"

	"k8s.io/component-base/metrics"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// clusterCollector computes the gauges of the cluster when they are asked for.
type clusterCollector struct {
	metrics.BaseStableCollector
	*Metrics

	gangs, waiting, reservations, gpus, idleGPUs, fragments, workloadPods, quotaUsed, quotaMin, quotaMax *metrics.Desc
}

func newClusterCollector(m *Metrics) *clusterCollector {
	gauge := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(namespace+"_"+name, help, labels, nil, metrics.ALPHA, "")
	}
	return &clusterCollector{
		Metrics: m,
		gangs: gauge("gangs", "Gangs and pods on their own that ask for GPUs, by state: running, waiting, or incomplete while members are missing.",
			"state"),
		waiting: gauge("gangs_waiting", "Gangs that wait, by the constraint that keeps the next member from most nodes, or Preempting when others have to leave first.",
			"constraint"),
		reservations: gauge("reservations", "Reservations for gangs that wait, by kind: nomination when others are evicted for it, backfill for a blocked gang until it takes its place, granted for one that is still to come, quota for one that waits for quota, without nodes.",
			"kind"),
		gpus: gauge("gpus", "GPUs by pool, mode of the node, and state: free, used whole or in part, or unhealthy.",
			"pool", "mode", "state"),
		idleGPUs:     gauge("idle_gpus", "Idle GPUs, the idle parts of shared GPUs included."),
		fragments:    gauge("fragmented_gpus", "Idle GPUs that a request cannot use on average, over the requests that arrive, as far as the scheduler has recorded them, else over those of all gangs in the cluster."),
		workloadPods: gauge("workload_pods", "Pods in the record of the requests that arrive, by which nodes are chosen; 0 while they are chosen by the tightest fit."),
		quotaUsed: gauge("quota_used", "What runs in a leaf of the quota tree: CPU in cores, memory in bytes, everything else as it is.",
			"leaf", "resource"),
		quotaMin: gauge("quota_min", "What is guaranteed to a leaf of the quota tree.", "leaf", "resource"),
		quotaMax: gauge("quota_max", "What a leaf of the quota tree may use at most.", "leaf", "resource"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *clusterCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{c.gangs, c.waiting, c.reservations, c.gpus, c.idleGPUs, c.fragments, c.workloadPods, c.quotaUsed, c.quotaMin, c.quotaMax} {
		ch <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *clusterCollector) CollectWithStability(ch chan<- metrics.Metric) {
	if !c.leading.Load() {
		return
	}
	set := func(desc *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	snapshot := c.cache.Snapshot()
	c.countGangs(snapshot, set)
	c.countReservations(snapshot, set)
	c.countGPUs(snapshot, set)
	c.countQuota(snapshot, set)
}

// setter gives a gauge a value.
type setter func(desc *metrics.Desc, value float64, labels ...string)

// countGangs counts gangs by state, and those that wait by constraint.
func (c *clusterCollector) countGangs(snapshot *clusterstate.Snapshot, set setter) {
	states := map[string]int{"running": 0, "waiting": 0, "incomplete": 0}
	asked := placement.Workload{}
	waits := map[string]bool{}
	for _, key := range snapshot.Keys() {
		state, _ := snapshot.Gang(key)
		asked.Count(state.Gang)
		switch status := snapshot.GangStatus(key); {
		case status.MissingText != "":
			states["incomplete"]++
		case status.Runs:
			states["running"]++
		default:
			states["waiting"]++
			waits[key] = true
		}
	}
	for state, n := range states {
		set(c.gangs, float64(n), state)
	}
	constraints := map[string]int{}
	c.mu.Lock()
	maps.DeleteFunc(c.constraints, func(key string, _ string) bool { return !waits[key] })
	for _, constraint := range c.constraints {
		constraints[constraint]++
	}
	c.mu.Unlock()
	for constraint, n := range constraints {
		set(c.waiting, float64(n), constraint)
	}
	followed := snapshot.View.Workload()
	set(c.workloadPods, float64(followed.Members()))
	if followed == nil {
		followed = asked
	}
	idle, unusable := snapshot.View.Idle(followed)
	set(c.idleGPUs, idle)
	set(c.fragments, unusable)
}

// countReservations counts the reservations for gangs that wait.
func (c *clusterCollector) countReservations(snapshot *clusterstate.Snapshot, set setter) {
	kinds := map[string]int{"nomination": 0, "backfill": 0, "quota": 0, "granted": 0}
	for _, r := range snapshot.View.Reservations() {
		switch {
		case r.Granted:
			kinds["granted"]++
		case r.Evicts:
			kinds["nomination"]++
		case r.QuotaOnly:
			kinds["quota"]++
		default:
			kinds["backfill"]++
		}
	}
	for kind, n := range kinds {
		set(c.reservations, float64(n), kind)
	}
}

func (c *clusterCollector) countGPUs(snapshot *clusterstate.Snapshot, set setter) {
	type kind struct{ pool, mode, state string }
	counts := map[kind]int{}
	for _, pool := range explain.GPUs(snapshot).Pools {
		for _, node := range pool.Nodes {
			for _, gpu := range node.GPUs {
				state := "used"
				switch {
				case gpu.Unhealthy != "":
					state = "unhealthy"
				case gpu.Free() && !node.Unsure:
					state = "free"
				}
				counts[kind{pool.Name, pool.Mode, state}]++
			}
		}
	}
	for k, n := range counts {
		set(c.gpus, float64(n), k.pool, k.mode, k.state)
	}
}

func (c *clusterCollector) countQuota(snapshot *clusterstate.Snapshot, set setter) {
	tree := snapshot.View.Quota()
	if tree == nil {
		return
	}
	for _, leaf := range tree.Leaves() {
		used, least, most := tree.Used(leaf), tree.Min(leaf), tree.Max(leaf)
		path := tree.Path(leaf)
		for name, amount := range least {
			set(c.quotaMin, inUnits(name, amount), path, name)
		}
		for name, amount := range most {
			set(c.quotaMax, inUnits(name, amount), path, name)
		}
		governed := slices.Concat(slices.Collect(maps.Keys(least)), slices.Collect(maps.Keys(most)))
		slices.Sort(governed)
		for _, name := range slices.Compact(governed) {
			set(c.quotaUsed, inUnits(name, used[name]), path, name)
		}
	}
}

// inUnits converts millicores to cores.
func inUnits(resource string, amount int64) float64 {
	if resource == "cpu" {
		return float64(amount) / 1000
	}
	return float64(amount)
}
