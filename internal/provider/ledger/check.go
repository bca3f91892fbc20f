package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// check looks at what was recorded so far and returns what was not reported yet: about a
// job that was just recorded, about all jobs when what is around them has changed, or only
// about jobs that lose their nodes.
func (l *Ledger) check(changed *job, around bool) []Finding {
	if l.applying {
		return nil // the plan has said so
	}
	found := l.displacedJobs()
	if l.cuts != nil {
		found = append(found, l.cuts(func(job string) bool { return l.fates[job] == stays })...)
	}
	switch {
	case around:
		clear(l.compared)
		l.unsettle()
		found = slices.Concat(found, l.outlooks(l.unsettled()), l.contention())
	case changed != nil:
		found = append(found, l.outlooks([]*job{changed})...)
		if !l.joins(changed) {
			found = append(found, l.contention()...)
		}
	}
	if l.live != nil && l.decided() {
		found = slices.Concat(found, l.outlooks(slices.DeleteFunc(l.inOrder(), func(j *job) bool { return !j.needs })))
	}
	found = slices.Concat(found, l.meetings(), l.overtaken(), l.endangered(), l.evictedMeanwhile())
	var fresh []Finding
	for _, f := range found {
		if f.Kind == NeedsOthers && !l.decided() {
			continue // it is said once it is known whether the others leave
		}
		f, report := l.graded(f)
		if !report || l.reported[f.id()] {
			continue
		}
		l.reported[f.id()] = true
		if !f.Error && l.unheard(f, changed) {
			f.Error = true
			f.Detail += " Terraform shows no warning about a job that is replaced by -replace or replace_triggered_by, so that the plan fails instead: " +
				"change triggers of the job to replace it, and this is a warning."
		}
		fresh = append(fresh, l.explained(l.addressed(f, changed)))
	}
	return fresh
}

// addressed makes a finding name its job first when it shows with another resource: the one
// whose visit completed the picture.
func (l *Ledger) addressed(f Finding, visited *job) Finding {
	if len(f.Jobs) == 0 || l.jobs[f.Jobs[0]] == nil || visited != nil && slices.Contains(f.Jobs, visited.Gang.ID) {
		return f
	}
	f.Summary = fmt.Sprintf("Job %s: %s", f.Jobs[0], strings.ToLower(f.Summary[:1])+f.Summary[1:])
	f.Detail += " This shows with the resource that Terraform has planned last of those that decide it."
	return f
}

// explained says what of the jobs of a finding is admission's.
func (l *Ledger) explained(f Finding) Finding {
	switch f.Kind {
	case Misfit, LateMisfit, Elsewhere, ExceedsQuota, WaitsForQuota, NeedsOthers, Preempts, Overtaken, Waits:
		for _, id := range f.Jobs {
			if j := l.jobs[id]; j != nil && j.Added != "" {
				f.Detail += " " + j.Added
			}
		}
	}
	return f
}

// graded makes of a finding what the jobs that it is about ask for.
func (l *Ledger) graded(f Finding) (graded Finding, report bool) {
	first, known := l.jobs[f.Jobs[0]]
	if !known {
		return f, true
	}
	switch f.Kind {
	case Waits, SameGPUs:
		strict := slices.ContainsFunc(f.Jobs, func(id string) bool { return l.jobs[id].Check == Refuse })
		loud := slices.ContainsFunc(f.Jobs, func(id string) bool { return l.jobs[id].Check != Ignore })
		f.Error = f.Error && strict
		return f, loud
	case Preempts:
		f.Error = f.Error && first.Check == Refuse
		return f, true // nobody is evicted without a word
	default:
		f.Error = f.Error && first.Check == Refuse
		return f, first.Check != Ignore
	}
}

// unheard reports whether a warning of a visit is to be an error, since Terraform may leave it
// out: that gangs are evicted, or that a job will not start or not where it is planned, when a job
// is replaced by Terraform's decision alone.
func (l *Ledger) unheard(f Finding, visited *job) bool {
	forced, strict := visited != nil && visited.forced, f.Kind == Preempts
	for _, id := range f.Jobs {
		if j := l.jobs[id]; j != nil {
			forced = forced || j.forced
			strict = strict || j.Check == Refuse && (f.Kind == Waits || f.Kind == Overtaken || f.Kind == SameGPUs)
		}
	}
	return forced && strict
}

// Cut is the finding that jobs use more than a change of the quota tree leaves them; at
// tells the places in the tree apart.
func Cut(at, summary, detail string, jobs []string) Finding {
	return Finding{Kind: QuotaTaken, Jobs: jobs, Error: true, Summary: summary, Detail: detail, key: at}
}

