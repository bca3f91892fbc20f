package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// meetings compares the places of jobs that have turned out to be able to start with those of
// the others that are, and says which of them may be placed otherwise than planned.
func (l *Ledger) meetings() []Finding {
	var findings []Finding
	starting := l.starting()
	for _, j := range starting {
		if !j.met {
			findings = append(findings, l.meet(j, starting)...)
			j.met = true
		}
	}
	return findings
}

// meet reports jobs that are planned where one is, or may be, both of which fit at once, and
// those that they may displace in turn.
func (l *Ledger) meet(j *job, starting []*job) []Finding {
	var others, beside, moved []*job
	var colliding []collision
	findings := l.elsewhere(j)
	if len(findings) > 0 || j.short() {
		moved = append(moved, j)
	}
	promised := l.promised(j)
	for _, other := range starting {
		if other != j && other.met && !l.apart[pairKey(j, other)] {
			for _, f := range [...]*Finding{l.launchesInto(j, other), l.launchesInto(other, j)} {
				if f != nil {
					findings, moved = append(findings, *f), append(moved, l.jobs[f.Jobs[0]])
				}
			}
		}
		switch {
		case other == j || !other.met || l.apart[pairKey(j, other)]:
		case l.ordered(j, other):
			if promised && l.promised(other) {
				beside = append(beside, other)
			}
		case promised != l.promised(other):
			others = append(others, other)
		case promised:
			if c, ok := collide(j, other); ok {
				colliding, moved = append(colliding, c), append(moved, j, other)
			} else {
				beside = append(beside, other)
			}
		}
	}
	findings = append(findings, collides(j, colliding)...)
	for _, t := range l.throngs(j, beside) {
		findings, moved = append(findings, t.finding()), append(moved, t.jobs...)
	}
	if displaced := l.mayMeet(j, others); len(displaced) > 0 {
		findings, moved = append(findings, displaces(j, displaced, promised)), append(moved, j)
		moved = append(moved, displaced...)
	}
	return append(findings, l.displacedInTurn(j, moved, starting)...)
}

// ordered reports whether one of two jobs comes after the other.
func (l *Ledger) ordered(a, b *job) bool {
	return slices.Contains(l.before(b.Job), a) || slices.Contains(l.before(a.Job), b)
}

// mayMeet are those of others with which a job may meet: its place is known now and theirs
// after apply, or the other way round.
func (l *Ledger) mayMeet(j *job, others []*job) []*job {
	return slices.DeleteFunc(others, func(other *job) bool {
		if l.promised(j) {
			return !meets(other, j)
		}
		return !meets(j, other)
	})
}

// meets reports whether a job whose place is not known may get a node of one that is planned.
func meets(open, planned *job) bool {
	return slices.ContainsFunc(planned.placement.Assignments, func(x placement.Assignment) bool {
		return len(open.Pools) == 0 || slices.ContainsFunc(open.Nodes, func(n placement.Node) bool { return n.Name == x.Node })
	})
}

// displaces says that jobs whose places are known after apply may get those of others that
// are planned: the job is of one kind, the others of the other.
func displaces(j *job, others []*job, promised bool) Finding {
	names := idsOf(others)
	open, planned := j.Gang.ID, join(names)
	if promised {
		open, planned = planned, open
	}
	return Finding{
		Kind:    SameGPUs,
		Jobs:    append([]string{j.Gang.ID}, names...),
		key:     "places " + j.Gang.ID + " " + join(names),
		Summary: "A job may be placed where another is planned",
		Detail: fmt.Sprintf("Where %s will run is known after apply, and nothing says that it is placed after %s, which may then get another place than the plan shows. "+
			"Name what is planned in the after of what is not, as in after = [gpuplan_training_job.planned.placed]; jobs of one for_each or count cannot do that, so make two resources of them.",
			open, planned),
	}
}

