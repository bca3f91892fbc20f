package gang

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recordRefusedAfter is how long another plugin has to refuse a pod before the pod says so: volumes and devices that are being made are often
// there a moment later.
const recordRefusedAfter = 2 * time.Second

// refusedPod is a pod that another plugin refuses whatever the node.
type refusedPod struct {
	// since is when the writer heard of it first, told what the pod has been told, "" for nothing.
	since time.Time
	told  string
}

// recordRefused writes on the pods of a gang that other plugins refuse whatever the node why they do. Meanwhile the gang is
// not activated: a pod that is bound must not say that it waits.
func (p *Plugin) recordRefused(ctx context.Context, key string) {
	reasons := p.cache.GangStatus(key, "").Refusals
	if len(reasons) == 0 {
		delete(p.refusals, key)
		return
	}
	state, _ := p.cache.Gang(key)
	now, before, refusals := p.now(), p.refusals[key], map[types.UID]refusedPod{}
	var due []*corev1.Pod
	for _, pod := range state.Pods {
		why, refused := reasons[pod.UID]
		if !refused {
			continue
		}
		r, known := before[pod.UID]
		if !known {
			r.since = now
			p.after(recordRefusedAfter, func() { p.statuses.add(key) })
		}
		if hasText(pod, why) {
			r.told = why
		}
		refusals[pod.UID] = r
		if r.told != why && now.Sub(r.since) >= recordRefusedAfter {
			due = append(due, pod)
		}
	}
	p.refusals[key] = refusals
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	p.mu.Lock()
	p.recording = key
	p.mu.Unlock()
	defer p.endRecording()
	for _, pod := range due {
		if !p.inPace(ctx) {
			p.after(recordRefusedAfter, func() { p.statuses.add(key) })
			return
		}
		why := reasons[pod.UID]
		if err := p.mark(ctx, pod, why); err != nil {
			p.recordLater(ctx, key, err)
			return
		}
		refusals[pod.UID] = refusedPod{since: refusals[pod.UID].since, told: why}
		if t := p.recorded[key]; t != nil {
			t.overwritten(map[types.UID]bool{pod.UID: true})
		}
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, failedScheduling, "Scheduling", "%s", why)
	}
}
