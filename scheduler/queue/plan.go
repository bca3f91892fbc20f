package queue

import (
	"slices"
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
	// verify are units that may be gone.
	verify []*unit
	// createQueues are paths of the tree that lack a Queue.
	createQueues []string
	deleteQueues []*queue
	// suspend are jobs that must not run now.
	suspend []*job
	// enqueue are jobs that lack a unit, in the order of their arrival.
	enqueue []*entry
	// taken are jobs whose unit's name someone else's has.
	taken []taken
	// drop are units of jobs that are not to be queued any more, or have left theirs behind.
	drop []*unit
	// start are units to release, in their order, resume those of them that an earlier
	// pass began to release.
	start, resume []*entry
	// back are units whose jobs had their time and go back.
	back []*entry
	// phases are units whose phase changes, lines those of which only the text does.
	phases, positions []*entry
	// describe are units whose description is not that of the job.
	describe []*entry
	queues   []queueReport
	// counts are what waits and what was released, by path of the tree.
	counts map[string]contract.QueueStatus
	trees  []treeReport
	// next is when to look again, zero when only events matter.
	next time.Time
}

// taken is a job with the unit of someone else that has the name of its own.
type taken struct {
	job  *job
	unit *unit
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

// reconciler makes a plan of a state.
type reconciler struct {
	*state
	timing timing
	now    time.Time
	// releasing are the units that are being released, by incarnation, with the attempt.
	releasing map[string]int64
	// stillReleasing will be [state.releasingSince].
	stillReleasing map[string]time.Time
	out            plan

	// podPriority is that of pods that name no class.
	podPriority int32
	// used is the tree with what runs.
	used    *quota.Tree
	unitOf  map[types.UID]*unit
	queueOf map[string]*queue
	entries []*entry
	waiting map[string]*entry
	// runs are how many pods of a job run, or have succeeded, whether they are still there or not.
	runs map[types.UID]int
	// charged are the jobs whose charge stands for their pods.
	charged map[types.UID]bool
	// strays are jobs that may run without a leaf of the tree: not they are charged, but their pods.
	strays   map[types.UID]bool
	holders  []admit.Holder
	accounts *accounts
}

// plan looks at everything that is known.
func (s *state) plan(t timing, now time.Time, releasing map[string]int64) plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &reconciler{
		state: s, timing: t, now: now, releasing: releasing,
		unitOf: map[types.UID]*unit{}, waiting: map[string]*entry{}, runs: map[types.UID]int{}, charged: map[types.UID]bool{}, strays: map[types.UID]bool{},
		accounts: newAccounts(s.tree), stillReleasing: map[string]time.Time{}, podPriority: s.defaultPriority(),
	}
	if s.tree != nil {
		p.used = s.tree.empty.Clone()
	}
	s.beginPass()
	for _, u := range s.units {
		p.unitOf[u.Spec.ConsumerRef.UID] = u
		switch {
		case s.jobs[u.Spec.ConsumerRef.UID] != nil:
		case !u.shown:
			p.out.verify = append(p.out.verify, u)
		case u.orphaned():
			p.out.drop = append(p.out.drop, u)
		}
	}
	for uid, o := range s.owners {
		p.runs[s.whole(uid)] += o.runs
	}
	for uid, j := range s.jobs {
		there := 0
		if o := s.owners[uid]; o != nil {
			there = o.done
		}
		p.runs[s.whole(uid)] += max(0, j.ended-there) + j.running
	}
	p.arrangeQueues()
	for uid, j := range s.jobs {
		if s.whole(uid) == uid {
			p.reconcile(j, p.unitOf[uid])
		}
	}
	s.releasingSince = p.stillReleasing
	p.chargePods()
	p.admit()
	p.compare()
	p.reportQueues()
	p.reportTrees()
	slices.SortFunc(p.out.enqueue, byArrival)
	return p.out
}

// compare finds the units whose status or description is to be written.
func (p *reconciler) compare() {
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
			p.out.positions = append(p.out.positions, e)
		}
	}
	slices.SortFunc(p.out.positions, func(a, b *entry) int { return int(a.status.Position - b.status.Position) })
}

// wake asks to look again at a time.
func (p *reconciler) wake(at time.Time) {
	if p.out.next.IsZero() || at.Before(p.out.next) {
		p.out.next = at
	}
}

// time is a time of the API: whole seconds.
func (p *reconciler) time(t time.Time) *metav1.Time {
	rounded := metav1.NewTime(t.Truncate(time.Second))
	return &rounded
}