// id tells findings apart that are reported once each.
func (f *Finding) id() string {
	if f.Kind == Preempts {
		return fmt.Sprintf("%s %t %s", f.Kind, f.Error, f.Detail)
	}
	return fmt.Sprintf("%s %t %s", f.Kind, f.Error, cmp.Or(f.key, f.Jobs[0]))
}

// before returns the jobs that must be placed before j, transitively, in placing order.
func (l *Ledger) before(j Job) []*job {
	var order []*job
	seen := map[string]bool{j.Gang.ID: true}
	var visit func(ids []string)
	visit = func(ids []string) {
		for _, id := range slices.Sorted(slices.Values(ids)) {
			b, ok := l.jobs[id]
			if !ok || seen[id] {
				continue
			}
			seen[id] = true
			visit(b.After)
			order = append(order, b)
		}
	}
	visit(j.After)
	return order
}

// inOrder returns all jobs in the order in which the joint check places them: by
// name, but each after the jobs it names.
func (l *Ledger) inOrder() []*job {
	all := Job{After: slices.Collect(maps.Keys(l.jobs))}
	return l.before(all)
}

// contention places all jobs at once, apart from those that a pair has shown to wait. When
// one has to wait, jobs are compared two by two: what that finds depends on the two alone,
// and so not on the order of visits.
func (l *Ledger) contention() []Finding {
	jobs := l.starting()
	c := l.place(jobs)
	findings := l.evictions(c, jobs)
	if c.waiting == nil {
		if len(c.evicted) == 0 {
			l.settle(jobs)
		}
		return findings
	}
	for i, a := range jobs {
		for _, b := range jobs[i+1:] {
			if key := pairKey(a, b); rivals(a, b) && !l.compared[key] {
				l.compared[key] = true
				findings = append(findings, l.compare(a, b)...)
			}
		}
	}
	var rest []*job
	for _, j := range jobs {
		blocked := slices.ContainsFunc(rest, func(other *job) bool { return l.apart[pairKey(other, j)] })
		if !blocked {
			rest = append(rest, j)
		}
	}
	if c = l.place(rest); c.waiting != nil {
		findings = append(findings, l.waits(c, rest, "all"))
	}
	return slices.Concat(findings, l.evictions(c, rest), l.evictedInstead(c, rest))
}

// evictedInstead reports who may be evicted in the place of planned jobs: when one of them
// has to wait, it depends on who is placed last whether others leave, and who.
func (l *Ledger) evictedInstead(c course, jobs []*job) []Finding {
	if c.waiting == nil || l.live == nil {
		return nil
	}
	var instead course
	for _, last := range jobs {
		victims := l.victimsOfLast(jobs, last)
		known := func(e eviction) bool { return e.job == last && reflect.DeepEqual(e.victims, victims) }
		if len(victims) > 0 && !slices.ContainsFunc(c.evicted, known) {
			instead.evicted = append(instead.evicted, eviction{last, victims})
		}
	}
	findings := l.evictions(instead, jobs)
	for i := range findings {
		findings[i].Error = false
	}
	return findings
}

// victimsOfLast is who goes for a job when those of the others that find room are placed before
// it, and stay.
func (l *Ledger) victimsOfLast(jobs []*job, last *job) []placement.Victim {
	if !last.Reclaims {
		return nil
	}
	view := l.live.hoped
	var undo []func()
	for _, j := range jobs {
		g := l.gang(j)
		g.Preemptible = false
		if placed := view.Place(g); j != last && placed != nil {
			undo = append(undo, view.Apply(g, *placed))
		}
	}
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	g := l.gang(last)
	if view.Place(g) != nil {
		return nil
	}
	return view.Reclaim(g).Victims
}

// settle remembers the cluster with jobs in their places, all of which fit together.
func (l *Ledger) settle(jobs []*job) {
	if l.live == nil {
		return
	}
	view := l.live.hoped.Clone()
	for _, j := range jobs {
		g := l.gang(j)
		if placed := view.Place(g); placed != nil {
			view.Apply(g, *placed)
		}
	}
	l.live.together = view
}

// joins reports whether a job that was just recorded is in nobody's way: it has room
// beside all the others, as they were settled.
func (l *Ledger) joins(j *job) bool {
	if !j.startable {
		return true
	}
	if l.live == nil || l.live.together == nil {
		return false
	}
	g := l.gang(j)
	placed := l.live.together.Place(g)
	if placed == nil {
		l.unsettle()
		return false
	}
	l.live.together.Apply(g, *placed)
	return true
}

