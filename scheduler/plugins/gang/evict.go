package gang

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

const (
	// evictions bounds the calls under way at a time while a gang's victims are evicted, evictors for how many
	// gangs at a time, recheckers those about pods that were refused.
	evictions, evictors, recheckers = 8, 4, 4
	// evictAgain is how long the plugin waits before it repeats calls that failed; it doubles up to maxBackoff.
	evictAgain = time.Second
	// refusedAfter is how often the API server answers that it cannot delete a pod now, before nobody counts on it.
	refusedAfter = 3
)

// preempt evicts the victims of a gang with a nomination. The place is reserved in the view
// already. First the API server is asked, in a dry run, whether it lets all victims go. Then the
// gang's members are nominated for their nodes, so that a scheduler
// that starts knows of the nomination; then every victim gets the standard condition and an
// event that names the preemptor, and is deleted. A gang for which nobody has to leave loses
// the nominations that it had, also one that has a reservation until others end: that place may
// move, and other plugins would count it where it was.
//
// Victims are deleted, and not evicted by the eviction subresource: that decides pod by
// pod, so that it could refuse the last pod of a gang when the others are gone already.
// The planner has counted disruption budgets for all of them together. The precondition
// on the UID keeps a pod that was recreated under the same name. A victim that the API server refuses to
// delete is none: the gang loses the place, and is planned again.
//
// The calls may be repeated: what is done already is left out. The worker does not wait for them.
func (p *Plugin) preempt(ctx context.Context, key string) {
	reserved, _ := p.cache.Reservation(key)
	state, _ := p.cache.Gang(key)
	nominated := func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" }
	if reserved.Evicts || p.aside.runs(key) || slices.ContainsFunc(slices.Collect(maps.Values(state.Pods)), nominated) {
		p.aside.run(key, func() { p.makeRoom(ctx, key) })
	}
}

// makeRoom does what preempt is to do.
func (p *Plugin) makeRoom(ctx context.Context, key string) {
	state, ok := p.cache.Gang(key)
	if !ok || !p.leading.Load() {
		return
	}
	reserved, _ := p.cache.Reservation(key)
	if p.hasAssumed(key) {
		return
	}
	victims := p.notDeleted(key, p.cache.Victims(key))
	if len(victims) > 0 && p.pauses(key) {
		return
	}
	untold, err := p.askAll(ctx, key, victims)
	if err == nil {
		err = p.nominateAll(ctx, state, reserved.Members)
	}
	wanted := func() bool {
		now, _ := p.cache.Reservation(key)
		return reflect.DeepEqual(now.Reservation, reserved.Reservation)
	}
	if err == nil && len(victims) > 0 {
		if !wanted() {
			p.work.preempt(key) // decided again meanwhile, or not wanted any more
			return
		}
		victims = p.notDeleted(key, p.cache.Victims(key))
		err = p.evictAll(ctx, victims, untold, func(victim *corev1.Pod) error {
			if !wanted() {
				return errUnwanted
			}
			return p.evict(ctx, key, state, victim, goesWhole(reserved.Victims(), victim))
		})
	}
	p.recordEvictions(ctx, key, err)
}

// hasAssumed reports whether members of a gang are about to be bound.
func (p *Plugin) hasAssumed(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	return ok && len(g.assumed) > 0
}

// each calls a function for every pod, several at a time.
func each(ctx context.Context, pods []*corev1.Pod, do func(*corev1.Pod) error) error {
	errs := make([]error, len(pods))
	workqueue.ParallelizeUntil(ctx, evictions, len(pods), func(i int) { errs[i] = do(pods[i]) })
	return errors.Join(errors.Join(errs...), ctx.Err())
}

// nominateAll writes on members that are not bound which node is held for them.
func (p *Plugin) nominateAll(ctx context.Context, state inventory.GangState, nodes map[types.UID]string) error {
	var pods []*corev1.Pod
	for _, pod := range state.Pods {
		node := nodes[pod.UID]
		if pod.Spec.NodeName != "" || pod.Status.NominatedNodeName == node {
			continue
		}
		if node == "" {
			p.handle.DeleteNominatedPodIfExists(pod)
		} else {
			p.nominate(ctx, pod, node)
		}
		pods = append(pods, pod)
	}
	return each(ctx, pods, func(pod *corev1.Pod) error { return p.setNominated(ctx, pod, nodes[pod.UID]) })
}

// setNominated writes a pod's nominated node; it is no error that the pod is gone.
func (p *Plugin) setNominated(ctx context.Context, pod *corev1.Pod, node string) error {
	status := pod.Status.DeepCopy()
	status.NominatedNodeName = node
	err := p.patchStatus(ctx, pod, &pod.Status, status)
	if err != nil && !gone(err) {
		return fmt.Errorf("nominate node %s for pod %s/%s: %w", node, pod.Namespace, pod.Name, err)
	}
	return nil
}

// goesWhole reports whether a pod is of a gang that is evicted as a whole.
func goesWhole(victims []placement.Victim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(victims, func(v placement.Victim) bool { return !v.Surplus && slices.Contains(v.Pods, string(pod.UID)) })
}

// evict marks and deletes one victim. The mark says whether its gang goes as a whole.
func (p *Plugin) evict(ctx context.Context, key string, preemptor inventory.GangState, victim *corev1.Pod, whole bool) error {
	name := "gang " + placement.NameOf(preemptor.Gang.ID)
	why := "preempting to accommodate " + name
	if whole {
		why += wholeMark
	}
	deleted, err := p.dismiss(ctx, key, victim, why)
	if !deleted {
		return err
	}
	reason := metrics.ForPriority
	if p.cache.OtherLeaf(victim, preemptor.Gang.Leaf) {
		reason = metrics.ForQuota
	}
	p.meter.Evicted(reason)
	var related runtime.Object
	if about := regarding(preemptor); about != nil {
		related = about
	}
	p.handle.EventRecorder().Eventf(victim, related, corev1.EventTypeNormal, "Preempted", "Preempting",
		"evicted from node %s to make room for %s", victim.Spec.NodeName, name)
	return nil
}

// nominationText says for whom a gang waits that holds its place already.
func (p *Plugin) nominationText(d clustercache.Decision) string {
	r := d.Result.Reservation
	text := fmt.Sprintf("%d of %d members fit once others have gone. %s%s",
		d.Result.Verdict.Fit, d.Result.Verdict.Asked, contract.ReservedText, strings.Join(p.cache.Names(r.After), ", "))
	if victims := r.Victims(); len(victims) > 0 {
		text += fmt.Sprintf("; evicted for it: %s", strings.Join(p.cache.Names(victims), ", "))
	}
	return text + "."
}
