package packing

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// gpuAssigner gives members their GPUs, node after node.
type gpuAssigner struct {
	*Packer
	list []placement.Assignment
	// spans means that the gang is on several nodes: its GPUs then are near network devices.
	spans bool
	last  carved
	// assigned are the nodes on which members take whole GPUs.
	assigned []assignedNode
}

// assignedNode is a node with the positions of the members that take whole GPUs there.
type assignedNode struct {
	node    *capacity.Node
	members []int32
}

// carved is how GPUs were last carved, for the next node that is alike.
type carved struct {
	state *capacity.Capacity
	sizes []int
	given []placement.Assignment
}

// assign gives the members at the positions, which are grouped by class in the trial's
// order, their GPUs on one node.
func (d *gpuAssigner) assign(n *capacity.Node, t *capacity.Packing, here []int32) {
	for _, i := range here {
		d.list[i].Node = n.Name
	}
	switch {
	case n.Mode.Shared():
		room := n.Free.Clone()
		for _, class := range t.Order {
			d.shares(room, d.Classes[class].Request, here[:t.Take[class]])
			here = here[t.Take[class]:]
		}
	case t.GPUs > 0:
		d.wholeGPUs(n, t, here)
	}
}

// shares gives the members at the positions, which ask for the same, their parts of GPUs.
func (d *gpuAssigner) shares(room *capacity.Capacity, r *placement.Request, here []int32) {
	if d.Spots == nil || !r.Mode.Shared() {
		for i, shares := range room.Take(r, len(here), d.choice) {
			d.list[here[i]].Shares = shares
		}
		return
	}
	for _, i := range here {
		d.list[i].Shares = room.TakeFrom(d.Spots[d.list[i].Member].GPUs.GPUs(), capacity.PerGPU(r))
	}
}

// wholeGPUs carves one best set of GPUs for all members of the gang on the node.
func (d *gpuAssigner) wholeGPUs(n *capacity.Node, t *capacity.Packing, here []int32) {
	type holder struct {
		at   int32
		gpus int
	}
	holders := make([]holder, 0, len(here))
	for _, class := range t.Order {
		if r := d.Classes[class].Request; r.Mode.Whole() {
			for _, at := range here[:t.Take[class]] {
				holders = append(holders, holder{at, r.GPUs})
			}
		}
		here = here[t.Take[class]:]
	}
	slices.SortFunc(holders, func(a, b holder) int { return cmp.Compare(a.at, b.at) })
	sizes := make([]int, len(holders))
	for i, h := range holders {
		sizes[i] = h.gpus
	}
	running := d.runningGPUs(n) &^ n.Free.GPUs // what is free in the view is nobody's
	switch {
	case d.Spots != nil && n.Mode == placement.ModeTopology:
		own := make([]gpu.Set, len(holders))
		for i, h := range holders {
			own[i] = d.Spots[d.list[h.at].Member].GPUs
		}
		d.last = carved{given: given(n, own, running)}
	case running != 0 || d.last.state != n.Free || !slices.Equal(d.last.sizes, sizes):
		d.last = carved{state: n.Free, sizes: sizes, given: d.carve(n, t.GPUs, sizes, running)}
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
func (d *gpuAssigner) carve(n *capacity.Node, total int, sizes []int, running gpu.Set) []placement.Assignment {
	if n.Mode == placement.ModeDefault {
		list := make([]placement.Assignment, len(sizes))
		for i := range list {
			list[i].Ring = n.Free.Ring(total)
		}
		return list
	}
	set, _ := n.GPUs.BestBeside(n.Free.GPUs, total, running, d.spans)
	return given(n, n.GPUs.Carve(set, sizes), running)
}

// given is what members have of a node of which they get GPUs.
func given(n *capacity.Node, own []gpu.Set, running gpu.Set) []placement.Assignment {
	visible := running
	for _, set := range own {
		visible |= set
	}
	ring := n.GPUs.Ring(visible)
	list := make([]placement.Assignment, len(own))
	for i, set := range own {
		list[i] = placement.Assignment{Own: set, Visible: visible, Ring: ring}
	}
	return list
}

// runningGPUs are the GPUs that members of the gang hold on the node already.
func (p *Packer) runningGPUs(n *capacity.Node) gpu.Set {
	var s gpu.Set
	for _, a := range p.running[n.Name] {
		s |= a.Own
	}
	return s
}

// joinRack gives all members the ring through the switches of an NVLink domain when
// the gang is on several nodes of one.
func (d *gpuAssigner) joinRack() {
	gpus := map[*capacity.Node]gpu.Set{}
	for _, assigned := range d.assigned {
		gpus[assigned.node] = d.list[assigned.members[0]].Visible
	}
	for _, n := range d.Nodes {
		if own := d.runningGPUs(n); own != 0 || n.Mode == placement.ModeDefault && len(d.running[n.Name]) > 0 {
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
