package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// outlooks says of planned jobs what the scheduler would do with each on the cluster, and
// notes which of them can be placed beside others.
func (l *Ledger) outlooks(jobs []*job) []Finding {
	var findings []Finding
	for _, j := range jobs {
		clear(j.evicts)
		f := l.outlook(j)
		j.startable = f == nil || f.Kind == NeedsOthers && !l.untouched(f.Jobs[1:]) || f.Kind == Preempts || f.Kind == InPart
		j.needs = f != nil && f.Kind == NeedsOthers
		if treeless := l.noTree(j); treeless != nil && (f == nil || f.Kind == NeedsOthers) {
			f, j.startable = treeless, false // it starts neither now nor when others have left
		}
		if f != nil {
			findings = append(findings, *f)
		}
		if f := cmp.Or(l.ungoverned(j), l.quotaUnknown(j)); f != nil {
			findings = append(findings, *f)
		}
	}
	return findings
}

// ungoverned warns that nothing limits a job that names a quota leaf: neither the cluster nor the walk has a tree, as
// far as is known. A job of the queue never starts then, which [Ledger.noTree] says.
func (l *Ledger) ungoverned(j *job) *Finding {
	if j.Queued || l.part || j.admitted().Leaf == "" || l.treeComes || l.treeKnown || l.live == nil || !l.live.NoTree {
		return nil
	}
	leaf := j.admitted().Leaf
	return &Finding{Kind: Ungoverned, Jobs: []string{j.Gang.ID}, Summary: "No quota tree has the leaf",
		Detail: fmt.Sprintf("Job %s is to be charged to the quota leaf %q, and the cluster has no quota tree: nothing limits the job. Declare a gpuplan_quota_tree with that leaf, or leave quota out. "+
			"When this configuration declares one already, name the leaf as gpuplan_quota_tree.NAME.leaves[%[2]q], so that the tree comes first.", j.Gang.ID, leaf)}
}

// noTree says that the queue never lets a job start, as far as is known: the walk has planned
// to have no tree, or has planned none and the cluster has none.
func (l *Ledger) noTree(j *job) *Finding {
	if !j.Queued || l.treeComes || l.tree != nil || !l.treeKnown && (l.live == nil || !l.live.NoTree) {
		return nil
	}
	f := &Finding{Kind: NoTree, Jobs: []string{j.Gang.ID}, Error: l.treeKnown, Summary: "Job queue has no quota tree",
		Detail: fmt.Sprintf("Job %s waits in the job queue (queue = true), which lets jobs start by the quota tree, and ", j.Gang.ID)}
	if l.treeKnown {
		f.Detail += "the plan leaves the cluster without one: keep the tree, or leave queue out."
	} else {
		f.Detail += "the cluster has none: the job never starts. Declare a gpuplan_quota_tree with a leaf for the job, or leave queue out. " +
			"When this configuration declares one already, name it in depends_on of the job, so that it comes first."
	}
	return f
}

// quotaUnknown warns that a job is not held against the limits of its quota leaf before an apply knows them.
func (l *Ledger) quotaUnknown(j *job) *Finding {
	leaf := j.admitted().Leaf
	if leaf == "" || !l.treeComes || l.treeKnown {
		return nil
	}
	return &Finding{Kind: QuotaUnknown, Jobs: []string{j.Gang.ID}, Summary: "Quota is checked at apply",
		Detail: fmt.Sprintf("Some of the quota tree is unknown until apply, so whether job %s can run within the quota leaf %q is checked then: with placement_check = \"error\" the apply refuses a job that never can, "+
			"after it has changed the tree. To know before, apply first what makes the tree unknown, with -target.", j.Gang.ID, leaf)}
}

// barred says that the cluster's quota tree, which is not valid, keeps a job from starting, unless this walk makes another tree
// of it.
func (l *Ledger) barred(j *job) *Finding {
	if l.live == nil || l.live.Barred == nil || l.treeKnown || l.treeComes {
		return nil
	}
	why := l.live.Barred(j.admitted(), j.Queued)
	if why == "" {
		return nil
	}
	f := InvalidQuota(j.Gang.ID, why)
	f.Error = !l.treeOpen()
	first := "name that in depends_on of the job"
	if leaf := j.admitted().Leaf; leaf != "" {
		first = fmt.Sprintf("name the leaf as gpuplan_quota_tree.NAME.leaves[%q]", leaf)
	}
	f.Detail += fmt.Sprintf(" When a gpuplan_quota_tree of this configuration repairs it, %s, so that the tree comes first.", first)
	return &f
}

