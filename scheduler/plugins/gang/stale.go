package gang

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
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

// dismissBound evicts the members of a gang that have nodes, and hands each to evicted; where that
// fails, the gang is looked at again.
func (p *Plugin) dismissBound(ctx context.Context, key string, state inventory.GangState, why string, evicted func(*corev1.Pod)) {
	var bound []*corev1.Pod
	for _, pod := range state.Pods {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			bound = append(bound, pod)
		}
	}
	err := each(ctx, bound, func(pod *corev1.Pod) error {
		err := p.dismiss(ctx, pod, why)
		if err == nil {
			evicted(pod)
		}
		return err
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot evict what is left of a gang", "gang", key)
		p.retireLater(key, evictAgain)
	}
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

// dismiss gives a pod the standard condition of pods that are evicted, and deletes it; it is
// no error that it has gone.
func (p *Plugin) dismiss(ctx context.Context, pod *corev1.Pod, why string) error {
	status := pod.Status.DeepCopy()
	apipod.UpdatePodCondition(status, &corev1.PodCondition{
		Type:    corev1.DisruptionTarget,
		Status:  corev1.ConditionTrue,
		Reason:  corev1.PodReasonPreemptionByScheduler,
		Message: contract.SchedulerName + ": " + why,
	})
	err := p.patchStatus(ctx, pod, &pod.Status, status)
	if err == nil {
		err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
