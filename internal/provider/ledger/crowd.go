package ledger

import (
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// crowd is a course of jobs that fit together only without jobs of this configuration, open, that no visit has decided about.
type crowd struct {
	course
	jobs []*job
	open []string
}

// packed is a view with jobs in their places.
type packed struct {
	view *snapshot.View
	jobs map[*job]bool
}

// crowds are the groups of jobs that start by themselves also if the open jobs stay, and then not together.
func (l *Ledger) crowds() (crowds []crowd) {
	if l.live == nil || l.decided() || l.allBeside() {
		return nil
	}
	for _, group := range groups(l.besideOpen()) {
		_, gangs := l.ground(group)
		c := l.placeOn(l.live.certain, group, gangs)
		if c.waiting == nil || l.place(group).waiting != nil {
			continue // the latter was said
		}
		fits := func(view *snapshot.View) bool { return l.placeOn(view, group, gangs).waiting == nil }
		open := slices.DeleteFunc(l.live.needs(nil, fits), func(other string) bool { return !l.live.unvisited(other) })
		if len(open) > 0 {
			crowds = append(crowds, crowd{c, group, open})
		}
	}
	return crowds
}

// besideOpen are the jobs that start by themselves beside all that may stay, and for which nobody is evicted.
func (l *Ledger) besideOpen() []*job {
	return slices.DeleteFunc(l.starting(), func(j *job) bool { return j.needs || len(j.evicts) > 0 })
}

// allBeside reports whether all those jobs are known to have room together. It remembers them in their places, so that one
// more costs one placement.
func (l *Ledger) allBeside() bool {
	jobs := l.besideOpen()
	for range 2 {
		b := l.live.packed
		if b == nil {
			b = &packed{view: l.live.certain.Clone(), jobs: map[*job]bool{}}
			l.live.packed = b
		}
		if !slices.ContainsFunc(jobs, func(j *job) bool { return !b.jobs[j] && !b.add(j, l.gang(j)) }) {
			return true
		}
		l.live.packed = nil // it may be of before others left
	}
	return false
}

// add gives a job its place, if there is one.
func (b *packed) add(j *job, g placement.Gang) bool {
	placed := planner.Place(b.view, g)
	if placed != nil {
		b.view.Apply(g, *placed)
		b.jobs[j] = true
	}
	return placed != nil
}

// sayCrowds says which jobs fit together only if others leave.
func (l *Ledger) sayCrowds(visited string) (findings []Finding) {
	for _, c := range l.crowds() {
		ids := append([]string{c.waiting.Gang.ID}, idsOf(l.inItsWay(c.course, c.jobs))...)
		f, report := l.graded(Finding{
			Kind: Waits, Jobs: ids, key: "crowd " + ids[0], Summary: "Jobs fit together only if others leave",
			Detail: fmt.Sprintf("Job %s does not fit at the same time as %s beside what runs now: all of them start once %s, of this configuration, no longer runs, "+notCome,
				ids[0], join(ids[1:]), join(c.open)),
		})
		if !report || l.reported[f.id()] {
			continue
		}
		l.reported[f.id()] = true
		findings = append(findings, l.shown(f, l.jobs[visited]))
	}
	return findings
}
