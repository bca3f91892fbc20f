package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// evicts says why a pod that is charged to the node cannot stay there, "" when it can.
func (n *node) evicts(p *Pod) string {
	if p.Request.Mode != ModeNone {
		if p.Request.Mode.shared() != n.Mode.shared() || p.Request.Mode.whole() && p.Request.Mode != n.Mode {
			return fmt.Sprintf("node %s offers its GPUs in mode %s", p.Node, cmp.Or(string(n.Mode), "none"))
		}
		if lost := p.reserved() &^ n.healthyGPUs(); lost != 0 {
			return fmt.Sprintf("node %s has lost GPU %s", p.Node, lost)
		}
	}
	if n.tooSmallFor(p) {
		return fmt.Sprintf("node %s is too small", p.Node)
	}
	return ""
}

// tooSmallFor reports whether more runs on the node than it has of something that the pod uses.
func (n *node) tooSmallFor(p *Pod) bool {
	have, used, r := n.Allocatable, &n.used, &p.Request
	if used.pods > have.Pods || r.MilliCPU > 0 && used.milliCPU > have.MilliCPU || r.MemoryBytes > 0 && used.memoryBytes > have.MemoryBytes {
		return true
	}
	for name, amount := range r.Extended {
		if amount > 0 && used.extended[name] > have.Extended[name] {
			return true
		}
	}
	for _, i := range p.reserved().GPUs() {
		u := used.gpus[i]
		if u.owners > 1 || u.owners == 1 && u.memoryGiB > 0 || u.corePercent > fullCore || u.memoryGiB > 0 && u.memoryGiB > n.free.sizes[i] {
			return true
		}
	}
	return r.Mode == ModeDefault && used.whole() > n.healthyGPUs().Len()
}

// whole counts the GPUs in the hands of pods that take whole GPUs.
func (u *usage) whole() int {
	whole := u.anonymous
	for _, u := range u.gpus {
		if u.owners > 0 {
			whole++
		}
	}
	return whole
}

// clashes reports whether a pod that is charged to the node cannot be beside the others.
func (n *node) clashes(p *Pod) bool {
	var others map[string]int
	if len(p.Request.HostPorts) > 0 {
		others = maps.Clone(n.used.ports)
	}
	for _, port := range p.Request.HostPorts {
		count(others, port, -1)
	}
	taken := func(port string) bool { return portTaken(others, port) }
	return slices.ContainsFunc(p.Request.HostPorts, taken) || p.Request.Mode.shared() && n.used.memoryOnly > 0 && n.used.withCore > 0
}
