// Package split divides the GPUs of a pod's allocation record among the pod's containers. The record is
// one per pod, and counts as kube-scheduler counts what a pod asks for: containers run at the same time,
// and with them the restartable init containers (sidecars); any other init container runs before the
// containers, beside the sidecars that come before it.
package split

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Part is what one container has of the pod's record.
type Part struct {
	// GPUs are the indexes of whole GPUs, ascending.
	GPUs []int
	// Shares are parts of GPUs, in the order of the record.
	Shares []contract.GPUShare
}

// Empty reports whether the part has no GPUs.
func (p Part) Empty() bool { return len(p.GPUs) == 0 && len(p.Shares) == 0 }

// Pod divides a record among the containers of a pod, by container name; a container that asks for no GPUs
// has none of the parts. Sidecars and containers get theirs from the front of the record, in their
// order. Other init containers get theirs from its end,
// which is free while they run, so that two which ask for the same have the same.
//
// A record that has more or less than the pod asks for is an error: it was not made for this pod. So is one that no scheduler makes,
// and one with a limit of cores for a pod of which a container with memory asks for none: that would have no limit.
func Pod(pod *corev1.PodSpec, record contract.Allocation) (map[string]Part, error) {
	if err := check(record); err != nil {
		return nil, err
	}
	if err := limited(pod, record); err != nil {
		return nil, err
	}
	if len(record.Shares) > 0 {
		return divide(pod, shares(record.Shares))
	}
	return divide(pod, whole(record.GPUs))
}

// check fails for a record that is none of GPUs and parts of GPUs, each once.
func check(record contract.Allocation) error {
	seen := map[int]bool{}
	gpus := slices.Clone(record.GPUs)
	for _, share := range record.Shares {
		if share.MemoryGiB < 1 || share.CorePercent < 0 || share.CorePercent > 100 {
			return fmt.Errorf("the allocation record has %d GiB and %d %% of GPU %d, which is no part of a GPU", share.MemoryGiB, share.CorePercent, share.GPU)
		}
		gpus = append(gpus, share.GPU)
	}
	for _, index := range gpus {
		if index < 0 || seen[index] {
			return fmt.Errorf("the allocation record names GPU %d, which is no GPU or named twice", index)
		}
		seen[index] = true
	}
	return nil
}

// limited fails where a container of a pod with a limit of cores has none.
func limited(pod *corev1.PodSpec, record contract.Allocation) error {
	if !slices.ContainsFunc(record.Shares, func(s contract.GPUShare) bool { return s.CorePercent > 0 }) {
		return nil
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if asked(c, contract.ResourceGPUMemory) > 0 && asked(c, contract.ResourceCorePercent) == 0 {
			return fmt.Errorf("container %s asks for %s and not for %s, as others of the pod: it would have no limit of cores", c.Name, contract.ResourceGPUMemory, contract.ResourceCorePercent)
		}
	}
	return nil
}

// amount is what a container asks for, of each kind that a record gives; a record is of one kind.
type amount struct{ gpus, memoryGiB, corePercent int64 }

func (a amount) plus(b amount) amount {
	return amount{a.gpus + b.gpus, a.memoryGiB + b.memoryGiB, a.corePercent + b.corePercent}
}

func (a amount) atLeast(b amount) amount {
	return amount{max(a.gpus, b.gpus), max(a.memoryGiB, b.memoryGiB), max(a.corePercent, b.corePercent)}
}

func (a amount) within(b amount) bool { return a.atLeast(b) == b }

func (a amount) String() string {
	if a.memoryGiB > 0 || a.corePercent > 0 {
		return fmt.Sprintf("%d GiB of GPU memory and %d %% of a GPU", a.memoryGiB, a.corePercent)
	}
	return fmt.Sprintf("%d GPUs", a.gpus)
}

// stock is what is left of a record.
type stock interface {
	total() amount
	// asked is what a container asks for of this kind.
	asked(corev1.Container) amount
	// front and back return the part of that amount at an end of the stock, and what is left then.
	front(amount) (Part, stock)
	back(amount) Part
}

func divide(pod *corev1.PodSpec, record stock) (map[string]Part, error) {
	parts := map[string]Part{}
	left, taken, peak := record, amount{}, amount{}
	take := func(c corev1.Container, keeps bool) error {
		asked := record.asked(c)
		if asked == (amount{}) {
			return nil
		}
		if peak = peak.atLeast(taken.plus(asked)); !asked.within(left.total()) {
			return fmt.Errorf("container %s asks for %v, and the allocation record has %v left of %v", c.Name, asked, left.total(), record.total())
		}
		if !keeps {
			parts[c.Name] = left.back(asked)
			return nil
		}
		taken = taken.plus(asked)
		parts[c.Name], left = left.front(asked)
		return nil
	}
	for _, c := range pod.InitContainers {
		if err := take(c, inventory.Sidecar(c)); err != nil {
			return nil, err
		}
	}
	for _, c := range pod.Containers {
		if err := take(c, true); err != nil {
			return nil, err
		}
	}
	if peak != record.total() {
		return nil, fmt.Errorf("the pod asks for %v, and the allocation record has %v", peak, record.total())
	}
	return parts, nil
}

func asked(c corev1.Container, name corev1.ResourceName) int64 {
	quantity := c.Resources.Requests[name]
	return max(quantity.Value(), 0)
}

// whole are whole GPUs, by index.
type whole []int

func (w whole) total() amount { return amount{gpus: int64(len(w))} }

func (whole) asked(c corev1.Container) amount {
	return amount{gpus: asked(c, contract.ResourceTopologyGPU)}
}

func (w whole) front(a amount) (Part, stock) {
	return Part{GPUs: slices.Sorted(slices.Values(w[:a.gpus]))}, w[a.gpus:]
}

func (w whole) back(a amount) Part {
	return Part{GPUs: slices.Sorted(slices.Values(w[int64(len(w))-a.gpus:]))}
}

// shares are parts of GPUs.
type shares []contract.GPUShare

func (s shares) total() amount {
	var sum amount
	for _, share := range s {
		sum = sum.plus(amount{memoryGiB: share.MemoryGiB, corePercent: share.CorePercent})
	}
	return sum
}

func (shares) asked(c corev1.Container) amount {
	return amount{memoryGiB: asked(c, contract.ResourceGPUMemory), corePercent: asked(c, contract.ResourceCorePercent)}
}

func (s shares) front(a amount) (Part, stock) {
	left := slices.Clone(s)
	var part Part
	for i := range left {
		memory, core := min(a.memoryGiB, left[i].MemoryGiB), min(a.corePercent, left[i].CorePercent)
		if memory == 0 && core == 0 {
			continue
		}
		part.Shares = append(part.Shares, contract.GPUShare{GPU: left[i].GPU, MemoryGiB: memory, CorePercent: core})
		a.memoryGiB, left[i].MemoryGiB = a.memoryGiB-memory, left[i].MemoryGiB-memory
		a.corePercent, left[i].CorePercent = a.corePercent-core, left[i].CorePercent-core
	}
	return part, left
}

func (s shares) back(a amount) Part {
	reversed := slices.Clone(s)
	slices.Reverse(reversed)
	part, _ := reversed.front(a)
	slices.Reverse(part.Shares)
	return part
}
