package gang

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

const (
	// secondLook is how long a gang stays out before a refused node is tried again.
	secondLook = 50 * time.Millisecond
	// firstPardon and lastPardon bound the pause after which refused nodes get another chance.
	firstPardon = time.Second
	lastPardon  = 5 * time.Minute
	// rehearsals bounds how often a gang is planned in one cycle.
	rehearsals = 10
)

// plan plans the members of a gang that are not bound, and returns the pod's seat or
// the verdict. It runs in the scheduling cycle only, so rounds never overlap.
func (p *Plugin) plan(ctx context.Context, key string, pod *corev1.Pod) (*seat, *fwk.Status) {
	p.setPlanning(key)
	defer p.setPlanning("")
	d, order, status := p.decide(ctx, key, pod)
	if status != nil {
		return nil, status
	}
	if text := p.waitText(d); text != "" {
		cause := p.cause(d)
		p.mu.Lock()
		g := p.gang(key, pod)
		g.wait(text, cause)
		p.missed(g)
		refused := len(g.refused) > 0
		p.mu.Unlock()
		p.work.claim(key)
		if refused {
			p.work.age() // the place that it waits for may be one that is refused
		} else {
			p.loseHope(key)
		}
		switch {
		case d.Result.Reservation != nil:
		case refused:
			p.pardonLater(key)
		default:
			p.dissolve(ctx, key, d.GangState)
		}
		if p.staleAfter > 0 && d.Running > 0 {
			p.work.add(inventory.Change{Gang: key}) // the worker sees whether it is to be retired
		}
		return nil, hold("%s", text)
	}
	if why := d.Result.Verdict.NotAsPlanned; why != "" {
		p.handle.EventRecorder().Eventf(regarding(d.GangState), nil, corev1.EventTypeWarning, notAsPlanned, "Scheduling",
			"gang %s is not placed where it was planned: %s", placement.NameOf(d.Gang.ID), why)
	}
	r := p.open(key, pod, d.Seats, order)
	p.tellApart(d)
	s := r.seats[pod.UID]
	if s == nil || len(r.seats) > 1 {
		p.enqueue(ctx, key, d.GangState)
	}
	switch {
	case s == nil:
		return nil, hold("gang %s is being placed without it", key)
	case !r.comes(s):
		return nil, hold("other members of gang %s come before it", key)
	}
	return s, nil
}

func (p *Plugin) setPlanning(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planning = key
}

// decide plans a gang and takes its place, unless other plugins refuse it there: then it
// is planned again without the nodes that they refuse. They are asked before others are
// evicted for a place. Before members take seats, which each plugin looks at in their own
// cycles anyway, they are asked only when one has refused the gang a node before, or may.
// It returns the order in which members must take their seats, nil when any will do.
func (p *Plugin) decide(ctx context.Context, key string, pod *corev1.Pod) (inventory.Decision, []string, *fwk.Status) {
	var rehearsed *placement.Result
	var order []string
	for range rehearsals {
		refused, wary := p.refusedTo(key)
		begin := time.Now()
		d, ok, err := p.cache.Decide(key, refused.limits(), func(d *inventory.Decision) bool {
			if rehearsed != nil && reflect.DeepEqual(d.Result, *rehearsed) {
				return true
			}
			return d.Result.Reservation == nil && !wary && !picky(d)
		})
		switch {
		case err != nil:
			return d, nil, fwk.AsStatus(err)
		case !ok:
			return d, nil, hold("pod %s is gone", pod.Name)
		case d.Lacks != "":
			return d, nil, hold("%s", d.Lacks)
		}
		if d.Lifted {
			p.work.add(inventory.Change{RolledBack: true})
		}
		p.planned(key, begin, d)
		if d.Lost {
			p.meter.GaveUpClaim()
		}
		if !d.Declined {
			return d, order, nil
		}
		found, turns, why, err := p.rehearse(ctx, d, pod)
		switch {
		case err != nil:
			return d, nil, fwk.AsStatus(err)
		case why != nil:
			p.block(ctx, key, why.pod, why.reason)
			p.letIn(ctx, key)
			return d, nil, hold("pod %s: %s", why.pod.Name, why.reason)
		}
		rehearsed, order = &d.Result, turns
		if len(found) > 0 {
			rehearsed = nil
			p.note(key, pod, found)
		}
	}
	p.letInAfter(ctx, key, secondLook)
	return inventory.Decision{}, nil, hold("other plugins refuse the nodes of gang %s; it is being planned anew", key)
}

