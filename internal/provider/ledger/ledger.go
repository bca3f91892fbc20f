// Package ledger is what the provider remembers during one walk of Terraform's
// graph. Terraform visits independent resources in any order and tells none of
// them about the others; the ledger holds what was seen so far, so that the check
// of several resources together gives the same findings whatever the order.
//
// A ledger lives as long as one configured provider: the plan has one, the apply
// another. It holds values that travel through Terraform's graph and nothing else;
// it knows neither Terraform nor Kubernetes.
package ledger

import (
	"slices"
	"sync"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Ledger is safe for concurrent use. The zero value is not usable, see [New].
type Ledger struct {
	mu       sync.Mutex
	jobs     map[string]*job
	kept     map[string]bool
	owned    map[string]bool
	created  map[string]bool     // names of pools that are planned to be created
	deleted  map[string][]string // names of pools that are planned to be deleted: gangs on them
	tree     *quota.Tree
	apart    map[string]bool // pairs of jobs that do not fit together
	reported map[string]bool // keys of findings
	applying bool
	objects  objects
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		jobs:     map[string]*job{},
		kept:     map[string]bool{},
		owned:    map[string]bool{},
		created:  map[string]bool{},
		deleted:  map[string][]string{},
		apart:    map[string]bool{},
		reported: map[string]bool{},
		objects:  objects{locks: map[string]*sync.Mutex{}, taken: map[string]bool{}},
	}
}

// Job is a training job that the walk will create or run again.
type Job struct {
	// Gang is the job as the planner sees it; Gang.ID, "namespace/name", identifies it in the ledger.
	Gang placement.Gang
	// Nodes and Occupants are the capacity that the job was given: the nodes of its
	// pools and what is taken on them.
	Nodes     []placement.Node
	Occupants []placement.Pod
	// After are the IDs of jobs that are placed before this one. An ID that is not
	// in the ledger belongs to a job that exists already, whose cards are taken in Occupants.
	After []string
	// RequireImmediate makes it an error that the job has to wait for another one.
	RequireImmediate bool
	// Limits is the quota tree that decides about the job, without usage; nil for none.
	// It is for the verdict on a job that does not fit: the quota may be in its way too.
	Limits *quota.Tree
}

type job struct {
	Job
	placement *placement.Placement // nil: does not fit on its own
}

// Kind is what a [Finding] is about.
type Kind string

// Kinds of findings.
const (
	// Waits: a job fits alone, but not together with the others.
	Waits Kind = "Waits"
	// SameCards: jobs fit together, but are planned on the same cards, and nothing says who is first.
	SameCards Kind = "SameCards"
	// NoSuchLeaf: a job names a quota leaf that the planned tree does not have.
	NoSuchLeaf Kind = "NoSuchLeaf"
	// DuplicatePool: two pools of one name are planned.
	DuplicatePool Kind = "DuplicatePool"
	// PoolDeleted: a job that stays runs on a pool that goes.
	PoolDeleted Kind = "PoolDeleted"
)

// Finding is something that only several resources together show. The resource
// whose visit completed the picture reports it, once.
type Finding struct {
	Kind Kind
	// Jobs are the IDs of the jobs concerned; the first is the one that waits or fails.
	Jobs []string
	// Error tells that the plan must fail; otherwise it is a warning.
	Error bool
	// Summary is a headline, Detail says what and what to do, in full sentences.
	Summary, Detail string

	key string // a finding of the same key is not reported again
}

// PlanJob places a job on its capacity, after the jobs named in After, and records
// it. The result depends on the job and those jobs alone. The findings are about all
// jobs of the walk together. A job with the same ID is replaced.
func (l *Ledger) PlanJob(j Job) (placement.Result, []Finding) {
	l.mu.Lock()
	defer l.mu.Unlock()

	view := viewOf(j.Nodes, j.Occupants)
	for _, before := range l.before(j) {
		if before.placement != nil {
			view.Apply(before.Gang, *before.placement)
		}
	}
	result := view.Plan(withoutQuota(j.Gang))
	if result.Placement == nil && j.Limits != nil && j.Limits.HasLeaf(j.Gang.Leaf) {
		view.SetQuota(j.Limits)
		result.Verdict = both(result.Verdict, view.Plan(j.Gang).Verdict)
	}
	recorded := &job{Job: j, placement: result.Placement}
	l.jobs[j.Gang.ID] = recorded
	return result, l.check(recorded)
}

// both is the verdict on a job that does not fit on its pools, with what its quota says
// as well: fixes for one of the two would not help.
func both(pools, limited placement.Verdict) placement.Verdict {
	byQuota := slices.DeleteFunc(limited.Reasons, func(r placement.Reason) bool { return r.Code != placement.OverQuota })
	pools.Reasons = append(byQuota, pools.Reasons...)
	pools.Fit, pools.Partial, pools.Fixes = limited.Fit, limited.Partial, limited.Fixes
	return pools
}

// KeepJob records that a job exists and stays as it is.
func (l *Ledger) KeepJob(id string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept[id] = true
	return l.check(nil)
}

// RecordTree records the quota tree that this walk plans to have, nil for none.
func (l *Ledger) RecordTree(tree *quota.Tree) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tree = tree
	return l.check(nil)
}

// Tree returns a copy of the quota tree planned in this walk, nil when none was recorded yet.
func (l *Ledger) Tree() *quota.Tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tree == nil {
		return nil
	}
	return l.tree.Clone()
}

// Own records that an object of that ID is in Terraform's state.
func (l *Ledger) Own(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owned[id] = true
}

// Owns reports whether the object of that ID is known to be in Terraform's state, so
// that a new one in its place is its replacement.
func (l *Ledger) Owns(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owned[id]
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

// DeletePool records that a pool will be deleted on which these gangs run.
func (l *Ledger) DeletePool(name string, gangs []string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleted[name] = gangs
	return l.check(nil)
}
