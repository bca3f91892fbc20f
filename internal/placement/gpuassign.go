package placement

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// gpuAssigner gives members their GPUs, node after node.
type gpuAssigner struct {
	*planner
	list []Assignment
	// spans means that the gang is on several nodes: its GPUs then are near network devices.
	spans bool
	last  carved
	// assigned are the nodes on which members take whole GPUs.
	assigned []assignedNode
}

// assignedNode is a node with the positions of the members that take whole GPUs there.
type assignedNode struct {
	node    *node
	members []int32
}

// carved is how GPUs were last carved, for the next node that is alike.
type carved struct {
	state *capacity
	sizes []int
	given []Assignment
}

// assign gives the members at the positions, which are grouped by class in the trial's
// order, their GPUs on one node.
func (d *gpuAssigner) assign(n *node, t *nodePacking, here []int32) {
	for _, i := range here {
		d.list[i].Node = n.Name
	}
	switch {
	case n.Mode.shared():
		room := n.free.clone()
		for _, class := range t.order {
			d.shares(room, d.classes[class].request, here[:t.take[class]])
			here = here[t.take[class]:]
		}
	case t.gpus > 0:
		d.wholeGPUs(n, t, here)
	}
}

// shares gives the members at the positions, which ask for the same, their parts of GPUs.
func (d *gpuAssigner) shares(room *capacity, r *Request, here []int32) {
	if d.spots == nil || !r.Mode.shared() {
		for i, shares := range room.take(r, len(here), d.choice) {
			d.list[here[i]].Shares = shares
		}
		return
	}
	for _, i := range here {
		d.list[i].Shares = room.takeFrom(d.spots[d.list[i].Member].gpus.GPUs(), r.perGPU())
	}
}

// wholeGPUs carves one best set of GPUs for all members of the gang on the node.
func (d *gpuAssigner) wholeGPUs(n *node, t *nodePacking, here []int32) {
	type holder struct {
		at   int32
		gpus int
	}
	holders := make([]holder, 0, len(here))
	for _, class := range t.order {
		if r := d.classes[class].request; r.Mode.whole() {
			for _, at := range here[:t.take[class]] {
				holders = append(holders, holder{at, r.GPUs})
			}
		}
		here = here[t.take[class]:]
	}
	slices.SortFunc(holders, func(a, b holder) int { return cmp.Compare(a.at, b.at) })
	sizes := make([]int, len(holders))
	for i, h := range holders {
		sizes[i] = h.gpus
	}
	running := d.runningGPUs(n) &^ n.free.gpus // what is free in the view is nobody's
	switch {
	case d.spots != nil && n.Mode == ModeTopology:
		own := make([]gpu.Set, len(holders))
		for i, h := range holders {
			own[i] = d.spots[d.list[h.at].Member].gpus
		}
		d.last = carved{given: given(n, own, running)}
	case running != 0 || d.last.state != n.free || !slices.Equal(d.last.sizes, sizes):
		d.last = carved{state: n.free, sizes: sizes, given: d.carve(n, t.gpus, sizes, running)}
	}
	members := make([]int32, len(holders))
	for i, h := range holders {
		a, given := &d.list[h.at], &d.last.given[i]
		a.Own, a.Visible, a.Ring = given.Own, given.Visible, given.Ring
		members[i] = h.at
	}
	if running != 0 {
		d.last = carved{}
	}
	d.assigned = append(d.assigned, assignedNode{n, members})
}

// carve returns the GPUs and rings of members of the given sizes on a node on which
// the gang has running GPUs already.
func (d *gpuAssigner) carve(n *node, total int, sizes []int, running gpu.Set) []Assignment {
	if n.Mode == ModeDefault {
		list := make([]Assignment, len(sizes))
		for i := range list {
			list[i].Ring = n.free.ring(total)
		}
		return list
	}
	set, _ := n.GPUs.BestBeside(n.free.gpus, total, running, d.spans)
	return given(n, n.GPUs.Carve(set, sizes), running)
}

// given is what members have of a node of which they get GPUs.
func given(n *node, own []gpu.Set, running gpu.Set) []Assignment {
	visible := running
	for _, set := range own {
		visible |= set
	}
	ring := n.GPUs.Ring(visible)
	list := make([]Assignment, len(own))
	for i, set := range own {
		list[i] = Assignment{Own: set, Visible: visible, Ring: ring}
	}
	return list
}

// runningGPUs are the GPUs that members of the gang hold on the node already.
func (p *planner) runningGPUs(n *node) gpu.Set {
	var s gpu.Set
	for _, a := range p.running[n.Name] {
		s |= a.Own
	}
	return s
}

// joinRack gives all members the ring through the switches of an NVLink domain when
// the gang is on several nodes of one.
func (d *gpuAssigner) joinRack() {
	gpus := map[*node]gpu.Set{}
	for _, assigned := range d.assigned {
		gpus[assigned.node] = d.list[assigned.members[0]].Visible
	}
	for _, n := range d.nodes {
		if own := d.runningGPUs(n); own != 0 || n.Mode == ModeDefault && len(d.running[n.Name]) > 0 {
			gpus[n] |= own
		}
	}
	if len(gpus) < 2 || len(d.assigned) == 0 {
		return
	}
	var slowest gpu.Ring
	for n, set := range gpus {
		if n.NVLinkDomain == "" || n.NVLinkDomain != d.assigned[0].node.NVLinkDomain || n.GPUs == nil {
			return
		}
		if set == 0 {
			set = n.GPUs.Healthy() // the device plugin picks
		}
		ring := n.GPUs.Fabric(set)
		if slowest.GBps == 0 || ring.GBps < slowest.GBps {
			slowest = ring
		}
	}
	for _, assigned := range d.assigned {
		for _, at := range assigned.members {
			d.list[at].Ring = slowest
		}
	}
}