// InvalidQuota is the finding that a job does not start as long as the cluster's quota tree is not valid, for a reason.
func InvalidQuota(job, why string) Finding {
	return Finding{Kind: QuotaInvalid, Jobs: []string{job}, Error: true, Summary: "Quota tree is invalid",
		Detail: fmt.Sprintf("Job %s is governed by the cluster's quota tree, and does not start until someone repairs it: %s.", job, why)}
}

// beyond says that a job can never run within its quota, or has none.
func (l *Ledger) beyond(j *job, g placement.Gang, limits *quota.Tree) *Finding {
	if leaf := j.admitted().Leaf; leaf != "" && limits != nil && !limits.HasLeaf(leaf) && (g.Leaf != "" || l.part && !l.treeComes) {
		return l.noSuchLeaf(j, limits)
	}
	return l.exceeds(j, g, limits)
}

// outlook is the one finding about a job by itself, nil when it can start at once.
func (l *Ledger) outlook(j *job) *Finding {
	if f := l.barred(j); f != nil {
		return f
	}
	limits, g := l.limits(), l.gang(j)
	if f := l.beyond(j, g, limits); f != nil {
		return f
	}
	if l.live == nil {
		switch {
		case l.unseen(j):
			return nil
		case j.actual == nil:
			return misfit(j, l.verdict(j))
		}
		if !j.mayRunInPart(g) {
			return nil
		}
		view := viewOf(j.Nodes, uncharged(j.Occupants))
		view.SetQuota(limits)
		return inPart(j, g, view)
	}
	p := l.live
	fits := func(view *snapshot.View) bool { return startsWhole(view, g) }
	switch {
	case j.crowded && l.place(append(l.before(j.Job), j)).waiting != nil:
		return misfit(j, l.verdict(j))
	case j.Queued && l.heldByQuota(g) && fits(p.now):
		return l.waitsForQuota(j, g, planner.Plan(p.certain, g).Verdict, limits)
	case fits(p.now):
		if f := l.grows(j, g); f != nil {
			return f
		}
		if j.settled = true; !j.mayRunInPart(g) {
			return nil
		}
		return inPart(j, g, p.now)
	case fits(p.hoped):
		return l.needsOthers(j, p.needs(l.vacated(j.Gang.ID), fits))
	}
	if f := l.lateMisfit(j, g); f != nil {
		return f
	}
	if j.MayPreempt {
		view, result := p.certain, preemption.Plan(p.certain, g)
		if result.Placement == nil {
			view, result = p.hoped, preemption.Plan(p.hoped, g)
		}
		launcher := launcherMisfit(j, lateAfter(view, g, result))
		victims := slices.Concat(result.Victims, l.growth(p.hoped, g, result))
		switch {
		case len(victims) > 0:
			for _, v := range victims {
				j.evicts[v.Gang] = true
			}
			f := l.preempts(j, noFreePlace, victims)
			if f != nil && launcher != nil {
				f.Detail += " " + launcher.Detail
			}
			return f
		case result.Placement != nil:
			return launcher // those in its way are being deleted
		}
	}
	if l.part && fits(p.emptied()) {
		return l.needsOthers(j, p.needs(l.vacated(j.Gang.ID), fits))
	}
	verdict := planner.Plan(p.certain, g).Verdict
	if planner.Place(p.hoped, withoutQuota(g)) != nil || j.Queued && l.heldByQuota(g) && planner.Place(p.withoutUsers(), withoutQuota(g)) != nil {
		return l.waitsForQuota(j, g, verdict, limits)
	}
	if len(j.Pools) > 0 && j.actual == nil {
		verdict = l.verdict(j)
	}
	return misfit(j, verdict)
}

const notAllHaveQuota = "Not all members have quota"

// inPart says that quota leaves some members of a job without room that are planned, but not
// needed: nil when all of them may run.
func inPart(j *job, g placement.Gang, view *snapshot.View) *Finding {
	placed, all := planner.Place(view, g), planner.Place(view, withoutQuota(g))
	if placed == nil || all == nil || len(placed.Assignments) >= len(all.Assignments) {
		return nil
	}
	return &Finding{
		Kind: InPart, Jobs: []string{j.Gang.ID}, Error: j.RequireImmediate, Summary: notAllHaveQuota,
		Detail: fmt.Sprintf("%d of %d members of job %s have room, but only %d within its quota %s: the others start when it has more.",
			len(all.Assignments), members(g), j.Gang.ID, len(placed.Assignments), view.Quota().Path(g.Leaf)),
	}
}

