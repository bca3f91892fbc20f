// Package ledger is what the provider remembers during one walk of Terraform's
// graph. Terraform visits independent resources in any order and tells none of
// them about the others; the ledger holds what was seen so far, so that the check
// of several resources together passes or fails a plan whatever the order; of more
// than a few jobs that can be in each other's way (mostRivals) it may not.
//
// A ledger lives as long as one configured provider: the plan has one, the apply
// another. What it plans is a function of values that travel through Terraform's graph
// and nothing else. In a plan it knows the cluster as well ([Ledger.Observe]), and says what
// becomes of the jobs there. It knows neither Terraform nor Kubernetes.
package ledger

import (
	"slices"
	"sync"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Ledger is safe for concurrent use. The zero value is not usable, see [New].
type Ledger struct {
	mu        sync.Mutex
	jobs      map[string]*job
	fates     map[string]fate   // of jobs that exist
	fixed     map[string]bool   // those of them whose pods stay until pools have changed
	replaced  map[string]string // jobs that leave before another is created in their place, by that one
	dropped   map[string]bool   // names of pools that are planned to be deleted
	renewed   map[string]bool   // names of pools that are replaced, with all their nodes
	modes     map[string]string // who gives nodes that exist their mode
	owned     map[string]bool
	visited   map[string]bool // IDs of pools in the state, of which the walk has said what becomes of them
	guarded   map[string]bool
	created   map[string]bool             // names of pools that are planned to be created
	unset     map[string]unset            // by names of pools
	offers    map[string][]placement.Node // nodes of pools that the plan adds or changes, by their names
	shrinking map[string]string           // what becomes of pools that give up nodes, by their names
	displaced map[string]displacement     // by what takes the nodes away
	// cuts say what jobs lose by a change of the quota tree, or of a program, by what changes.
	cuts map[string]func(stays func(job string) bool) []Finding
	tree *quota.Tree
	// treeKnown means that the walk has said what becomes of the tree.
	treeKnown bool
	// treeComes means that it has said that there will be one of which something is unknown until apply.
	treeComes bool
	live      *picture
	compared  map[string]bool            // sets of jobs that were placed together
	apart     map[string]bool            // those of them that do not fit
	told      map[string]map[string]bool // who is evicted, or gets less quota, when those come together
	reported  map[string]bool            // findings, by what tells them apart
	complete  bool                       // all that the configuration has in the cluster has been visited
	applying  bool
	part      bool // the walk visits a part of the configuration only
	objects   objects
	programs  map[string]program // those that this walk has visited
	starts    starts
	devices   devices
	awaiting  bool                 // a caller waits for visits
	hurried   bool                 // no other caller waits any more
	waiters   map[string][]Finding // jobs whose visits wait, with what was found of them meanwhile
	mayApply  bool                 // the walk may be one that visits only what changes
	missed    bool                 // no visit came for so long that none is waited for
	said      map[string]bool      // jobs of which it was said that they fit only if others leave
	next      chan struct{}        // closed by the next visit, nil when none waits
	held      int                  // visits that wait for those of jobs, in AwaitFates
	deletions deletions
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		jobs:      map[string]*job{},
		fates:     map[string]fate{},
		fixed:     map[string]bool{},
		replaced:  map[string]string{},
		dropped:   map[string]bool{},
		renewed:   map[string]bool{},
		modes:     map[string]string{},
		owned:     map[string]bool{},
		visited:   map[string]bool{},
		guarded:   map[string]bool{},
		created:   map[string]bool{},
		unset:     map[string]unset{},
		displaced: map[string]displacement{},
		offers:    map[string][]placement.Node{},
		shrinking: map[string]string{},
		compared:  map[string]bool{},
		apart:     map[string]bool{},
		told:      map[string]map[string]bool{},
		reported:  map[string]bool{},
		said:      map[string]bool{},
		waiters:   map[string][]Finding{},
		programs:  map[string]program{},
		cuts:      map[string]func(stays func(job string) bool) []Finding{},
		devices:   devices{unpinned: map[string]DevicePool{}},
		deletions: deletions{planned: map[string]bool{}},
		starts:    starts{jobs: map[string]started{}},
		objects:   objects{locks: map[string]*sync.Mutex{}, taken: map[string]bool{}, givenUp: map[string]bool{}, needed: map[string]string{}},
	}
}

