package placement

import (
	"maps"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

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

// chargeOf returns what pods are charged in the quota tree together.
func chargeOf(pods []*Pod) quota.Resources {
	sum := quota.Resources{}
	for _, pod := range pods {
		for name, amount := range pod.Request.Charge() {
			sum[name] += amount
		}
	}
	return sum
}

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
	case r.Mode.shared():
		c[gpuMemoryResource] = r.MemoryGiB
		c[corePercentResource] = r.CorePercent
	}
	return c
}
