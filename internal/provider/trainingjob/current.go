package trainingjob

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
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

// replica is the pod's role and its index there; a pod without one comes first. Those of a Job that others have
// made have an index alone.
func replica(p *corev1.Pod) (role string, index int) {
	role, text := inventory.Replica(p)
	index, err := strconv.Atoi(text)
	if err != nil {
		return role, -1
	}
	return cmp.Or(role, contract.ReplicaWorker), index
}

// memberName is the name of the replica that a pod is, "worker-0", that of the pod for one without an index.
func memberName(p *corev1.Pod) string {
	role, index := replica(p)
	if index < 0 {
		return p.Name
	}
	return job.MemberName(role, index)
}
