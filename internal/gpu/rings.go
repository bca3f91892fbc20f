package gpu

import "math/bits"

// Ring is the best collective ring that NCCL could build inside a set of cards.
type Ring struct {
	// GBps is the bandwidth in GB/s, one direction: edge-disjoint NVLink rings ×
	// bandwidth of one link, or the slowest hop of the best PCIe ring. For one
	// card it is 0: there is no ring.
	GBps float64
	// NVLinkRings counts the edge-disjoint NVLink rings; 0 when the ring runs over PCIe.
	NVLinkRings int
}

// packBudget bounds the search for rings in one set, in hops tried.
func packBudget(cards int) int { return 1 << (16 - max(0, cards-8)) }

// packRings returns how many edge-disjoint rings through all cards of a set of at
// least three cards there are at most, where lanes counts the parallel links
// between two cards. Packing Hamiltonian cycles is hard in general, so the search
// has a budget; when it runs out, the answer may be too low, never too high.
func packRings(lanes [][]int, set Set) int {
	cards := set.Cards()
	p := packing{cards: len(cards), budget: packBudget(len(cards)), dead: map[links]bool{}}
	for a, i := range cards {
		for b, j := range cards {
			p.free[a][b] = uint8(lanes[i][j])
		}
	}
	for rings := p.bound(); rings > 0; rings-- {
		if p.pack(rings) {
			return rings
		}
		clear(p.dead)
	}
	return 0
}

// links counts the links between each two cards of a set.
type links [maxExactCards][maxExactCards]uint8

// packing is a search for rings: the links that no ring uses yet, and from which
// such states the wanted number of rings is known to be out of reach.
type packing struct {
	cards  int
	free   links
	budget int
	dead   map[links]bool
}

// bound returns a number of rings that cannot be exceeded.
func (p *packing) bound() int {
	most := 0
	for i := range p.cards {
		degree := 0
		for _, lanes := range p.free[i] {
			degree += int(lanes)
		}
		most = max(most, degree/2)
	}
	for most > 0 && !p.roomFor(most) {
		most--
	}
	return most
}

// roomFor reports whether the cards have links enough for the rings: each ring
// takes two at every card, and no link between the same two cards twice.
func (p *packing) roomFor(rings int) bool {
	for i := range p.cards {
		usable := 0
		for _, lanes := range p.free[i] {
			usable += min(int(lanes), rings)
		}
		if usable < 2*rings {
			return false
		}
	}
	return true
}

// pack reports whether the free links hold the given number of edge-disjoint rings.
func (p *packing) pack(rings int) bool {
	if rings == 0 {
		return true
	}
	if !p.roomFor(rings) || p.dead[p.free] {
		return false
	}
	state := p.free
	if p.extend(rings, 0, 0, 1) {
		return true
	}
	p.dead[state] = true
	return false
}

// extend continues a ring that starts at card 0, has visited some cards and is
// now at card at, and packs the remaining rings once it is closed.
func (p *packing) extend(rings, first, at int, visited uint16) bool {
	if bits.OnesCount16(visited) == p.cards {
		if at < first || p.free[at][0] == 0 {
			return false
		}
		p.take(at, 0)
		ok := p.pack(rings - 1)
		p.release(at, 0)
		return ok
	}
	// The most links first: what is plentiful is missed least.
	for lanes := p.most(at, visited); lanes > 0; lanes-- {
		for next := range p.cards {
			if p.free[at][next] != lanes || visited&(1<<next) != 0 {
				continue
			}
			if p.budget--; p.budget < 0 {
				return false
			}
			if at == 0 {
				first = next
			}
			p.take(at, next)
			ok := p.extend(rings, first, next, visited|1<<next)
			p.release(at, next)
			if ok {
				return true
			}
		}
	}
	return false
}

// most returns the largest number of free links from a card to one that is not visited.
func (p *packing) most(at int, visited uint16) uint8 {
	var most uint8
	for next := range p.cards {
		if visited&(1<<next) == 0 {
			most = max(most, p.free[at][next])
		}
	}
	return most
}

func (p *packing) take(a, b int) {
	p.free[a][b]--
	p.free[b][a]--
}

func (p *packing) release(a, b int) {
	p.free[a][b]++
	p.free[b][a]++
}
