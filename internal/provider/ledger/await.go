package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Await waits, for a job that was just planned, while jobs fit only without others of this configuration that no visit has
// decided about: as long as visits come, and for patience after the last one. What is open then it says, because a job that
// is in no state is never visited. The walk of an apply visits only what changes, and says nothing of that. The same is said
// of jobs that fit together only without such ones.
//
// One caller at a time waits so, for all that were planned. Others wait for their own job only, to say what later visits
// show of it, and a quarter of patience: Terraform has few visits under way, which none of them may hold up.
func (l *Ledger) Await(ctx context.Context, id string, patience time.Duration) (findings []Finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil || l.applying || l.part || l.mayApply || l.jobs[id] == nil {
		return nil
	}
	l.waiters[id] = nil
	defer func() {
		findings = append(l.waiters[id], findings...)
		delete(l.waiters, id)
	}()
	if l.awaiting {
		for j := l.jobs[id]; !l.hurried && l.awaits(j); {
			l.hurried = !l.visitedWithin(ctx, patience/4)
		}
		return nil
	}
	l.awaiting = true
	defer func() { l.awaiting = false }()
	var crowds []crowd
	crowded := func() bool {
		open := func(c crowd) bool { return slices.ContainsFunc(c.open, l.live.unvisited) }
		if !slices.ContainsFunc(crowds, open) {
			crowds = l.crowds()
		}
		return len(crowds) > 0
	}
	for !l.missed && (l.awaits(l.jobs[id]) || l.othersAwait(id) || crowded()) {
		l.missed = !l.visitedWithin(ctx, patience)
	}
	return append(l.sayOpen(id), l.sayCrowds(id)...)
}

// awaits reports whether a job fits only without jobs which no visit has decided about, and may yet. To find out which takes
// long, so that it is asked again when all of them were visited.
func (l *Ledger) awaits(j *job) bool {
	if l.missed || !j.needs {
		return false
	}
	if !slices.ContainsFunc(j.awaited, l.live.unvisited) {
		j.awaited = l.openFor(j)
	}
	return slices.ContainsFunc(j.awaited, l.live.unvisited)
}

// waiterFor returns the job that a finding is about and whose visit waits for it, "" when there is none.
func (l *Ledger) waiterFor(f Finding, visited *job) string {
	if visited != nil && slices.Contains(f.Jobs, visited.Gang.ID) {
		return ""
	}
	at := slices.IndexFunc(f.Jobs, func(id string) bool {
		_, waits := l.waiters[id]
		return waits
	})
	if at < 0 {
		return ""
	}
	return f.Jobs[at]
}

// visitedWithin waits for the next visit, without the lock.
func (l *Ledger) visitedWithin(ctx context.Context, patience time.Duration) bool {
	if l.next == nil {
		l.next = make(chan struct{})
	}
	next := l.next
	l.mu.Unlock()
	defer l.mu.Lock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-next:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// visit ends the wait for the next one.
func (l *Ledger) visit() {
	if l.next != nil {
		close(l.next)
		l.next = nil
	}
}

// othersAwait reports whether other jobs than one may await visits: to find out which takes long, and another visit is no matter.
func (l *Ledger) othersAwait(id string) bool {
	for other, j := range l.jobs {
		if j.needs && other != id {
			return !l.decided()
		}
	}
	return false
}

// openFor are the jobs without which one that needs others to leave fits, and that no visit has decided about.
func (l *Ledger) openFor(j *job) []string {
	g := l.gang(j)
	fits := func(view *snapshot.View) bool { return startsWhole(view, g) }
	return slices.DeleteFunc(l.live.needs(l.vacated(j.Gang.ID), fits), func(other string) bool { return !l.live.unvisited(other) })
}

// notCome says what becomes of jobs that no visit has decided about.
const notCome = "and Terraform has not come to that in this plan so far. " +
	"A job that is in no state stays where it is: one that an apply which was killed has created, or that a removed block or `terraform state rm` has given up. " +
	"Import it, or delete it. One that Terraform plans after this job, or with -parallelism=1, the plan may take away all the same."

// sayOpen says of jobs on whom it depends that they fit.
func (l *Ledger) sayOpen(visited string) (findings []Finding) {
	if l.decided() {
		return nil
	}
	for _, j := range l.needing() {
		id := j.Gang.ID
		if l.said[id] {
			continue
		}
		open := l.openFor(j)
		if len(open) == 0 {
			continue
		}
		l.said[id] = true
		f := Finding{Kind: NeedsOthers, Jobs: []string{id}, key: "open " + id, Summary: "Job fits only if others leave"}
		f, report := l.graded(f)
		var names []string
		if j.MayPreempt {
			for _, v := range preemption.Plan(l.live.certain, l.gang(j)).Victims {
				names = append(names, l.live.victim(v))
			}
		}
		report = report || len(names) > 0 // nobody is evicted without a word
		if !report || l.reported[f.id()] {
			continue
		}
		l.reported[f.id()] = true
		f.Detail = fmt.Sprintf("Job %s does not fit beside what runs now: it starts once %s, of this configuration, no longer runs, "+notCome, id, join(open))
		if len(names) > 0 {
			f.Detail += fmt.Sprintf(" As long as it runs, the scheduler evicts for the job: %s.", join(names))
		}
		findings = append(findings, l.shown(f, l.jobs[visited]))
	}
	return findings
}