// pardonLater gives a gang's refused nodes another chance after a pause that doubles
// each time: what made another plugin refuse them may have passed without a change of
// the view.
func (p *Plugin) pardonLater(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	if !ok {
		return
	}
	g.pause = min(max(2*g.pause, firstPardon), lastPardon)
	p.after(g.pause, func() {
		p.mu.Lock()
		if g, ok := p.gangs[key]; ok {
			g.doubted, g.refused = nil, nil
		}
		p.mu.Unlock()
		p.work.add(inventory.Change{Gang: key})
	})
}

// waitText says why a gang must wait, "" when it need not.
func (p *Plugin) waitText(d inventory.Decision) string {
	switch {
	case d.Result.Placement == nil:
		refused, _ := p.refusedTo(d.Key)
		return d.Result.Verdict.String() + refused.String() + p.headText(d.Key)
	case d.Result.Reservation != nil:
		return p.claimText(d)
	case len(d.Result.Placement.Assignments) == 0:
		return fmt.Sprintf("gang %s runs with %s; there is no room for more.%s", placement.NameOf(d.Gang.ID), inventory.Members(d.Running), d.Result.Verdict.HeldText())
	}
	return ""
}

// cause is what kind of reason makes a gang wait: what says the same with other numbers has
// the same cause.
func (p *Plugin) cause(d inventory.Decision) string {
	switch {
	case d.Result.Reservation != nil:
		return "Claim"
	case d.Result.Placement != nil:
		return "Full" // it runs in part
	}
	var cause string
	if reasons := d.Result.Verdict.Reasons; len(reasons) > 0 {
		cause = string(reasons[0].Code) + reasons[0].Quota
	}
	if refused, _ := p.refusedTo(d.Key); len(refused) > 0 {
		cause += ", refused"
	}
	return cause + p.headText(d.Key) + d.Result.Verdict.HeldText()
}

// wait takes the gang out of the queue. The plugin's lock must be held.
func (g *gang) wait(verdict, cause string) {
	g.verdict, g.cause, g.blocked, g.leader = verdict, cause, false, ""
}

// unlead forgets the leader, and that another plugin refuses it. The plugin's lock must be held.
func (g *gang) unlead() {
	if g.blocked {
		g.verdict, g.cause, g.blocked = "", "", false
	}
	g.leader = ""
}

// refusedTo returns which nodes are refused to a gang, and whether any ever was.
func (p *Plugin) refusedTo(key string) (refused refusals, wary bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, ok := p.gangs[key]; ok {
		return g.refused, g.wary
	}
	return nil, false
}

// note notes what a rehearsal has found.
func (p *Plugin) note(key string, pod *corev1.Pod, found refusals) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gang(key, pod)
	g.wary, g.refused = true, g.refused.with(found)
}

