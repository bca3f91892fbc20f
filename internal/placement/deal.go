package placement

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// dealer gives members their cards, node after node.
type dealer struct {
	*planner
	list []Assignment
	// spans tells that the gang is on several nodes: its cards then are near network devices.
	spans bool
	last  carved
	// dealt are the nodes on which members take whole cards.
	dealt []dealt
}

// dealt is a node with the positions of the members that take whole cards there.
type dealt struct {
	node    *node
	members []int32
}

// carved is how cards were last carved, for the next node that is alike.
type carved struct {
	state *capacity
	sizes []int
	given []Assignment
}

// deal gives the members at the positions, which are grouped by class in the trial's
// order, their cards on one node.
func (d *dealer) deal(n *node, t *trial, here []int32) {
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
	case t.cards > 0:
		d.wholeCards(n, t, here)
	}
}

// shares gives the members at the positions, which ask for the same, their parts of cards.
func (d *dealer) shares(room *capacity, r *Request, here []int32) {
	if d.spots == nil || !r.Mode.shared() {
		for i, shares := range room.take(r, len(here), d.mix) {
			d.list[here[i]].Shares = shares
		}
		return
	}
	for _, i := range here {
		d.list[i].Shares = room.takeFrom(d.spots[d.list[i].Member].cards.Cards(), r.perCard())
	}
}

// wholeCards carves one best set of cards for all members of the gang on the node.
func (d *dealer) wholeCards(n *node, t *trial, here []int32) {
	type holder struct {
		at    int32
		cards int
	}
	holders := make([]holder, 0, len(here))
	for _, class := range t.order {
		if r := d.classes[class].request; r.Mode.whole() {
			for _, at := range here[:t.take[class]] {
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
	running := d.runningCards(n.Name)
	switch {
	case d.spots != nil && n.Mode == ModeTopology:
		own := make([]gpu.Set, len(holders))
		for i, h := range holders {
			own[i] = d.spots[d.list[h.at].Member].cards
		}
		d.last = carved{given: given(n, own, running)}
	case running != 0 || d.last.state != n.free || !slices.Equal(d.last.sizes, sizes):
		d.last = carved{state: n.free, sizes: sizes, given: d.carve(n, t.cards, sizes, running)}
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
	d.dealt = append(d.dealt, dealt{n, members})
}

// carve returns the cards and rings of members of the given sizes on a node on which
// the gang has running cards already.
func (d *dealer) carve(n *node, total int, sizes []int, running gpu.Set) []Assignment {
	if n.Mode == ModeDefault {
		list := make([]Assignment, len(sizes))
		for i := range list {
			list[i].Ring = n.free.ring(total)
		}
		return list
	}
	set, _ := n.Cards.BestBeside(n.free.cards, total, running, d.spans)
	return given(n, n.Cards.Carve(set, sizes), running)
}

// given is what members have of a node of which they get cards.
func given(n *node, own []gpu.Set, running gpu.Set) []Assignment {
	visible := running
	for _, set := range own {
		visible |= set
	}
	ring := n.Cards.Ring(visible)
	list := make([]Assignment, len(own))
	for i, set := range own {
		list[i] = Assignment{Own: set, Visible: visible, Ring: ring}
	}
	return list
}

// runningCards are the cards that members of the gang hold on the node already.
func (p *planner) runningCards(node string) gpu.Set {
	var s gpu.Set
	for _, a := range p.running[node] {
		s |= a.Own
	}
	return s
}

// joinRack gives all members the ring through the switches of an NVLink domain when
// the gang is on several nodes of one.
func (d *dealer) joinRack() {
	cards := map[*node]gpu.Set{}
	for _, dealt := range d.dealt {
		cards[dealt.node] = d.list[dealt.members[0]].Visible
	}
	for _, n := range d.nodes {
		if own := d.runningCards(n.Name); own != 0 || n.Mode == ModeDefault && len(d.running[n.Name]) > 0 {
			cards[n] |= own
		}
	}
	if len(cards) < 2 || len(d.dealt) == 0 {
		return
	}
	var slowest gpu.Ring
	for n, set := range cards {
		if n.NVLinkDomain == "" || n.NVLinkDomain != d.dealt[0].node.NVLinkDomain || n.Cards == nil {
			return
		}
		if set == 0 {
			set = n.Cards.Healthy() // the device plugin picks
		}
		ring := n.Cards.Fabric(set)
		if slowest.GBps == 0 || ring.GBps < slowest.GBps {
			slowest = ring
		}
	}
	for _, dealt := range d.dealt {
		for _, at := range dealt.members {
			d.list[at].Ring = slowest
		}
	}
}
