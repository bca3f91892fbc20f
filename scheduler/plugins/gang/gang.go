package gang

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// gang is what the scheduler remembers of a gang between cycles. All of it can be
// derived again from the API server.
type gang struct {
	key string
	// created is when the pod was created that was seen first, in Unix nanoseconds: the gang's position in
	// kube-scheduler's queue, where it must not change.
	created int64
	entry   entry
	// firstPod is the one whose cycle plans the gang, "" for none.
	firstPod types.UID
	// why says why the gang waits; its text is "" while it does not.
	why wait
	// neighborly means that pods which begin to run beside it may meet a rule of the gang.
	neighborly bool
	// answers are the plugin's.
	answers *sync.Map
	// assumed are the planned members that are not bound yet.
	assumed map[types.UID]*assumedPod
	// attempt is the attempt whose members are passing their cycles, or leaving; nil while there is none.
	attempt *attempt
	// rejectedOnce are nodes that another plugin refused once, with the attempt that it refused them, rejected is what it
	// refused again a moment later, or in a dry run.
	rejectedOnce map[string]*attempt
	rejected     rejections
	// lacking are roles of which another plugin has refused a node since while members of others were reserved elsewhere: what these had
	// taken may have been what it lacked, a volume of its zone, say. When rejected nodes get another chance, precedence are those, whose
	// members come first then.
	lacking, precedence []string
	// checkFilters means that another plugin has refused a node.
	checkFilters bool
	// backoff is how long the rejected nodes stay refused when nothing changes.
	backoff time.Duration
	// failed is the last attempt when other plugins let it fail after their filters, pause how long the
	// gang stays out after it.
	failed *attempt
	pause  time.Duration
	// asked is the reserved place that other plugins do not refuse, nil when they have not
	// been asked; where they refuse every one, none is held until reservesAgain, and the next time
	// they do the pause is longer.
	asked         *placement.Placement
	reservesAgain time.Time
	reservePause  time.Duration
	// deleted are the pods whose deletion for the gang the API server has accepted, refusals its answers about
	// those that it refuses to delete, failures counts those that may be others a moment later.
	deleted  map[types.UID]bool
	refusals map[types.UID]string
	failures map[types.UID]int
	// evictPause is how long the plugin waits before it evicts for the gang again, 0 unless that failed;
	// evictsAgain means that it does wait.
	evictPause  time.Duration
	evictsAgain bool
	// retires means that it will be looked at again when it has been without members for too long.
	retires bool
	// expected means that the worker has activated the gang, and kept others out for the place
	// that it will take.
	expected bool
	// incomplete is since when members are missing, zero while none are.
	incomplete time.Time
	// complete is when all members were there, zero while that is not known.
	complete time.Time
	// awaiting is with how many members the gang began to wait for others that it does not
	// need, waited with how many it has waited long enough.
	awaiting, waited int
	// loses means that it will be looked at again when its members have ceased to leave.
	loses bool
	// reported are the texts of oddities that have been published.
	reported map[string]bool
}

// assumedPod is the planned place of one member.
type assumedPod struct {
	attempt *attempt
	pod     *corev1.Pod
	node    string
	record  contract.Allocation
	// position is the place in the order of the attempt, when it has one.
	position int
	// leads means that others need what other plugins make for this member before it is bound: a volume, or devices.
	leads bool
	// reserved means that the member has passed its cycle and holds its place in the
	// scheduler's cache; prepared, that other plugins have done what they do before it is bound.
	reserved, prepared bool
}

// attempt is one attempt to place members of a gang together.
type attempt struct {
	key   string
	phase phase
	pods  map[types.UID]*assumedPod
	// reserved counts the pods that have passed Reserve, prepared those that can be bound.
	reserved, prepared int
	// decided is closed when the members are bound, or none of them is.
	decided chan struct{}
	// taken is the reservation whose place the members take, nil for none; kept means that it is kept
	// for them again when the attempt fails.
	taken *placement.Reservation
	kept  bool
	// ordered means that members are reserved in the order of their positions.
	ordered bool
	// leading is the member that has passed its cycle and whom those that come after it wait for until it is prepared, nil for none;
	// led means that there was one.
	leading *assumedPod
	led     bool
	// backoff is how long the gang stays out after the attempt has failed.
	backoff time.Duration
}

// fail notes that other plugins let an attempt fail after their filters. The gang stays out as a pod of
// kube-scheduler's does, twice as long each time, until it has other members. The place that it took is kept the
// first time: others may have been evicted for it. The plugin's lock must be held.
func (g *gang) fail(r *attempt) {
	if g.failed == r {
		return // by another member
	}
	if g.failed == nil || !maps.EqualFunc(g.failed.pods, r.pods, func(*assumedPod, *assumedPod) bool { return true }) {
		g.pause = 0
	}
	r.kept = g.pause == 0
	g.failed, g.pause = r, min(max(2*g.pause, minBackoff), maxPause)
	r.backoff = g.pause
}

// forgetRejections gives rejected nodes another chance. The plugin's lock must be held.
func (g *gang) forgetRejections() {
	g.rejectedOnce, g.rejected, g.precedence, g.lacking = nil, nil, g.lacking, nil
}

// isNext reports whether a member is the next to be reserved. The plugin's lock must be held.
func (r *attempt) isNext(s *assumedPod) bool {
	return !r.ordered || r.phase != phaseReserving || r.leading == nil && s.position <= r.reserved || r.leading == s
}

// nextPod is the assumed pod that is reserved next, nil when there is none or any may come.
func (r *attempt) nextPod() *assumedPod {
	if r.ordered && r.phase == phaseReserving && r.leading == nil {
		for _, s := range r.pods {
			if s.position == r.reserved {
				return s
			}
		}
	}
	return nil
}