// mayRunInPart reports whether quota can leave out members of a job that is planned, so that the
// others run without them.
func (j *job) mayRunInPart(g placement.Gang) bool {
	return g.Leaf != "" && g.Minimum > 0 && g.Minimum < members(g) && (j.placement != nil || len(j.Pools) == 0)
}

// members counts those of a gang that do not start late.
func members(g placement.Gang) (n int) {
	for _, role := range g.Roles {
		if !role.Late {
			n += len(role.Members)
		}
	}
	return n
}

// heldByQuota reports whether the job queue would hold a job now: it counts jobs, and charges all members, also
// those that the job does not need.
func (l *Ledger) heldByQuota(g placement.Gang) bool {
	tree := l.live.now.Quota()
	return tree != nil && g.Leaf != "" && (tree.FitsJob(g.Leaf) != nil || tree.Fits(g.Leaf, g.Charge(), g.Preemptible) != nil)
}

// verdict is why a job does not fit on its pools, with what its quota says as well: a fix for
// one of the two would not help. The quota is charged with all that stays in the cluster, and
// with the jobs that come before it.
func (l *Ledger) verdict(j *job) placement.Verdict {
	g, limits := l.gang(j), l.limits()
	if limits == nil || !limits.HasLeaf(g.Leaf) {
		return j.verdict
	}
	limited, verdict := l.limited(j, g, limits), j.verdict
	byQuota := slices.DeleteFunc(limited.Reasons, func(r placement.Reason) bool { return r.Code != placement.OverQuota })
	verdict.Reasons = slices.Concat(byQuota, verdict.Reasons)
	verdict.Fit, verdict.Partial, verdict.Fixes = limited.Fit, limited.Partial, limited.Fixes
	return verdict
}

// limited is the verdict of a job on its pools, or without any on the cluster, within a quota
// tree of which all is used that stays so.
func (l *Ledger) limited(j *job, g placement.Gang, limits *quota.Tree) placement.Verdict {
	if l.live != nil && len(j.Pools) == 0 {
		return planner.Plan(l.live.certain, g).Verdict
	}
	occupants := j.Occupants
	if l.live != nil {
		occupants = append(uncharged(occupants), l.live.charges()...)
	}
	view := viewOf(j.Nodes, occupants)
	view.SetQuota(limits)
	for _, before := range l.before(j.Job) {
		if before.actual != nil {
			view.Apply(l.gang(before), *before.actual)
		}
	}
	return planner.Plan(view, g).Verdict
}

// uncharged are pods that no quota counts.
func uncharged(pods []placement.Pod) []placement.Pod {
	pods = slices.Clone(pods)
	for i := range pods {
		pods[i].Leaf = ""
	}
	return pods
}

// charges are what stays in the cluster as far as quota counts it: on no node.
func (p *picture) charges() (pods []placement.Pod) {
	for _, pod := range p.Pods {
		if known, stays := p.certain.Pod(pod.ID); stays {
			pods = append(pods, placement.Pod{ID: "charge of " + known.ID, Leaf: known.Leaf, Gang: known.Gang, Request: known.Request, Preemptible: known.Preemptible})
		}
	}
	return pods
}

// grows says whom the scheduler would evict, once a job runs, for members beyond its minimum.
func (l *Ledger) grows(j *job, g placement.Gang) *Finding {
	if !j.MayPreempt {
		return nil
	}
	victims := l.growth(l.live.certain, g, preemption.Plan(l.live.certain, g))
	if len(victims) == 0 {
		return nil
	}
	for _, v := range victims {
		j.evicts[v.Gang] = true
	}
	return l.preempts(j, noFreePlace, victims)
}

// growth is whom a job makes leave later, other than jobs that are planned in this walk.
func (l *Ledger) growth(view *snapshot.View, g placement.Gang, found placement.Result) []placement.Victim {
	return slices.DeleteFunc(preemption.Growth(view, g, found).Victims, func(v placement.Victim) bool { return l.jobs[v.Gang] != nil })
}

// planned reports whether one of the victims is planned in this walk itself.
func (l *Ledger) planned(victims []placement.Victim) bool {
	return slices.ContainsFunc(victims, func(v placement.Victim) bool { return l.jobs[v.Gang] != nil })
}

// gang is the gang of a job as it is charged to the quota tree that will decide.
func (l *Ledger) gang(j *job) placement.Gang { return l.asItIs(j, l.charged(j.admitted())) }

func (l *Ledger) charged(g placement.Gang) placement.Gang {
	limits := l.limits()
	if limits == nil {
		return withoutQuota(g)
	}
	if namespace, _, ok := strings.Cut(g.ID, "/"); ok && g.Leaf == "" {
		g.Leaf = limits.LeafOf(namespace)
	}
	if (l.treeOpen() || l.treeComes && !l.treeKnown) && !limits.HasLeaf(g.Leaf) {
		return withoutQuota(g) // the tree may be about to get the leaf
	}
	return g
}

