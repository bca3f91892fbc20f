package clusterstate

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// SucceededPods selects the pods that kube-scheduler's own informer leaves out and that
// count towards the minimum of their gang.
const SucceededPods = "status.phase=Succeeded"

// SetSucceeded takes in a pod that has succeeded, by its metadata: its labels may have changed
// since, and with them its gang.
func (s *State) SetSucceeded(pod *metav1.PartialObjectMetadata) Change {
	key, _ := inventory.GangKey(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
	var left string
	if before := s.succeededOf[pod.UID]; before != key {
		left = s.dropSucceeded(pod.UID)
	}
	if key != "" {
		if s.succeeded[key] == nil {
			s.succeeded[key] = map[types.UID]*metav1.PartialObjectMetadata{}
		}
		s.succeeded[key][pod.UID], s.succeededOf[pod.UID] = pod, key
		s.touch(key)
	}
	return Change{Gang: key, Left: left}
}

// RemoveSucceeded takes out a pod that had succeeded and was deleted.
func (s *State) RemoveSucceeded(uid types.UID) Change {
	return Change{Gang: s.dropSucceeded(uid)}
}

// dropSucceeded takes a pod out of the gang that it counted for, and returns the key of it, "" for none.
func (s *State) dropSucceeded(uid types.UID) (key string) {
	key, ok := s.succeededOf[uid]
	if !ok {
		return ""
	}
	delete(s.succeededOf, uid)
	delete(s.succeeded[key], uid)
	if len(s.succeeded[key]) == 0 {
		delete(s.succeeded, key)
	}
	s.touch(key)
	return key
}

// SetJob takes in what a Job says of its pods that have ended for good, whether they are still there or not.
func (s *State) SetJob(j *batchv1.Job) Change {
	before, known := s.ended[s.endedOf[j.UID]][j.UID]
	ended, ok := inventory.EndedOf(j)
	if known && ok && ended.Same(before) {
		return Change{}
	}
	left := s.dropJob(j.UID)
	if !ok {
		return Change{Gang: left}
	}
	if s.ended[ended.Gang] == nil {
		s.ended[ended.Gang] = map[types.UID]inventory.Ended{}
	}
	s.ended[ended.Gang][j.UID], s.endedOf[j.UID] = ended, ended.Gang
	s.touch(ended.Gang)
	if left == ended.Gang {
		left = ""
	}
	return Change{Gang: ended.Gang, Left: left}
}

// RemoveJob takes out a Job that was deleted.
func (s *State) RemoveJob(uid types.UID) Change { return Change{Gang: s.dropJob(uid)} }

// dropJob takes out what a Job said, and returns the key of the gang that it was about, "" for none.
func (s *State) dropJob(uid types.UID) (key string) {
	key, ok := s.endedOf[uid]
	if !ok {
		return ""
	}
	delete(s.endedOf, uid)
	delete(s.ended[key], uid)
	if len(s.ended[key]) == 0 {
		delete(s.ended, key)
	}
	s.touch(key)
	return key
}
