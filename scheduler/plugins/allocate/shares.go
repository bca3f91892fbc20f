package allocate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// perContainer is an amount by container index and GPU index.
type perContainer map[string]map[string]int64

// describeShares adds the annotations by which arena shows shared GPUs: how much of
// each GPU every container has. They take from the pod's GPUs in order, behind the sidecars among the init containers, which these
// annotations do not tell of: so do containers on the node (nodeagent/split).
func describeShares(annotations map[string]string, pod *corev1.Pod, shares []contract.GPUShare) error {
	if len(shares) == 0 {
		return nil
	}
	left := slices.Clone(shares)
	memory, cores, untold := perContainer{}, perContainer{}, perContainer{}
	take := func(i int, container corev1.Container, memory, cores perContainer) {
		gib := amount(container, contract.ResourceGPUMemory)
		percent := amount(container, contract.ResourceCorePercent)
		for j := range left {
			taken := min(gib, left[j].MemoryGiB)
			memory.add(i, left[j].GPU, taken)
			gib, left[j].MemoryGiB = gib-taken, left[j].MemoryGiB-taken
			taken = min(percent, left[j].CorePercent)
			cores.add(i, left[j].GPU, taken)
			percent, left[j].CorePercent = percent-taken, left[j].CorePercent-taken
		}
	}
	for i, container := range pod.Spec.InitContainers {
		if inventory.Sidecar(container) {
			take(i, container, untold, untold)
		}
	}
	for i, container := range pod.Spec.Containers {
		take(i, container, memory, cores)
	}
	for name, amounts := range map[string]perContainer{
		contract.ShareMemoryAnnotation: memory,
		contract.ShareCoreAnnotation:   cores,
	} {
		if len(amounts) == 0 {
			continue
		}
		text, err := json.Marshal(amounts)
		if err != nil {
			return fmt.Errorf("encode annotation %s: %w", name, err)
		}
		annotations[name] = string(text)
	}
	return nil
}

func (p perContainer) add(container, gpu int, amount int64) {
	if amount == 0 {
		return
	}
	key := strconv.Itoa(container)
	if p[key] == nil {
		p[key] = map[string]int64{}
	}
	p[key][strconv.Itoa(gpu)] += amount
}

func amount(container corev1.Container, name corev1.ResourceName) int64 {
	quantity := container.Resources.Requests[name]
	return quantity.Value()
}
