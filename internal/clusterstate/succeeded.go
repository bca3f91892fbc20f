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
	return s.counts(key, s.succeeded.put(key, pod.UID, pod))
}

// RemoveSucceeded takes out a pod that had succeeded and was deleted.
func (s *State) RemoveSucceeded(uid types.UID) Change { return s.counts(s.succeeded.drop(uid), "") }

// SetJob takes in what a Job says of its pods that have ended for good, whether they are still there or not.
func (s *State) SetJob(j *batchv1.Job) Change {
	ended, ok := inventory.EndedOf(j)
	if !ok {
		return s.RemoveJob(j.UID)
	}
	if before, known := s.ended.of(j.UID); known && ended.Same(before) {
		return Change{}
	}
	return s.counts(ended.Gang, s.ended.put(ended.Gang, j.UID, ended))
}

// RemoveJob takes out a Job that was deleted.
func (s *State) RemoveJob(uid types.UID) Change { return s.counts(s.ended.drop(uid), "") }

// counts is the change where other members of a gang, and of one that was left, count than before; "" for none.
func (s *State) counts(key, left string) Change {
	for _, gang := range []string{key, left} {
		if gang != "" {
			s.touch(gang)
		}
	}
	return Change{Gang: key, Left: left}
}

// byGang has what is told about gangs by objects, each of which is about one gang at a time.
type byGang[T any] struct {
	gangs map[string]map[types.UID]T
	keys  map[types.UID]string
}

func newByGang[T any]() byGang[T] {
	return byGang[T]{map[string]map[types.UID]T{}, map[types.UID]string{}}
}

// of returns what an object tells.
func (b byGang[T]) of(uid types.UID) (told T, known bool) {
	told, known = b.gangs[b.keys[uid]][uid]
	return told, known
}

// put takes in what an object tells about the gang of a key, "" for none, and returns the key of another one that it was
// about before, "" for none.
func (b byGang[T]) put(key string, uid types.UID, told T) (left string) {
	if b.keys[uid] != key {
		left = b.drop(uid)
	}
	if key == "" {
		return left
	}
	if b.gangs[key] == nil {
		b.gangs[key] = map[types.UID]T{}
	}
	b.gangs[key][uid], b.keys[uid] = told, key
	return left
}

// drop takes out an object, and returns the key of the gang that it was about, "" for none.
func (b byGang[T]) drop(uid types.UID) (key string) {
	key, ok := b.keys[uid]
	if !ok {
		return ""
	}
	delete(b.keys, uid)
	delete(b.gangs[key], uid)
	if len(b.gangs[key]) == 0 {
		delete(b.gangs, key)
	}
	return key
}
