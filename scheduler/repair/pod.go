package repair

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
)

const (
	reasonNodeLost     = "NodeLost"
	reasonGPUUnhealthy = "GPUUnhealthy"
	reasonRecovered    = "Recovered"
)

// removeAfter is how long a failed pod stays for its job's operator to see it.
const removeAfter = 10 * time.Second

// failedPods selects the pods that this controller may have failed.
const failedPods = "status.phase=Failed"

// fail marks a pod as failed, and sees to it that it goes.
func (c *Controller) fail(ctx context.Context, pod *corev1.Pod, loss string) error {
	marked := condition.OnPod(pod.Status.DeepCopy(), corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: reasonNodeLost, Message: loss, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{
			"phase": corev1.PodFailed, "reason": reasonNodeLost, "message": loss,
			"conditions": []corev1.PodCondition{marked},
		},
	})
	if err != nil {
		return err
	}
	pods := c.Kube.CoreV1().Pods(pod.Namespace)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsConflict(err) { // another of its name has come, or someone wrote it at the same time
		live, getErr := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if getErr == nil && live.UID != pod.UID {
			return nil
		}
		if getErr != nil {
			err = getErr
		}
	}
	if apierrors.IsNotFound(err) {
		return nil // it went by itself
	}
	if err != nil {
		return fmt.Errorf("fail pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c.failing[pod.UID] = true
	failed := itemOf(pod)
	if pod.DeletionTimestamp != nil {
		return c.remove(ctx, failed)
	}
	c.queue.AddAfter(failed, removeAfter)
	return nil
}

func itemOf(pod *corev1.Pod) item {
	return item{pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID}
}

// remove deletes a failed pod that someone wanted to delete, or that a controller can
// make again.
func (c *Controller) remove(ctx context.Context, failed item) error {
	pods := c.Kube.CoreV1().Pods(failed.pod.Namespace)
	pod, err := pods.Get(ctx, failed.pod.Name, metav1.GetOptions{})
	if err == nil && (pod.UID != failed.uid || pod.DeletionTimestamp == nil && metav1.GetControllerOf(pod) == nil) {
		return nil
	}
	if err == nil {
		now := int64(0)
		err = pods.Delete(ctx, failed.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &failed.uid},
		})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete failed pod %s: %w", failed.pod, err)
}

// resume takes over the pods that an earlier scheduler failed and could not remove.
func (c *Controller) resume(ctx context.Context) error {
	list, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: failedPods})
	if err != nil {
		return fmt.Errorf("list failed pods: %w", err)
	}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Reason == reasonNodeLost {
			c.queue.AddAfter(itemOf(pod), removeAfter)
		}
	}
	return nil
}
