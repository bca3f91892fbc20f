package gang

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

const (
	// wholeMark ends the message with which a pod is marked whose gang is evicted as a whole.
	wholeMark = ", with its whole gang"
	// finishAgain is how long it takes until the rest of a gang is looked at again that was to be evicted.
	finishAgain = 10 * time.Second
	// markCounts is how long after it was made a mark says why pods are missing or are being deleted. A scheduler that stands
	// by takes over in seconds; one whose node fails starts on another one after some six minutes. A mark that is older was
	// left by an eviction that came to nothing.
	markCounts = 10 * time.Minute
)

// finishEviction evicts what is left of a gang that was evicted in part, where no reservation does that any more: the
// preemptor has gone or was placed elsewhere, or the scheduler that evicted for it has ended. The others cannot run without
// those that were deleted, and would keep their GPUs. It runs in the worker.
func (p *Plugin) finishEviction(ctx context.Context, key string) {
	left, mark, sure := p.cache.EvictedInPart(key, p.evictionMark)
	if len(left) == 0 {
		delete(p.halfway, key)
		return
	}
	rest := func() []*corev1.Pod {
		left, _, _ := p.cache.EvictedInPart(key, p.evictionMark)
		if p.cache.EvictedFor(key) != "" {
			return nil
		}
		return p.evictable(key, left)
	}
	until, known := p.halfway[key]
	if !known && !sure {
		p.finishLater(key)
		return
	}
	p.halfway[key] = until // it is looked at again when a place is given up
	if p.now().Before(until) {
		return
	}
	why := strings.TrimPrefix(mark, markedBy)
	begun := p.dismissRest(ctx, key, rest, why, func(pod *corev1.Pod) {
		p.meter.Evicted(metrics.Partial)
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "PartialGangEvicted", "Preempting",
			"others of gang %s were evicted, and it cannot run without them: %s", key, why)
	})
	if begun {
		p.finishLater(key)
	}
}

// finishLater has a gang that was evicted in part reconciled once more, after a while.
func (p *Plugin) finishLater(key string) {
	p.halfway[key] = p.now().Add(finishAgain)
	p.after(finishAgain, func() { p.work.add(clusterstate.Change{Gang: key}) })
}

// evictionMark is the message with which dismiss has marked a pod whose gang goes as a whole, and when that was, "" for none
// and for one that does not count any more. Before a pod is deleted it is marked: a scheduler that ends in between leaves the
// mark on a pod that stays.
func (p *Plugin) evictionMark(pod *corev1.Pod) (why string, made time.Time) {
	asked := p.now()
	if pod.DeletionTimestamp != nil {
		asked = pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	for _, c := range pod.Status.Conditions {
		if at := c.LastTransitionTime.Time; ours(c) && strings.HasSuffix(c.Message, wholeMark) && asked.Sub(at) < markCounts {
			if pod.DeletionTimestamp != nil && asked.Before(at) { // by the API server's clock
				at = asked
			}
			return c.Message, at
		}
	}
	return "", time.Time{}
}
