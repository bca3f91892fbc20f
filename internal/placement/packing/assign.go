package packing

import (
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// Assign names the members of a selection and gives them their GPUs, in the gang's order.
func (p *Packer) Assign(s Selection) []placement.Assignment {
	list := make([]placement.Assignment, s.Placed)
	places := p.places(s, list)
	d := gpuAssigner{Packer: p, list: list, spans: p.spans(s)}
	for _, pick := range s.Picks {
		here := make([]int32, 0, pick.Packing.Members)
		for _, class := range pick.Packing.Order {
			next, rest := p.handOut(places[class], pick.Packing.Take[class], list, p.Nodes[pick.Node])
			here, places[class] = append(here, next...), rest
		}
		d.assign(p.Nodes[pick.Node], pick.Packing, here)
	}
	if p.linked {
		d.joinRack()
	}
	return list
}

// handOut chooses n of the positions in the list for a node: those that were planned there, or
// the first ones.
func (p *Packer) handOut(open []int32, n int, list []placement.Assignment, at *capacity.Node) (next, rest []int32) {
	if p.Spots == nil {
		return open[:n], open[n:]
	}
	for _, i := range open {
		if p.Spots[list[i].Member].Node.Name == at.Name {
			next = append(next, i)
		} else {
			rest = append(rest, i)
		}
	}
	return next, rest
}

// placement is what a selection gives the members.
func (p *Packer) placement(s Selection) *placement.Placement {
	placed := &placement.Placement{Gang: p.Gang.ID, Assignments: p.Assign(s)}
	if s.order == nil {
		return placed
	}
	classes := map[string]int{}
	for _, b := range p.Due {
		for _, name := range b.Names {
			classes[name] = b.Class
		}
	}
	type place struct {
		class int
		node  string
	}
	members := map[place][]string{}
	for _, a := range placed.Assignments {
		at := place{classes[a.Member], a.Node}
		members[at] = append(members[at], a.Member)
	}
	for _, t := range s.order {
		at := place{t.class, p.Nodes[t.at].Name}
		placed.Order = append(placed.Order, members[at][0])
		members[at] = members[at][1:]
	}
	return placed
}

// spans reports whether the gang is on several nodes with the selection.
func (p *Packer) spans(s Selection) bool {
	if len(s.Picks) != 1 {
		return len(s.Picks) > 1
	}
	for name := range p.running {
		if name != p.Nodes[s.Picks[0].Node].Name {
			return true
		}
	}
	return false
}

// places names the first members of each class in the list, as many as the selection
// places, and returns their positions by class.
func (p *Packer) places(s Selection, list []placement.Assignment) [][]int32 {
	open := s.ByClass(len(p.Classes))
	places := make([][]int32, len(p.Classes))
	for class, n := range open {
		places[class] = make([]int32, 0, n)
	}
	gets := make([]int, len(p.Due))
	for i, b := range p.Due {
		gets[i] = min(len(b.Names), open[b.Class])
		open[b.Class] -= gets[i]
	}
	next := 0
	for _, i := range p.inOrder() {
		b := p.Due[i]
		for _, name := range b.Names[:gets[i]] {
			list[next].Member = name
			places[b.Class] = append(places[b.Class], int32(next))
			next++
		}
	}
	return places
}
