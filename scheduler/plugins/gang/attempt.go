package gang

import (
	"cmp"
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

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/binding"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

const (
	// verifyAgain is the pause after which it is looked again whether a binding that failed has succeeded.
	verifyAgain = time.Second
	// retryDelay is how long a gang stays out before a rejected node is tried again.
	retryDelay = 50 * time.Millisecond
	// minBackoff and maxBackoff bound the pause after which rejected nodes get another chance.
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
	// maxPause bounds the pause after an attempt that other plugins let fail. It is kube-scheduler's for pods.
	maxPause = 10 * time.Second
	// maxDryRuns bounds how often a gang is planned in one cycle.
	maxDryRuns = 10
)

// plan plans the members of a gang that are not bound, and returns the assumed pod or
// the verdict. It runs in the scheduling cycle only, so attempts never overlap.
func (p *Plugin) plan(ctx context.Context, key string, pod *corev1.Pod) (*assumedPod, *fwk.Status) {
	p.setPlanning(key)
	defer p.setPlanning("")
	d, order, status := p.decide(ctx, key, pod)
	if status != nil {
		return nil, status
	}
	if d.Result.Placement == nil && d.EvictedFor == "" {
		if status := p.askAboutReserved(ctx, key, pod, d); status != nil {
			return nil, status
		}
	}
	if text := p.waitText(d); text != "" {
		why := wait{cause: p.cause(d), text: text}
		p.mu.Lock()
		g := p.gang(key, pod)
		g.wait(why, &d.GangState, p.cache.GangStatus(key, pod.UID))
		p.activationMissed(g)
		rejected, outrun := len(g.rejected) > 0, p.outrun
		p.mu.Unlock()
		if outrun {
			p.work.add(clusterstate.Change{Gang: key})
		}
		p.work.preempt(key)
		switch {
		case d.EvictedFor != "": // it is to have no place yet
		case rejected:
			p.work.age() // the place that it waits for may be one that is refused
		default:
			p.reserveLater(key)
		}
		if d.Result.Reservation == nil && rejected {
			p.retryRejectedLater(key)
		}
		if d.Running > 0 {
			p.work.add(clusterstate.Change{Gang: key}) // the worker sees whether its rest is to be evicted
		}
		return nil, unschedulable("%s", text)
	}
	if why := d.Result.Verdict.NotAsPlanned; why != "" {
		p.handle.EventRecorder().Eventf(regarding(d.GangState), nil, corev1.EventTypeWarning, notAsPlanned, "Scheduling",
			"gang %s is not placed where it was planned: %s", placement.NameOf(d.Gang.ID), why)
	}
	r, s, next := p.startAttempt(key, pod, d, order)
	p.recordHostPorts(d)
	if s == nil || len(r.pods) > 1 {
		p.enqueue(ctx, key, d.GangState)
	}
	switch {
	case s == nil:
		return nil, unschedulable("gang %s is being placed without it", key)
	case !next:
		return nil, unschedulable("other members of gang %s come before it", key)
	}
	return s, nil
}

func (p *Plugin) setPlanning(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planning, p.outrun = key, false
}

// decide plans a gang and takes its place, unless other plugins refuse it there: then it
// is planned again without the nodes that they refuse. They are asked before others are
// evicted for a place. Before members are assumed, which each plugin looks at in their own
// cycles anyway, they are asked only when one has refused the gang a node before, or may.
// It returns the order in which members must be reserved, nil when any will do.
func (p *Plugin) decide(ctx context.Context, key string, pod *corev1.Pod) (clustercache.Decision, []string, *fwk.Status) {
	var dryRun *placement.Result
	var order []string
	for range maxDryRuns {
		rejected, checkFilters := p.rejectedFor(key)
		begin := time.Now()
		d, ok, err := p.cache.Decide(key, rejected.limits(), func(d *clustercache.Decision) bool {
			if dryRun != nil && reflect.DeepEqual(d.Result, *dryRun) {
				return true
			}
			return d.Result.Reservation == nil && !checkFilters && !mayReject(d)
		})
		switch {
		case err != nil:
			return d, nil, fwk.AsStatus(err)
		case !ok:
			return d, nil, unschedulable("pod %s is gone", pod.Name)
		case d.MissingText != "":
			return d, nil, unschedulable("%s", d.MissingText)
		}
		if d.Lifted {
			p.work.add(clusterstate.Change{RolledBack: true})
		}
		p.planned(key, begin, d)
		if d.Lost {
			p.meter.GaveUpNomination()
		}
		if !d.Declined {
			return d, order, nil
		}
		if pause := p.departures.pause(p.now()); pause > 0 && evicts(d.Result) {
			p.activateAfter(ctx, key, pause)
			return d, nil, unschedulable("gang %s evicts nobody while pods are being deleted: they may make enough room", placement.NameOf(d.Gang.ID))
		}
		found, positions, why, err := p.dryRunFilters(ctx, d, pod)
		switch {
		case err != nil:
			return d, nil, fwk.AsStatus(err)
		case why != nil:
			p.blockOther(ctx, key, why)
			if why.pod.UID == pod.UID {
				return d, nil, unschedulable("pod %s: %s", pod.Name, why.reason)
			}
			dryRun, order = nil, nil
			continue
		}
		dryRun, order = &d.Result, positions
		if len(found) > 0 {
			dryRun = nil
			p.note(key, pod, found)
		}
	}
	p.activateAfter(ctx, key, retryDelay)
	return clustercache.Decision{}, nil, unschedulable("other plugins refuse the nodes of gang %s; it is being planned again", key)
}

// retryRejectedLater gives a gang's rejected nodes another chance after a pause that doubles
// each time: what made another plugin refuse them may have passed without a change of
// the view.
func (p *Plugin) retryRejectedLater(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	if !ok {
		return
	}
	g.backoff = min(max(2*g.backoff, minBackoff), maxBackoff)
	p.after(g.backoff, func() {
		p.mu.Lock()
		if g, ok := p.gangs[key]; ok {
			g.forgetRejections()
		}
		p.mu.Unlock()
		p.work.add(clusterstate.Change{Gang: key})
	})
}

// waitText says why a gang must wait, "" when it need not.
func (p *Plugin) waitText(d clustercache.Decision) string {
	switch {
	case d.EvictedFor != "":
		return fmt.Sprintf("gang %s is being evicted for gang %s: its pods start together, once they have been made again",
			placement.NameOf(d.Gang.ID), placement.NameOf(d.EvictedFor))
	case d.Result.Placement == nil:
		rejected, _ := p.rejectedFor(d.Key)
		return d.Result.Verdict.String() + rejected.String() + p.reservationText(d.Key) + p.refusalText(d.Key)
	case d.Result.Reservation != nil:
		return p.nominationText(d)
	case len(d.Result.Placement.Assignments) == 0:
		return fmt.Sprintf("gang %s runs with %s; there is no room for more.%s", placement.NameOf(d.Gang.ID), inventory.Members(d.Running), d.Result.Verdict.ReservedText()) +
			p.refusalText(d.Key)
	}
	return ""
}

// causeEvicted is the cause of a gang that waits because it is being evicted.
const causeEvicted = "Evicted"

// cause is what kind of reason makes a gang wait: what says the same with other numbers has
// the same cause.
func (p *Plugin) cause(d clustercache.Decision) string {
	switch {
	case d.EvictedFor != "":
		return causeEvicted
	case d.Result.Reservation != nil:
		return "Preempting"
	case d.Result.Placement != nil:
		return "Full" + p.refusalText(d.Key) // it runs in part
	}
	var cause string
	if reasons := d.Result.Verdict.Reasons; len(reasons) > 0 {
		cause = string(reasons[0].Code) + reasons[0].Quota
	}
	if rejected, _ := p.rejectedFor(d.Key); len(rejected) > 0 {
		cause += ", refused"
	}
	return cause + p.reservationText(d.Key) + p.refusalText(d.Key) + d.Result.Verdict.ReservedText()
}

// rejectedFor returns which nodes are refused to a gang, and whether any ever was.
func (p *Plugin) rejectedFor(key string) (rejected rejections, checkFilters bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, ok := p.gangs[key]; ok {
		return g.rejected, g.checkFilters
	}
	return nil, false
}

// note notes what a dry run has found.
func (p *Plugin) note(key string, pod *corev1.Pod, found rejections) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gang(key, pod)
	g.checkFilters, g.rejected, g.asked = true, g.rejected.with(found), nil
}

