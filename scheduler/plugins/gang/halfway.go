package gang

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

const (
	// wholeMark ends the message with which a pod is marked whose gang is evicted as a whole.
	wholeMark = ", with its whole gang"
	// finishAgain is how long it takes until the rest of a gang is looked at again that was to be evicted.
	finishAgain = 10 * time.Second
)

// finishEviction evicts what is left of a gang that was evicted in part, where no reservation does that any more: the
// preemptor has gone or was placed elsewhere, or the scheduler that evicted for it has ended. The others cannot run without
// those that are being deleted, and would keep their GPUs. It runs in the worker.
func (p *Plugin) finishEviction(ctx context.Context, key string) {
	left, mark := p.cache.EvictedInPart(key, evictionMark)
	if len(left) == 0 {
		delete(p.halfway, key)
		return
	}
	rest := func() []*corev1.Pod {
		left, _ := p.cache.EvictedInPart(key, evictionMark)
		if p.cache.EvictedFor(key) != "" {
			return nil
		}
		return p.evictable(key, left)
	}
	until := p.halfway[key]
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
		p.halfway[key] = p.now().Add(finishAgain)
		p.after(finishAgain, func() { p.work.add(clusterstate.Change{Gang: key}) })
	}
}

// evictionMark is the message with which dismiss has marked a pod that is being deleted and whose gang goes as a whole, "" for
// none.
func evictionMark(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		for _, c := range pod.Status.Conditions {
			if ours(c) && strings.HasSuffix(c.Message, wholeMark) {
				return c.Message
			}
		}
	}
	return ""
}
