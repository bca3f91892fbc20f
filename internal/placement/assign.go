package placement

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// assign names the members of a selection and gives them their cards, in the gang's order.
func (p *planner) assign(s selection) []Assignment {
	list := make([]Assignment, s.placed)
	places := p.places(s, list)
	var alike carved
	for _, pick := range s.picks {
		here := make([]int32, 0, pick.trial.members)
		for _, class := range pick.trial.order {
			n := pick.trial.take[class]
			here = append(here, places[class][:n]...)
			places[class] = places[class][n:]
		}
		p.assignOn(p.nodes[pick.node], pick.trial, here, list, &alike)
	}
	return list
}

// places names the first members of each class in the list, as many as the selection
// places, and returns their positions by class.
func (p *planner) places(s selection, list []Assignment) [][]int32 {
	open := make([]int, len(p.classes))
	for _, pick := range s.picks {
		for class, n := range pick.trial.take {
			open[class] += n
		}
	}
	places := make([][]int32, len(p.classes))
	for class, n := range open {
		places[class] = make([]int32, 0, n)
	}
	next := 0
	for _, b := range p.due {
		for _, name := range b.names[:min(len(b.names), open[b.class])] {
			list[next].Member = name
			places[b.class] = append(places[b.class], int32(next))
			open[b.class]--
			next++
		}
	}
	return places
}

// assignOn gives the members at the positions, which are grouped by class in the
// trial's order, their cards on one node.
func (p *planner) assignOn(n *node, t *trial, here []int32, list []Assignment, alike *carved) {
	for _, i := range here {
		list[i].Node = n.Name
	}
	if n.Mode.shared() {
		room := n.free.clone()
		next := 0
		for _, class := range t.order {
			shares := room.take(p.classes[class].request, t.take[class], p.mix)
			for i, share := range shares {
				list[here[next+i]].Shares = share
			}
			next += t.take[class]
		}
		return
	}
	if t.cards > 0 {
		p.giveWholeCards(n, t, here, list, alike)
	}
}

// holder is a member that takes whole cards.
type holder struct {
	at    int32
	cards int
}

// carved is how cards were last carved, for the next node that is alike.
type carved struct {
	state *capacity
	sizes []int
	given []Assignment
}

// giveWholeCards carves one best set of cards for all members of the gang on the node.
func (p *planner) giveWholeCards(n *node, t *trial, here []int32, list []Assignment, alike *carved) {
	holders := make([]holder, 0, len(here))
	for _, class := range t.order {
		for _, at := range here[:t.take[class]] {
			if r := p.classes[class].request; r.Mode.whole() {
				holders = append(holders, holder{at, r.Cards})
			}
		}
		here = here[t.take[class]:]
	}
	slices.SortFunc(holders, func(a, b holder) int { return cmp.Compare(a.at, b.at) })
	sizes := make([]int, len(holders))
	for i, h := range holders {
		sizes[i] = h.cards
	}
	running := p.runningCards(n.Name)
	if running != 0 || alike.state != n.free || !slices.Equal(alike.sizes, sizes) {
		*alike = carved{state: n.free, sizes: sizes, given: p.carve(n, t.cards, sizes, running)}
		if running != 0 {
			alike.state = nil
		}
	}
	for i, h := range holders {
		a, given := &list[h.at], &alike.given[i]
		a.Own, a.Visible, a.Ring = given.Own, given.Visible, given.Ring
	}
}

// carve returns the cards and rings of members of the given sizes on a node on which
// the gang has running cards already.
func (p *planner) carve(n *node, total int, sizes []int, running gpu.Set) []Assignment {
	given := make([]Assignment, len(sizes))
	if n.Mode == ModeDefault {
		ring := n.free.ring(total)
		for i := range given {
			given[i].Ring = ring
		}
		return given
	}
	set, _ := n.Cards.Best(n.free.cards, total)
	visible := set | running
	ring := n.Cards.Ring(visible)
	for i, own := range n.Cards.Carve(set, sizes) {
		given[i] = Assignment{Own: own, Visible: visible, Ring: ring}
	}
	return given
}

// runningCards are the cards that members of the gang hold on the node already.
func (p *planner) runningCards(node string) gpu.Set {
	var s gpu.Set
	for _, a := range p.running[node] {
		s |= a.Own
	}
	return s
}