// Job is a training job that the walk will create or run again.
type Job struct {
	// Gang is the job as the planner sees it; Gang.ID, "namespace/name", identifies it in the ledger.
	Gang placement.Gang
	// Admitted is the gang as the cluster's admission would make it, nil where that is the same, or
	// unknown. It is what is held against the cluster, and never changes the placement. Added says
	// what admission adds, as a sentence.
	Admitted *placement.Gang
	Added    string
	// Nodes and Occupants are the capacity that the job was given: the nodes of its
	// pools and what is taken on them.
	Nodes     []placement.Node
	Occupants []placement.Pod
	// After are the IDs of jobs that are placed before this one. An ID that is not
	// in the ledger belongs to a job that exists already, whose GPUs are taken in Occupants.
	After []string
	// Pools are the names of the pools whose capacity Nodes is. A job without may run
	// anywhere, and is only looked at on the cluster.
	Pools []string
	// RequireImmediate makes it an error that the job has to wait.
	RequireImmediate bool
	// Unawaited means that an apply does not wait for the job.
	Unawaited bool
	// MayPreempt means that the job's scheduler preempts others by the planner's
	// rules, AllowPreemption that the user agrees to it.
	MayPreempt, AllowPreemption bool
	// Check is how strictly the job is checked.
	Check Check
	// Queued means that the job waits for the job queue, which needs a quota tree.
	Queued bool
	// Draws are what the job takes of its namespace, as far as the cluster has that left for it alone.
	Draws []Draw
}

// Check is how strictly a job is checked.
type Check int

// Checks. What a job that is not checked does to others is reported all the same.
const (
	Refuse Check = iota
	Warn
	Ignore
)

type job struct {
	Job
	placement *placement.Placement // on what it was given; nil: it does not fit there
	actual    *placement.Placement // the same as admission makes it, and the jobs that come before it
	verdict   placement.Verdict    // why it does not fit then, or not where it is planned
	crowded   bool                 // it would but for the jobs that come before it
	startable bool                 // as far as others of this walk are not in its way
	settled   bool                 // it can start beside all that runs
	needs     bool                 // it can start once others have left
	evicts    map[string]bool      // gangs that go for the job alone
	forced    bool                 // it was to stay, and Terraform replaces it all the same
	met       bool                 // its place has been compared with those of the others that can start
	located   bool                 // its place has been compared with what the cluster has there
	moves     bool                 // it may not get the place that it is planned in, since others may be there
	reaches   map[string]bool      // nodes on which there is room for one of its pods, as far as was asked
	awaited   []string             // those without whose visits it is not known whether it fits, as far as was asked
	launcher  launcher             // one of each role that starts once its members run
	unordered unordered            // what becomes of nodes for it, where it names no pools
	yields    map[string]bool      // launchers, by their key, for which it may not get its place, as far as was asked
}

// Kind is what a [Finding] is about.
type Kind string

// Kinds of findings.
const (
	// Waits: a job fits alone, but not together with the others.
	Waits Kind = "Waits"
	// SameGPUs: jobs fit together, but are planned on the same GPUs, and nothing says who is first.
	SameGPUs Kind = "SameGPUs"
	// NoSuchLeaf: a job names a quota leaf that the planned tree does not have.
	NoSuchLeaf Kind = "NoSuchLeaf"
	// DuplicatePool: two pools of one name are planned.
	DuplicatePool Kind = "DuplicatePool"
	// PoolTaken: a job that stays runs on nodes that a pool gives up.
	PoolTaken Kind = "PoolTaken"
	// QuotaTaken: jobs that stay use more than a change of the quota tree leaves them.
	QuotaTaken Kind = "QuotaTaken"
	// ProgramTaken: jobs that stay run by a program that the plan removes.
	ProgramTaken Kind = "ProgramTaken"
	// Misfit: a job fits neither what it was given nor the cluster.
	Misfit Kind = "Misfit"
	// LateMisfit: a job fits, and what starts once it runs does not.
	LateMisfit Kind = "LateMisfit"
	// ExceedsQuota: a job by itself is more than its quota.
	ExceedsQuota Kind = "ExceedsQuota"
	// WaitsForQuota: what runs now leaves too little of the job's quota.
	WaitsForQuota Kind = "WaitsForQuota"
	// InPart: quota leaves members without room that the job has planned, but does not need.
	InPart Kind = "InPart"
	// NeedsOthers: a job fits once jobs of this configuration have left, which the plan may make do so.
	NeedsOthers Kind = "NeedsOthers"
	// NoTree: a job waits for the job queue, and there is no quota tree by which that works.
	NoTree Kind = "NoTree"
	// Ungoverned: a job names a quota leaf, and there is no quota tree.
	Ungoverned Kind = "Ungoverned"
	// QuotaInvalid: the cluster's quota tree is not valid, and governs a job.
	QuotaInvalid Kind = "QuotaInvalid"
	// QuotaUnknown: the limits of a job's quota leaf are unknown until apply.
	QuotaUnknown Kind = "QuotaUnknown"
	// Preempts: the scheduler would evict running gangs for a job.
	Preempts Kind = "Preempts"
	// Overtaken: gangs that wait already take the place of a job before it is there.
	Overtaken Kind = "Overtaken"
	// Elsewhere: as admission makes a job, or one before it, or beside what runs, it does not fit
	// where it is planned.
	Elsewhere Kind = "Elsewhere"
)

