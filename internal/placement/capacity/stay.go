package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Evicts says why a pod that is charged to the node cannot stay there, "" when it can.
func (n *Node) Evicts(p *placement.Pod) string {
	if p.Request.Mode != placement.ModeNone {
		if p.Request.Mode.Shared() != n.Mode.Shared() || p.Request.Mode.Whole() && p.Request.Mode != n.Mode {
			return fmt.Sprintf("node %s offers its GPUs in mode %s", p.Node, cmp.Or(string(n.Mode), "none"))
		}
		if lost := p.GPUs() &^ n.HealthyGPUs(); lost != 0 {
			return fmt.Sprintf("node %s has lost GPU %s", p.Node, lost)
		}
	}
	if n.tooSmallFor(p) {
		return fmt.Sprintf("node %s is too small", p.Node)
	}
	return ""
}

// tooSmallFor reports whether more runs on the node than it has of something that the pod uses.
func (n *Node) tooSmallFor(p *placement.Pod) bool {
	have, used, r := n.Allocatable, &n.Used, &p.Request
	if used.Pods > have.Pods || r.MilliCPU > 0 && used.milliCPU > have.MilliCPU || r.MemoryBytes > 0 && used.memoryBytes > have.MemoryBytes {
		return true
	}
	for name, amount := range r.Extended {
		if amount > 0 && used.extended[name] > have.Extended[name] && !n.delegates(name) {
			return true
		}
	}
	for _, i := range p.GPUs().GPUs() {
		u := used.gpus[i]
		if u.owners > 1 || u.owners == 1 && u.memoryGiB > 0 || u.corePercent > placement.FullCore || u.memoryGiB > 0 && u.memoryGiB > n.Free.Sizes[i] {
			return true
		}
	}
	return r.Mode == placement.ModeDefault && used.whole() > n.HealthyGPUs().Len()
}

// HasGPUsFor reports whether pods find the GPUs that they are to have free when they come together: those of pods whose GPUs
// nobody knows may be any.
func (n *Node) HasGPUsFor(pods []*placement.Pod) bool {
	free := n.Free
	whole, shares := 0, map[int]GPU{}
	for _, p := range pods {
		if p.Request.Mode.Whole() {
			whole += p.Request.GPUs
		}
		if p.Own&^free.GPUs != 0 {
			return false
		}
		for _, share := range p.Shares {
			sum := shares[share.GPU]
			sum.MemoryGiB += share.MemoryGiB
			sum.CorePercent += share.CorePercent
			shares[share.GPU] = sum
			if share.GPU >= len(free.Shares) {
				return false
			}
			if left := free.Shares[share.GPU]; sum.MemoryGiB > left.MemoryGiB || sum.CorePercent > left.CorePercent {
				return false
			}
		}
	}
	return whole <= free.Whole
}

// whole counts the GPUs in the hands of pods that take whole GPUs.
func (u *Usage) whole() int {
	whole := u.anonymous
	for _, u := range u.gpus {
		if u.owners > 0 {
			whole++
		}
	}
	return whole
}

// Clashes reports whether a pod that is charged to the node cannot be beside the others.
func (n *Node) Clashes(p *placement.Pod) bool {
	var others map[string]int
	if len(p.Request.HostPorts) > 0 {
		others = maps.Clone(n.Used.ports)
	}
	for _, port := range p.Request.HostPorts {
		count(others, port, -1)
	}
	taken := func(port string) bool { return PortTaken(others, port) }
	return slices.ContainsFunc(p.Request.HostPorts, taken) || p.Request.Mode.Shared() && n.Used.memoryOnly > 0 && n.Used.withCore > 0
}
