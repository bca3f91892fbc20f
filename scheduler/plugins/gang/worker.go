package gang

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// refreshAfter is how long what gangs are told may be behind the cluster: room that is
// taken changes no decision, only counts. What may give a gang a place is looked at at once.
const refreshAfter = 30 * time.Second

// besideAfter bounds how often gangs are tried again because pods are placed near which they may have to
// run: pods are bound all the time.
const besideAfter = time.Second

// run follows the changes of the view until ctx ends: it activates gangs that have
// become complete, and tries those that wait when something is freed. Beside it the
// writer writes verdicts.
func (p *Plugin) run(ctx context.Context) {
	if err := p.synced(ctx); err != nil {
		return // the scheduler stops
	}
	go p.write(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.work.ready:
			p.do(ctx, p.work.take())
		}
	}
}

func (p *Plugin) do(ctx context.Context, c pendingWork) {
	for _, key := range slices.Sorted(maps.Keys(c.preemptors)) {
		p.preempt(ctx, key)
	}
	for _, key := range slices.Sorted(maps.Keys(c.gangs)) {
		p.reconcile(ctx, key)
		p.finishEviction(ctx, key)
	}
	if c.freed {
		p.resetRejected()
	}
	if c.outdated {
		p.refreshes = false
	}
	again := c.freed || c.rolledBack
	if again {
		p.outrunCycle() // before the gangs that wait are listed
	}
	if again {
		for _, key := range slices.Sorted(maps.Keys(p.halfway)) {
			p.finishEviction(ctx, key)
		}
	}
	if again || c.aged || p.affectsReservations(c.gangs) {
		again = p.reserve(p.waiting()) || again
		p.admitReserved(ctx)
	}
	if again || c.outdated {
		simulation := p.cache.Simulate()
		for _, key := range p.waiting() {
			if c.outdated || !p.cache.Infeasible(key) {
				p.retry(ctx, key, simulation.Consider)
			}
		}
	}
	if c.beside {
		p.checksBeside = false
		for _, key := range p.besideOthers() {
			p.retry(ctx, key, p.cache.Consider)
		}
	}
	if c.placed && !p.checksBeside && len(p.besideOthers()) > 0 {
		p.checksBeside = true
		p.after(besideAfter, p.work.checkBeside)
	}
	if c.changed && !p.refreshes {
		p.refreshes = true
		p.after(refreshAfter, p.work.refresh)
	}
}

// outrunCycle has the gang that a cycle is planning looked at again if it is to wait: it does not wait yet, and what it was
// decided by may be of before.
func (p *Plugin) outrunCycle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outrun = true
}

// reconcile brings what is remembered of a gang in line with its pods.
func (p *Plugin) reconcile(ctx context.Context, key string) {
	p.mu.Lock()
	// Asked under the lock: what the view showed before may be of an attempt that has ended.
	state, ok := p.cache.Gang(key)
	p.outrun = p.outrun || p.planning == key
	if !ok {
		delete(p.ran, key)
		delete(p.begun, key)
	}
	alive, pending := map[types.UID]bool{}, map[types.UID]bool{}
	var waiting *corev1.Pod
	for _, pod := range state.Pods {
		alive[pod.UID] = true
		if pod.Spec.NodeName == "" {
			pending[pod.UID] = true
			waiting = pod
		}
	}
	if p.gangs[key] == nil && waiting == nil {
		p.noteRun(key, state)
		p.mu.Unlock()
		return
	}
	// A pod may have appeared just when its gang was done and forgotten.
	g := p.gang(key, waiting)
	var aborted *attempt
	for uid, s := range g.assumed {
		switch {
		case alive[uid] && s.attempt.phase == phaseBinding && !s.reserved && p.cache.Bound(uid):
			delete(g.assumed, uid) // its binding seemed to fail
		case alive[uid] && s.attempt == g.attempt && s.attempt.phase != phaseBinding && p.cache.Relabelled(uid):
			aborted = s.attempt // by its labels of now it may exceed a limit
		case alive[uid]:
		case s.attempt == g.attempt:
			aborted = s.attempt
		default:
			delete(g.assumed, uid)
		}
	}
	p.noteRun(key, state) // also where the last binding seemed to fail
	idle := g.attempt == nil && len(g.assumed) == 0 && p.planning != key
	satisfied := idle && ok && state.MissingText == "" && state.FirstUnbound() == nil
	if !ok || state.MissingText != "" || satisfied {
		p.activationMissed(g)
	}
	if !alive[g.firstPod] || p.cache.Bound(g.firstPod) || lateIn(&state)[g.firstPod] {
		g.loseFirst() // deleted, bound by the scheduler that led before this one, or late for members that have come after it
	}
	done := idle && len(pending) == 0
	if done {
		delete(p.gangs, key)
		p.answers.Delete(key)
	}
	if satisfied && g.entry == entryWaiting {
		g.reopen() // a launcher may be another one than those that were told to wait
	}
	waits, overdue := g.waits(), g.overdue()
	p.mu.Unlock()
	for uid := range lateIn(&state) {
		if p.cache.GangStatus(key, uid).Refused {
			p.cache.Allow(uid) // it was a member then; who is late has the cycles of any pod
			p.work.add(clusterstate.Change{Gang: key})
		}
	}
	switch {
	case aborted != nil:
		p.abort(ctx, aborted)
	case done:
		p.statuses.add(key)    // it runs
		p.withdraw(key, false) // a member that was to join it does not any more
		return
	case !ok:
	case state.MissingText != "":
		if overdue {
			p.withdraw(key, false)
			p.preempt(ctx, key) // takes the nominations back, also those of a scheduler that led before this one
		}
	case satisfied: // what is left of it is not ours to place, or starts when it runs
		if p.withdraw(key, false) {
			p.preempt(ctx, key) // takes the nominations back
		}
		p.enqueue(ctx, key, state)
	case waits:
		p.retry(ctx, key, p.cache.Consider)
		p.statuses.add(key)        // pods that have just joined must say it, too
		p.enqueue(ctx, key, state) // late members start when it runs in part
		p.preempt(ctx, key)        // it may have been put off while members were being bound
	default:
		p.enqueue(ctx, key, state)
	}
	p.report(key, state)
}

