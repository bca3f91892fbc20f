package inventory

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Given is what the node agent has confirmed about the GPUs of a pod's containers.
type Given struct {
	// GPUs are the NVML indexes of all GPUs that containers of the pod were given, ascending.
	GPUs []int
	// Whole means that this is true of every container, sidecars among them, that asks for GPUs.
	Whole bool
}

// GivenTo reads what the agent of the pod's node has confirmed; ok is false where it has confirmed no container, or none of which
// it knew all GPUs.
func GivenTo(p *corev1.Pod) (given Given, ok bool) {
	confirmed, ok, err := contract.ConfirmationFrom(p.Annotations)
	if !ok || err != nil || confirmed.Node != p.Spec.NodeName {
		return Given{}, false
	}
	given.Whole = true
	for i, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		got, started := confirmed.Containers[c.Name]
		if slices.Contains(got.Indexes, -1) || len(got.Indexes) != len(got.GPUs) {
			return Given{}, false
		}
		given.GPUs = append(given.GPUs, got.Indexes...)
		lasts := i >= len(p.Spec.InitContainers) || Sidecar(c)
		given.Whole = given.Whole && (started || !lasts || !listsGPUs(c.Resources.Requests))
	}
	slices.Sort(given.GPUs)
	given.GPUs = slices.Compact(given.GPUs)
	return given, len(given.GPUs) > 0
}

// Differs says which GPUs were given that the scheduler has not recorded for the pod, "" where it has all of them. Where its record
// names none, the node's device plugin chooses, and nothing differs.
func (g Given) Differs(record contract.Allocation) string {
	recorded := RecordedGPUs(record)
	strange := slices.ContainsFunc(g.GPUs, func(index int) bool { return !slices.Contains(recorded, index) })
	if len(recorded) == 0 || !strange {
		return ""
	}
	return fmt.Sprintf("its containers were given GPU %s, where the scheduler has recorded GPU %s", contract.IndexList(g.GPUs), contract.IndexList(recorded))
}

// RecordedGPUs are the NVML indexes of all GPUs of which a record gives a pod the whole or a part, ascending.
func RecordedGPUs(record contract.Allocation) []int {
	indexes := slices.Clone(record.GPUs)
	for _, share := range record.Shares {
		indexes = append(indexes, share.GPU)
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}
