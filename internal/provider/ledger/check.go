package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// check looks at what was recorded so far and returns what was not reported yet: about a
// job that was just recorded, about all jobs when what is around them has changed, or only
// about jobs that lose their nodes.
func (l *Ledger) check(changed *job, around bool) []Finding {
	l.visit()
	if l.applying {
		return l.asKnownNow(changed) // the plan has said the rest
	}
	found := l.displacedJobs()
	for _, what := range slices.Sorted(maps.Keys(l.cuts)) {
		found = append(found, l.cuts[what](func(job string) bool { return l.fates[job] == stays })...)
	}
	if l.live != nil && !l.complete && l.decided() {
		around, l.complete = true, true
	}
	switch {
	case around:
		clear(l.compared)
		l.unsettle()
		clear(l.told)
		found = slices.Concat(found, l.outlooks(l.unsettled()), l.contention(nil))
	case changed != nil:
		found = append(found, l.outlooks([]*job{changed})...)
		found = append(found, l.contention(changed)...)
	}
	if l.live != nil && l.decided() {
		found = slices.Concat(found, l.outlooks(l.needing()), l.shortages())
	}
	found = slices.Concat(found, l.meetings(), l.misplaced(), l.overtaken(), l.endangered(), l.evictedMeanwhile())
	var fresh []Finding
	for _, f := range found {
		if (f.Kind == NeedsOthers || f.Kind == ProgramTaken || f.Kind == QuotaTaken && !f.Error) && !l.decided() {
			continue // it is said once it is known who leaves
		}
		f, report := l.graded(f)
		if !report || l.reported[f.id()] {
			continue
		}
		l.reported[f.id()] = true
		if !f.Error && l.treeOpen() && slices.Contains(byTree, f.Kind) {
			f = asItIs(f)
		}
		if waiter := l.waiterFor(f, changed); waiter != "" {
			l.waiters[waiter] = append(l.waiters[waiter], l.shown(f, l.jobs[waiter]))
			continue
		}
		fresh = append(fresh, l.shown(f, changed))
	}
	return fresh
}

// shown is a finding as the visit of a job says it.
func (l *Ledger) shown(f Finding, visited *job) Finding {
	return l.explained(l.addressed(l.heard(f, visited), visited))
}

