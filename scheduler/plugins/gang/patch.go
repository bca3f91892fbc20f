package gang

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/util/retry"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// patchStatus writes what differs between two statuses of a pod, to this pod alone: another of its
// name is a conflict, see [gone].
func (p *Plugin) patchStatus(ctx context.Context, pod *corev1.Pod, before, after *corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	from, err := json.Marshal(corev1.Pod{Status: *before})
	if err != nil {
		return err
	}
	to, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *after})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, &corev1.Pod{})
	if err != nil {
		return err
	}
	return retry.OnError(retry.DefaultBackoff, util.Retriable, func() error {
		_, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// gone reports whether an error says that a pod is not there any more, or another of its name.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
