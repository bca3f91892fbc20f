package gang

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// retire evicts what is left of a gang that has lost members, runs with fewer than it needs,
// and has found no place for their successors for too long: its job recreates the others,
// too, and it waits as a whole, while others use its GPUs.
func (p *Plugin) retire(ctx context.Context, key string, state inventory.GangState) {
	pause, ok := p.staleIn(key, state)
	if !ok {
		return
	}
	if pause > 0 {
		p.retireLater(key, pause)
		return
	}
	stale := func(state inventory.GangState) bool {
		pause, ok := p.staleIn(key, state)
		return ok && pause <= 0
	}
	text := fmt.Sprintf("gang %s has lost members, and there has been no place for others for %s: it is evicted whole, and waits as a whole", key, p.staleAfter)
	p.dismissRest(ctx, key, p.rest(key, stale), text, func(pod *corev1.Pod) {
		p.meter.Evicted(metrics.Stale)
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "GangStale", "Preempting", "%s", text)
	})
}

// staleIn is how long a gang that has lost members waits for others before it is retired; ok is false for one that
// is not. How long it has waited tell the
// successors, which were made when members were lost, so that a scheduler that starts counts
// on: the newest of those that wait, as many as the gang lacks, since others may wait beyond its
// minimum. A gang of which members have succeeded needs fewer; one whose job makes no successors
// is left alone.
func (p *Plugin) staleIn(key string, state inventory.GangState) (pause time.Duration, ok bool) {
	if p.staleAfter <= 0 || !p.leading.Load() || !p.cache.GangStatus(key, "").Partial || state.MissingText != "" {
		return 0, false
	}
	waiting := waitingMembers(state)
	if len(waiting) == 0 {
		return 0, false
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	missing := min(max(state.Gang.Missing(), 1), len(waiting))
	return p.staleAfter - time.Since(waiting[missing-1].CreationTimestamp.Time), true
}

// dismissRest evicts what is left of a gang, as long as rest lists it, and hands each pod to evicted; begun is false when
// there is nothing.
func (p *Plugin) dismissRest(ctx context.Context, key string, rest func() []*corev1.Pod, why string, evicted func(*corev1.Pod)) (begun bool) {
	if len(rest()) == 0 {
		return false
	}
	p.aside.run("the rest of "+key, func() {
		pods := rest()
		if len(pods) == 0 {
			return
		}
		untold, err := p.askAll(ctx, key, pods)
		if err == nil { // it may have found a place meanwhile
			err = p.evictAll(ctx, rest(), untold, func(pod *corev1.Pod) error {
				deleted, err := p.dismiss(ctx, key, pod, why)
				if deleted {
					evicted(pod)
				}
				return err
			})
		}
		p.recordEvictions(ctx, key, err)
	})
	return true
}

// rest are the members that have nodes of a gang that waits in part, and are to be evicted while a condition applies.
func (p *Plugin) rest(key string, applies func(inventory.GangState) bool) func() []*corev1.Pod {
	return func() []*corev1.Pod {
		state, ok := p.cache.Gang(key)
		if !ok || !p.waitsInPart(key) || !applies(state) {
			return nil
		}
		return p.evictable(key, slices.DeleteFunc(slices.Collect(maps.Values(state.Pods)), func(pod *corev1.Pod) bool {
			return pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil
		}))
	}
}

// evictable are those pods of a gang that are not evicted yet: none when the API server refuses to delete one of them, or that
// has just failed.
func (p *Plugin) evictable(key string, pods []*corev1.Pod) []*corev1.Pod {
	undeletable := func(pod *corev1.Pod) bool { return p.cache.Undeletable(pod.UID) > 0 }
	if !p.leading.Load() || p.pauses(key) || slices.ContainsFunc(pods, undeletable) {
		return nil
	}
	return p.notDeleted(key, pods)
}

// waitsInPart reports whether some members of a gang run, not enough of them, and there is no place for others.
func (p *Plugin) waitsInPart(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	return ok && g.entry == entryWaiting && len(g.assumed) == 0 && p.cache.GangStatus(key, "").Partial
}

// retireLater looks at a gang again after a pause.
func (p *Plugin) retireLater(key string, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	if !ok || g.retires {
		return
	}
	g.retires = true
	p.after(pause, func() {
		p.mu.Lock()
		g.retires = false
		p.mu.Unlock()
		p.work.add(clusterstate.Change{Gang: key})
	})
}