// withdraw lets others have the place that is held for a gang which does not ask for it any more, or is refused it by other
// plugins, and reports whether there was one.
func (p *Plugin) withdraw(key string, refused bool) bool {
	if !p.cache.Withdraw(key, refused) {
		return false
	}
	p.meter.GaveUpNomination()
	p.work.add(clusterstate.Change{RolledBack: true})
	return true
}

// waiting lists the gangs that wait for room, in the order of the queue. One for which capacity is reserved waits for it while it is tried, too:
// else others would get the place meanwhile.
func (p *Plugin) waiting() []string {
	reserved := p.cache.Reserved()
	p.mu.Lock()
	var keys []string
	for _, g := range p.gangs {
		if g.waits() || reserved[g.key] {
			keys = append(keys, g.key)
		}
	}
	p.mu.Unlock()
	return p.cache.InOrder(keys)
}

// besideOthers lists the gangs that wait and whose rules pods may meet which begin to run, in the order of the queue.
func (p *Plugin) besideOthers() []string {
	beside := map[string]bool{}
	p.mu.Lock()
	for key, g := range p.gangs {
		if g.neighborly && g.waits() {
			beside[key] = true
		}
	}
	p.mu.Unlock()
	if len(beside) == 0 {
		return nil
	}
	return slices.DeleteFunc(p.waiting(), func(key string) bool { return !beside[key] })
}

// resetRejected gives rejected nodes another chance, because the cluster has changed. A mere
// roll-back is no such change: gangs would try rejected nodes in turns for ever.
func (p *Plugin) resetRejected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gangs {
		g.forgetRejections()
		g.backoff = 0
	}
}

// activationMissed has others looked at again that were kept out for the place of a gang that does
// not take it. The lock must be held.
func (p *Plugin) activationMissed(g *gang) {
	if g.expected {
		g.expected = false
		p.work.add(clusterstate.Change{RolledBack: true})
	}
}

// retry activates a waiting gang when it fits now, as consider says, and else notes why not.
func (p *Plugin) retry(ctx context.Context, key string, consider func(string, clustercache.Limits) (clustercache.Decision, bool)) {
	rejected, _ := p.rejectedFor(key)
	begin := time.Now()
	d, ok := consider(key, rejected.limits())
	if ok {
		p.planned(key, begin, d)
	}
	if !ok || d.MissingText != "" {
		return
	}
	text, cause := p.waitText(d), p.cause(d)
	if d.Lost || d.Result.Reservation != nil && !d.Reserved {
		text = "" // its cycle gives up a place, or takes one
	}
	p.mu.Lock()
	g, known := p.gangs[key]
	if !known || g.entry != entryWaiting {
		p.mu.Unlock()
		return
	}
	changed, evicted := text != g.why.text, g.why.cause == causeEvicted
	if g.expected = text == ""; g.expected {
		g.reopen()
	} else {
		g.wait(wait{cause: cause, text: text}, &d.GangState, p.cache.GangStatus(key, ""))
	}
	p.mu.Unlock()
	if text == "" {
		p.enqueue(ctx, key, d.GangState)
		return
	}
	if changed {
		p.statuses.add(key)
	}
	if evicted && d.EvictedFor == "" {
		p.reserveLater(key)
	}
	if d.Reserved && d.Result.Reservation.Evicts {
		p.preempt(ctx, key) // it may have been given up while the place could not be had
	}
	if d.Result.Placement == nil && d.EvictedFor == "" {
		if len(rejected) == 0 {
			p.evictPartial(ctx, key)
		}
		p.retire(ctx, key, d.GangState)
	}
}