// Finding is something that only several resources together show. The resource
// whose visit completed the picture reports it, once; a job whose visit still waits
// ([Ledger.Await]) reports its own.
type Finding struct {
	Kind Kind
	// Jobs are the IDs of the jobs concerned; the first is the one that waits or fails.
	Jobs []string
	// Error means that the plan must fail; otherwise it is a warning.
	Error bool
	// Summary is a headline, Detail says what and what to do, in full sentences.
	Summary, Detail string

	key string // a finding of the same key is not reported again
}

// PlanJob places a job on its capacity, after the jobs named in After, and records
// it. The result depends on the job and those jobs alone. The findings are about all
// jobs of the walk together, and about the cluster. A job with the same ID is replaced.
// One of which [Ledger.KeepJob] was told before is replaced by Terraform's decision alone
// (-replace, replace_triggered_by), which Terraform makes known in a second visit; it
// leaves out the warnings of that, so that these are errors.
func (l *Ledger) PlanJob(j Job) (placement.Result, []Finding) {
	l.mu.Lock()
	defer l.mu.Unlock()

	recorded := &job{Job: j, evicts: map[string]bool{}, reaches: map[string]bool{}, yields: map[string]bool{}}
	recorded.launcher = launcherOf(recorded.admitted())
	before := l.before(j)
	result, crowded := planned(recorded, withoutQuota(j.Gang), before, func(b *job) (placement.Gang, *placement.Placement) { return b.Gang, b.placement })
	recorded.placement, recorded.actual, recorded.verdict, recorded.crowded = result.Placement, result.Placement, result.Verdict, crowded
	if slices.ContainsFunc(append(before, recorded), func(b *job) bool { return b.Admitted != nil }) {
		recorded.admit(before)
	}
	recorded.forced = l.fates[j.Gang.ID] == stays
	if l.jobs[j.Gang.ID] != nil {
		l.unsettle()
	}
	l.jobs[j.Gang.ID] = recorded
	l.fates[j.Gang.ID] = leaves // what runs under its name
	if l.live != nil {
		for _, id := range l.vacated(j.Gang.ID) {
			l.live.plan(id)
		}
		l.live.join(j.Pools, j.Nodes)
	}
	return result, l.check(recorded, l.bereave(recorded))
}

// planned places a gang of a job on what it was given after others, of which at tells how each is
// seen and where. It is crowded when those leave it no room.
func planned(j *job, g placement.Gang, before []*job, at func(*job) (placement.Gang, *placement.Placement)) (result placement.Result, crowded bool) {
	view := viewOf(j.Nodes, j.Occupants)
	room := planner.Place(view, g) != nil
	for _, b := range before {
		if gang, placed := at(b); placed != nil {
			view.Apply(gang, *placed)
		}
	}
	result = planner.Plan(view, g)
	return result, room && result.Placement == nil
}

// Admit returns what becomes of a job that this walk has planned, on what it was given, when
// admission makes this gang of it; nothing of a job that was not planned.
func (l *Ledger) Admit(g placement.Gang) placement.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[g.ID]
	if j == nil {
		return placement.Result{}
	}
	j.Admitted = &g
	j.admit(l.before(j.Job))
	return placement.Result{Placement: j.actual, Verdict: j.verdict}
}

// admit looks what becomes of a job with what admission adds to it, and to those before it.
func (j *job) admit(before []*job) {
	g := withoutQuota(j.admitted())
	if j.placement != nil {
		g.Planned = j.spots(anyNode)
	}
	result, crowded := planned(j, g, before, func(b *job) (placement.Gang, *placement.Placement) { return b.admitted(), b.actual })
	j.actual, j.verdict, j.crowded = result.Placement, result.Verdict, crowded
}

// admitted is the gang as admission makes it.
func (j *job) admitted() placement.Gang {
	if j.Admitted != nil {
		return *j.Admitted
	}
	return j.Gang
}

// KeepJob records that a job exists and goes on.
func (l *Ledger) KeepJob(id string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.live != nil && l.live.stay(id)
	l.fates[id], l.fixed[id] = stays, true
	return l.check(nil, lost)
}