// exceeds says that a job for which there is room is by itself more than its quota.
func (l *Ledger) exceeds(j *job, g placement.Gang, limits *quota.Tree) *Finding {
	if limits == nil || g.Leaf == "" {
		return nil
	}
	view := viewOf(j.Nodes, nil)
	if l.live != nil && len(j.Pools) == 0 {
		if planner.Place(l.live.hoped, g) != nil && !j.Queued {
			return nil
		}
		view = l.live.uncharged()
	}
	if planner.Place(view, withoutQuota(g)) == nil {
		return nil
	}
	view.SetQuota(limits)
	if exceeded := limits.Fits(g.Leaf, g.Charge(), g.Preemptible); j.Queued && exceeded != nil && planner.Place(view, g) != nil {
		return &Finding{
			Kind: ExceedsQuota, Jobs: []string{j.Gang.ID}, Error: !l.treeOpen(), Summary: "Job exceeds its quota",
			Detail: fmt.Sprintf("The job queue never lets job %s start, because it needs quota for all members, also those beyond the minimum: %s. "+
				"Raise the quota, plan fewer members, or leave queue out.", j.Gang.ID, exceeded),
		}
	}
	if planner.Place(view, g) != nil {
		return nil
	}
	return &Finding{
		Kind: ExceedsQuota, Jobs: []string{j.Gang.ID}, Error: !l.treeOpen(),
		Summary: "Job exceeds its quota",
		Detail:  fmt.Sprintf("Job %s fits on %s, but can never run within its quota: %s", j.Gang.ID, j.ground(), l.limited(j, g, limits)),
	}
}

// ground is where a job may run.
func (j *job) ground() string {
	if len(j.Pools) > 0 {
		return "its pools"
	}
	return "the cluster"
}

func misfit(j *job, verdict placement.Verdict) *Finding {
	detail := fmt.Sprintf("Job %s does not fit: %s", j.Gang.ID, verdict)
	if len(j.Pools) == 0 {
		detail += " The job names no pools, so it was checked against the cluster as it is now, without what this plan adds; a job that waits for a node pool of this configuration names it in pools, and one that waits for a gpuplan_node_gpu names that in depends_on."
	}
	return &Finding{Kind: Misfit, Jobs: []string{j.Gang.ID}, Error: true, Summary: "Gang does not fit", Detail: detail}
}

// elsewhere says that a job which starts does not do so where it is planned, because of what
// admission adds, or of what else keeps its pods from nodes, as a bound volume claim does; its Added says which.
func (l *Ledger) elsewhere(j *job) []Finding {
	if !j.startable || !l.promised(j) || j.verdict.NotAsPlanned == "" {
		return nil
	}
	return []Finding{{
		Kind: Elsewhere, Jobs: append([]string{j.Gang.ID}, j.After...), Summary: "Job will not start where it is planned",
		Detail: fmt.Sprintf("As the cluster would have it, job %s fits, but not where it is planned, which is a matter of the configuration alone: %s.", j.Gang.ID, j.verdict.NotAsPlanned),
	}}
}

// misplaced says of jobs that start, but not where they are planned, because the cluster has something
// else there than the capacity that they were given says. Places of which it is open whether those who
// hold them leave are looked at again.
func (l *Ledger) misplaced() (findings []Finding) {
	if l.live == nil {
		return nil
	}
	for _, j := range l.starting() {
		if j.located || !j.MayPreempt || !l.promised(j) || j.verdict.NotAsPlanned != "" {
			continue
		}
		g := withoutQuota(l.gang(j))
		if planner.Place(l.live.hoped, g) == nil {
			continue // those in its way are evicted, which is said
		}
		g.Planned = j.spots(anyNode)
		why := planner.Plan(l.live.hoped, g).Verdict.NotAsPlanned
		j.located = why != "" || l.decided() || planner.Plan(l.live.now, g).Verdict.NotAsPlanned == ""
		if why != "" {
			findings = append(findings, Finding{
				Kind: Elsewhere, Jobs: []string{j.Gang.ID}, Summary: "Job will not start where it is planned",
				Detail: fmt.Sprintf("Job %s fits, but not where it is planned: %s. The plan places it on what its pools offer as the configuration gives it (pools), and the cluster has something else there. "+
					"Where that comes from the state of another configuration, apply that one again (terraform apply -refresh-only is enough), and then plan this one.", j.Gang.ID, why),
			})
		}
	}
	return findings
}

