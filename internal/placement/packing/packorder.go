package packing

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

// filling is a node that is filled with one class after the other.
type filling struct {
	bucket
	at   int32
	room *capacity.Capacity
}

// packInOrder places one class after the other, the scarcest first: the one with the
// least room for each wanted member. Each goes where it costs the classes after it
// the fewest places. It finds placements that filling node after node misses, such
// as a parameter server that fits on few of the nodes that workers fill.
func (p *Packer) packInOrder(d *Domain, want []int) Selection {
	nodes := fillings(d, len(p.Classes))
	order := p.scarcest(nodes, want)
	for position, class := range order {
		p.packClass(class, order[position+1:], want, nodes)
	}
	return p.chosen(d, nodes, order)
}

// fillings are the nodes of a domain, in the planner's order.
func fillings(d *Domain, classes int) []*filling {
	var nodes []*filling
	for _, g := range d.groups {
		for i, at := range g.nodes {
			nodes = append(nodes, &filling{
				bucket: bucket{Packing: &capacity.Packing{Take: make([]int, classes)}, group: g, handed: i},
				at:     at, room: g.state,
			})
		}
	}
	slices.SortFunc(nodes, func(a, b *filling) int { return cmp.Compare(a.at, b.at) })
	return nodes
}

// chosen is the selection of the nodes that took members, which they did in an order of classes.
func (p *Packer) chosen(d *Domain, nodes []*filling, order []int) Selection {
	s := Selection{Domain: d}
	for _, n := range nodes {
		if n.Members > 0 {
			n.Order = order
			n.Ring, n.Left = p.ring(n.Key, n.GPUs), n.room.Left()
			s.add(&n.bucket)
		}
	}
	return s
}

// slots is how many of the wanted members of a class fit on a node beside what it took.
func (p *Packer) slots(n *filling, room *capacity.Capacity, class, want int) int {
	return room.Fits(p.Classes[class].Request, p.Limit(n.Key, class, want, n.Packing))
}

// scarcest orders the classes by room for each wanted member.
func (p *Packer) scarcest(nodes []*filling, want []int) []int {
	room := make([]float64, len(p.Classes))
	order := make([]int, len(p.Classes))
	for class := range p.Classes {
		order[class] = class
		for _, n := range nodes {
			room[class] += float64(p.slots(n, n.room, class, want[class]))
		}
		room[class] /= float64(max(want[class], 1))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(room[a], room[b]) })
	return order
}

// packClass places the members of one class on the nodes.
func (p *Packer) packClass(class int, later []int, want []int, nodes []*filling) {
	type candidate struct {
		*filling
		slots int
		// cost is the places of later classes lost per member, in parts of what they want.
		cost float64
	}
	var list []candidate
	r := p.Classes[class].Request
	for _, n := range nodes {
		slots := p.slots(n, n.room, class, want[class])
		if slots == 0 {
			continue
		}
		after := n.room.Clone()
		after.Take(r, slots, p.choice)
		c := candidate{filling: n, slots: slots}
		for _, other := range later {
			lost := p.slots(n, n.room, other, want[other]) - p.slots(n, after, other, want[other])
			c.cost += float64(lost) / float64(max(want[other], 1)) / float64(slots)
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.slots, a.slots))
	})
	remaining := want[class]
	for _, c := range list {
		n := min(c.slots, remaining)
		if n == 0 {
			return
		}
		remaining -= n
		c.room = c.room.Clone()
		c.room.Take(r, n, p.choice)
		c.Add(class, n, r)
	}
}
