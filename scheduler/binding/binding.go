// Package binding asks the API server whether a pod is bound: where a binding fails, its
// answer may have been lost on the way, and the watch may be late to show it.
package binding

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Unbound reports whether the API server has a pod without a node, or does not have it any
// more. The error is that of the API server, when nobody can tell.
func Unbound(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (bool, error) {
	live, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("see whether pod %s/%s is bound: %w", pod.Namespace, pod.Name, err)
	}
	return live.UID != pod.UID || live.Spec.NodeName == "", nil
}
