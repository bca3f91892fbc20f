package gang

import (
	"context"
	"time"

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
			p.statuses.add(key)
			return
		}
		handle(ctx, profile, info, status, nominating, start)
		p.statuses.add(key, pod.UID)
	}
}
