package placement

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// shareUnit is the step, and the least, of a core percentage (Alibaba Cloud,
// "Allocate computing power by scheduling shared GPU": multiples of 5 from 5 to 100).
const shareUnit = 5

// FullCore is the core percentage of one GPU.
const FullCore = 100

// MostAsked is more of anything than pods of a machine ask for: 64 TiB of memory. What asks for more fits nowhere all
// the same, counts as asking for so much, and the sum of 100,000 pods that do stays within int64.
const MostAsked = 1 << 46

// SpreadOver returns over how many GPUs a shared request is spread.
func (r *Request) SpreadOver() int { return max(r.GPUs, 1) }

// PerGPU returns what a shared request takes of each of its GPUs.
func (r *Request) PerGPU() GPUShare {
	return GPUShare{MemoryGiB: r.MemoryGiB / int64(r.SpreadOver()), CorePercent: r.CorePercent}
}

// Shared reports whether the request is for parts of GPUs.
func (r *Request) Shared() bool { return r.Mode.Shared() }

// Problem says what is wrong with a request, "" when nothing is.
func (r *Request) Problem() string {
	perGPU := int64(r.SpreadOver())
	switch {
	case r.MilliCPU < 0 || r.MemoryBytes < 0 || r.GPUs < 0 || r.MemoryGiB < 0 || r.CorePercent < 0:
		return "asks for a negative amount"
	case r.Mode == ModeNone && (r.GPUs > 0 || r.MemoryGiB > 0 || r.CorePercent > 0):
		return "asks for GPUs without a mode"
	case r.Mode.Whole() && r.GPUs == 0:
		return fmt.Sprintf("asks for no GPU in mode %s", r.Mode)
	case r.Mode.Whole() && (r.MemoryGiB > 0 || r.CorePercent > 0):
		return fmt.Sprintf("asks for a part of a GPU in mode %s, which gives whole GPUs", r.Mode)
	case r.Mode.Shared() && r.MemoryGiB == 0:
		return fmt.Sprintf("asks for no GPU memory in mode %s", r.Mode)
	case r.MemoryGiB%perGPU != 0:
		return fmt.Sprintf("asks for %d GiB of GPU memory over %d GPUs; the shares must be equal whole GiB", r.MemoryGiB, perGPU)
	case r.CorePercent > 0 && perGPU > 1:
		return "asks for a core percentage on several GPUs; the core percentage is for one GPU"
	case r.CorePercent%shareUnit != 0 || r.CorePercent > FullCore:
		return fmt.Sprintf("asks for a core percentage of %d; it must be a multiple of %d from %d to %d", r.CorePercent, shareUnit, shareUnit, FullCore)
	case !r.Mode.Shared() && !r.Mode.Whole() && r.Mode != ModeNone:
		return fmt.Sprintf("asks for mode %s, which is not planned", r.Mode)
	}
	for name, amount := range r.Extended {
		if amount < 0 {
			return "asks for a negative amount of " + name
		}
	}
	return ""
}

// CompareSize orders requests by what is hardest to find: whole GPUs, GPU memory,
// cores, CPU, memory.
func CompareSize(a, b *Request) int {
	return cmp.Or(
		cmp.Compare(a.GPUs, b.GPUs),
		cmp.Compare(a.MemoryGiB, b.MemoryGiB),
		cmp.Compare(a.CorePercent, b.CorePercent),
		cmp.Compare(a.MilliCPU, b.MilliCPU),
		cmp.Compare(a.MemoryBytes, b.MemoryBytes),
	)
}

// Resource names that a quota tree uses for what a request asks. They are those of
// package contract, which a test compares; the planner itself does not import it.
const (
	cpuResource         = "cpu"
	memoryResource      = "memory"
	defaultGPUResource  = "nvidia.com/gpu"
	topologyResource    = "aliyun.com/gpu"
	gpuMemoryResource   = "aliyun.com/gpu-mem"
	corePercentResource = "aliyun.com/gpu-core.percentage"
)

// Charge returns what one member is charged in the quota tree.
func (r *Request) Charge() quota.Resources {
	c := make(quota.Resources, 3+len(r.Extended))
	maps.Copy(c, r.Extended)
	c[cpuResource] = r.MilliCPU
	c[memoryResource] = r.MemoryBytes
	switch {
	case r.Mode == ModeDefault:
		c[defaultGPUResource] = int64(r.GPUs)
	case r.Mode == ModeTopology:
		c[topologyResource] = int64(r.GPUs)
	case r.Mode.Shared():
		c[gpuMemoryResource] = r.MemoryGiB
		c[corePercentResource] = r.CorePercent
	}
	return c
}

// ChargeOf returns what pods are charged in the quota tree together.
func ChargeOf(pods []*Pod) quota.Resources {
	sum := quota.Resources{}
	for _, pod := range pods {
		for name, amount := range pod.Request.Charge() {
			sum[name] += amount
		}
	}
	return sum
}
