package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// check looks at everything recorded so far and returns what was not reported yet.
// changed is the job that was just recorded, nil when something else was.
func (l *Ledger) check(changed *job) []Finding {
	found := slices.Concat(l.deletedPools(), l.missingLeaves(), l.pairs(changed), l.all())
	return slices.DeleteFunc(found, func(f Finding) bool {
		old := l.reported[f.key]
		l.reported[f.key] = true
		return old
	})
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

// pairs compares jobs that fit alone, two by two: those of the changed job, or all.
// What it finds depends on the two jobs alone, and so not on the order of visits.
func (l *Ledger) pairs(changed *job) []Finding {
	var findings []Finding
	jobs := l.fitting()
	for i, a := range jobs {
		for _, b := range jobs[i+1:] {
			if changed != nil && changed != a && changed != b || !rivals(a, b) {
				continue
			}
			if waiting, verdict := l.place([]*job{a, b}); waiting != nil {
				l.apart[pairKey(a, b)] = true
				findings = append(findings, waits(waiting, []*job{a, b}, verdict, pairKey(a, b)))
			} else if f, ok := l.sameCards(a, b); ok {
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// all places all jobs at once, apart from those that a pair has shown to wait.
func (l *Ledger) all() []Finding {
	var jobs []*job
	for _, j := range l.fitting() {
		blocked := slices.ContainsFunc(jobs, func(other *job) bool { return l.apart[pairKey(other, j)] })
		if !blocked {
			jobs = append(jobs, j)
		}
	}
	waiting, verdict := l.place(jobs)
	if waiting == nil {
		return nil
	}
	contenders := slices.DeleteFunc(jobs, func(j *job) bool { return j != waiting && !rivals(j, waiting) })
	f := waits(waiting, contenders, verdict, "")
	f.key = fmt.Sprintf("all %t", f.Error) // once, and once more when it becomes an error
	return []Finding{f}
}

// fitting returns the jobs that fit alone, in the order in which they are placed.
func (l *Ledger) fitting() []*job {
	return slices.DeleteFunc(l.inOrder(), func(j *job) bool { return j.placement == nil })
}

// place places jobs in order on everything that any of them was given, and returns the
// first that has to wait, nil for none.
func (l *Ledger) place(jobs []*job) (waiting *job, verdict placement.Verdict) {
	nodes, occupants := union(jobs)
	view := viewOf(nodes, occupants)
	view.SetQuota(l.tree)
	for _, j := range jobs {
		gang := onOwnNodes(j, nodes)
		if l.tree == nil || !l.tree.HasLeaf(gang.Leaf) {
			gang = withoutQuota(gang)
		}
		result := view.Plan(gang)
		if result.Placement == nil {
			return j, result.Verdict
		}
		view.Apply(gang, *result.Placement)
	}
	return nil, placement.Verdict{}
}

// sameCards reports that two jobs without an order were planned on the same cards.
func (l *Ledger) sameCards(a, b *job) (Finding, bool) {
	if slices.Contains(l.before(b.Job), a) || slices.Contains(l.before(a.Job), b) {
		return Finding{}, false
	}
	taken := map[string]gpu.Set{}
	for _, x := range a.placement.Assignments {
		taken[x.Node] |= x.Own
	}
	common := map[string]gpu.Set{}
	for _, x := range b.placement.Assignments {
		if both := taken[x.Node] & x.Own; both != 0 {
			common[x.Node] |= both
		}
	}
	if len(common) == 0 {
		return Finding{}, false
	}
	var where []string
	for _, node := range slices.Sorted(maps.Keys(common)) {
		where = append(where, fmt.Sprintf("%s cards %s", node, common[node]))
	}
	first, second := min(a.Gang.ID, b.Gang.ID), max(a.Gang.ID, b.Gang.ID)
	return Finding{
		Kind:    SameCards,
		Jobs:    []string{first, second},
		key:     "cards " + pairKey(a, b),
		Summary: "Two jobs are planned on the same cards",
		Detail: fmt.Sprintf("Jobs %s and %s are each planned on %s. Both fit at once, but nothing says which of them is placed first, "+
			"so one will get other cards than the plan shows. Name the first in the second's after, as in after = [gpuplan_training_job.first.placed], to plan them around each other.",
			first, second, strings.Join(where, ", ")),
	}, true
}

// waits says that a job has to wait for others of the contenders.
func waits(waiting *job, contenders []*job, verdict placement.Verdict, key string) Finding {
	ids := []string{waiting.Gang.ID}
	immediate := false
	for _, j := range contenders {
		if j != waiting {
			ids = append(ids, j.Gang.ID)
		}
		immediate = immediate || j.RequireImmediate
	}
	return Finding{
		Kind:    Waits,
		Jobs:    ids,
		Error:   immediate,
		Summary: "Jobs fit alone, but not together",
		Detail: fmt.Sprintf("Job %s fits on its own, but not at the same time as %s: one of them will wait until the others finish. "+
			"With the others placed, this is left for %s: %s", ids[0], strings.Join(ids[1:], ", "), ids[0], verdict),
		key: key,
	}
}

func (l *Ledger) missingLeaves() []Finding {
	if l.tree == nil {
		return nil
	}
	var findings []Finding
	for _, j := range l.inOrder() {
		if j.Gang.Leaf == "" || l.tree.HasLeaf(j.Gang.Leaf) {
			continue
		}
		findings = append(findings, Finding{
			Kind:    NoSuchLeaf,
			key:     "leaf " + j.Gang.ID,
			Jobs:    []string{j.Gang.ID},
			Error:   true,
			Summary: "No such quota leaf",
			Detail: fmt.Sprintf("Job %s is charged to the quota leaf %q, which the planned quota tree does not have; its leaves are %s.",
				j.Gang.ID, j.Gang.Leaf, strings.Join(l.tree.Leaves(), ", ")),
		})
	}
	return findings
}

func (l *Ledger) deletedPools() []Finding {
	var findings []Finding
	for _, pool := range slices.Sorted(maps.Keys(l.deleted)) {
		for _, gang := range l.deleted[pool] {
			if !l.kept[gang] {
				continue
			}
			findings = append(findings, Finding{
				Kind:    PoolDeleted,
				key:     "pool " + gang,
				Jobs:    []string{gang},
				Error:   true,
				Summary: "A running job would lose its nodes",
				Detail: fmt.Sprintf("Job %s runs on node pool %s, which this plan deletes while the job stays. "+
					"Remove the job as well, wait until it has finished, or set allow_disruption = true on the pool and apply that before deleting it.", gang, pool),
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
func onOwnNodes(j *job, all []placement.Node) placement.Gang {
	own := map[string]bool{}
	for _, n := range j.Nodes {
		own[n.Name] = true
	}
	gang := j.Gang
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
// waits, never which cards a plan names.
func withoutQuota(g placement.Gang) placement.Gang {
	g.Leaf = ""
	return g
}

// rivals reports whether two jobs can be in each other's way.
func rivals(a, b *job) bool {
	return a.Gang.Leaf != "" && b.Gang.Leaf != "" || slices.ContainsFunc(a.Nodes, func(n placement.Node) bool {
		return slices.ContainsFunc(b.Nodes, func(m placement.Node) bool { return m.Name == n.Name })
	})
}

func pairKey(a, b *job) string {
	return min(a.Gang.ID, b.Gang.ID) + " " + max(a.Gang.ID, b.Gang.ID)
}
