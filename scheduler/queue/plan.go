package queue

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/queue/admit"
)

// plan is what is to be written now.
type plan struct {
	// createQueues are paths of the tree that lack a Queue.
	createQueues []string
	deleteQueues []*queue
	// suspend are jobs that must not run now.
	suspend []*job
	// enqueue are jobs that lack a unit, in the order of their arrival.
	enqueue []*entry
	// drop are units of jobs that are not to be queued any more.
	drop []*unit
	// start are units to let out, in their order, resume those of them that an earlier
	// round began to let out.
	start, resume []*entry
	// back are units whose jobs had their time and go back.
	back []*entry
	// phases are units whose phase changes, lines those of which only the text does.
	phases, lines []*entry
	// describe are units whose description is not that of the job.
	describe []*entry
	queues   []queueReport
	// counts are what waits and what was let out, by path of the tree.
	counts map[string]contract.QueueStatus
	// tree is the status of the quota tree when it changes, else nil.
	tree map[string]any
	// next is when to look again, zero when only events matter.
	next time.Time
}

// entry is a job with its unit and what that is to be.
type entry struct {
	job    *job
	unit   *unit
	leaf   string
	path   string
	spec   contract.QueueUnitSpec
	status contract.QueueUnitStatus
}

func (e *entry) id() string { return key(e.job.namespace, e.job.unitName()) }

// timing is how long released jobs may take.
type timing struct {
	// ready is how long the pods may take to run; 0 for any time.
	ready time.Duration
	// backoff is the first time off, longest the last one.
	backoff, longest time.Duration
}

// off is the time off after a number of failed attempts.
func (t timing) off(count int32) time.Duration {
	off := t.backoff
	for range count - 1 {
		if off *= 2; off >= t.longest {
			return t.longest
		}
	}
	return min(off, t.longest)
}

// planner makes a plan of a state.
type planner struct {
	*state
	timing timing
	now    time.Time
	// releasing are the units that are being let out, by incarnation, with the attempt.
	releasing map[string]int64
	out       plan

	// used is the tree with what runs.
	used    *quota.Tree
	unitOf  map[types.UID]*unit
	queueOf map[string]*queue
	entries []*entry
	waiting map[string]*entry
	// charged are the jobs whose charge stands for their pods.
	charged map[types.UID]bool
	holders []admit.Holder
	books   *books
}

// plan looks at everything that is known.
func (s *state) plan(t timing, now time.Time, releasing map[string]int64) plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &planner{
		state: s, timing: t, now: now, releasing: releasing,
		unitOf: map[types.UID]*unit{}, waiting: map[string]*entry{}, charged: map[types.UID]bool{},
		books: newBooks(s.tree),
	}
	if s.tree != nil {
		p.used = s.tree.empty.Clone()
	}
	for _, u := range s.units {
		p.unitOf[u.Spec.ConsumerRef.UID] = u
	}
	p.arrangeQueues()
	for uid, j := range s.jobs {
		p.look(j, p.unitOf[uid])
	}
	p.chargePods()
	p.admit()
	p.compare()
	p.reportQueues()
	if s.tree != nil {
		p.out.tree = p.books.changed(s.tree)
	}
	slices.SortFunc(p.out.enqueue, byArrival)
	return p.out
}

// look decides what becomes of one job, except whether it starts.
func (p *planner) look(j *job, u *unit) {
	e := &entry{job: j, unit: u}
	if p.tree != nil {
		e.leaf = j.leafIn(p.tree.empty)
		e.path = p.tree.empty.Path(e.leaf)
	}
	if u == nil {
		p.lookNew(e)
		return
	}
	if j.declined && j.finished == "" {
		p.out.drop = append(p.out.drop, u)
		if !j.suspended {
			p.hold(e)
		}
		return
	}
	e.spec, e.status = u.Spec, u.Status
	p.entries = append(p.entries, e)
	if j.finished != "" {
		p.enter(e, j.finished, "")
		return
	}
	p.describe(e)
	switch {
	case p.releasing[u.incarnation()] > u.Status.Attempts:
		p.out.resume = append(p.out.resume, e)
		p.hold(e)
	case u.Status.Phase == contract.UnitDequeued || u.Status.Phase == contract.UnitRunning:
		p.lookReleased(e)
	case !j.suspended && (j.asked || u.Status.Phase == contract.UnitBackoff):
		p.out.suspend = append(p.out.suspend, j)
		p.hold(e)
	case !j.suspended: // somebody resumed it
		e.status.Attempts++
		e.status.LastAllocateTime = p.time(p.now)
		p.enter(e, contract.UnitDequeued, "resumed by hand")
		p.hold(e)
	case u.Status.Phase == contract.UnitBackoff && p.now.Before(u.Status.RequeueState.RequeueAt.Time):
		p.wake(u.Status.RequeueState.RequeueAt.Time)
		p.books.wait(e, true)
	default:
		p.wait(e)
	}
}

