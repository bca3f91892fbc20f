package gang

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// refreshAfter is how long what gangs are told may be behind the cluster: room that is
// taken changes no decision, only counts. What may let a gang in is looked at at once.
const refreshAfter = 30 * time.Second

// run follows the changes of the view until ctx ends: it lets gangs in that have
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

func (p *Plugin) do(ctx context.Context, c chores) {
	for _, key := range slices.Sorted(maps.Keys(c.claims)) {
		p.claim(ctx, key)
	}
	for _, key := range slices.Sorted(maps.Keys(c.gangs)) {
		p.settle(ctx, key)
	}
	if c.freed {
		p.forgive()
	}
	if c.outdated {
		p.refreshes = false
	}
	again := c.freed || c.rolledBack
	if again || c.aged || p.concernHeads(c.gangs) {
		again = p.reserve(p.waiting()) || again
	}
	if again || c.outdated {
		trial := p.cache.Trial()
		for _, key := range p.waiting() {
			if c.outdated || !p.cache.Hopeless(key) {
				p.retry(ctx, key, trial.Consider)
			}
		}
	}
	if c.changed && !p.refreshes {
		p.refreshes = true
		p.after(refreshAfter, p.work.refresh)
	}
}

// settle brings what is remembered of a gang in line with its pods.
func (p *Plugin) settle(ctx context.Context, key string) {
	p.mu.Lock()
	// Asked under the lock: what the view showed before may be of a round that has ended.
	state, ok := p.cache.Gang(key)
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
		p.mu.Unlock()
		return
	}
	// A pod may have appeared just when its gang was done and forgotten.
	g := p.gang(key, waiting)
	var broken *round
	for uid, s := range g.seats {
		switch {
		case alive[uid] && s.round.phase == bindingPhase && !s.reserved && p.cache.Bound(uid):
			delete(g.seats, uid) // its binding seemed to fail
		case alive[uid]:
		case s.round == g.open:
			broken = s.round
		default:
			delete(g.seats, uid)
		}
	}
	if !ok || state.Lacks != "" {
		p.missed(g)
	}
	if !alive[g.leader] || p.cache.Bound(g.leader) {
		g.unlead() // deleted, or bound by the scheduler that led before this one
	}
	idle := g.open == nil && len(g.seats) == 0 && p.planning != key
	done := idle && len(pending) == 0
	if done {
		delete(p.gangs, key)
	}
	waits := g.verdict != ""
	p.mu.Unlock()
	switch {
	case broken != nil:
		p.abandon(ctx, broken)
	case done:
		p.news.add(key) // it runs
		return
	case !ok || state.Lacks != "":
	case waits:
		p.retry(ctx, key, p.cache.Consider)
		p.news.add(key)            // pods that have just joined must say it, too
		p.enqueue(ctx, key, state) // late members start when it runs in part
		p.claim(ctx, key)          // it may have been put off while members were being bound
	default:
		p.enqueue(ctx, key, state)
	}
	p.report(key, state)
}

// waiting lists the gangs that wait for room, in the order of the queue. One for which a place is held waits for it while it is tried, too:
// else others would get the place meanwhile.
func (p *Plugin) waiting() []string {
	heads := p.cache.Heads()
	p.mu.Lock()
	var turns []inventory.Turn
	for _, g := range p.gangs {
		if !g.blocked && (g.verdict != "" || heads[g.key]) {
			turns = append(turns, inventory.Turn{Key: g.key, Priority: g.priority, Since: g.turn})
		}
	}
	p.mu.Unlock()
	for i := range turns {
		turns[i].Partial = p.cache.Standing(turns[i].Key, "").Partial
	}
	slices.SortFunc(turns, inventory.Turn.Compare)
	keys := make([]string, len(turns))
	for i, t := range turns {
		keys[i] = t.Key
	}
	return keys
}

// forgive gives refused nodes another chance, because the cluster has changed. A mere
// roll-back is no such change: gangs would try refused nodes in turns for ever.
func (p *Plugin) forgive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gangs {
		g.doubted, g.refused, g.pause = nil, nil, 0
	}
}

// missed has others looked at again that were kept out for the place of a gang that does
// not take it. The lock must be held.
func (p *Plugin) missed(g *gang) {
	if g.expected {
		g.expected = false
		p.work.add(inventory.Change{RolledBack: true})
	}
}

// retry lets a waiting gang in when it fits now, as consider says, and else notes why not.
func (p *Plugin) retry(ctx context.Context, key string, consider func(string, inventory.Limits) (inventory.Decision, bool)) {
	refused, _ := p.refusedTo(key)
	begin := time.Now()
	d, ok := consider(key, refused.limits())
	if ok {
		p.planned(key, begin, d)
	}
	if !ok || d.Lacks != "" {
		return
	}
	text, cause := p.waitText(d), p.cause(d)
	if d.Lost || d.Result.Reservation != nil && !d.Held {
		text = "" // its cycle gives up a place, or takes one
	}
	p.mu.Lock()
	g, known := p.gangs[key]
	if !known || g.verdict == "" || g.blocked {
		p.mu.Unlock()
		return
	}
	changed := text != g.verdict
	g.verdict, g.cause, g.expected = text, cause, text == ""
	p.mu.Unlock()
	if text == "" {
		p.enqueue(ctx, key, d.GangState)
		return
	}
	if changed {
		p.news.add(key)
	}
	if d.Result.Placement == nil {
		if len(refused) == 0 {
			p.dissolve(ctx, key, d.GangState)
		}
		p.retire(ctx, key, d.GangState)
	}
}
