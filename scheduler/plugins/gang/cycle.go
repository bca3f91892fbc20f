package gang

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/allocate"
)

// waitForOthers bounds how long a member holds its place for the others of its gang.
// All of them are activated together, so this only ends when something is badly wrong.
const waitForOthers = 2 * time.Minute

const (
	stateKey fwk.StateKey = Name
	// dryRunKey marks a cycle that is only a dry run.
	dryRunKey fwk.StateKey = Name + "/dry run"
)

// cycle is what the plugin keeps of a scheduling cycle: its assumed pod, nil
// when the plugin itself ended the cycle.
type cycle struct{ assumed *assumedPod }

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData { return c }

// assumedIn returns the cycle's assumed pod, nil for a pod that is not planned.
func assumedIn(state fwk.CycleState) *assumedPod {
	data, err := state.Read(stateKey)
	c, ok := data.(*cycle)
	if err != nil || !ok {
		return nil
	}
	return c.assumed
}

// PreFilter gives the pod its planned node, and plans its gang when that is not done.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if _, err := state.Read(dryRunKey); err == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if err := p.synced(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	p.recoverOnce(ctx)
	key, planned := p.cache.PlanKey(pod)
	if !planned {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if within := p.cache.GangStatus(key, pod.UID); within.Late {
		if !p.startsLate(key, within) { // it entered the queue before there were members that it is late for, or these have gone
			return nil, unschedulable("%s", lateText(key))
		}
		return nil, fwk.NewStatus(fwk.Skip)
	} else if within.Refused { // those who refused it have been asked before this plugin, and let it by
		state.Write(stateKey, &cycle{})
		p.cache.Allow(pod.UID)
		p.work.add(clusterstate.Change{Gang: key})
		return nil, unschedulable("gang %s is being planned with it", key)
	}
	s, status := p.assumedPod(ctx, key, pod)
	state.Write(stateKey, &cycle{assumed: s})
	if status != nil {
		return nil, status
	}
	allocate.Decide(state, s.record, func(ctx context.Context) *fwk.Status { return p.awaitOthers(ctx, s) })
	return &fwk.PreFilterResult{NodeNames: sets.New(s.node)}, nil
}

// PreFilterExtensions returns the plugin itself.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod takes a nominated pod off the node again that the planner places, too: its place
// is held in the view, so that it needs none beside those who leave it.
func (p *Plugin) AddPod(ctx context.Context, _ fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if !p.cache.Planned(added.GetPod()) {
		return nil
	}
	return fwk.AsStatus(node.RemovePod(klog.FromContext(ctx), added.GetPod()))
}

// RemovePod does nothing: what pods that go leave is in the plugin's view.
func (*Plugin) RemovePod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

// Filter admits the planned node only; the framework tries a nominated node without
// asking PreFilter's result.
func (*Plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if s := assumedIn(state); s != nil && info.Node().Name != s.node {
		return unschedulable("the gang is planned on other nodes")
	}
	return nil
}

// assumedPod returns the assumed pod, or why it has none.
func (p *Plugin) assumedPod(ctx context.Context, key string, pod *corev1.Pod) (*assumedPod, *fwk.Status) {
	p.mu.Lock()
	g := p.gang(key, pod)
	s, underWay := g.assumed[pod.UID], g.attempt
	fails := underWay != nil && underWay.failed()
	early := s != nil && !s.attempt.isNext(s)
	waits, why := g.waits(), g.why.text
	p.mu.Unlock()
	switch {
	case fails:
		return nil, unschedulable("gang %s is being planned again", key)
	case early:
		return nil, unschedulable("other members of gang %s come before it", key)
	case s != nil:
		return s, nil
	case underWay != nil:
		return nil, unschedulable("gang %s is being placed without it", key)
	case waits:
		return nil, unschedulable("%s", why)
	}
	return p.plan(ctx, key, pod)
}

// PostFilter rolls the gang back when another plugin refused one of its members. A pod
// that was not planned, and is charged to the quota tree, is planned from now on.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	key, planned := p.cache.PlanKey(pod)
	if !planned {
		switch key, managed := p.cache.Manage(pod); {
		case managed && key == "":
			return nil, unschedulable("the scheduler has not taken the pod into its view yet") // the quota plugin activates it again
		case managed:
			p.work.add(clusterstate.Change{Gang: key})
			return nil, unschedulable("from now on it is planned by the rules of the quota tree")
		}
	}
	if !planned || p.cache.GangStatus(key, pod.UID).Late {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if _, err := state.Read(stateKey); err != nil {
		p.block(ctx, key, pod, nodes.Get("").Message())
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable) // the reason is the other plugin's
	} else if s := assumedIn(state); s != nil {
		p.reject(ctx, key, s, nodes.Get(s.node))
	}
	// This status keeps preemption for single pods away from gangs.
	return nil, unschedulable("members of a gang are placed together")
}

