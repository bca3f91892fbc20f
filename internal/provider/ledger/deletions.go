package ledger

import (
	"context"
	"slices"
	"time"
)

// deletions are the jobs that an apply deletes.
type deletions struct {
	// planned are those of which the plan has said so.
	planned map[string]bool
	// going is how many are being deleted now.
	going int
}

// AwaitFates waits, in a plan, until its visits have decided about jobs: as long as visits come, and for patience after the
// last one. leaving are those that are deleted. Of open ones nobody has said anything, and nobody could: of the visits
// that Terraform makes at a time, 0 for a number that is not known, all wait. It is told after [Ledger.DisplaceJobs], by which a
// plan fails when one of the jobs stays.
func (l *Ledger) AwaitFates(ctx context.Context, jobs []string, atATime int, patience time.Duration) (leaving, open []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.applying {
		return nil, nil
	}
	unknown := func() []string {
		return slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return l.fates[job] != undecided })
	}
	l.held++
	defer func() { l.held-- }()
	for came := true; came && len(unknown()) > 0; {
		if atATime > 0 && l.held+len(l.waiters) >= atATime {
			open = unknown()
			break
		}
		came = l.visitedWithin(ctx, patience)
	}
	for _, job := range jobs {
		if l.fates[job] == leaves && !l.fixed[job] && l.jobs[job] == nil {
			leaving = append(leaving, job)
		}
	}
	return leaving, open
}

// ExpectDeletions records jobs that this apply deletes, as its plan has said.
func (l *Ledger) ExpectDeletions(jobs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, job := range jobs {
		l.deletions.planned[job] = true
	}
}

// ExpectsDeletion reports whether [Ledger.ExpectDeletions] was told of a job.
func (l *Ledger) ExpectsDeletion(job string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deletions.planned[job]
}

// BeginDeletion records that a job is being deleted, until end is called.
func (l *Ledger) BeginDeletion() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deletions.going++
	l.visit()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deletions.going--
		l.visit()
	}
}

// AwaitDeletion waits until a deletion begins or ends, for a time at most, and reports whether any goes on now.
func (l *Ledger) AwaitDeletion(ctx context.Context, most time.Duration) (going bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.visitedWithin(ctx, most)
	return l.deletions.going > 0
}
