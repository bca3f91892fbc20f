package clusterstate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// SucceededPods selects the pods that kube-scheduler's own informer leaves out and that
// count towards the minimum of their gang.
const SucceededPods = "status.phase=Succeeded"

// SetSucceeded takes in a pod that has succeeded, by its metadata.
func (s *State) SetSucceeded(pod *metav1.PartialObjectMetadata) Change {
	key, ok := inventory.GangKey(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
	if !ok {
		return Change{}
	}
	if s.succeeded[key] == nil {
		s.succeeded[key] = map[types.UID]*metav1.PartialObjectMetadata{}
	}
	s.succeeded[key][pod.UID] = pod
	s.touch(key)
	return Change{Gang: key}
}

// RemoveSucceeded takes out a pod that had succeeded and was deleted.
func (s *State) RemoveSucceeded(pod *metav1.PartialObjectMetadata) Change {
	key, ok := inventory.GangKey(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
	if !ok {
		return Change{}
	}
	delete(s.succeeded[key], pod.UID)
	if len(s.succeeded[key]) == 0 {
		delete(s.succeeded, key)
	}
	s.touch(key)
	return Change{Gang: key}
}