// open gives the planned members, which are charged to the view already, their seats, and
// the order in which they take them, nil for any.
func (p *Plugin) open(key string, pod *corev1.Pod, places []inventory.Seat, order []string) *round {
	r := &round{key: key, seats: make(map[types.UID]*seat, len(places)), inTurn: order != nil}
	for _, place := range places {
		s := &seat{round: r, pod: place.Pod, node: place.Record.Node, record: place.Record, turn: slices.Index(order, place.Member)}
		r.seats[place.Pod.UID] = s
		if r.inTurn {
			// A nomination would count this member for those that come before it.
			p.handle.DeleteNominatedPodIfExists(s.pod)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gang(key, pod)
	g.verdict, g.blocked, g.leader, g.expected = "", false, "", false
	g.open = r
	maps.Copy(g.seats, r.seats)
	return r
}

// nominate tells the framework where a member will be, so that pods of no higher
// priority that it places in between leave it its room.
func (p *Plugin) nominate(ctx context.Context, pod *corev1.Pod, node string) {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return // a broken affinity term; the pod's own cycle reports it
	}
	p.handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride})
}

// refuse rolls a seat's gang back because another plugin refused the planned node. The
// first time that may only mean that the scheduler's own cache is a moment behind the
// view, so the node is tried once more.
func (p *Plugin) refuse(ctx context.Context, key string, s *seat, why *fwk.Status) {
	state, _ := p.cache.Gang(key)
	role := roleOf(state, s.pod)
	p.mu.Lock()
	g := p.gang(key, s.pod)
	beside := map[string]int{}
	for _, other := range s.round.seats {
		if other != s && other.reserved && other.node == s.node {
			beside[roleOf(state, other.pod)]++
		}
	}
	found := refusals{}
	found.refused(role, s.node, beside, why)
	g.wary = true
	if g.doubted[s.node] {
		g.refused = g.refused.with(found)
	} else {
		mark(&g.doubted, s.node)
		s.round.pause = secondLook
	}
	binding := s.round.phase == bindingPhase
	p.mu.Unlock()
	if binding {
		p.vacate(ctx, key, s)
		return
	}
	p.abandon(ctx, s.round)
}

// vacate takes one member of a gang that is binding off a node that refuses it; its
// next cycle plans it anew, next to the others.
func (p *Plugin) vacate(ctx context.Context, key string, s *seat) {
	p.free(s) // first: a gang without seats whose members are all charged is done
	p.mu.Lock()
	g := p.gang(key, s.pod)
	if g.seats[s.pod.UID] == s {
		delete(g.seats, s.pod.UID)
	}
	p.mu.Unlock()
	p.letInAfter(ctx, key, s.round.pause)
}

// roleOf returns the role of a gang's member.
func roleOf(state inventory.GangState, pod *corev1.Pod) string {
	for _, role := range state.Gang.Roles {
		for _, name := range role.Members {
			if state.Pods[name].UID == pod.UID {
				return role.Name
			}
		}
	}
	return ""
}

// mark adds a node to a set.
func mark(set *map[string]bool, node string) {
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[node] = true
}

// letInAfter lets a gang in after a pause.
func (p *Plugin) letInAfter(ctx context.Context, key string, pause time.Duration) {
	if pause == 0 {
		p.letIn(ctx, key)
		return
	}
	p.after(pause, func() { p.work.add(inventory.Change{Gang: key}) })
}

// free takes back what a seat charged to the view and what it told the framework.
func (p *Plugin) free(s *seat) {
	p.handle.DeleteNominatedPodIfExists(s.pod)
	p.cache.Forget(s.pod.UID)
}

// block notes that another plugin refuses a pod whatever the node. The pod leads its
// gang from then on, because that plugin's events bring only this pod back.
func (p *Plugin) block(ctx context.Context, key string, pod *corev1.Pod, reason string) {
	p.mu.Lock()
	g := p.gang(key, pod)
	if g.verdict != "" && !g.blocked {
		p.mu.Unlock()
		return // the plugin's own verdict brought the cycle here
	}
	open := g.open
	g.leader, g.blocked = pod.UID, true
	p.missed(g)
	g.verdict, g.cause = fmt.Sprintf("pod %s: %s", pod.Name, reason), reason
	p.mu.Unlock()
	if open != nil {
		p.abandon(ctx, open)
	}
}

// uids lists the round's members.
func (r *round) uids() []types.UID { return slices.Collect(maps.Keys(r.seats)) }
