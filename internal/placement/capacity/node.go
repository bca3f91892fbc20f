package capacity

import (
	"maps"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Node is one node of the view with what runs on it.
type Node struct {
	placement.Node
	// Present is false while pods are known on a node that is not.
	Present bool
	// Number is the node's in the view's admissions, 0 for a node of no view.
	Number int32
	Used   Usage
	// Free is what is left, shared with all nodes in the same state, nil while the node is absent; key is its key.
	Free *Capacity
	Key  string
	// Eligible is that of its capacities.
	Eligible uint64
}

// Capacity computes what is left of the node.
func (n *Node) Capacity() *Capacity { return n.CapacityOf(n.HealthyGPUs()) }

// WhenUsed is capacity when so much of the node is used.
func (n *Node) WhenUsed(used Usage) *Capacity {
	after := Node{Node: n.Node, Used: used}
	return after.Capacity()
}

// CapacityOf is capacity where these GPUs may be used.
func (n *Node) CapacityOf(usable gpu.Set) *Capacity {
	c := &Capacity{
		Mode: n.Mode, policy: n.GPUPolicy, Table: n.GPUs, delegated: n.Delegated,
		MilliCPU:    n.Allocatable.MilliCPU - n.Used.milliCPU,
		MemoryBytes: n.Allocatable.MemoryBytes - n.Used.memoryBytes,
		pods:        n.Allocatable.Pods - n.Used.Pods,
		MemoryOnly:  n.Used.memoryOnly, WithCore: n.Used.withCore, Eligible: n.Eligible,
	}
	if len(n.Allocatable.Extended) > 0 {
		c.extended = maps.Clone(n.Allocatable.Extended)
		for name, used := range n.Used.extended {
			c.extended[name] -= used
		}
		if len(n.Delegated) > 0 {
			maps.DeleteFunc(c.extended, func(name string, _ int64) bool { return n.delegates(name) })
		}
	}
	for port := range n.Used.ports {
		if c.Ports == nil {
			c.Ports = make(map[string]bool, len(n.Used.ports))
		}
		c.Ports[port] = true
	}
	if n.GPUs == nil {
		return c
	}
	switch {
	case n.Mode == placement.ModeDefault:
		c.GPUs = n.FreeGPUs(usable)
		c.Whole = max(min(c.GPUs.Len(), usable.Len()-n.Used.anonymous-n.Used.unknown.owners), 0)
	case n.Mode == placement.ModeTopology && n.Used.anonymous == 0 && n.Used.unknown.owners == 0:
		c.GPUs = n.FreeGPUs(usable)
		c.Whole = c.GPUs.Len()
	case n.Mode.Shared():
		c.Shares, c.Sizes = n.gpuCapacities(usable)
	}
	return c
}

// delegates reports whether others allocate an extended resource on the node.
func (n *Node) delegates(name string) bool {
	return n.Delegated.Has(name) && n.Allocatable.Extended[name] <= 0
}

// HealthyGPUs returns the GPUs that may be used at all.
func (n *Node) HealthyGPUs() gpu.Set {
	if n.GPUs == nil {
		return 0
	}
	return n.GPUs.Healthy()
}

// FreeGPUs returns those of the usable GPUs that no known pod owns or shares.
func (n *Node) FreeGPUs(usable gpu.Set) gpu.Set {
	for i, u := range n.Used.gpus {
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
func (n *Node) gpuCapacities(usable gpu.Set) (capacities []GPU, sizes []int64) {
	gpus := n.GPUs.Machine().GPUs
	capacities, sizes = make([]GPU, len(gpus)), make([]int64, len(gpus))
	for i, device := range gpus {
		sizes[i] = max(device.MemoryMiB-n.HeadroomMiB, 0) / 1024
		var u gpuUsage
		if i < len(n.Used.gpus) {
			u = n.Used.gpus[i]
		}
		if !usable.Has(i) || u.owners > 0 || n.Used.anonymous > 0 {
			continue
		}
		capacities[i] = GPU{
			MemoryGiB:   max(sizes[i]-u.memoryGiB-n.Used.unknown.memoryGiB, 0),
			CorePercent: max(placement.FullCore-u.corePercent-n.Used.unknown.corePercent, 0),
		}
	}
	return capacities, sizes
}