// unsettle forgets how jobs were settled.
func (l *Ledger) unsettle() {
	if l.live != nil {
		l.live.together = nil
	}
}

// compare places two jobs.
func (l *Ledger) compare(a, b *job) []Finding {
	both := []*job{a, b}
	c := l.place(both)
	findings := append(l.evictions(c, both), l.evictedInstead(c, both)...)
	if c.waiting != nil {
		l.apart[pairKey(a, b)] = true
		findings = append(findings, l.waits(c, both, pairKey(a, b)))
	}
	return findings
}

// unsettled returns the jobs of which it is open whether they can start, in placing order.
func (l *Ledger) unsettled() []*job {
	return slices.DeleteFunc(l.inOrder(), func(j *job) bool { return j.settled })
}

// starting returns the jobs that can start by themselves, in the order in which they are placed.
func (l *Ledger) starting() []*job {
	return slices.DeleteFunc(l.inOrder(), func(j *job) bool { return !j.startable || l.unseen(j) })
}

// unseen reports whether nobody could look where a job may run: it has no pools, and the
// plan does not know the cluster.
func (l *Ledger) unseen(j *job) bool { return len(j.Pools) == 0 && l.live == nil }

// course is what comes of placing jobs one after the other.
type course struct {
	// waiting is the first that has to wait, nil for none; verdict says why.
	waiting *job
	verdict placement.Verdict
	// evicted are those for whom running gangs are evicted.
	evicted []eviction
}

type eviction struct {
	job     *job
	victims []placement.Victim
}

// place places jobs in order on everything that any of them was given: on the cluster
// without the jobs that may leave, if it is known.
func (l *Ledger) place(jobs []*job) (c course) {
	view, gangs := l.ground(jobs)
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	for i, j := range jobs {
		if placed := view.Place(gangs[i]); placed != nil {
			if l.live != nil && j.Reclaims {
				if later := l.growth(view, gangs[i], placement.Result{Placement: placed}); len(later) > 0 {
					c.evicted = append(c.evicted, eviction{j, later})
				}
			}
			undo = append(undo, view.Apply(gangs[i], *placed))
			continue
		}
		if l.live == nil || !j.Reclaims {
			return course{waiting: j, verdict: view.Plan(gangs[i]).Verdict, evicted: c.evicted}
		}
		result := view.Reclaim(gangs[i])
		if result.Reservation == nil || l.planned(result.Victims) {
			return course{waiting: j, verdict: view.Plan(gangs[i]).Verdict, evicted: c.evicted}
		}
		view.AddReservation(*result.Reservation)
		undo = append(undo, func() { view.Release(j.Gang.ID) })
		if len(result.Victims) > 0 {
			c.evicted = append(c.evicted, eviction{j, result.Victims})
		}
	}
	return c
}

// ground is the view on which jobs are placed together, and how each is seen there.
func (l *Ledger) ground(jobs []*job) (*placement.View, []placement.Gang) {
	gangs := make([]placement.Gang, len(jobs))
	for i, j := range jobs {
		gangs[i] = l.gang(j)
	}
	if l.live != nil {
		return l.live.hoped, gangs
	}
	nodes, occupants := union(jobs)
	for i, j := range jobs {
		gangs[i] = onOwnNodes(gangs[i], j.Nodes, nodes)
	}
	view := viewOf(nodes, occupants)
	view.SetQuota(l.tree)
	return view, gangs
}

// evictions reports who is evicted when jobs come together, beyond those who would be
// for one of them alone.
func (l *Ledger) evictions(c course, jobs []*job) []Finding {
	var findings []Finding
	for _, e := range c.evicted {
		known := func(v placement.Victim) bool { return e.job.evicts[v.Gang] }
		if !slices.ContainsFunc(e.victims, func(v placement.Victim) bool { return !known(v) }) {
			continue
		}
		var beside []string
		for _, other := range contenders(e.job, jobs) {
			beside = append(beside, other.Gang.ID)
		}
		findings = append(findings, *l.preempts(e.job, "has no free place beside "+join(beside), e.victims, beside...))
	}
	return findings
}

