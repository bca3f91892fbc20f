package placement

import (
	"cmp"
	"slices"
)

// packInTurn places one class after the other, the scarcest first: the one with the
// least room for each wanted member. Each goes where it costs the classes after it
// the fewest places. It finds placements that filling node after node misses, such
// as a parameter server that fits on few of the nodes that workers fill.
func (p *planner) packInTurn(d *domain, want []int) selection {
	rooms := make([]*capacity, len(d.nodes))
	trials := make([]*trial, len(d.nodes))
	for i, n := range d.nodes {
		rooms[i] = n.free
		trials[i] = &trial{key: p.key(n, d.admitted[i]), take: make([]int, len(p.classes))}
	}
	order := p.scarcest(trials, rooms, want)
	for _, t := range trials {
		t.order = order
	}
	for turn, class := range order {
		p.packClass(class, order[turn+1:], want, trials, rooms)
	}
	s := selection{domain: d}
	for i, t := range trials {
		if t.members > 0 {
			t.ring, t.left = d.nodes[i].free.ring(t.cards), rooms[i].left()
			s.add(d.nodes[i], t)
		}
	}
	return s
}

// slots is how many of the wanted members of a class fit on a node beside what it took.
func (p *planner) slots(t *trial, room *capacity, class, want int) int {
	return room.fits(p.classes[class].request, p.limit(t.key, class, want, t.members))
}

// scarcest orders the classes by room for each wanted member.
func (p *planner) scarcest(trials []*trial, rooms []*capacity, want []int) []int {
	room := make([]float64, len(p.classes))
	order := make([]int, len(p.classes))
	for class := range p.classes {
		order[class] = class
		for i, t := range trials {
			room[class] += float64(p.slots(t, rooms[i], class, want[class]))
		}
		room[class] /= float64(max(want[class], 1))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(room[a], room[b]) })
	return order
}

// packClass places the members of one class and updates trials and rooms.
func (p *planner) packClass(class int, later []int, want []int, trials []*trial, rooms []*capacity) {
	type candidate struct {
		node, slots int
		// cost is the places of later classes lost per member, in parts of what they want.
		cost float64
	}
	var list []candidate
	r := p.classes[class].request
	for i, t := range trials {
		n := p.slots(t, rooms[i], class, want[class])
		if n == 0 {
			continue
		}
		after := rooms[i].clone()
		after.take(r, n, p.mix)
		c := candidate{node: i, slots: n}
		for _, other := range later {
			lost := p.slots(t, rooms[i], other, want[other]) - p.slots(t, after, other, want[other])
			c.cost += float64(lost) / float64(max(want[other], 1)) / float64(n)
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
		room := rooms[c.node].clone()
		room.take(r, n, p.mix)
		rooms[c.node] = room
		trials[c.node].add(class, n, r)
	}
}
