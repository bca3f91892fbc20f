package queue

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// reconcile decides what becomes of one job, except whether it starts.
func (p *reconciler) reconcile(j *job, u *unit) {
	e := &entry{job: j, unit: u}
	if p.tree != nil {
		e.leaf = j.leafIn(p.tree.empty)
		e.path = p.tree.empty.Path(e.leaf)
	}
	if u == nil {
		p.reconcileNew(e)
		return
	}
	if (j.declined || j.deleted) && j.finished == "" {
		p.out.drop = append(p.out.drop, u)
		if !j.suspended && !j.deleted { // of a deleted one its pods are charged
			p.charge(e)
		}
		return
	}
	e.spec, e.status = u.Spec, u.Status
	p.entries = append(p.entries, e)
	if j.finished != "" {
		// It may have ended before the attempt was noted.
		e.status.Attempts = max(e.status.Attempts, p.releasing[u.incarnation()])
		p.enter(e, j.finished, "")
		return
	}
	p.describe(e)
	switch {
	case p.releasing[u.incarnation()] > u.Status.Attempts:
		p.reconcileReleasing(e)
	case u.Status.Phase == contract.UnitDequeued || u.Status.Phase == contract.UnitRunning:
		p.reconcileReleased(e)
	case !j.suspended && (j.asked || u.Status.Phase == contract.UnitBackoff && !j.sent()):
		p.out.suspend = append(p.out.suspend, j)
		p.charge(e)
	case !j.suspended: // someone resumed it, or a job of a fleet has failed and goes on in another cluster
		e.status.Attempts++
		e.status.LastAllocateTime = p.time(p.now)
		by := "resumed by hand"
		if u.Status.Phase == contract.UnitFailed {
			by = "has failed in its cluster, and goes on in another one"
		}
		p.enter(e, contract.UnitDequeued, by)
		p.charge(e)
	case u.Status.Phase == contract.UnitBackoff && p.now.Before(requeuesAt(u)):
		p.wake(requeuesAt(u))
		p.accounts.pending(e, true)
	default:
		p.wait(e)
	}
}

// requeuesAt is when a unit goes back into the queue, zero when nobody has said so: other
// controllers write units, too.
func requeuesAt(u *unit) time.Time {
	if r := u.Status.RequeueState; r != nil && r.RequeueAt != nil {
		return r.RequeueAt.Time
	}
	return time.Time{}
}

// reconcileNew decides whether a job without a unit is queued.
func (p *reconciler) reconcileNew(e *entry) {
	j := e.job
	switch {
	case j.finished != "" || j.deleted:
	case !j.suspended && !j.declined && (j.asked || j.wanted && !j.started):
		p.out.suspend = append(p.out.suspend, j)
		p.charge(e)
	case !j.suspended:
		p.charge(e)
	case j.charge == nil: // a TrainJob that is no JobSet yet, which brings us back
	case !j.declined && (j.asked || j.wanted || !j.started && (e.leaf != "" || j.leaf != "" && p.tree != nil || p.bar.Holds(j.namespace, j.leaf))):
		switch u := p.units[e.id()]; {
		case u == nil:
			p.out.enqueue = append(p.out.enqueue, e)
			p.describe(e)
			if !p.unitless[j.uid] {
				p.wait(e) // it has its place in line before its unit is made
				return
			}
		case !u.followed(j): // else that of an earlier job of this name, which is going
			p.out.taken = append(p.out.taken, taken{j, u})
		}
		p.accounts.pending(e, false)
	}
}

// untilRuns says what a job that was released is waited for.
func untilRuns(j *job) string {
	if j.pods == 1 {
		return "until its pod runs"
	}
	return fmt.Sprintf("until its %d pods run", j.pods)
}

