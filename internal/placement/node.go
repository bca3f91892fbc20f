package placement

import (
	"maps"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// node is one node of the view with what runs on it.
type node struct {
	Node
	// present is false while pods are known on a node that is not.
	present bool
	// number is the node's in the view's admissions, 0 for a node of no view.
	number int32
	used   usage
	// free is what is left, shared with all nodes in the same state, nil while the node is absent; key is its key.
	free *capacity
	key  string
	// eligible is that of its capacities.
	eligible uint64
}

// capacity computes what is left of the node.
func (n *node) capacity() *capacity { return n.capacityOf(n.healthyGPUs()) }

// whenUsed is capacity when so much of the node is used.
func (n *node) whenUsed(used usage) *capacity {
	after := node{Node: n.Node, used: used}
	return after.capacity()
}

// capacityOf is capacity where these GPUs may be used.
func (n *node) capacityOf(usable gpu.Set) *capacity {
	c := &capacity{
		mode: n.Mode, policy: n.GPUPolicy, table: n.GPUs,
		milliCPU:    n.Allocatable.MilliCPU - n.used.milliCPU,
		memoryBytes: n.Allocatable.MemoryBytes - n.used.memoryBytes,
		pods:        n.Allocatable.Pods - n.used.pods,
		memoryOnly:  n.used.memoryOnly, withCore: n.used.withCore, eligible: n.eligible,
	}
	if len(n.Allocatable.Extended) > 0 {
		c.extended = maps.Clone(n.Allocatable.Extended)
		for name, used := range n.used.extended {
			c.extended[name] -= used
		}
	}
	for port := range n.used.ports {
		if c.ports == nil {
			c.ports = make(map[string]bool, len(n.used.ports))
		}
		c.ports[port] = true
	}
	if n.GPUs == nil {
		return c
	}
	switch {
	case n.Mode == ModeDefault:
		c.gpus = n.freeGPUs(usable)
		c.whole = max(min(c.gpus.Len(), usable.Len()-n.used.anonymous-n.used.unknown.owners), 0)
	case n.Mode == ModeTopology && n.used.anonymous == 0 && n.used.unknown.owners == 0:
		c.gpus = n.freeGPUs(usable)
		c.whole = c.gpus.Len()
	case n.Mode.shared():
		c.shares, c.sizes = n.gpuCapacities(usable)
	}
	return c
}

// healthyGPUs returns the GPUs that may be used at all.
func (n *node) healthyGPUs() gpu.Set {
	if n.GPUs == nil {
		return 0
	}
	return n.GPUs.Healthy()
}

// freeGPUs returns those of the usable GPUs that no known pod owns or shares.
func (n *node) freeGPUs(usable gpu.Set) gpu.Set {
	for i, u := range n.used.gpus {
		if u != (gpuUsage{}) {
			usable &^= gpu.SetOf(i)
		}
	}
	return usable
}

// gpuCapacities returns what is left of each GPU for shares, and the whole GiB of each:
// its memory less the headroom, rounded down. GPUs that are not usable, owned whole, or
// may be in the hands of a pod whose GPUs are not known, offer nothing. A pod that shares
// GPUs of which nobody knows which they are is counted on each.
func (n *node) gpuCapacities(usable gpu.Set) (capacities []gpuCapacity, sizes []int64) {
	gpus := n.GPUs.Machine().GPUs
	capacities, sizes = make([]gpuCapacity, len(gpus)), make([]int64, len(gpus))
	for i, device := range gpus {
		sizes[i] = max(device.MemoryMiB-n.HeadroomMiB, 0) / 1024
		var u gpuUsage
		if i < len(n.used.gpus) {
			u = n.used.gpus[i]
		}
		if !usable.Has(i) || u.owners > 0 || n.used.anonymous > 0 {
			continue
		}
		capacities[i] = gpuCapacity{
			memoryGiB:   max(sizes[i]-u.memoryGiB-n.used.unknown.memoryGiB, 0),
			corePercent: max(fullCore-u.corePercent-n.used.unknown.corePercent, 0),
		}
	}
	return capacities, sizes
}
