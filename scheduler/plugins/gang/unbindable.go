package gang

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// unbindableAfter is how often the API server refuses to bind a member before its gang gives up: a policy or a webhook that is
// being rolled out may refuse once or twice what it allows a moment later.
const unbindableAfter = 3

// refusesBinding reports whether an error is the API server's answer that a pod may not be bound, and not that it cannot be now.
func refusesBinding(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// giveUpBinding takes a member off its node that the API server has refused to bind often enough, and reports whether it does.
// Its gang waits then, and reconcile evicts those that are bound. A gang that runs without the member, or has run as a whole,
// keeps what it has, and the member is tried again.
func (p *Plugin) giveUpBinding(ctx context.Context, key string, pod *corev1.Pod, status *fwk.Status) bool {
	err := status.AsError()
	if !refusesBinding(err) {
		return false
	}
	p.mu.Lock()
	g, ok := p.gangs[key]
	if !ok || g.assumed[pod.UID] == nil || g.assumed[pod.UID].attempt.phase != phaseBinding {
		p.mu.Unlock()
		return false
	}
	if g.bindRefusals == nil {
		g.bindRefusals = map[types.UID]int{}
	}
	g.bindRefusals[pod.UID]++
	s, waits, often := g.assumed[pod.UID], g.unbindable != "", g.bindRefusals[pod.UID] >= unbindableAfter
	assumed := maps.Clone(g.assumed)
	p.mu.Unlock()
	if !waits {
		state, _ := p.cache.Gang(key)
		if !often || p.cache.RunsWithout(key, pod.UID) || !p.cutShort(key, withoutPlaces(state, assumed)) {
			return false
		}
		p.keepUnbindable(key, pod, err)
	}
	p.unassume(ctx, key, s)
	p.work.add(clusterstate.Change{Gang: key})
	return true
}

// withoutPlaces is a gang of which members that are about to be bound have no places.
func withoutPlaces(state inventory.GangState, assumed map[types.UID]*assumedPod) inventory.GangState {
	state.Pods = maps.Clone(state.Pods)
	for name, pod := range state.Pods {
		if assumed[pod.UID] != nil {
			pod = pod.DeepCopy()
			pod.Spec.NodeName = ""
			state.Pods[name] = pod
		}
	}
	state.Gang.Running = slices.DeleteFunc(slices.Clone(state.Gang.Running), func(a placement.Assignment) bool {
		return state.Pods[a.Member].Spec.NodeName == ""
	})
	return state
}

// keepUnbindable keeps a gang out because the API server refuses to bind a member, for a pause that doubles: nobody tells when
// it would allow it.
func (p *Plugin) keepUnbindable(key string, pod *corev1.Pod, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gang(key, pod)
	if g.unbindable != "" {
		return // because of another member
	}
	g.refuse(pod.UID, wait{cause: "Unbindable", text: unbindableText(pod, err)})
	g.unbindable = pod.UID
	g.bindPause = min(max(2*g.bindPause, minBackoff), maxBackoff)
	p.after(g.bindPause, func() {
		p.mu.Lock()
		if g, ok := p.gangs[key]; ok && g.unbindable == pod.UID {
			g.unbindable = ""
		}
		p.mu.Unlock()
		p.work.add(clusterstate.Change{Gang: key})
	})
}

// unbindableText says which pod the API server refuses to bind, and what it answers.
func unbindableText(pod *corev1.Pod, err error) string {
	text := err.Error()
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		text = answer.Status().Message
	}
	return fmt.Sprintf("the API server refuses to bind pod %s/%s: %s", pod.Namespace, pod.Name, strings.TrimSuffix(text, "."))
}

// askWhetherBindable asks the API server whether it would bind a member of a gang of which it has refused one before: all or
// none are bound then. It returns why nobody is.
func (p *Plugin) askWhetherBindable(ctx context.Context, s *assumedPod, ask func(context.Context) error) *fwk.Status {
	p.mu.Lock()
	begun := s.attempt.phase == phaseBinding
	p.mu.Unlock()
	if begun || !p.wasUnbindable(s.attempt.key) {
		return nil
	}
	err := ask(ctx)
	if !refusesBinding(err) {
		return nil // what else fails is told when it is bound
	}
	p.keepUnbindable(s.attempt.key, s.pod, err)
	p.abort(ctx, s.attempt)
	return unschedulable("%s", unbindableText(s.pod, err))
}

// askBeforeEvicting asks the same where a gang of which a member was refused is to evict others: in vain, if it still is. It
// returns why nobody is evicted.
func (p *Plugin) askBeforeEvicting(ctx context.Context, d clustercache.Decision) *fwk.Status {
	if !evicts(d.Result) || !p.wasUnbindable(d.Key) {
		return nil
	}
	nodes := map[types.UID]string{}
	var pods []*corev1.Pod
	for _, a := range d.Result.Reservation.Placement.Assignments {
		pod := d.Pods[a.Member]
		nodes[pod.UID], pods = a.Node, append(pods, pod)
	}
	var refused atomic.Pointer[fwk.Status]
	_ = each(ctx, pods, func(pod *corev1.Pod) error {
		err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodes[pod.UID]},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if refusesBinding(err) {
			p.keepUnbindable(d.Key, pod, err)
			refused.Store(unschedulable("%s", unbindableText(pod, err)))
		}
		return nil
	})
	return refused.Load()
}

// wasUnbindable reports whether the API server has refused to bind a member of a gang since it ran.
func (p *Plugin) wasUnbindable(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	return ok && g.bindPause > 0
}

// evictUnbindable evicts the bound members of a gang that was cut short because the API server refuses to bind another one.
func (p *Plugin) evictUnbindable(ctx context.Context, key string) {
	why := ""
	p.mu.Lock()
	if g, ok := p.gangs[key]; ok && g.unbindable != "" {
		why = g.why.text
	}
	p.mu.Unlock()
	if why != "" {
		p.evictPartial(ctx, key, fmt.Sprintf("gang %s never ran as a whole, and %s", key, why))
	}
}