// Reserve notes that the member holds its place in the scheduler's cache, and activates the
// one that comes after it, unless that needs what is still to be made for this one.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) *fwk.Status {
	s := assumedIn(state)
	if s == nil {
		return nil
	}
	p.mu.Lock()
	if s.attempt.failed() {
		p.mu.Unlock()
		return unschedulable("gang %s is being planned again", s.attempt.key)
	}
	if !s.reserved {
		s.reserved = true
		s.attempt.reserved++
	}
	if s.leads && s.attempt.phase == phaseReserving {
		s.attempt.leading, s.attempt.led = s, true
	}
	next := s.attempt.nextPod()
	p.mu.Unlock()
	p.activateNext(ctx, next)
	return nil
}

// activateNext activates the member that is reserved next, nil for none.
func (p *Plugin) activateNext(ctx context.Context, next *assumedPod) {
	if next != nil {
		p.activatePod(ctx, next.pod)
	}
}

// activatePod moves a pod to the queue, where PreEnqueue decides about it.
func (p *Plugin) activatePod(ctx context.Context, pod *corev1.Pod) {
	p.handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
}

// Unreserve rolls back the whole gang, for a pause when another plugin has failed, unless it is being bound already: then the member
// keeps its GPUs, because others of the gang may be bound, and tries again, but on another node where the API server refuses this one.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) {
	s := assumedIn(state)
	if s == nil {
		return
	}
	p.mu.Lock()
	if !s.reserved {
		p.mu.Unlock()
		return
	}
	s.reserved = false
	s.attempt.reserved--
	phase := s.attempt.phase
	if (phase == phaseReserving || phase == phasePreparing) && p.cache.Assumed(s.pod.UID) {
		p.gangs[s.attempt.key].fail(s.attempt)
	}
	p.mu.Unlock()
	if phase != phaseBinding {
		p.abort(ctx, s.attempt)
		return
	}
	p.cache.SetUnverified(s.pod.UID)
	if err := allocate.Failure(state); refusesBinding(err) {
		p.rejectBinding(ctx, s, err)
		return
	}
	if p.cache.Bound(s.pod.UID) {
		p.work.add(clusterstate.Change{Gang: s.attempt.key})
	}
}

// Permit makes members wait until all of them have a place, and lets them bind together. One that others need something of
// goes on, up to its binding.
func (p *Plugin) Permit(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	s := assumedIn(state)
	if s == nil {
		return nil, 0
	}
	p.mu.Lock()
	r := s.attempt
	if r.failed() {
		p.mu.Unlock()
		return unschedulable("gang %s is being planned again", r.key), 0
	}
	if r.reserved < len(r.pods) && r.phase == phaseReserving {
		leads := r.leading == s
		p.mu.Unlock()
		if leads {
			return nil, 0
		}
		return fwk.NewStatus(fwk.Wait), waitForOthers
	}
	r.on(passes)
	others := r.uids()
	p.mu.Unlock()
	for _, uid := range others {
		if waiting := p.handle.GetWaitingPod(uid); waiting != nil && uid != pod.UID {
			waiting.Allow(Name)
		}
	}
	return nil, 0
}

// awaitOthers returns when all members of the attempt can be bound: other plugins may still make
// volumes or devices for them, and fail, when a member has passed its cycle. It returns why the
// member is not bound when one cannot be.
func (p *Plugin) awaitOthers(ctx context.Context, s *assumedPod) *fwk.Status {
	decided := p.prepare(s)
	if s.leads {
		p.mu.Lock()
		next := s.attempt.nextPod()
		p.mu.Unlock()
		p.activateNext(ctx, next)
	}
	select {
	case <-decided:
	case <-ctx.Done():
		return fwk.AsStatus(context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.attempt.failed() {
		return unschedulable("gang %s is being planned again", s.attempt.key)
	}
	return nil
}

// prepare notes that a member can be bound, and returns what is closed when it is decided whether
// it is.
func (p *Plugin) prepare(s *assumedPod) (decided <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := s.attempt
	if r.prepare(s) {
		g := p.gangs[r.key]
		g.attempt, g.failed, g.pause = nil, nil, 0
		close(r.decided)
	}
	return r.decided
}

// PostBind forgets the assumed pod of a member that is bound.
func (p *Plugin) PostBind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	s := assumedIn(state)
	if s == nil {
		return
	}
	p.mu.Lock()
	g, ok := p.gangs[s.attempt.key]
	if ok && g.assumed[pod.UID] == s {
		delete(g.assumed, pod.UID)
	}
	done := ok && len(g.assumed) == 0
	var complete time.Time
	if done {
		complete = g.complete
		if p.cache.GangStatus(s.attempt.key, "").Runs {
			delete(p.begun, s.attempt.key)
		}
	}
	p.mu.Unlock()
	if done {
		p.started(complete)
		p.work.add(clusterstate.Change{Gang: s.attempt.key})
	}
}
