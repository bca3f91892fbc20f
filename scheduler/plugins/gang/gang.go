package gang

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// gang is what the scheduler remembers of a gang between cycles. All of it can be
// derived again from the API server.
type gang struct {
	key      string
	priority int32
	// turn is when the gang's first pod was created, in Unix nanoseconds.
	turn int64
	// leader is the only pod that may enter the queue while the gang has no seats.
	leader types.UID
	// seats are the planned members that are not bound yet.
	seats map[types.UID]*seat
	// open is the round whose members are passing their cycles, or leaving; nil while there is none.
	open *round
	// doubted are nodes that another plugin refused once, refused is what it refused again a
	// moment later, or in a rehearsal.
	doubted map[string]bool
	refused refusals
	// wary tells that another plugin has refused a node.
	wary bool
	// pause is how long the refused nodes stay refused when nothing changes.
	pause time.Duration
	// verdict says why the gang waits, "" while it does not.
	verdict string
	// cause is what kind of reason the verdict is, without its numbers.
	cause string
	// retires tells that it will be looked at again when it has been without members for too long.
	retires bool
	// blocked tells that another plugin refuses the leader whatever the node; only
	// that plugin's events bring it back.
	blocked bool
	// expected tells that the worker has let the gang in, and kept others out for the place
	// that it will take.
	expected bool
	// incomplete is since when members are missing, zero while none are.
	incomplete time.Time
	// complete is when all members were there, zero while that is not known.
	complete time.Time
	// awaiting is with how many members the gang began to wait for others that it does not
	// need, waited with how many it has waited long enough.
	awaiting, waited int
	// reported are the texts of oddities that have been published.
	reported map[string]bool
}

// seat is the planned place of one member.
type seat struct {
	round  *round
	pod    *corev1.Pod
	node   string
	record contract.Allocation
	// turn is the place in the order of the round, when it has one.
	turn int
	// reserved tells that the member has passed its cycle and holds its place in the
	// scheduler's cache.
	reserved bool
}

// round is one attempt to seat members of a gang together.
type round struct {
	key   string
	phase phase
	seats map[types.UID]*seat
	// reserved counts the seats whose members hold a place.
	reserved int
	// inTurn tells that members take their seats in the order of their turns.
	inTurn bool
	// pause is how long the gang stays out after the round has failed.
	pause time.Duration
	// closing tells that everybody has left the round, and its seats are being freed.
	closing bool
}

// comes reports whether it is a member's turn. The plugin's lock must be held unless the
// round has just been opened.
func (r *round) comes(s *seat) bool {
	return !r.inTurn || r.phase != seatingPhase || s.turn <= r.reserved
}

// next is the seat whose turn it is, nil when there is none or any may come.
func (r *round) next() *seat {
	if r.inTurn && r.phase == seatingPhase {
		for _, s := range r.seats {
			if s.turn == r.reserved {
				return s
			}
		}
	}
	return nil
}

// phase is how far a round is.
type phase int

const (
	// seatingPhase: members are passing their cycles.
	seatingPhase phase = iota
	// leavingPhase: the round has failed, and members that hold a place are giving it back.
	leavingPhase
	// bindingPhase: all members have passed; places are kept from here on.
	bindingPhase
)
