package gang

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

const (
	// recordInterval is how long the numbers that were written of a gang stand, on average. Those
	// that come with a new cause may be corrected at once: they are often of a moment in
	// which pods still came and went.
	recordInterval = 30 * time.Second
	// causesAtOnce is how many new causes are written at once; of more than that, one in
	// each recordInterval.
	causesAtOnce = 5
	// recordAfterFailure is how long it takes until what could not be written is written again.
	recordAfterFailure = 5 * time.Second
)

// failedScheduling is the reason of events on pods that wait, as kube-scheduler calls it.
const failedScheduling = "FailedScheduling"

// notAsPlanned is the reason of the event of a gang that is placed elsewhere than a plan said.
const notAsPlanned = "NotAsPlanned"

// wait is why a gang waits.
type wait struct {
	// cause is what kind of reason it is, without numbers and names.
	cause string
	// text says it in words.
	text string
}

// recorded is what has been written of why a gang waits.
type recorded struct {
	wait
	// again is when the gang will be looked at again.
	again time.Time
	// causes bounds how often a new cause is written, numbers how often new numbers are.
	causes, numbers *rate.Limiter
	// pods are the members that were told the cause, events those that an event was
	// written about.
	pods, events map[types.UID]bool
	// texts are what the members were told last, which the cache may not show yet.
	texts map[types.UID]string
}

// says reports whether a pod says a text, as far as is known.
func (t *recorded) says(pod *corev1.Pod, text string) bool {
	if told, ok := t.texts[pod.UID]; ok {
		return told == text
	}
	return hasText(pod, text)
}

// overwritten notes that pods say something else than they were told.
func (t *recorded) overwritten(pods map[types.UID]bool) {
	for pod := range pods {
		delete(t.pods, pod)
		t.texts[pod] = ""
	}
}

// recordOf returns what was written of a gang.
func (p *Plugin) recordOf(key string) *recorded {
	t, ok := p.recorded[key]
	if !ok {
		t = &recorded{causes: rate.NewLimiter(rate.Every(recordInterval), causesAtOnce), numbers: rate.NewLimiter(rate.Every(recordInterval), 1), pods: map[types.UID]bool{}, events: map[types.UID]bool{}, texts: map[types.UID]string{}}
		p.recorded[key] = t
	}
	return t
}

// pause is how long it takes until why a gang waits may be written, when that has changed.
func (t *recorded) pause(why wait, now time.Time) time.Duration {
	return time.Duration((1 - t.limit(why).TokensAt(now)) * float64(recordInterval))
}

// limit is what bounds how often a change like this one is written.
func (t *recorded) limit(why wait) *rate.Limiter {
	if why.cause == t.cause {
		return t.numbers
	}
	return t.causes
}

// record writes why a gang waits. A new cause is written on its PodGroup and on each pod that
// is not bound, with an event; new numbers only on the PodGroup and the first of these pods,
// without an event, and at a slow pace.
func (p *Plugin) record(ctx context.Context, key string, state inventory.GangState, why wait) {
	t, now := p.recordOf(key), p.now()
	pause := t.pause(why, now)
	writes := why != t.wait && pause <= 0
	newCause := writes && why.cause != t.cause
	if newCause {
		clear(t.pods)
	}
	done, err := p.recordOnMembers(ctx, state, why, t, writes, newCause)
	if writes {
		t.limit(why).AllowN(now, 1) // also when it was interrupted: that may happen again and again
	}
	if !done {
		return // the next time it is as new
	}
	if writes && state.PodGroup != nil {
		err = errors.Join(err, p.condition(ctx, state.PodGroup, metav1.ConditionFalse, corev1.PodReasonUnschedulable, why.text, newCause, t.wait.text != ""))
	}
	switch {
	case err != nil:
		p.recordLater(ctx, key, err) // then it is as new
	case writes:
		t.wait = why
	case why != t.wait && !t.again.After(now):
		t.again = now.Add(pause)
		p.after(pause, func() { p.statuses.add(key) })
	}
}

// recordLater has what could not be written of a gang written again.
func (p *Plugin) recordLater(ctx context.Context, key string, err error) {
	klog.FromContext(ctx).Error(err, "Cannot write what there is to say of a gang yet", "gang", key)
	p.after(recordAfterFailure, func() { p.statuses.add(key) })
}

