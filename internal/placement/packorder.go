package placement

import (
	"cmp"
	"slices"
)

// filling is a node that is filled with one class after the other.
type filling struct {
	bucket
	at   int32
	room *capacity
}

// packInOrder places one class after the other, the scarcest first: the one with the
// least room for each wanted member. Each goes where it costs the classes after it
// the fewest places. It finds placements that filling node after node misses, such
// as a parameter server that fits on few of the nodes that workers fill.
func (p *planner) packInOrder(d *domain, want []int) selection {
	nodes := fillings(d, len(p.classes))
	order := p.scarcest(nodes, want)
	for position, class := range order {
		p.packClass(class, order[position+1:], want, nodes)
	}
	return p.chosen(d, nodes, order)
}

// fillings are the nodes of a domain, in the planner's order.
func fillings(d *domain, classes int) []*filling {
	var nodes []*filling
	for _, g := range d.groups {
		for i, at := range g.nodes {
			nodes = append(nodes, &filling{
				bucket: bucket{nodePacking: &nodePacking{take: make([]int, classes)}, group: g, handed: i},
				at:     at, room: g.state,
			})
		}
	}
	slices.SortFunc(nodes, func(a, b *filling) int { return cmp.Compare(a.at, b.at) })
	return nodes
}

// chosen is the selection of the nodes that took members, which they did in an order of classes.
func (p *planner) chosen(d *domain, nodes []*filling, order []int) selection {
	s := selection{domain: d}
	for _, n := range nodes {
		if n.members > 0 {
			n.order = order
			n.ring, n.left = p.ring(n.packingKey, n.gpus), n.room.left()
			s.add(&n.bucket)
		}
	}
	return s
}

// slots is how many of the wanted members of a class fit on a node beside what it took.
func (p *planner) slots(n *filling, room *capacity, class, want int) int {
	return room.fits(p.classes[class].request, p.limit(n.packingKey, class, want, n.nodePacking))
}

// scarcest orders the classes by room for each wanted member.
func (p *planner) scarcest(nodes []*filling, want []int) []int {
	room := make([]float64, len(p.classes))
	order := make([]int, len(p.classes))
	for class := range p.classes {
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
func (p *planner) packClass(class int, later []int, want []int, nodes []*filling) {
	type candidate struct {
		*filling
		slots int
		// cost is the places of later classes lost per member, in parts of what they want.
		cost float64
	}
	var list []candidate
	r := p.classes[class].request
	for _, n := range nodes {
		slots := p.slots(n, n.room, class, want[class])
		if slots == 0 {
			continue
		}
		after := n.room.clone()
		after.take(r, slots, p.choice)
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
		c.room = c.room.clone()
		c.room.take(r, n, p.choice)
		c.add(class, n, r)
	}
}
