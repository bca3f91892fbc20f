package trainingjob

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// current returns of each replica the pod that counts, sorted by role and index: those that failed or are being
// deleted are there beside the one that was made again for them. Pods that are no replicas it leaves as they are.
func current(pods []*corev1.Pod) []*corev1.Pod {
	superseded := func(p *corev1.Pod) int {
		if p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil {
			return 1
		}
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(compareReplicas(a, b), cmp.Compare(superseded(a), superseded(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(sorted, func(a, b *corev1.Pod) bool {
		role, index := replica(a)
		return (role != "" || index >= 0) && compareReplicas(a, b) == 0
	})
}

func compareReplicas(a, b *corev1.Pod) int {
	roleA, indexA := replica(a)
	roleB, indexB := replica(b)
	return cmp.Or(cmp.Compare(roleA, roleB), cmp.Compare(indexA, indexB))
}