// waits says that a job has to wait for others.
func (l *Ledger) waits(c course, jobs []*job, key string) Finding {
	ids, immediate, queued := []string{c.waiting.Gang.ID}, c.waiting.RequireImmediate, c.waiting.Queued
	for _, j := range l.inItsWay(c, jobs) {
		ids = append(ids, j.Gang.ID)
		immediate = immediate || j.RequireImmediate
		queued = queued && j.Queued
	}
	until := "one of them will wait until the others finish"
	byQuota := !slices.ContainsFunc(c.verdict.Reasons, func(r placement.Reason) bool { return r.Code != placement.OverQuota })
	if queued && byQuota {
		until = "the job queue holds one of them, as queue = true asks, until the quota has room for it"
	}
	alone := "on its own"
	if c.waiting.needs {
		alone = "once others have left"
	}
	return Finding{
		Kind:    Waits,
		Jobs:    ids,
		Error:   immediate,
		Summary: "Jobs fit alone, but not together",
		Detail: fmt.Sprintf("Job %s fits %s, but not at the same time as %s: %s. "+
			"With the others placed, this is left for %s: %s", ids[0], alone, join(ids[1:]), until, ids[0], c.verdict),
		key: key,
	}
}

func (l *Ledger) noSuchLeaf(j *job, limits *quota.Tree) *Finding {
	owner, leaf := "planned", j.admitted().Leaf
	advice := ""
	if !l.treeKnown {
		owner = "cluster's"
		advice = fmt.Sprintf(" When a gpuplan_quota_tree of this configuration adds it, name it as gpuplan_quota_tree.NAME.leaves[%q], so that the tree comes first.", leaf)
	}
	return &Finding{
		Kind:    NoSuchLeaf,
		Jobs:    []string{j.Gang.ID},
		Error:   true,
		Summary: "No such quota leaf",
		Detail: fmt.Sprintf("Job %s is charged to the quota leaf %q, which the %s quota tree does not have; its leaves are %s.%s",
			j.Gang.ID, leaf, owner, join(limits.Leaves()), advice),
	}
}

// displacedJobs reports jobs whose nodes a pool gives up while they go on.
func (l *Ledger) displacedJobs() []Finding {
	var findings []Finding
	for _, what := range slices.Sorted(maps.Keys(l.displaced)) {
		for _, job := range l.displaced[what] {
			if !l.fixed[job] {
				continue
			}
			findings = append(findings, Finding{
				Kind:    PoolTaken,
				key:     what + " " + job,
				Jobs:    []string{job},
				Error:   true,
				Summary: "A running job would lose its nodes",
				Detail: fmt.Sprintf("The plan %s, on which job %s runs, and the job stays. Remove the job as well, wait until it has finished, "+
					"suspend it and apply that before, or %s.", what, job, consent),
			})
		}
	}
	return findings
}

func duplicatePool(name string) Finding {
	return Finding{
		Kind:    DuplicatePool,
		Error:   true,
		Summary: "Two node pools with one name",
		Detail: fmt.Sprintf("Another gpuplan_node_pool of this configuration is called %q too. "+
			"Node pools are found by name after an interrupted create, so names must be unique in a cluster.", name),
	}
}

func viewOf(nodes []placement.Node, occupants []placement.Pod) *placement.View {
	view := placement.NewView()
	for _, n := range nodes {
		view.SetNode(n)
	}
	for _, p := range occupants {
		view.AddPod(p)
	}
	return view
}

// union merges the capacity of jobs by node name; the same node in two jobs is one node.
func union(jobs []*job) ([]placement.Node, []placement.Pod) {
	nodes, pods := map[string]placement.Node{}, map[string]placement.Pod{}
	for _, j := range jobs {
		for _, n := range j.Nodes {
			nodes[n.Name] = n
		}
		for _, p := range j.Occupants {
			pods[p.ID] = p
		}
	}
	byName := func(a, b placement.Node) int { return cmp.Compare(a.Name, b.Name) }
	byID := func(a, b placement.Pod) int { return cmp.Compare(a.ID, b.ID) }
	return slices.SortedFunc(maps.Values(nodes), byName), slices.SortedFunc(maps.Values(pods), byID)
}

// onOwnNodes keeps a gang off the nodes that its job was not given.
func onOwnNodes(gang placement.Gang, given, all []placement.Node) placement.Gang {
	own := map[string]bool{}
	for _, n := range given {
		own[n.Name] = true
	}
	gang.ExcludeNodes = maps.Clone(gang.ExcludeNodes)
	if gang.ExcludeNodes == nil {
		gang.ExcludeNodes = map[string]bool{}
	}
	for _, n := range all {
		if !own[n.Name] {
			gang.ExcludeNodes[n.Name] = true
		}
	}
	return gang
}

// withoutQuota drops the gang's leaf: the quota tree decides between fits and
// waits, never which GPUs a plan names.
func withoutQuota(g placement.Gang) placement.Gang {
	g.Leaf = ""
	return g
}

func pairKey(a, b *job) string {
	return min(a.Gang.ID, b.Gang.ID) + " " + max(a.Gang.ID, b.Gang.ID)
}
