package hooks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// Quiet is a profile whose failure handler writes nothing but a pod's nominated node: no
// event and no condition.
func Quiet(ctx context.Context, profile framework.Framework) framework.Framework {
	return &quiet{profile, ctx}
}

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
