package condition

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OnPod sets a condition in the status of a pod, and returns it as it is to be written. Its
// LastTransitionTime stays while its status does. A strategic merge patch with this
// condition alone leaves those of others as they are.
func OnPod(status *corev1.PodStatus, c corev1.PodCondition) corev1.PodCondition {
	i := slices.IndexFunc(status.Conditions, func(have corev1.PodCondition) bool { return have.Type == c.Type })
	switch {
	case i >= 0 && status.Conditions[i].Status == c.Status:
		c.LastTransitionTime = status.Conditions[i].LastTransitionTime
	case c.LastTransitionTime.IsZero():
		c.LastTransitionTime = metav1.Now()
	}
	if i < 0 {
		status.Conditions = append(status.Conditions, c)
	} else {
		status.Conditions[i] = c
	}
	return c
}
