package gang

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// recoverOnce plans, before anything else is planned, the rest of every gang that
// runs in part, and every gang that held a place; then places are held for gangs that
// have waited too long. It runs in the scheduling cycle.
func (p *Plugin) recoverOnce(ctx context.Context) {
	if p.recovered {
		return
	}
	p.recovered = true
	defer func() { p.reserve(p.inOrder(p.cache.Pending())) }()
	for _, key := range slices.Concat(p.cache.Partial(), p.inOrder(p.cache.Nominated())) {
		state, ok := p.cache.Gang(key)
		pod := state.FirstUnbound()
		if !ok || pod == nil || state.MissingText != "" {
			continue
		}
		_, status := p.plan(ctx, key, pod)
		p.nominateAssumed(ctx, key)
		if status.IsSuccess() {
			p.enqueue(ctx, key, state) // this is no cycle of the pod's own
		}
		klog.FromContext(ctx).Info("Found a gang that is bound in part or nominated", "gang", key, "fits", status.IsSuccess(), "verdict", status.Message())
	}
}

// nominateAssumed tells the framework where the members of a gang will be, so that pods of
// no higher priority that come before them leave them their room. A gang that is planned
// in its own cycle has no need of that: its members come next.
func (p *Plugin) nominateAssumed(ctx context.Context, key string) {
	var assumed []*assumedPod
	p.mu.Lock()
	if g, ok := p.gangs[key]; ok {
		assumed = slices.Collect(maps.Values(g.assumed))
	}
	p.mu.Unlock()
	for _, s := range assumed {
		p.nominate(ctx, s.pod, s.node)
	}
}

// inOrder sorts gangs by the order of the queue.
func (p *Plugin) inOrder(keys []string) []string {
	queued := map[string]clusterstate.QueuedGang{}
	for _, key := range keys {
		state, _ := p.cache.Gang(key)
		queued[key] = clusterstate.Queued(key, state)
	}
	return slices.SortedFunc(slices.Values(keys), func(a, b string) int { return queued[a].Compare(queued[b]) })
}

// noteRun notes which pods make up a gang that runs as a whole. One of which members are still being
// bound does not yet, and one of which some are being deleted does not any more: what replaces them may
// be the begin of another run. The lock must be held.
func (p *Plugin) noteRun(key string, state inventory.GangState) {
	g, ok := p.gangs[key]
	if ok && len(g.assumed) > 0 || !p.cache.GangStatus(key, "").Runs { // as one without pods does not
		return
	}
	delete(p.begun, key)
	bound := map[types.UID]bool{}
	for _, pod := range state.Pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		if pod.DeletionTimestamp != nil {
			return
		}
		bound[pod.UID] = true
	}
	p.ran[key] = bound
}

// hasRun reports whether this scheduler has seen a gang run as a whole with one of those members that
// it has still.
func (p *Plugin) hasRun(key string, state inventory.GangState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range state.Pods {
		if p.ran[key][pod.UID] {
			return true
		}
	}
	return false
}

// noteBegin notes which pods an attempt places beside the members of the gang that run. The lock must
// be held.
func (p *Plugin) noteBegin(r *attempt, running int) {
	if running == 0 {
		p.begun[r.key] = map[types.UID]bool{}
	}
	if begun, ok := p.begun[r.key]; ok {
		for uid := range r.pods {
			begun[uid] = true
		}
	}
}

// wasCutShort reports whether this scheduler has bound all those members of a gang that have nodes, and
// is not about to bind others, and the gang has not run as a whole: a member went while it was being bound.
func (p *Plugin) wasCutShort(key string, state inventory.GangState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun, ok := p.begun[key]
	if g := p.gangs[key]; !ok || g != nil && len(g.assumed) > 0 {
		return false
	}
	for _, pod := range state.Pods {
		if pod.Spec.NodeName != "" && !begun[pod.UID] {
			return false
		}
	}
	return true
}

// neverRan reports whether a gang that no scheduler is known to have seen run was cut short while
// it was being bound: every member that is pending existed before the first one was bound. In a gang
// that did run, a pending member is a replacement, made after the others were bound, or one beyond
// the minimum: with more of them than the gang lacks, nobody can tell.
func neverRan(state inventory.GangState) bool {
	if len(waitingMembers(state)) > state.Gang.Missing() {
		return false
	}
	var firstBound, lastMade time.Time
	for _, role := range state.Gang.Roles {
		if role.Late {
			continue
		}
		for _, name := range role.Members {
			pod := state.Pods[name]
			if pod.Spec.NodeName == "" {
				if lastMade.Before(pod.CreationTimestamp.Time) {
					lastMade = pod.CreationTimestamp.Time
				}
				continue
			}
			at := boundAt(pod)
			if at.IsZero() {
				return false // not confirmed yet
			}
			if firstBound.IsZero() || at.Before(firstBound) {
				firstBound = at
			}
		}
	}
	return !firstBound.IsZero() && !lastMade.IsZero() && !lastMade.After(firstBound)
}

// boundAt is when a pod was bound, zero when that is not known.
func boundAt(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// evictPartial evicts the bound members of a gang that was cut short and cannot be
// completed, so that its job recreates them and the gang as a whole is pending.
func (p *Plugin) evictPartial(ctx context.Context, key string) {
	cutShort := func(state inventory.GangState) bool {
		return !p.hasRun(key, state) && (p.wasCutShort(key, state) || neverRan(state))
	}
	text := fmt.Sprintf("the rest of gang %s does not fit any more, and it never ran as a whole", key)
	p.dismissRest(ctx, key, p.rest(key, cutShort), text, func(pod *corev1.Pod) {
		p.meter.Evicted(metrics.Partial)
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "PartialGangEvicted", "Scheduling", "%s", text)
	})
}
