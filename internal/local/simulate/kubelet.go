package simulate

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// kubelets is a client that takes pods away as a kubelet does: only those that are being
// deleted. kwok names the pod alone, and under load its request may come when another pod
// has the name already.
type kubelets struct{ kubernetes.Interface }

// CoreV1 returns the client of pods and nodes.
func (k kubelets) CoreV1() typedcorev1.CoreV1Interface { return core{k.Interface.CoreV1()} }

type core struct{ typedcorev1.CoreV1Interface }

// Pods returns the client of a namespace's pods.
func (c core) Pods(namespace string) typedcorev1.PodInterface {
	return pods{c.CoreV1Interface.Pods(namespace)}
}

type pods struct{ typedcorev1.PodInterface }

// Delete takes a pod away that is being deleted, and leaves any other. Where the controller of Jobs waits for its
// end, it first says that it has failed: its containers were killed.
func (p pods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	pod, err := p.Get(ctx, name, metav1.GetOptions{})
	if err != nil || pod.DeletionTimestamp == nil {
		return err
	}
	if slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		end := pod.DeepCopy()
		end.Status.Phase = corev1.PodFailed
		if _, err := p.UpdateStatus(ctx, end, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	return p.PodInterface.Delete(ctx, name, options)
}
