package gang

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// retire evicts what is left of a gang that has lost members, runs with fewer than it needs,
// and has found no place for their successors for too long: its job recreates the others,
// too, and it waits as a whole, while others use its GPUs. How long that is tell the
// successors, which were made when members were lost, so that a scheduler that starts counts
// on: the newest of those that wait, as many as the gang lacks, since others may wait beyond its
// minimum. A gang of which members have succeeded needs fewer; one whose job makes no successors
// is left alone.
func (p *Plugin) retire(ctx context.Context, key string, state inventory.GangState) {
	if p.staleAfter <= 0 || !p.leading.Load() || !p.cache.GangStatus(key, "").Partial || state.MissingText != "" {
		return
	}
	waiting := waitingMembers(state)
	if len(waiting) == 0 {
		return
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	missing := min(max(state.Gang.Missing(), 1), len(waiting))
	since := waiting[missing-1].CreationTimestamp.Time
	if pause := p.staleAfter - time.Since(since); pause > 0 {
		p.retireLater(key, pause)
		return
	}
	text := fmt.Sprintf("gang %s has lost members, and there has been no place for others for %s: it is evicted whole, and waits as a whole", key, p.staleAfter)
	p.dismissBound(ctx, key, state, text, func(pod *corev1.Pod) {
		p.meter.Evicted(metrics.Stale)
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "GangStale", "Preempting", "%s", text)
	})
}

// dismissBound evicts the members of a gang that have nodes, unless the API server refuses to delete some, and hands
// each to evicted; where that fails, the gang is looked at again.
func (p *Plugin) dismissBound(ctx context.Context, key string, state inventory.GangState, why string, evicted func(*corev1.Pod)) {
	var bound []*corev1.Pod
	for _, pod := range state.Pods {
		switch {
		case pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil:
		case p.cache.Undeletable(pod.UID) > 0:
			return
		default:
			bound = append(bound, pod)
		}
	}
	ctx = context.WithoutCancel(ctx) // that of a cycle ends with it
	p.aside.run("the rest of "+key, func() {
		bound := p.notDeleted(key, bound)
		if !p.waitsInPart(key) {
			return
		}
		untold, err := p.askAll(ctx, key, bound)
		if err == nil && p.waitsInPart(key) { // it may have found a place meanwhile
			err = p.evictAll(ctx, bound, untold, func(pod *corev1.Pod) error {
				deleted, err := p.dismiss(ctx, key, pod, why)
				if deleted {
					evicted(pod)
				}
				return err
			})
		}
		pause := p.evictionPause(key, err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot evict what is left of a gang", "gang", key)
			p.retireLater(key, pause)
		}
	})
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
