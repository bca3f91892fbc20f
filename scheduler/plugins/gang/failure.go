package gang

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/hooks"
)

// Failures returns a failure handler in the place of kube-scheduler's. That writes an event
// and a condition for each attempt of each pod. For a planned pod that is refused, the plugin
// itself says why its gang waits, once for each reason; all else is kube-scheduler's.
func (p *Plugin) Failures(handle hooks.FailureHandler) hooks.FailureHandler {
	return func(ctx context.Context, profile framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		pod := info.Pod
		key, planned := p.cache.PlanKey(pod)
		if !planned || p.cache.GangStatus(key, pod.UID).Late {
			handle(ctx, profile, info, status, nominating, start)
			return
		}
		if status.IsRejected() {
			handle(ctx, hooks.Quiet(ctx, profile), info, status, nominating, start)
			p.activateNext(ctx, p.overtaken(key, pod))
			p.statuses.add(key)
			return
		}
		handle(ctx, profile, info, status, nominating, start)
		p.statuses.add(key, pod.UID)
	}
}

// overtaken returns the place of a member that has become the next while its cycle was told that others come before it, nil when it has
// not: it was in no queue then, from which it could have been activated.
func (p *Plugin) overtaken(key string, pod *corev1.Pod) *assumedPod {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	if !ok {
		return nil
	}
	if s := g.assumed[pod.UID]; s != nil && s.attempt.led && s.attempt.nextPod() == s {
		return s
	}
	return nil
}

// refusesBinding reports whether the API server does not let a pod be bound to its node, because of an admission policy or a
// webhook say. A conflict is about the pod, which has changed or gone.
func refusesBinding(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && final(answer.Status().Code) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
}

// rejectBinding takes a member off a node to which it is not let be bound. Others of its role get no place there either, until
// rejected nodes have another chance.
func (p *Plugin) rejectBinding(ctx context.Context, s *assumedPod, why error) {
	key, found := s.attempt.key, rejections{}
	state, _ := p.cache.Gang(key)
	found.add(roleOf(state, s.pod), s.node, rejection{reason: "the API server: " + why.Error()})
	p.mu.Lock()
	g := p.gang(key, s.pod)
	g.rejected, g.asked = g.rejected.with(found), nil
	s.attempt.backoff = retryDelay
	p.mu.Unlock()
	p.unassume(ctx, key, s)
}
