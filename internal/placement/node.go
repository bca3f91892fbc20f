package placement

import (
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// node is one node of the view with what runs on it.
type node struct {
	Node
	// present is false while pods are known on a node that is not.
	present bool
	// number is the node's in the view's admissions, 0 for a node of no view.
	number int32
	used   usage
	// free is what is left, shared with all nodes in the same state, and key its key; nil while the node is absent.
	free *capacity
	key  string
}

// usage is what pods take of a node. It consists of counters only, so that adding
// and removing a pod restores it exactly.
type usage struct {
	milliCPU, memoryBytes, pods int64
	extended                    map[string]int64
	ports                       map[string]int
	// anonymous counts whole cards of pods whose cards are not known.
	anonymous            int
	cards                []cardUsage
	memoryOnly, withCore int
	// unknown is what pods share of cards of which nobody knows which they are: each card
	// may be one of them.
	unknown cardUsage
}

// cardUsage is what pods take of one card.
type cardUsage struct {
	owners                 int
	memoryGiB, corePercent int64
}

func (u *usage) clone() usage {
	c := *u
	c.extended = maps.Clone(u.extended)
	c.ports = maps.Clone(u.ports)
	c.cards = slices.Clone(u.cards)
	return c
}

// charge adds a pod (sign 1) or takes it back (sign -1).
func (u *usage) charge(p *Pod, sign int) {
	s := int64(sign)
	u.milliCPU += s * p.Request.MilliCPU
	u.memoryBytes += s * p.Request.MemoryBytes
	u.pods += s
	for name, amount := range p.Request.Extended {
		u.extended = count(u.extended, name, s*amount)
	}
	for _, port := range p.Request.HostPorts {
		u.ports = count(u.ports, port, sign)
	}
	for _, card := range p.Own.Cards() {
		u.card(card).owners += sign
	}
	if p.Request.Mode.whole() && p.Own == 0 {
		u.anonymous += sign * p.Request.Cards
	}
	for _, share := range p.Shares {
		c := u.card(share.Card)
		c.memoryGiB += s * share.MemoryGiB
		c.corePercent += s * share.CorePercent
	}
	if p.Request.Mode.shared() && len(p.Shares) == 0 {
		part := p.Request.perCard()
		u.unknown.owners += sign * p.Request.spread()
		u.unknown.memoryGiB += s * part.memoryGiB
		u.unknown.corePercent += s * part.corePercent
	}
	if p.Request.Mode.shared() {
		if p.Request.CorePercent > 0 {
			u.withCore += sign
		} else {
			u.memoryOnly += sign
		}
	}
}

func (u *usage) card(i int) *cardUsage {
	for len(u.cards) <= i {
		u.cards = append(u.cards, cardUsage{})
	}
	return &u.cards[i]
}

// count adds to a counter and drops it at zero.
func count[N int | int64](m map[string]N, key string, by N) map[string]N {
	if m == nil {
		m = map[string]N{}
	}
	if m[key] += by; m[key] == 0 {
		delete(m, key)
	}
	return m
}

// capacity computes what is left of the node.
func (n *node) capacity() *capacity {
	c := &capacity{
		mode: n.Mode, policy: n.CardPolicy, table: n.Cards,
		milliCPU:    n.Allocatable.MilliCPU - n.used.milliCPU,
		memoryBytes: n.Allocatable.MemoryBytes - n.used.memoryBytes,
		pods:        n.Allocatable.Pods - n.used.pods,
		memoryOnly:  n.used.memoryOnly, withCore: n.used.withCore,
	}
	if len(n.Allocatable.Extended) > 0 {
		c.extended = maps.Clone(n.Allocatable.Extended)
		for name, used := range n.used.extended {
			c.extended[name] -= used
		}
	}
	for port := range n.used.ports {
		if c.ports == nil {
			c.ports = make(map[string]bool, len(n.used.ports))
		}
		c.ports[port] = true
	}
	if n.Cards == nil {
		return c
	}
	switch {
	case n.Mode == ModeDefault:
		c.cards = n.freeCards()
		c.whole = max(min(c.cards.Len(), n.healthyCards().Len()-n.used.anonymous-n.used.unknown.owners), 0)
	case n.Mode == ModeTopology && n.used.anonymous == 0 && n.used.unknown.owners == 0:
		c.cards = n.freeCards()
		c.whole = c.cards.Len()
	case n.Mode.shared():
		c.shares, c.sizes = n.cardRooms()
	}
	return c
}

// healthyCards returns the cards that may be used at all.
func (n *node) healthyCards() gpu.Set {
	if n.Cards == nil {
		return 0
	}
	return n.Cards.Healthy()
}

// freeCards returns the healthy cards that no known pod owns or shares.
func (n *node) freeCards() gpu.Set {
	s := n.healthyCards()
	for i, u := range n.used.cards {
		if u != (cardUsage{}) {
			s &^= gpu.SetOf(i)
		}
	}
	return s
}

// cardRooms returns what is left of each card for shares, and the whole GiB of each:
// its memory less the headroom, rounded down. Cards that are lost, owned whole, or
// may be in the hands of a pod whose cards are not known, offer nothing. A pod that shares
// cards of which nobody knows which they are is counted on each.
func (n *node) cardRooms() (rooms []cardRoom, sizes []int64) {
	healthy := n.healthyCards()
	cards := n.Cards.Machine().Cards
	rooms, sizes = make([]cardRoom, len(cards)), make([]int64, len(cards))
	for i, card := range cards {
		sizes[i] = max(card.MemoryMiB-n.HeadroomMiB, 0) / 1024
		var u cardUsage
		if i < len(n.used.cards) {
			u = n.used.cards[i]
		}
		if !healthy.Has(i) || u.owners > 0 || n.used.anonymous > 0 {
			continue
		}
		rooms[i] = cardRoom{
			memoryGiB:   max(sizes[i]-u.memoryGiB-n.used.unknown.memoryGiB, 0),
			corePercent: max(fullCore-u.corePercent-n.used.unknown.corePercent, 0),
		}
	}
	return rooms, sizes
}