// lookNew decides whether a job without a unit is queued.
func (p *planner) lookNew(e *entry) {
	j := e.job
	switch {
	case j.finished != "":
	case !j.suspended && !j.declined && (j.asked || j.wanted && !j.started):
		p.out.suspend = append(p.out.suspend, j)
		p.hold(e)
	case !j.suspended:
		p.hold(e)
	case !j.declined && (j.asked || j.wanted || !j.started && e.leaf != ""):
		if p.units[e.id()] == nil { // else that of an earlier job of this name, which is going
			p.out.enqueue = append(p.out.enqueue, e)
			p.describe(e)
		}
		p.books.wait(e, false)
	}
}

// lookReleased follows a job that was let out.
func (p *planner) lookReleased(e *entry) {
	j := e.job
	if j.suspended { // by somebody else
		count := int32(0)
		if e.status.RequeueState != nil {
			count = e.status.RequeueState.Count
		}
		e.status.RequeueState = &contract.RequeueState{Count: count, RequeueAt: p.time(p.now)}
		p.wait(e)
		return
	}
	p.hold(e)
	if j.asked {
		p.out.suspend = append(p.out.suspend, j)
		return
	}
	runs := 0
	if o := p.owners[j.uid]; o != nil {
		runs = o.runs
	}
	if runs >= j.pods || runs > 0 && e.status.Phase == contract.UnitRunning {
		p.enter(e, contract.UnitRunning, "")
		return
	}
	p.enter(e, contract.UnitDequeued, fmt.Sprintf("until its %d pods run", j.pods))
	if p.timing.ready == 0 {
		return
	}
	deadline := e.status.LastUpdateTime.Add(p.timing.ready)
	if p.now.Before(deadline) {
		p.wake(deadline)
		return
	}
	p.sendBack(e, runs)
}

// sendBack gives a job time off whose pods did not come to run.
func (p *planner) sendBack(e *entry, runs int) {
	state := contract.RequeueState{Count: 1}
	if before := e.status.RequeueState; before != nil {
		state.Count += before.Count
	}
	off := p.timing.off(state.Count)
	state.RequeueAt = p.time(p.now.Add(off + time.Second - 1)) // whole seconds, not less than off
	e.status.RequeueState = &state
	p.enter(e, contract.UnitBackoff, fmt.Sprintf("only %d of %d pods ran %s after attempt %d; in line again in %s",
		runs, e.job.pods, p.timing.ready, e.status.Attempts, off))
	p.out.back = append(p.out.back, e)
}

// enter puts a unit into a phase outside of the line.
func (p *planner) enter(e *entry, phase contract.QueueUnitPhase, message string) {
	if e.status.Phase != phase || e.status.LastUpdateTime == nil {
		e.status.Phase, e.status.LastUpdateTime = phase, p.time(p.now)
	}
	e.status.Position, e.status.Message = 0, message
}

// wait puts a unit into line.
func (p *planner) wait(e *entry) {
	p.books.wait(e, false)
	reason := ""
	switch {
	case p.tree == nil:
		reason = "there is no quota tree"
	case e.leaf == "" && e.job.leaf != "":
		reason = fmt.Sprintf("its pods name the quota %s, which is no leaf of the quota tree", e.job.leaf)
	case e.leaf == "":
		reason = fmt.Sprintf("its namespace %s belongs to no leaf of the quota tree", e.job.namespace)
	default:
		p.waiting[e.id()] = e
	}
	p.enter(e, contract.UnitEnqueued, reason)
}