// startAttempt gives the planned members, which are charged to the view already, assumed pods, and
// the order in which they take them, nil for any. It returns the assumed pod of a pod, nil for none, and whether that is next.
func (p *Plugin) startAttempt(key string, pod *corev1.Pod, d clustercache.Decision, order []string) (r *attempt, s *assumedPod, next bool) {
	r = &attempt{
		key: key, phase: phaseReserving, pods: make(map[types.UID]*assumedPod, len(d.Assumed)), taken: d.Taken, ordered: order != nil, decided: make(chan struct{}),
	}
	for _, place := range d.Assumed {
		s := &assumedPod{attempt: r, pod: place.Pod, node: place.Record.Node, record: place.Record, position: slices.Index(order, place.Member)}
		r.pods[place.Pod.UID] = s
		if r.ordered {
			// A nomination would count this member for those that come before it.
			p.handle.DeleteNominatedPodIfExists(s.pod)
		}
	}
	if r.ordered {
		p.setLeaders(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteBegin(r, d.Running)
	g := p.gang(key, pod)
	g.place()
	g.expected, g.attempt = false, r
	maps.Copy(g.assumed, r.pods)
	s = r.pods[pod.UID]
	return r, s, s != nil && r.isNext(s)
}

// setLeaders finds the members whom others need: the first of those that share a volume claim or a resource claim
// which has been given nothing yet. Its volume or devices are made when it is about to be bound, and only then can the others have a place.
func (p *Plugin) setLeaders(r *attempt) {
	sharing := map[string][]*assumedPod{}
	for _, s := range r.pods {
		for _, shared := range p.cache.PendingClaims(s.pod) {
			sharing[shared] = append(sharing[shared], s)
		}
	}
	for _, pods := range sharing {
		if len(pods) > 1 {
			slices.MinFunc(pods, func(a, b *assumedPod) int { return cmp.Compare(a.position, b.position) }).leads = true
		}
	}
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

// reject rolls an assumed pod's gang back because another plugin refused the planned node. The
// first time that may only mean that the scheduler's own cache is a moment behind the
// view, so the node is tried once more, and a place that was reserved is kept until then: others
// may have been evicted for it. All that one attempt hears of a node is one time, and what the cache is seen
// to be behind about is none.
func (p *Plugin) reject(ctx context.Context, key string, s *assumedPod, why *fwk.Status) {
	state, _ := p.cache.Gang(key)
	role, behind := roleOf(state, s.pod), p.behind(s.node)
	p.mu.Lock()
	g := p.gang(key, s.pod)
	beside, elsewhere := map[string]int{}, false
	for _, other := range s.attempt.pods {
		if other == s || !other.reserved {
			continue
		}
		of := roleOf(state, other.pod)
		if other.node == s.node {
			beside[of]++
		}
		elsewhere = elsewhere || other.node != s.node && of != role
	}
	if len(beside) > 0 && why.Code() == fwk.UnschedulableAndUnresolvable {
		// Those beside it may have taken what it lacks, such as a local volume. Without them a dry run tells.
		why = fwk.NewStatus(fwk.Unschedulable, why.Reasons()...).WithPlugin(why.Plugin())
	}
	found := rejections{}
	found.addRejected(role, s.node, beside, why)
	g.checkFilters, g.asked = true, nil
	if elsewhere && !slices.Contains(g.lacking, role) {
		g.lacking = append(g.lacking, role)
	}
	if first := g.rejectedOnce[s.node]; first != nil && first != s.attempt && !behind {
		g.rejected = g.rejected.with(found)
	} else {
		if g.rejectedOnce == nil {
			g.rejectedOnce = map[string]*attempt{}
		}
		g.rejectedOnce[s.node] = s.attempt
		s.attempt.backoff, s.attempt.kept = retryDelay, true
	}
	bound := s.attempt.phase == phaseBinding
	p.mu.Unlock()
	if bound {
		p.unassume(ctx, key, s)
		return
	}
	p.abort(ctx, s.attempt)
}

// behind reports whether the snapshot of this cycle has pods on a node of which the view knows that they are gone.
func (p *Plugin) behind(node string) bool {
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	return err == nil && slices.ContainsFunc(info.GetPods(), func(pod fwk.PodInfo) bool { return !p.cache.Holds(pod.GetPod().UID) })
}

// unassume takes one member of a gang that is binding off a node that refuses it; its
// next cycle plans it again, next to the others. A member whose binding has failed may be bound
// all the same, and nobody but the API server can tell: while that is so it keeps its GPUs.
func (p *Plugin) unassume(ctx context.Context, key string, s *assumedPod) {
	if p.cache.Unverified(s.pod.UID) {
		unbound, err := binding.Unbound(ctx, p.handle.ClientSet(), s.pod)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot take a member off its node", "gang", key)
		}
		if !unbound {
			p.activateAfter(ctx, key, verifyAgain)
			return
		}
	}
	p.free(s) // first: a gang without assumed pods whose members are all charged is done
	p.mu.Lock()
	g := p.gang(key, s.pod)
	if g.assumed[s.pod.UID] == s {
		delete(g.assumed, s.pod.UID)
	}
	backoff := s.attempt.backoff
	p.mu.Unlock()
	p.activateAfter(ctx, key, backoff)
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

// activateAfter activates a gang after a pause.
func (p *Plugin) activateAfter(ctx context.Context, key string, pause time.Duration) {
	if pause == 0 {
		p.activate(ctx, key)
		return
	}
	p.after(pause, func() { p.work.add(clusterstate.Change{Gang: key}) })
}

// free takes back what an assumed pod charged to the view and what it told the framework.
func (p *Plugin) free(s *assumedPod) {
	p.handle.DeleteNominatedPodIfExists(s.pod)
	p.cache.Forget(s.pod.UID)
}

// block notes that another plugin refuses a pod whatever the node. The gang goes on without it if it can; the pod enters the
// queue by itself, when that plugin's events bring it back.
func (p *Plugin) block(ctx context.Context, key string, pod *corev1.Pod, reason string) {
	fresh := p.cache.Refuse(pod.UID, cmp.Or(reason, "another plugin refuses it"))
	p.mu.Lock()
	g := p.gang(key, pod)
	p.answers.Delete(key) // it does not speak for this pod
	if g.firstPod == pod.UID {
		g.loseFirst()
	}
	s := g.assumed[pod.UID]
	bound := s != nil && s.attempt.phase == phaseBinding
	if fresh {
		p.activationMissed(g)
	}
	p.mu.Unlock()
	switch {
	case bound:
		p.unassume(ctx, key, s)
	case s != nil:
		p.abort(ctx, s.attempt)
	}
	if fresh {
		p.withdraw(key, true)
		p.work.preempt(key)
		p.work.add(clusterstate.Change{Gang: key})
	}
	p.statuses.add(key)
}

// blockOther is block for a member that had no cycle of its own: it gets one, which brings it where that plugin's events find it.
func (p *Plugin) blockOther(ctx context.Context, key string, why *blocked) {
	p.block(ctx, key, why.pod, why.reason)
	p.activatePod(ctx, why.pod)
}

// uids lists the attempt's members.
func (r *attempt) uids() []types.UID { return slices.Collect(maps.Keys(r.pods)) }