// asKnownNow refuses at apply a job that can never run within a quota tree of which the plan did not know all.
func (l *Ledger) asKnownNow(j *job) []Finding {
	if j == nil || !l.treeKnown {
		return nil
	}
	f := l.beyond(j, l.gang(j), l.tree)
	if f == nil {
		return nil
	}
	if graded, _ := l.graded(*f); graded.Error {
		return []Finding{graded}
	}
	return nil // it may have been said, and the job's creation says what becomes of it
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

// explained says what of the jobs of a finding is admission's, and what else has a part of their nodes.
func (l *Ledger) explained(f Finding) Finding {
	if f.Kind == Misfit && l.live != nil {
		f.Detail += l.live.shared(l.jobs[f.Jobs[0]].Pools)
	}
	switch f.Kind {
	case Misfit, LateMisfit, Elsewhere, ExceedsQuota, WaitsForQuota, InPart, NeedsOthers, Preempts, Overtaken, Waits:
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

// notAsPlanned are the kinds of warnings which say that a job will not start, or not as planned.
var notAsPlanned = []Kind{Waits, Overtaken, SameGPUs, WaitsForQuota, NeedsOthers, NoTree, InPart, Elsewhere}

// byTree are the kinds of findings that another quota tree may end, or make errors.
var byTree = []Kind{ExceedsQuota, WaitsForQuota, InPart, QuotaInvalid}

// asItIs says of a warning that it is about the quota tree which the cluster has: what is found
// once the plan has said what becomes of the tree is another finding.
func asItIs(f Finding) Finding {
	f.Summary += ", as the cluster has it"
	f.Detail = strings.TrimSuffix(f.Detail, ".") + ". That is by the quota tree of this configuration as it is in the cluster; what this plan makes of the tree was not known yet."
	return f
}

// heard makes an error of a warning that Terraform would leave out.
func (l *Ledger) heard(f Finding, visited *job) Finding {
	if !f.Error && l.unheard(f, visited) {
		f.Error = true
		f.Detail += " Terraform shows no warning about a job that is replaced by -replace or replace_triggered_by, so that the plan fails instead: " +
			"change triggers of the job to replace it, and this is a warning."
	}
	return f
}

// unheard reports whether a warning of a visit is to be an error, since Terraform may leave it
// out: that gangs are evicted, or that a job will not start or not where it is planned, when a job
// is replaced by Terraform's decision alone.
func (l *Ledger) unheard(f Finding, visited *job) bool {
	forced, strict := visited != nil && visited.forced, f.Kind == Preempts
	for _, id := range f.Jobs {
		if j := l.jobs[id]; j != nil {
			forced = forced || j.forced
			strict = strict || j.Check == Refuse && slices.Contains(notAsPlanned, f.Kind)
		}
	}
	return forced && strict
}

// Cut is the finding that jobs use more than a change of the quota tree leaves them; at
// tells the places in the tree apart.
func Cut(at, summary, detail string, jobs []string) Finding {
	return Finding{Kind: QuotaTaken, Jobs: jobs, Error: true, Summary: summary, Detail: detail, key: at}
}

// Orphaned is the finding that jobs run by a program that the plan removes.
func Orphaned(program, summary, detail string, jobs []string) Finding {
	return Finding{Kind: ProgramTaken, Jobs: jobs, Summary: summary, Detail: detail, key: program}
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

// needing returns the jobs that start once others have left, in placing order.
func (l *Ledger) needing() []*job {
	for _, j := range l.jobs {
		if j.needs {
			return slices.DeleteFunc(l.inOrder(), func(j *job) bool { return !j.needs })
		}
	}
	return nil
}

// unsettled returns the jobs of which it is open whether they can start, in placing order.
func (l *Ledger) unsettled() []*job {
	return slices.DeleteFunc(l.inOrder(), func(j *job) bool { return j.settled })
}

func (l *Ledger) noSuchLeaf(j *job, limits *quota.Tree) *Finding {
	owner, leaf := "planned", j.admitted().Leaf
	advice := ""
	switch {
	case l.treeOpen():
		owner, advice = "cluster's", " This plan is about a part of the configuration (-target), and does not say whether the tree of this configuration gets the leaf."
	case !l.treeKnown:
		owner, advice = "cluster's", fmt.Sprintf(" When a gpuplan_quota_tree of this configuration adds it, name it as gpuplan_quota_tree.NAME.leaves[%q], so that the tree comes first.", leaf)
	}
	return &Finding{
		Kind:    NoSuchLeaf,
		Jobs:    []string{j.Gang.ID},
		Error:   !l.treeOpen(),
		Summary: "No such quota leaf",
		Detail: fmt.Sprintf("Job %s is charged to the quota leaf %q, which the %s quota tree does not have; its leaves are %s.%s",
			j.Gang.ID, leaf, owner, join(limits.Leaves()), advice),
	}
}

// displacedJobs reports jobs whose nodes a pool gives up while they go on.
func (l *Ledger) displacedJobs() []Finding {
	var findings []Finding
	for _, what := range slices.Sorted(maps.Keys(l.displaced)) {
		for _, job := range l.displaced[what].jobs {
			if !l.fixed[job] {
				continue
			}
			f := Finding{
				Kind:    PoolTaken,
				key:     what + " " + job,
				Jobs:    []string{job},
				Error:   true,
				Summary: "A running job would lose its nodes",
				Detail: fmt.Sprintf("The plan %s, on which job %s runs, and the job stays. Remove the job as well, wait until it has finished, "+
					"suspend it and apply that before, or on the pool %s.", what, job, l.displaced[what].consent),
			}
			if l.displaced[what].requested {
				f.Error = false
				f.Detail = fmt.Sprintf("The plan %s, on which job %s runs. Unless the plan replaces the job, too, the apply refuses to. Replace or remove the job as well, "+
					"wait until it has finished, suspend it and apply that before, or on the pool %s.", what, job, l.displaced[what].consent)
			}
			findings = append(findings, f)
		}
	}
	return findings
}

func duplicatePool(name string) Finding {
	return Finding{
		Kind:    DuplicatePool,
		Error:   true,
		Summary: "Two node pools with one name",
		Detail: fmt.Sprintf("Another gpuplan_node_pool or gpuplan_node_gpu of this configuration is called %q too. "+
			"Node pools are found by name after an interrupted create, so names must be unique in a cluster.", name),
	}
}

func viewOf(nodes []placement.Node, occupants []placement.Pod) *snapshot.View {
	view := snapshot.NewView()
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
	gang.HiddenNodes = map[string]bool{}
	for _, n := range all {
		if !own[n.Name] {
			gang.HiddenNodes[n.Name] = true
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

func pairKey(a, b *job) string { return keyOf([]*job{a, b}) }

// keyOf names a set of jobs.
func keyOf(jobs []*job) string {
	return strings.Join(slices.Sorted(slices.Values(idsOf(jobs))), " ")
}

func idsOf(jobs []*job) (ids []string) {
	for _, j := range jobs {
		ids = append(ids, j.Gang.ID)
	}
	return ids
}
