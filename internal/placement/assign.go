package placement

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// assign names the members of a selection and gives them their cards, in the gang's order.
func (p *planner) assign(s selection) []Assignment {
	waiting := make([][]int, len(p.classes))
	for i, m := range p.members {
		waiting[m.class] = append(waiting[m.class], i)
	}
	assigned := make([]*Assignment, len(p.members))
	for _, pick := range s.picks {
		var here []int
		for _, class := range pick.order {
			n := pick.take[class]
			here = append(here, waiting[class][:n]...)
			waiting[class] = waiting[class][n:]
		}
		for i, a := range p.assignOn(pick, here) {
			assigned[here[i]] = &a
		}
	}
	list := make([]Assignment, 0, s.placed)
	for _, a := range assigned {
		if a != nil {
			list = append(list, *a)
		}
	}
	return list
}

// assignOn gives the members at the indexes, which are grouped by class in the pick's
// order, their cards on one node.
func (p *planner) assignOn(on pick, members []int) []Assignment {
	list := make([]Assignment, len(members))
	room := on.node.free.clone()
	next := 0
	for _, class := range on.order {
		n := on.take[class]
		shares := room.take(p.classes[class].request, n, p.mix)
		for i := range n {
			list[next] = Assignment{Member: p.members[members[next]].name, Node: on.node.Name}
			if shares != nil {
				list[next].Shares = shares[i]
			}
			next++
		}
	}
	p.giveWholeCards(on.node, members, list)
	return list
}

// giveWholeCards carves one best set of cards for all members of the gang on the node.
func (p *planner) giveWholeCards(n *node, members []int, list []Assignment) {
	holders := make([]int, 0, len(members))
	for i, m := range members {
		if p.classes[p.members[m].class].request.Mode.whole() {
			holders = append(holders, i)
		}
	}
	slices.SortFunc(holders, func(a, b int) int { return members[a] - members[b] })
	sizes := make([]int, len(holders))
	total := 0
	for j, i := range holders {
		sizes[j] = p.classes[p.members[members[i]].class].request.Cards
		total += sizes[j]
	}
	if total == 0 {
		return
	}
	if n.Mode == ModeDefault {
		ring := n.free.ring(total)
		for _, i := range holders {
			list[i].Ring = ring
		}
		return
	}
	set, _ := n.Cards.Best(n.free.cards, total)
	visible := set | p.runningCards(n.Name)
	ring := n.Cards.Ring(visible)
	for j, own := range n.Cards.Carve(set, sizes) {
		a := &list[holders[j]]
		a.Own, a.Visible, a.Ring = own, visible, ring
	}
}

// runningCards are the cards that members of the gang hold on the node already.
func (p *planner) runningCards(node string) gpu.Set {
	var s gpu.Set
	for _, a := range p.running[node] {
		s |= a.Own
	}
	return s
}