// hold charges a job that runs, or may.
func (p *planner) hold(e *entry) {
	if e.leaf == "" {
		return
	}
	j := e.job
	p.used.Add(e.leaf, j.charge, j.preemptible)
	p.used.AddJob(e.leaf)
	p.holders = append(p.holders, admit.Holder{Leaf: e.leaf, Request: j.charge, Preemptible: j.preemptible})
	p.charged[j.uid] = true
	p.books.hold(e)
}

// chargePods charges the pods that no job's charge stands for.
func (p *planner) chargePods() {
	if p.tree == nil {
		return
	}
	for uid, o := range p.owners {
		for place, used := range o.used {
			leaf := place.leafIn(p.tree.empty)
			p.books.use(leaf, used)
			if leaf == "" || p.charged[uid] {
				continue
			}
			p.used.Add(leaf, used, place.preemptible)
			p.holders = append(p.holders, admit.Holder{Leaf: leaf, Request: used, Preemptible: place.preemptible})
		}
		if !p.books.counted[uid] {
			for place, asked := range o.asked {
				p.books.ask(place.leafIn(p.tree.empty), asked)
			}
		}
	}
}

// leafIn returns the leaf of a tree, "" when there is none.
func (p place) leafIn(tree *quota.Tree) string {
	leaf := p.leaf
	if leaf == "" {
		leaf = tree.LeafOf(p.namespace)
	}
	if !tree.HasLeaf(leaf) {
		return ""
	}
	return leaf
}

// admit finds out who starts and where the others stand.
func (p *planner) admit() {
	queues := map[string]admit.Queue{}
	units := make([]admit.Unit, 0, len(p.waiting))
	for id, e := range p.waiting {
		if q := p.queueOf[e.path]; q != nil {
			policy := admit.Queue{Block: q.Spec.QueuePolicy == contract.PolicyBlock}
			if q.Spec.Priority != nil {
				policy.Priority = *q.Spec.Priority
			}
			queues[e.leaf] = policy
		}
		u := admit.Unit{ID: id, Leaf: e.leaf, Priority: priority(e.spec), Request: e.job.charge, Preemptible: e.job.preemptible}
		u.Since, u.Sequence = e.arrival()
		units = append(units, u)
	}
	if len(units) == 0 {
		return
	}
	for _, d := range admit.Decide(p.used, queues, units, p.holders) {
		e := p.waiting[d.ID]
		if d.Start {
			p.out.start = append(p.out.start, e)
			continue
		}
		e.status.Position, e.status.Message = int32(d.Position), d.Reason
		p.books.line(e)
	}
}

// arrival is when a unit came into line: when its job was created, or when it went back.
func (e *entry) arrival() (since, sequence int64) {
	if r := e.status.RequeueState; r != nil && r.RequeueAt != nil {
		return r.RequeueAt.Unix(), 0
	}
	return e.job.created, e.sequence()
}

// sequence is the order of jobs that were created in one second.
func (e *entry) sequence() int64 {
	if e.unit != nil {
		if n, err := strconv.ParseInt(e.unit.Annotations[contract.ArrivalAnnotation], 10, 64); err == nil {
			return n
		}
	}
	return e.job.sequence
}

// compare finds the units whose status or description is to be written.
func (p *planner) compare() {
	letOut := map[*entry]bool{}
	for _, list := range [][]*entry{p.out.start, p.out.resume, p.out.back} {
		for _, e := range list {
			letOut[e] = true
		}
	}
	for _, e := range p.entries {
		before := e.unit.Status
		switch {
		case !apiequality.Semantic.DeepEqual(e.spec, e.unit.Spec):
			p.out.describe = append(p.out.describe, e)
		case letOut[e]:
		case before.Phase != e.status.Phase || before.Attempts != e.status.Attempts ||
			!apiequality.Semantic.DeepEqual(before.RequeueState, e.status.RequeueState):
			p.out.phases = append(p.out.phases, e)
		case before.Position != e.status.Position || before.Message != e.status.Message:
			p.out.lines = append(p.out.lines, e)
		}
	}
	slices.SortFunc(p.out.lines, func(a, b *entry) int { return int(a.status.Position - b.status.Position) })
}

// wake asks to look again at a time.
func (p *planner) wake(at time.Time) {
	if p.out.next.IsZero() || at.Before(p.out.next) {
		p.out.next = at
	}
}

// time is a time of the API: whole seconds.
func (p *planner) time(t time.Time) *metav1.Time {
	rounded := metav1.NewTime(t.Truncate(time.Second))
	return &rounded
}
