package gang

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// FailureHandler is what kube-scheduler does about a pod whose attempt has failed.
type FailureHandler = func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status, *fwk.NominatingInfo, time.Time)

// Failures returns a failure handler in the place of kube-scheduler's. That writes an event
// and a condition for each attempt of each pod. For a planned pod that is refused, the plugin
// itself says why its gang waits, once for each reason; all else is kube-scheduler's.
func (p *Plugin) Failures(handle FailureHandler) FailureHandler {
	return func(ctx context.Context, profile framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		pod := info.Pod
		key, planned := p.cache.PlanKey(pod)
		if !planned || p.cache.Standing(key, pod.UID).Late {
			handle(ctx, profile, info, status, nominating, start)
			return
		}
		if status.IsRejected() {
			handle(ctx, &quiet{profile, ctx}, info, status, nominating, start)
			p.news.add(key)
			return
		}
		handle(ctx, profile, info, status, nominating, start)
		p.news.add(key, pod.UID)
	}
}

// quiet is a framework whose failure handler writes nothing but a pod's nominated node.
type quiet struct {
	framework.Framework
	ctx context.Context
}

// EventRecorder drops events.
func (*quiet) EventRecorder() events.EventRecorderLogger { return silence{} }

// APICacher takes the patch of a pod's status.
func (q *quiet) APICacher() fwk.APICacher { return &nominations{q.Framework.APICacher(), q} }

// silence records nothing.
type silence struct{}

func (silence) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (silence) WithLogger(klog.Logger) events.EventRecorderLogger { return silence{} }

// nominations patches of a pod's status the nominated node only.
type nominations struct {
	fwk.APICacher
	quiet *quiet
}

// PatchPodStatus writes the nominated node, when it changes.
func (n *nominations) PatchPodStatus(pod *corev1.Pod, _ *corev1.PodCondition, nominating *fwk.NominatingInfo) (<-chan error, error) {
	if nominating.Mode() != fwk.ModeOverride || pod.Status.NominatedNodeName == nominating.NominatedNodeName {
		return nil, nil
	}
	if n.APICacher != nil {
		return n.APICacher.PatchPodStatus(pod, nil, nominating)
	}
	status := pod.Status.DeepCopy()
	status.NominatedNodeName = nominating.NominatedNodeName
	return nil, util.PatchPodStatus(n.quiet.ctx, n.quiet.ClientSet(), pod.Name, pod.Namespace, &pod.Status, status)
}