// inPace waits until another write may be made, and reports whether it still is to be.
func (p *Plugin) inPace(ctx context.Context) bool {
	return p.pace.Wait(ctx) == nil && !p.isInterrupted()
}

// recordOnMembers writes why a gang waits on those of its members that do not say so, and what
// changes on the first; done is false when it was interrupted, and what could not be written
// is an error.
func (p *Plugin) recordOnMembers(ctx context.Context, state inventory.GangState, why wait, t *recorded, writes, newCause bool) (done bool, err error) {
	pods := waitingMembers(state)
	for i, pod := range pods {
		text, teller := why.text, i == 0
		if t.pods[pod.UID] && (!teller || !writes) {
			continue
		}
		if !teller {
			text = strings.TrimSuffix(text, ".") + "." + contract.LatestNumbers + reporterOf(state, pods[0]) + "."
		}
		if !t.says(pod, text) {
			if !p.inPace(ctx) {
				return false, nil
			}
			if failure := p.mark(ctx, pod, text); failure != nil {
				err = errors.Join(err, failure)
				delete(t.pods, pod.UID)
				continue
			}
			t.texts[pod.UID] = text
			if !t.events[pod.UID] || newCause && teller && state.PodGroup == nil {
				t.events[pod.UID] = true
				p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, failedScheduling, "Scheduling", "%s", text)
			}
		}
		t.pods[pod.UID] = true
	}
	return true, err
}

// waitingMembers are the pods of a gang that say why it waits.
func waitingMembers(state inventory.GangState) (pods []*corev1.Pod) {
	for _, role := range state.Gang.Roles {
		for _, name := range role.Members {
			if pod := state.Pods[name]; !role.Late && pod.Spec.NodeName == "" {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// reporterOf names the object on which the numbers are always the latest.
func reporterOf(state inventory.GangState, first *corev1.Pod) string {
	if state.PodGroup != nil {
		return contract.PodGroupKind + " " + state.PodGroup.GetName()
	}
	return "pod " + first.Name
}

// hasText reports whether a pod's condition has the text already.
func hasText(pod *corev1.Pod, text string) bool {
	_, have := apipod.GetPodCondition(&pod.Status, corev1.PodScheduled)
	return have != nil && have.Status == corev1.ConditionFalse && have.Message == text
}

// mark writes the text into the pod's PodScheduled condition; it is no error that the pod is gone.
func (p *Plugin) mark(ctx context.Context, pod *corev1.Pod, text string) error {
	status := pod.Status.DeepCopy()
	condition.OnPod(status, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: text,
	})
	before := pod.Status.DeepCopy()
	if hasText(pod, text) {
		before.Conditions = nil // what the API server has is not what the cache shows
	}
	err := p.patchStatus(ctx, pod, before, status)
	if err != nil && !gone(err) {
		return fmt.Errorf("write why pod %s/%s waits: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// condition writes a PodGroup's condition, with an event when there is something to point out.
// When it says so already it is not written, unless something else was written since, which
// the cache may not show yet.
func (p *Plugin) condition(ctx context.Context, group *unstructured.Unstructured, status metav1.ConditionStatus, reason, text string, pointOut, outdated bool) error {
	write := condition.Apply
	if outdated {
		write = condition.Write
	}
	written, err := write(ctx, p.client, contract.PodGroupResource, contract.SchedulerName, group, metav1.Condition{
		Type: scheduledCondition, Status: status, Reason: reason, Message: text,
	})
	if !written || !pointOut {
		return err
	}
	kind := corev1.EventTypeNormal
	if status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	p.handle.EventRecorder().Eventf(group, nil, kind, reason, "Scheduling", "%s", text)
	return nil
}

// announce writes on the PodGroup of a gang that had to wait that it runs. Of a gang that
// was placed at once its pods tell.
func (p *Plugin) announce(ctx context.Context, key string) {
	was, waited := p.recorded[key]
	delete(p.recorded, key)
	group := p.cache.PodGroup(key)
	if group == nil {
		return
	}
	if have, err := condition.Find(group, scheduledCondition); !waited && (err != nil || have == nil) {
		return
	}
	if state, _ := p.cache.Gang(key); state.Running > 0 {
		if err := p.condition(ctx, group, metav1.ConditionTrue, "Scheduled", "runs with "+inventory.Members(state.Running), true, waited && was.wait.text != ""); err != nil {
			p.recordLater(ctx, key, err)
		}
	}
}
