package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// collision is a job whose place another one cannot have as well: where both are planned, if on whole GPUs on which.
type collision struct {
	with  *job
	where []string
	gpus  bool
}

// collide reports that two jobs cannot both be where they are planned.
func collide(j, other *job) (c collision, ok bool) {
	where, gpus := common(j, other)
	return collision{other, where, gpus}, len(where) > 0 && (gpus || !beside(j, other))
}

// collides says with which others a job cannot be where it is planned: of a few with each, of many at once.
func collides(j *job, with []collision) (findings []Finding) {
	if len(with) > mostRivals {
		return []Finding{collidesWithMany(j, with)}
	}
	for _, c := range with {
		findings = append(findings, c.finding(j))
	}
	return findings
}

func (c collision) finding(j *job) Finding {
	summary, other := "Two jobs are planned on the same GPUs", "other GPUs"
	if !c.gpus {
		summary, other = "Two jobs are planned on the same nodes", "another place"
	}
	when := "at once"
	if j.needs || c.with.needs {
		when = "once others have left"
	}
	first, second := min(j.Gang.ID, c.with.Gang.ID), max(j.Gang.ID, c.with.Gang.ID)
	return Finding{
		Kind:    SameGPUs,
		Jobs:    []string{first, second},
		key:     "GPUs " + pairKey(j, c.with),
		Summary: summary,
		Detail: fmt.Sprintf("Jobs %s and %s are each planned on %s. Both fit %s, but nothing says which of them is placed first, "+
			"so one will get %s than the plan shows. Name the first in the second's after, as in after = [gpuplan_training_job.first.placed], to plan them around each other; jobs of one for_each or count cannot do that, so make two resources of them.",
			first, second, join(c.where), when, other),
	}
}

func collidesWithMany(j *job, with []collision) Finding {
	ids := []string{j.Gang.ID}
	for _, c := range with {
		ids = append(ids, c.with.Gang.ID)
	}
	return Finding{
		Kind:    SameGPUs,
		Jobs:    ids,
		key:     "GPUs " + join(ids),
		Summary: "A job is planned where many others are",
		Detail: fmt.Sprintf("Job %s is planned where %d others are planned, and cannot be there beside any of them: %s and %d more. Nothing says which of them is placed first, "+
			"so that each may get another place than the plan shows. Jobs that name others in their after, as in after = [gpuplan_training_job.first.placed], are planned around those; jobs of one for_each or count cannot do that, so make a resource of each.",
			j.Gang.ID, len(with), join(ids[1:mostRivals]), len(ids)-mostRivals),
	}
}

// common says on which nodes two jobs are planned, if on whole GPUs on which; GPUs means that
// they are.
func common(a, b *job) (where []string, gpus bool) {
	taken := map[string]gpu.Set{}
	for _, x := range a.placement.Assignments {
		taken[x.Node] |= x.Own
	}
	both := map[string]gpu.Set{}
	for _, x := range b.placement.Assignments {
		if set, ok := taken[x.Node]; ok {
			both[x.Node] |= set & x.Own
		}
	}
	for _, set := range both {
		gpus = gpus || set != 0
	}
	for _, node := range slices.Sorted(maps.Keys(both)) {
		switch set := both[node]; {
		case set != 0:
			where = append(where, fmt.Sprintf("%s GPU %s", node, set))
		case !gpus:
			where = append(where, node)
		}
	}
	return where, gpus
}

// beside reports whether two jobs have room beside each other on the nodes where they meet, each as it is planned.
func beside(a, b *job) bool {
	common := map[string]bool{}
	for _, x := range a.placement.Assignments {
		common[x.Node] = slices.ContainsFunc(b.placement.Assignments, func(y placement.Assignment) bool { return x.Node == y.Node })
	}
	return b.hasPlace(b.capacityBeside(a, common), common)
}

// capacityBeside is what a job was given of some nodes once another one is there as it is planned.
func (j *job) capacityBeside(other *job, nodes map[string]bool) *snapshot.View {
	view := j.capacityWithout([]*job{other}, nodes)
	other.put(view, nodes)
	return view
}

// capacityWithout is what a job was given of some nodes, without what others leave there.
func (j *job) capacityWithout(others []*job, nodes map[string]bool) *snapshot.View {
	view := j.capacityOn(nodes)
	for _, other := range others {
		j.leave(view, other)
	}
	return view
}

// put gives a job its planned place on some nodes.
func (j *job) put(view *snapshot.View, nodes map[string]bool) {
	view.Apply(onNodes(j, nodes), j.placementOn(nodes))
}

// hasPlace reports whether a job has room for its planned place on some nodes.
func (j *job) hasPlace(view *snapshot.View, nodes map[string]bool) bool {
	return planner.Plan(view, onNodes(j, nodes)).Verdict.NotAsPlanned == ""
}

// leave takes what another job holds away from a view: what that one was not given as taken is its own, and leaves, unless it is of
// one before it.
func (j *job) leave(view *snapshot.View, other *job) {
	for _, p := range j.Occupants {
		if _, there := view.Pod(p.ID); there && len(other.After) == 0 && !slices.ContainsFunc(other.Occupants, func(o placement.Pod) bool { return o.ID == p.ID }) {
			view.RemovePod(p.ID)
		}
	}
}

// placementOn is the part of a job's placement on some nodes.
func (j *job) placementOn(nodes map[string]bool) placement.Placement {
	return placement.Placement{Assignments: slices.DeleteFunc(slices.Clone(j.placement.Assignments), func(a placement.Assignment) bool { return !nodes[a.Node] })}
}

// capacityOn is what a job was given of some nodes.
func (j *job) capacityOn(nodes map[string]bool) *snapshot.View {
	return viewOf(
		slices.DeleteFunc(slices.Clone(j.Nodes), func(n placement.Node) bool { return !nodes[n.Name] }),
		slices.DeleteFunc(slices.Clone(j.Occupants), func(p placement.Pod) bool { return !nodes[p.Node] }))
}

// onNodes is the part of a job's gang that is planned on some nodes, to be placed there.
func onNodes(j *job, nodes map[string]bool) placement.Gang {
	g := withoutQuota(j.admitted())
	g.Minimum, g.Subgroups, g.Planned = 0, nil, j.spots(func(node string) bool { return nodes[node] })
	there := map[string]bool{}
	for _, p := range g.Planned {
		there[p.Member] = true
	}
	g.Roles = slices.Clone(g.Roles)
	for i := range g.Roles {
		g.Roles[i].Members = slices.DeleteFunc(slices.Clone(g.Roles[i].Members), func(name string) bool { return !there[name] })
	}
	g.Roles = slices.DeleteFunc(g.Roles, func(r placement.Role) bool { return len(r.Members) == 0 })
	return g
}

func anyNode(string) bool { return true }

// spots are the places of a job on the nodes for which on is true, in the order of its members.
func (j *job) spots(on func(node string) bool) (all []placement.Planned) {
	tables := map[string]*gpu.Table{}
	for _, n := range j.Nodes {
		tables[n.Name] = n.GPUs
	}
	for _, x := range j.placement.Assignments {
		if !on(x.Node) {
			continue
		}
		set := x.Own
		for _, share := range x.Shares {
			set |= gpu.SetOf(share.GPU)
		}
		planned := placement.Planned{Member: x.Member, Node: x.Node}
		for _, at := range set.GPUs() {
			planned.GPUs = append(planned.GPUs, tables[x.Node].Machine().GPUs[at].Index)
		}
		all = append(all, planned)
	}
	slices.SortFunc(all, func(a, b placement.Planned) int { return cmp.Compare(a.Member, b.Member) })
	return all
}
