package condition

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// OnPod sets a condition in the status of a pod, and returns it as it is to be written. Its
// LastTransitionTime stays while its status does. A strategic merge patch with this
// condition alone leaves those of others as they are.
func OnPod(status *corev1.PodStatus, c corev1.PodCondition) corev1.PodCondition {
	i := slices.IndexFunc(status.Conditions, func(have corev1.PodCondition) bool { return have.Type == c.Type })
	if i < 0 {
		i = len(status.Conditions)
		status.Conditions = append(status.Conditions, corev1.PodCondition{})
	}
	before := &status.Conditions[i]
	c.LastTransitionTime = since(before.Status, c.Status, before.LastTransitionTime, c.LastTransitionTime)
	*before = c
	return c
}