// untouched reports whether one of these jobs is, as far as is known, of that part of the
// configuration that the walk does not visit.
func (l *Ledger) untouched(jobs []string) bool {
	return l.part && slices.ContainsFunc(jobs, l.live.unvisited)
}

func (l *Ledger) needsOthers(j *job, others []string) *Finding {
	detail := "It starts once this plan has taken %s away."
	if l.untouched(others) {
		detail = "It starts only once %s, of this configuration, no longer runs. This plan is about a part of the configuration (-target), and does not say whether it takes them away."
	}
	return &Finding{
		Kind: NeedsOthers, Jobs: append([]string{j.Gang.ID}, others...), Error: j.RequireImmediate && l.untouched(others), Summary: "Job starts when others have left",
		Detail: fmt.Sprintf("Job %s does not fit beside what runs now. "+detail, j.Gang.ID, join(others)),
	}
}

// waitsForQuota says that what runs now leaves too little of the quota.
func (l *Ledger) waitsForQuota(j *job, g placement.Gang, verdict placement.Verdict, limits *quota.Tree) *Finding {
	full, why := l.full(g), verdict.String()
	if verdict.Fits { // as far as it must; the job queue is stricter
		why = fmt.Sprintf("the job queue needs quota for all members, also those beyond the minimum: %s.", full)
	}
	detail := fmt.Sprintf("Job %s fits on %s, but not into its quota beside what runs now: %s", j.Gang.ID, j.ground(), why)
	if users := l.live.users(limits, full); len(users) > 0 {
		detail += fmt.Sprintf(" It waits until enough of what uses this quota has ended: %s.", join(users))
	}
	if !j.RequireImmediate && !j.Unawaited {
		detail += " With wait_for = \"none\" an apply does not wait for it."
	}
	return &Finding{
		Kind: WaitsForQuota, Jobs: []string{j.Gang.ID}, Error: j.RequireImmediate && !l.treeOpen(),
		Summary: "Job waits for its quota", Detail: detail,
	}
}

// full is the part of the quota tree that has too little left for a gang, and the resource of
// which it has; its leaf and no resource, when that is not plain.
func (l *Ledger) full(g placement.Gang) quota.Exceeded {
	tree := l.live.certain.Quota()
	if exceeded := cmp.Or(tree.FitsJob(g.Leaf), tree.Fits(g.Leaf, g.Charge(), g.Preemptible)); exceeded != nil {
		return *exceeded
	}
	return quota.Exceeded{Path: tree.Path(g.Leaf)}
}

// noFreePlace is the usual occasion of evictions.
const noFreePlace = "has no free place"

// preempts says on what occasion, and whom, the scheduler would evict for a job; beside are
// others that are planned in this walk.
func (l *Ledger) preempts(j *job, occasion string, victims []placement.Victim, beside ...string) *Finding {
	var names []string
	for _, v := range victims {
		names = append(names, l.live.victim(v))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	detail := fmt.Sprintf("Job %s %s, and the scheduler would evict for it: %s.", j.Gang.ID, occasion, join(names))
	if j.AllowPreemption {
		detail += " The job allows it (allow_preemption)."
	} else {
		wait := "let the job wait until they have ended by lowering its priority"
		if leaf := l.gang(j).Leaf; leaf != "" && l.limits() != nil && !slices.ContainsFunc(victims, func(v placement.Victim) bool { return v.Leaf == leaf }) {
			wait = "plan it again once they have ended" // its quota entitles it, whatever its priority
		}
		detail += " Set allow_preemption = true to agree, " + wait + ", or give it more room. " +
			"Consent is about this apply; later the scheduler preempts by PriorityClass and quota, as for any pod, unless the class has preemptionPolicy Never."
	}
	return &Finding{
		Kind: Preempts, Jobs: append([]string{j.Gang.ID}, beside...), Error: !j.AllowPreemption,
		Summary: "Running jobs would be evicted", Detail: detail,
	}
}

// victim describes what a running gang loses.
func (p *picture) victim(v placement.Victim) string {
	text := fmt.Sprintf("priority %d", v.Priority)
	if v.Leaf != "" {
		text += ", quota " + v.Leaf
	}
	if v.Surplus {
		return fmt.Sprintf("%s of %s beyond its minimum (%s)", pods(len(v.Pods)), p.name(v), text)
	}
	return fmt.Sprintf("%s (%s, %s)", p.name(v), pods(len(v.Pods)), text)
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// join lists names as people do.
func join(names []string) string { return strings.Join(names, ", ") }
