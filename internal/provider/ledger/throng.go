package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// mostTogether is of how many jobs on one node all sets are tried.
const mostTogether = 6

// throng is three jobs or more that are planned on the same nodes, where any two of them have room, and not all of them.
type throng struct {
	jobs  []*job // by name
	nodes []string
}

// throngs are those that a job makes which is compared with others for the first time. Beside each of these, all of which are
// planned, it has room.
func (l *Ledger) throngs(j *job, others []*job) (all []throng) {
	if len(others) < 2 {
		return nil
	}
	there, on := map[string][]*job{}, j.plannedOn()
	for _, other := range others {
		for node := range other.plannedOn() {
			if on[node] {
				there[node] = append(there[node], other)
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(there)) {
		jobs := l.throngOn(map[string]bool{node: true}, j, there[node])
		if len(jobs) == 0 {
			continue
		}
		if at := slices.IndexFunc(all, func(t throng) bool { return slices.Equal(t.jobs, jobs) }); at >= 0 {
			all[at].nodes = append(all[at].nodes, node)
		} else {
			all = append(all, throng{jobs, []string{node}})
		}
	}
	return all
}

// throngOn are the jobs that are in each other's way on a node, none when a job has room there beside all the others.
func (l *Ledger) throngOn(node map[string]bool, j *job, others []*job) []*job {
	if len(others) < 2 {
		return nil
	}
	group := append(slices.Clone(others), j)
	slices.SortFunc(group, func(a, b *job) int { return cmp.Compare(a.Gang.ID, b.Gang.ID) })
	launches := slices.ContainsFunc(group, func(k *job) bool { return len(k.launcher.gang.Roles) > 0 })
	switch all := j.capacityAfter(group, node); {
	case all != nil && (!launches || len(group) > mostTogether):
		return nil
	case len(group) > mostTogether:
		return j.blockedBy(without(group, j), node)
	}
	in := map[*job]bool{}
	for _, last := range group {
		var blocking [][]*job
		for _, first := range setsOf(without(group, last)) {
			known := slices.ContainsFunc(blocking, func(some []*job) bool { return includes(first, some) })
			if known || slices.ContainsFunc(first, func(k *job) bool { return slices.Contains(l.before(k.Job), last) }) || last.fitsAfter(first, node) {
				continue
			}
			blocking = append(blocking, first)
			if len(first) > 1 && (last == j || slices.Contains(first, j)) { // of two it was said
				for _, k := range append(first, last) {
					in[k] = true
				}
			}
		}
	}
	return slices.DeleteFunc(group, func(k *job) bool { return !in[k] })
}

// fitsAfter reports whether a job has its planned place on a node after others, each as it is planned and with what starts once it
// runs, or these have not all room there themselves.
func (j *job) fitsAfter(others []*job, node map[string]bool) bool {
	view := j.capacityAfter(others, node)
	if view == nil {
		return true
	}
	for _, other := range others {
		if placed := planner.Place(view, other.launcher.gang); len(other.launcher.gang.Roles) > 0 && placed != nil {
			view.Apply(launched(other), *placed)
		}
	}
	return j.hasPlace(view, node)
}

// blockedBy are a job and those of many others that have room on a node one after the other until it has none: all of them when it
// is never so.
func (j *job) blockedBy(others []*job, node map[string]bool) []*job {
	view := j.capacityWithout(others, node)
	var first []*job
	for _, other := range others {
		if other.takes(view, node) {
			first = append(first, other)
		}
		if !j.hasPlace(view, node) {
			return append(first, j)
		}
	}
	return append(slices.Clone(others), j)
}

// capacityAfter is what a job was given of a node once others are there as they are planned, nil where one of them has no room.
func (j *job) capacityAfter(others []*job, node map[string]bool) *snapshot.View {
	view := j.capacityWithout(others, node)
	if slices.ContainsFunc(others, func(other *job) bool { return !other.takes(view, node) }) {
		return nil
	}
	return view
}

// takes puts a job in its planned place on a node, and reports whether it has room for that.
func (j *job) takes(view *snapshot.View, node map[string]bool) bool {
	if !j.hasPlace(view, node) {
		return false
	}
	j.put(view, node)
	return true
}

// launched is a job's launcher under its name.
func launched(j *job) placement.Gang {
	g := j.launcher.gang
	g.ID = j.Gang.ID + " launcher"
	return g
}

// without are jobs without one of them.
func without(jobs []*job, one *job) []*job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j == one })
}

// setsOf are the sets of jobs, small ones first.
func setsOf(jobs []*job) (sets [][]*job) {
	for set := 1; set < 1<<len(jobs); set++ {
		var some []*job
		for i, j := range jobs {
			if set&(1<<i) != 0 {
				some = append(some, j)
			}
		}
		sets = append(sets, some)
	}
	slices.SortStableFunc(sets, func(a, b []*job) int { return len(a) - len(b) })
	return sets
}

// includes reports whether all of some jobs are among others.
func includes(all, some []*job) bool {
	return !slices.ContainsFunc(some, func(j *job) bool { return !slices.Contains(all, j) })
}

// finding says that one of the jobs gets another place than it is planned.
func (t throng) finding() Finding {
	names := idsOf(t.jobs)
	return Finding{
		Kind: SameGPUs, Jobs: names, key: "nodes " + join(names), Summary: "Several jobs are planned on the same nodes",
		Detail: fmt.Sprintf("Jobs %s are each planned on %s. Two of them have room there, but not all at once, or not beside what starts once their members run, and nothing says which is placed first, "+
			"so one will get another place than the plan shows. Name the first in the after of the others, as in after = [gpuplan_training_job.first.placed], to plan them around each other; jobs of one for_each or count cannot do that, so make a resource of each.",
			join(names), join(t.nodes)),
	}
}