// reconcileReleasing goes on with a release that an earlier pass began. A job that cannot be resumed, as
// the API server refuses it, does not keep its quota for ever. One that runs only lacks the record of it.
func (p *reconciler) reconcileReleasing(e *entry) {
	p.charge(e)
	since, known := p.releasingSince[e.unit.incarnation()]
	if !known {
		since = p.now
	}
	p.stillReleasing[e.unit.incarnation()] = since
	if e.job.suspended && p.timing.ready > 0 {
		deadline := since.Add(p.timing.ready)
		if !p.now.Before(deadline) {
			e.status.Attempts = p.releasing[e.unit.incarnation()]
			p.sendBack(e, fmt.Sprintf("could not be resumed within %s in attempt %d", p.timing.ready, e.status.Attempts))
			return
		}
		p.wake(deadline)
	}
	p.out.resume = append(p.out.resume, e)
}

// reconcileReleased follows a job that was released.
func (p *reconciler) reconcileReleased(e *entry) {
	j := e.job
	if j.suspended { // by someone else
		count := int32(0)
		if e.status.RequeueState != nil {
			count = e.status.RequeueState.Count
		}
		e.status.RequeueState = &contract.RequeueState{Count: count, RequeueAt: p.time(p.now)}
		p.wait(e)
		return
	}
	p.charge(e)
	if j.asked {
		p.out.suspend = append(p.out.suspend, j)
		return
	}
	runs := p.runs[j.uid]
	if runs >= j.pods || runs > 0 && e.status.Phase == contract.UnitRunning {
		p.enter(e, contract.UnitRunning, "")
		return
	}
	if p.bar.Holds(j.namespace, cmp.Or(e.leaf, j.leaf)) { // its pods do not start, and that is not its fault
		p.enter(e, contract.UnitDequeued, p.bar.Why)
		e.status.LastUpdateTime = nil // its time begins when its pods are all that it waits for
		return
	}
	p.enter(e, contract.UnitDequeued, untilRuns(j))
	if p.timing.ready == 0 {
		return
	}
	deadline := e.status.LastUpdateTime.Add(p.timing.ready)
	if p.now.Before(deadline) {
		p.wake(deadline)
		return
	}
	p.sendBack(e, fmt.Sprintf("only %d of %d pods ran %s after attempt %d", runs, j.pods, p.timing.ready, e.status.Attempts))
}

// sendBack gives a job time off that did not come to run.
func (p *reconciler) sendBack(e *entry, why string) {
	state := contract.RequeueState{Count: 1}
	if before := e.status.RequeueState; before != nil {
		state.Count += before.Count
	}
	off := p.timing.off(state.Count)
	state.RequeueAt = p.time(p.now.Add(off + time.Second - 1)) // whole seconds, not less than off
	e.status.RequeueState = &state
	p.enter(e, contract.UnitBackoff, fmt.Sprintf("%s; in line again in %s", why, off))
	p.out.back = append(p.out.back, e)
}

// enter puts a unit into a phase outside of the line.
func (p *reconciler) enter(e *entry, phase contract.QueueUnitPhase, message string) {
	if e.status.Phase != phase || e.status.LastUpdateTime == nil {
		e.status.Phase, e.status.LastUpdateTime = phase, p.time(p.now)
	}
	e.status.Position, e.status.Message = 0, message
}

// wait puts a unit into line.
func (p *reconciler) wait(e *entry) {
	p.accounts.pending(e, false)
	_, classKnown := p.priorityOf(e.job)
	reason := ""
	switch {
	case p.bar != nil:
		reason = p.bar.Why
	case p.tree == nil:
		reason = "there is no quota tree"
	case e.leaf == "" && e.job.leaf != "":
		reason = p.tree.empty.Missing(e.job.leaf)
	case e.leaf == "":
		reason = fmt.Sprintf("its namespace %s belongs to no leaf of the quota tree", e.job.namespace)
	case !classKnown:
		reason = fmt.Sprintf("there is no PriorityClass %s, which its pods name", e.job.priorityClass)
	default:
		p.waiting[e.id()] = e
	}
	p.enter(e, contract.UnitEnqueued, reason)
}
