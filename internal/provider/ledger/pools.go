package ledger

import "github.com/gpuplan/terraform-provider-gpuplan/internal/placement"

// VisitPool records that the walk plans what becomes of the pool of that ID in Terraform's state.
func (l *Ledger) VisitPool(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.visited[id] = true
	l.visit()
}

// VisitedPool reports whether [Ledger.VisitPool] was told of the pool. A new pool with the
// name of one of which it was not is no replacement of that: the state has lost it, or gives it up.
func (l *Ledger) VisitedPool(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visited[id]
}

// GuardPool records that the pool of that ID stays as it is planned now, and that no
// running job may lose its nodes.
func (l *Ledger) GuardPool(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guarded[id] = true
}

// GuardsPool reports whether [Ledger.GuardPool] was told of the pool. A pool that is created in
// its place is then a replacement that no attribute asks for, by the option -replace.
func (l *Ledger) GuardsPool(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.guarded[id]
}

// CreatePool records that a pool will be created. The new pool of a replacement counts
// once: Terraform plans it once without a prior state.
func (l *Ledger) CreatePool(name string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.created[name] {
		return []Finding{duplicatePool(name)}
	}
	l.created[name] = true
	return nil
}

// PlanPool records the nodes of a pool that the plan adds or changes. It is told after [Ledger.Observe], and finds whom
// gangs that wait evict beside what they get there.
func (l *Ledger) PlanPool(pool string, nodes []placement.Node) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil || len(l.live.Waiting) == 0 {
		return nil
	}
	l.offers[pool] = nodes
	l.live.evicts = nil
	return l.check(nil, false)
}

// unset is what a pool takes from nodes that stay.
type unset struct {
	labels []string
	taints []placement.Taint
}

// UnsetOnNodes records what a pool takes from its nodes that stay: labels, by their keys, and taints.
// It is told before the jobs that the pool's capacity is given to are planned.
func (l *Ledger) UnsetOnNodes(pool string, labels []string, taints []placement.Taint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unset[pool] = unset{labels, taints}
}

// ShrinkPool records that a pool gives up nodes, as long as no running job would lose its own; what
// says how, as in "deletes node pool v100".
func (l *Ledger) ShrinkPool(pool, what string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shrinking[pool] = what
	return l.check(nil, false)
}

// displacement are jobs on nodes that a pool gives up.
type displacement struct {
	jobs []string
	// consent is how it is allowed all the same.
	consent string
	// requested means that no attribute asks for it, but -replace or replace_triggered_by, which may
	// replace the jobs as well.
	requested bool
}

// DisplaceJobs records that the plan takes nodes from these jobs; what says how, as in
// "deletes node pool v100", and consent how that is allowed.
func (l *Ledger) DisplaceJobs(what, consent string, jobs []string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.displaced[what] = displacement{jobs: jobs, consent: consent}
	return l.check(nil, false)
}

// DisplaceJobsOnRequest is DisplaceJobs for a replacement by -replace or replace_triggered_by. Whether
// that also replaces a job shows only after the job was planned to stay, so jobs that do are warned of.
func (l *Ledger) DisplaceJobsOnRequest(what string, jobs []string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.displaced[what] = displacement{jobs: jobs, consent: consent, requested: true}
	return l.check(nil, false)
}

// DeletePool records that a pool will be deleted.
func (l *Ledger) DeletePool(name string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped[name] = true
	return l.without(name)
}

// ReplacePool records that the pool of that name goes with its nodes, and that those of a pool which
// gets its name are new. It is told before the jobs that the new pool's capacity is given to are planned.
func (l *Ledger) ReplacePool(name string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed[name] = true
	return l.without(name)
}

// without looks again at everything once the nodes of a pool are known to go.
func (l *Ledger) without(pool string) []Finding {
	if l.live == nil {
		return nil
	}
	l.live.drop(pool, l.dropped[pool])
	for _, j := range l.jobs {
		j.settled = false
	}
	return l.check(nil, true)
}