// displacedInTurn reports the jobs whose planned places those may take that do not get their
// own, and whose places they may take then. It is told of a job that was not compared before,
// and of those that may turn out to move, because of it.
func (l *Ledger) displacedInTurn(j *job, moved, starting []*job) []Finding {
	var findings []Finding
	var queue []*job
	move := func(m *job) {
		if !m.moves && l.promised(m) {
			m.moves = true
			queue = append(queue, m)
		}
	}
	for _, m := range slices.SortedFunc(slices.Values(moved), func(a, b *job) int { return cmp.Compare(a.Gang.ID, b.Gang.ID) }) {
		move(m)
	}
	displace := func(by, other *job) {
		if by == other || other.moves || l.apart[pairKey(by, other)] || !l.promised(other) || !by.mayTake(other) || slices.Contains(l.before(by.Job), other) {
			return
		}
		move(other)
		findings = append(findings, displacesInTurn(by, other, slices.Contains(l.before(other.Job), by)))
	}
	for _, by := range starting {
		if by.met && by.moves {
			displace(by, j)
		}
	}
	for len(queue) > 0 {
		by := queue[0]
		queue = queue[1:]
		for _, other := range starting {
			if other.met || other == j {
				displace(by, other)
			}
		}
	}
	return findings
}

// mayTake reports whether there is room for a pod of the job on a node where the other one is
// planned, as long as that is not there. A member without a planned place may also come
// when who held the node has left, as the other one does.
func (j *job) mayTake(other *job) bool {
	return slices.ContainsFunc(other.placement.Assignments, func(x placement.Assignment) bool {
		return j.reach(x.Node) || j.short() && j.hasRoom(other.capacityOn(map[string]bool{x.Node: true}))
	})
}

// reach reports whether there is room for a pod of the job on a node.
func (j *job) reach(name string) bool {
	room, known := j.reaches[name]
	if known {
		return room
	}
	j.reaches[name] = j.hasRoom(j.capacityOn(map[string]bool{name: true}))
	return j.reaches[name]
}

// hasRoom reports whether a view has room for a pod of the job.
func (j *job) hasRoom(view *snapshot.View) bool {
	one := withoutQuota(j.admitted())
	one.Minimum, one.Subgroups, one.Planned = 0, nil, nil
	return slices.ContainsFunc(j.admitted().Roles, func(role placement.Role) bool {
		if role.Late || len(role.Members) == 0 {
			return false
		}
		role.Members = role.Members[:1]
		one.Roles = []placement.Role{role}
		return planner.Place(view, one) != nil
	})
}

// short reports whether a job has members without a planned place, which start wherever there is room
// by then: also where others leave and the job that is planned there has not come yet.
func (j *job) short() bool {
	return j.placement != nil && len(j.placement.Assignments)+len(j.Gang.Running) < members(j.Gang)
}

// displacesInTurn says that a job which may not get its own place, or has none for some of its members, may take another's. One that
// follows the job cannot come before it as well.
func displacesInTurn(by, other *job, follows bool) Finding {
	why, advice := "may be placed otherwise than planned, as another warning says", "Give the jobs that the other warning names an order"
	if by.short() {
		why, advice = "has members without a planned place, which start where there is room", "Leave out members that have no room"
	}
	order := other.Gang.ID + " comes after it"
	if !follows {
		order = "nothing says that it is placed after " + other.Gang.ID
		advice += fmt.Sprintf(", or name %s in the after of %s, as in after = [gpuplan_training_job.first.placed]", other.Gang.ID, by.Gang.ID)
	}
	return Finding{
		Kind:    SameGPUs,
		Jobs:    []string{other.Gang.ID, by.Gang.ID},
		key:     "displaced in turn " + other.Gang.ID,
		Summary: "A job may be placed where another is planned",
		Detail: fmt.Sprintf("Job %s %s, and %s: it may take the place of that one, which then gets another than the plan shows, or waits. %s.",
			by.Gang.ID, why, order, advice),
	}
}
