package ledger

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// StartApplying records that this walk has begun to change things. Live capacity is
// not checked any more from then on: the plan has done so, and what is missing now
// may be what this walk has just used.
func (l *Ledger) StartApplying() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applying = true
}

// Applying reports whether this walk has begun to change things.
func (l *Ledger) Applying() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applying
}

// Settled reports whether the pools of a job that this walk has planned are as the apply leaves them, so that what the
// cluster shows of them is all that the job can have: settles says of a node, planned or there, that it may still get
// something. What a job cannot have even on empty pools does not depend on that. Of a job without pools it is open
// which nodes are to come.
func (l *Ledger) Settled(job string, settles func(placement.Node) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[job]
	if j == nil || len(j.Pools) == 0 {
		return false
	}
	return !slices.ContainsFunc(j.Nodes, settles) || planner.Place(viewOf(j.Nodes, nil), withoutQuota(j.admitted())) == nil
}

// Misfit is what the plan would have found of a job that this walk has planned on its pools, and that has no room in
// the cluster, as that verdict says.
func (l *Ledger) Misfit(job string, onCluster placement.Verdict) Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[job]
	if j.actual == nil {
		onCluster = l.verdict(j)
	}
	f, _ := l.graded(*misfit(j, onCluster))
	return f
}
