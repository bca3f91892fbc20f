package ledger

import (
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// startsWhole reports whether there is room for a gang, and beside it for what starts once it runs.
func startsWhole(view *snapshot.View, g placement.Gang) bool {
	placed := planner.Place(view, g)
	return placed != nil && late(view, g, *placed) == nil
}

// late says why what starts once a gang runs where it is placed has no room beside it, nil when
// it has.
func late(view *snapshot.View, g placement.Gang, placed placement.Placement) *placement.Verdict {
	_, undo, why := planner.Start(view, g, placed)
	if why == nil {
		undo()
	}
	return why
}

// lateMisfit says that a job fits and what starts once it runs does not, nil when that is not so.
func (l *Ledger) lateMisfit(j *job, g placement.Gang) *Finding {
	placed := planner.Place(l.live.hoped, g)
	if placed == nil {
		return nil
	}
	return launcherMisfit(j, late(l.live.hoped, g, *placed))
}

// lateAfter is late for a gang that has its place once others have left.
func lateAfter(view *snapshot.View, g placement.Gang, found placement.Result) *placement.Verdict {
	if found.Placement == nil || len(g.Late(found.Placement.Assignments).Roles) == 0 {
		return nil
	}
	return late(preemption.Afterwards(view, found), g, *found.Placement)
}

// launcherMisfit says why what starts once a job runs has no room, nil when it has.
func launcherMisfit(j *job, why *placement.Verdict) *Finding {
	if why == nil {
		return nil
	}
	return &Finding{
		Kind: LateMisfit, Jobs: []string{j.Gang.ID}, Error: true, Summary: "Launcher does not fit",
		Detail: fmt.Sprintf("The members of job %s fit, but what starts once they run does not fit beside them, on any node that exists or is planned for the job: %s "+
			"It would wait, or kube-scheduler would evict pods of lower priority for it.", j.Gang.ID, why),
	}
}

// launcher is what starts once a job's members run: one member of each such role, on its own. No plan says where it runs:
// kube-scheduler chooses.
type launcher struct {
	gang placement.Gang // without roles for none
	key  string         // alike for those that any node takes alike
}

func launcherOf(g placement.Gang) launcher {
	late := withoutQuota(g.Late(nil))
	late.Roles = slices.DeleteFunc(late.Roles, func(r placement.Role) bool { return len(r.Members) == 0 })
	if len(late.Roles) == 0 {
		return launcher{}
	}
	late.ID, late.Preemptible, late.Priority = "", false, 0
	for i := range late.Roles {
		role := &late.Roles[i]
		role.Members, role.NodeLimits = []string{fmt.Sprint(i)}, nil // a name of its own would make each another
	}
	return launcher{gang: late, key: fmt.Sprintf("%+v", late)}
}

// launchesInto says that a job may not get its planned place since the launcher of another one may be there first, or may have
// none where its place is known after apply; nil where there is room for both or the launcher cannot be there.
func (l *Ledger) launchesInto(by, planned *job) *Finding {
	if len(by.launcher.gang.Roles) == 0 || planned.placement == nil || slices.Contains(l.before(by.Job), planned) {
		return nil
	}
	yields, known := planned.yields[by.launcher.key]
	if !known {
		yields = planned.yieldsTo(by.launcher)
		planned.yields[by.launcher.key] = yields
	}
	yields = yields || planned.yieldsBeside(by)
	promised := l.promised(planned)
	if !yields || !promised && !l.waitsFor(planned, by.launcher) {
		return nil
	}
	where := fmt.Sprintf("That may be a node on which job %s is planned, which then has too little left: the job gets another place than the plan shows, or waits.", planned.Gang.ID)
	if !promised {
		where = fmt.Sprintf("Where job %s will run is known after apply. Where that comes first, the nodes of the job can have too little left, and it waits.", planned.Gang.ID)
	}
	order := fmt.Sprintf("Name %s in the after of %s, as in after = [gpuplan_training_job.planned.placed]", planned.Gang.ID, by.Gang.ID)
	if slices.Contains(l.before(planned.Job), by) {
		order = fmt.Sprintf("Job %[1]s comes after %[2]s: turn the order round, so that %[2]s names %[1]s in its after", planned.Gang.ID, by.Gang.ID)
	}
	return &Finding{
		Kind: SameGPUs, Jobs: []string{planned.Gang.ID, by.Gang.ID}, key: "launcher " + pairKey(by, planned),
		Summary: "A launcher may run where a job is planned",
		Detail: fmt.Sprintf("%s of job %s starts once its members run, wherever kube-scheduler finds room. %s %s, or let it ask for less, or keep it from these nodes.",
			by.launcher.called(), by.Gang.ID, where, order),
	}
}

// called names the roles of a launcher at the beginning of a sentence.
func (of launcher) called() string {
	var names []string
	for _, role := range of.gang.Roles {
		names = append(names, role.Name)
	}
	if len(names) == 1 {
		return "The role " + names[0]
	}
	return "Each of the roles " + join(names)
}

// waitsFor reports whether a job has no place where a launcher is on a node of the place that it has beside those before it.
func (l *Ledger) waitsFor(j *job, other launcher) bool {
	for node := range j.plannedOn() {
		view := viewOf(j.Nodes, j.Occupants)
		for _, before := range l.before(j.Job) {
			if before.placement != nil {
				view.Apply(before.Gang, *before.placement)
			}
		}
		there := other.gang
		there.ExcludeNodes = map[string]bool{}
		for _, n := range j.Nodes {
			there.ExcludeNodes[n.Name] = n.Name != node
		}
		placed := planner.Place(view, there)
		if placed == nil {
			continue
		}
		view.Apply(there, *placed)
		if planner.Place(view, withoutQuota(j.admitted())) == nil {
			return true
		}
	}
	return false
}

// yieldsTo reports whether a launcher may be on a node where the job is planned, and then takes what the job needs there.
func (j *job) yieldsTo(other launcher) bool {
	on := j.plannedOn()
	return slices.ContainsFunc(j.Nodes, func(node placement.Node) bool {
		there := map[string]bool{node.Name: true}
		return on[node.Name] && planner.Place(viewOf([]placement.Node{node}, nil), other.gang) != nil && j.leavesNone(j.capacityOn(there), there, other)
	})
}

// yieldsBeside is yieldsTo where both jobs are planned: the members of the launcher's are there before it.
func (j *job) yieldsBeside(by *job) bool {
	if by.placement == nil {
		return false
	}
	on := by.plannedOn()
	for node := range j.plannedOn() {
		there := map[string]bool{node: true}
		if !on[node] {
			continue
		}
		view := j.capacityBeside(by, there)
		if planner.Place(view, by.launcher.gang) != nil && j.leavesNone(view, there, by.launcher) {
			return true
		}
	}
	return false
}

// leavesNone reports whether a launcher has no room on some nodes once the job is there as it is planned.
func (j *job) leavesNone(view *snapshot.View, nodes map[string]bool, other launcher) bool {
	j.put(view, nodes)
	return planner.Place(view, other.gang) == nil
}

// plannedOn are the nodes on which members of the job are planned.
func (j *job) plannedOn() map[string]bool {
	on := map[string]bool{}
	for _, a := range j.placement.Assignments {
		on[a.Node] = true
	}
	return on
}
