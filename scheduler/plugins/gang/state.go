package gang

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// entry says which pods of a gang may enter the scheduling queue, beside members that have
// places already.
type entry string

const (
	// entryOpen: the next pod that asks enters, as the first of its gang.
	entryOpen entry = "Open"
	// entryEntered: the first pod is in the queue or in its cycle, and no other enters.
	entryEntered entry = "Entered"
	// entryWaiting: none enters. The gang does not fit, and the worker tries it again.
	entryWaiting entry = "Waiting"
)

// event is what happens to a gang or to an attempt.
type event string

const (
	enters   event = "a pod enters the queue"
	rejected event = "the gang does not fit"
	fits     event = "the worker finds a place"
	leaves   event = "the first pod is bound, gone or refused"
	placed   event = "members get places"

	passes   event = "every member has passed its cycle"
	prepared event = "every member can be bound"
	fails    event = "a member cannot have its place"
	vacate   event = "every member has given its place back"
)

// entries are the transitions of a gang's entry. An event without an arrow changes nothing.
var entries = transitions[entry]{
	{entryOpen, enters, entryEntered}, {entryOpen, rejected, entryWaiting},
	{entryEntered, rejected, entryWaiting}, {entryEntered, leaves, entryOpen}, {entryEntered, placed, entryOpen},
	{entryWaiting, fits, entryOpen}, {entryWaiting, placed, entryOpen},
}

// phase is how far an attempt to place members together is.
type phase string

const (
	// phaseReserving: members are passing their cycles.
	phaseReserving phase = "Reserving"
	// phasePreparing: all members have passed, and other plugins make what they need on their
	// nodes, such as volumes.
	phasePreparing phase = "Preparing"
	// phaseBinding: members are being bound; places are kept from here on.
	phaseBinding phase = "Binding"
	// phaseAborting: members that have passed their cycles are giving their places back.
	phaseAborting phase = "Aborting"
	// phaseClosing: all have given them back, and what was charged for members is being released.
	phaseClosing phase = "Closing"
)

// phases are the transitions of an attempt.
var phases = transitions[phase]{
	{phaseReserving, passes, phasePreparing}, {phaseReserving, fails, phaseAborting},
	{phasePreparing, prepared, phaseBinding}, {phasePreparing, fails, phaseAborting}, {phaseAborting, vacate, phaseClosing},
}

// transitions are the arrows of a state machine.
type transitions[S ~string] []struct {
	from S
	on   event
	to   S
}

// next returns the state after an event, and whether that has an arrow.
func (t transitions[S]) next(from S, on event) (S, bool) {
	for _, arrow := range t {
		if arrow.from == from && arrow.on == on {
			return arrow.to, true
		}
	}
	return from, false
}

// on changes the entry of a gang. This and the following need the plugin's lock.
func (g *gang) on(e event) {
	if g.entry, _ = entries.next(g.entry, e); g.entry != entryWaiting {
		g.answers.Delete(g.key)
	}
}

// enter lets a pod into the queue.
func (g *gang) enter(pod types.UID) {
	g.on(enters)
	g.firstPod = pod
}

// wait takes the gang, as it is, out of the queue, or notes what else it waits for. It does not wait for more members then.
func (g *gang) wait(why wait, state *inventory.GangState, status inventory.GangStatus) {
	g.on(rejected)
	g.firstPod, g.why, g.waited = "", why, max(g.waited, status.Present)
	g.neighborly = slices.ContainsFunc(state.Gang.Roles, func(r placement.Role) bool { return r.Neighborly(false) })
	if len(g.assumed) > 0 {
		g.answers.Delete(g.key) // these enter
		return
	}
	g.answers.Store(g.key, &answer{text: why.text, late: lateIn(state), refused: status.Refusals})
}

// reopen lets a gang that waits into the queue again.
func (g *gang) reopen() {
	g.on(fits)
	g.why = wait{}
}

// loseFirst forgets the first pod.
func (g *gang) loseFirst() {
	if g.firstPod != "" {
		g.on(leaves)
		g.firstPod = ""
	}
}

// place notes that members have got places: they enter by these, and another may be the first again.
func (g *gang) place() {
	g.on(placed)
	g.firstPod, g.why = "", wait{}
}

// waits reports whether the gang waits for room: no pod enters, but for those that have places.
func (g *gang) waits() bool { return g.entry == entryWaiting }

// on changes the phase of an attempt, and reports whether the event had an arrow.
func (r *attempt) on(e event) (moved bool) {
	r.phase, moved = phases.next(r.phase, e)
	return moved
}

// prepare notes that a member can be bound. The last one starts the binding of all, and prepare
// reports it.
func (r *attempt) prepare(s *assumedPod) (starts bool) {
	if s.prepared || r.phase != phasePreparing && (r.phase != phaseReserving || r.leading != s) {
		return false
	}
	s.prepared = true
	r.prepared++
	if r.leading == s {
		r.leading = nil
	}
	return r.prepared == len(r.pods) && r.on(prepared)
}

// failed reports whether an attempt is being taken back.
func (r *attempt) failed() bool { return r.phase == phaseAborting || r.phase == phaseClosing }