// Stays reports whether a job was visited as one that goes on: when it is planned after that, Terraform
// replaces it by -replace or replace_triggered_by.
func (l *Ledger) Stays(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fates[id] == stays
}

// DeleteJob records that a job is deleted, and so gives back what it holds.
func (l *Ledger) DeleteJob(id string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(id)
	return l.check(nil, false)
}

// ReplaceJob records that a job gives back what it holds before another is created in its
// place, which may have its ID; by is "" as long as that is unknown. It is told before the
// other one is planned.
func (l *Ledger) ReplaceJob(id, by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(id)
	if by != "" && by != id {
		l.replaced[by] = id
	}
}

// PlaceLater records that the plan gives a job no place: what decides it is unknown until apply, or the job
// is suspended. The findings are about what else was recorded, such as the job that it replaces.
func (l *Ledger) PlaceLater() []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(nil, false)
}

// Replaced returns the job of another ID in whose place a job is created, "" for none.
func (l *Ledger) Replaced(by string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replaced[by]
}

// Vacated returns the jobs that are gone by the time that a job is created after others of
// this walk: those in the place of which it and they are, and what runs under their names.
func (l *Ledger) Vacated(id string, after []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := l.vacated(id)
	for _, before := range l.before(Job{Gang: placement.Gang{ID: id}, After: after}) {
		gone = append(gone, l.vacated(before.Gang.ID)...)
	}
	return gone
}

// vacated returns what gives way to a job.
func (l *Ledger) vacated(id string) []string {
	if old, ok := l.replaced[id]; ok {
		return []string{id, old}
	}
	return []string{id}
}

// SuspendJob records that a job gives back what it holds and stays. Pools change before
// it does, so that it still counts as running on nodes that they give up.
func (l *Ledger) SuspendJob(id string) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(id)
	l.fixed[id] = true
	return l.check(nil, false)
}

func (l *Ledger) leave(id string) {
	l.fates[id] = leaves
	if l.live != nil {
		l.live.leave(id)
	}
}

// Promised reports whether the placement of a planned job is what the scheduler will do,
// as far as can be told from values that travel through Terraform's graph: the job fits on
// the pools that it was given, takes no place from others, and the same is true of the
// jobs that it is placed after. One that Terraform replaces by its own decision is not promised
// a place that admission keeps it from: Terraform would leave the warning out.
func (l *Ledger) Promised(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	j, ok := l.jobs[id]
	return ok && l.promised(j)
}

func (l *Ledger) promised(j *job) bool {
	order := append(l.before(j.Job), j)
	return byValues(order) && !slices.ContainsFunc(order, func(j *job) bool { return j.forced && j.verdict.NotAsPlanned != "" })
}

// placedByValues is [Ledger.Promised] by the values that travel through the graph alone, which the apply knows as well.
func (l *Ledger) placedByValues(j *job) bool { return byValues(append(l.before(j.Job), j)) }

// byValues is [Ledger.placedByValues] of a job and those before it.
func byValues(order []*job) bool {
	return !slices.ContainsFunc(order, func(j *job) bool {
		return j.placement == nil || len(j.Pools) == 0 || j.AllowPreemption
	})
}

// ExpectTree records that this walk plans to have a quota tree of which something is unknown until apply.
func (l *Ledger) ExpectTree() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.treeComes = true
}

// RecordTree records the quota tree that this walk plans to have, nil for none.
func (l *Ledger) RecordTree(tree *quota.Tree) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tree, l.treeKnown = tree, true
	for _, j := range l.jobs {
		j.settled = false
	}
	if l.live != nil {
		l.live.limit(tree)
	}
	return l.check(nil, true)
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

// ExpectPart records that the walk visits a part of the configuration only. The rest of it
// stays as it is. It is told before [Ledger.Observe].
func (l *Ledger) ExpectPart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = true
}

// ExpectApply records that the walk may be one in which Terraform carries a plan out: it visits only what changes
// then, and reads nothing before.
func (l *Ledger) ExpectApply() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mayApply = true
}

// Refreshed records that the walk reads what is in the state: it makes a plan.
func (l *Ledger) Refreshed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mayApply = false
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

// CutQuota records a change of the quota tree; lost says what jobs use beyond it, if of those
// in the state only the ones go on of which stays is true. It is asked again whenever
// more is known, and each of its findings (see [Cut]) is reported once.
func (l *Ledger) CutQuota(lost func(stays func(job string) bool) []Finding) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts[""] = lost
	return l.check(nil, false)
}
