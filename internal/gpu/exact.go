package gpu

import (
	"cmp"
	"math/bits"
	"slices"
)

// exact holds the answers for every set of the cards of a machine of at most
// maxExactCards cards. Sets are ranked instead of valued: a rank is a position in
// a sorted list of values, so that equal values have equal ranks and comparing is
// one integer comparison.
//
// Time to build is O(3^n): each set of free cards is compared with each of its
// subsets. Memory is 2^n × (2n + 3) words of two bytes: 10 KiB for 8 cards,
// 4.4 MiB for 16.
type exact struct {
	cards int
	// rings are the different rings of the machine, in ascending order.
	rings []Ring
	// ringRank is the position in rings, by set.
	ringRank []uint16
	// bestSet is the best set of k cards out of a set of free ones, by (free, k).
	bestSet []uint16
	// worstRank is the position in rings of the worst set, by (free, k).
	worstRank []uint16
}

func newExact(m Machine, f fabric) *exact {
	e := &exact{cards: f.cards}
	e.rankRings(f.rings())
	bestRank := e.bounds(func(a, b uint16) uint16 { return max(a, b) })
	e.worstRank = e.bounds(func(a, b uint16) uint16 { return min(a, b) })
	e.choose(rankLeftovers(f.cards, bestRank), rankCloseness(m))
	return e
}

func (e *exact) ring(s Set) Ring            { return e.rings[e.ringRank[s]] }
func (e *exact) best(free Set, k int) Set   { return Set(e.bestSet[e.at(int(free), k)]) }
func (e *exact) worst(free Set, k int) Ring { return e.rings[e.worstRank[e.at(int(free), k)]] }

// at returns the index of (set, k) in a list that has an entry for every set and every k from 0 to cards.
func (e *exact) at(set, k int) int { return set*(e.cards+1) + k }

// rankRings fills rings and ringRank from the ring of every set.
func (e *exact) rankRings(rings []Ring) {
	compare := func(a, b Ring) int {
		return cmp.Or(cmp.Compare(a.GBps, b.GBps), cmp.Compare(a.NVLinkRings, b.NVLinkRings))
	}
	e.rings, e.ringRank = rank(rings, compare)
}

// bounds returns the rank of the best or worst ring of k cards out of each set, by
// (set, k): a set's own, or what leaving out one card gives.
func (e *exact) bounds(pick func(a, b uint16) uint16) []uint16 {
	bounds := make([]uint16, len(e.ringRank)*(e.cards+1))
	for set, own := range e.ringRank {
		size := bits.OnesCount(uint(set))
		bounds[e.at(set, size)] = own
		for k := 1; k < size; k++ {
			bound := bounds[e.at(set&(set-1), k)]
			for rest := uint(set & (set - 1)); rest != 0; rest &= rest - 1 {
				bound = pick(bound, bounds[e.at(set&^(1<<bits.TrailingZeros(rest)), k)])
			}
			bounds[e.at(set, k)] = bound
		}
	}
	return bounds
}

// choose fills bestSet: highest ring, then highest rank of what is left, then
// highest closeness, then the lowest cards.
func (e *exact) choose(leftRank, closeRank []uint16) {
	e.bestSet = make([]uint16, len(e.ringRank)*(e.cards+1))
	own := make([]uint64, len(e.ringRank))
	for set := range own {
		own[set] = uint64(e.ringRank[set])<<32 | uint64(closeRank[set])
	}
	for free := range e.ringRank {
		var bestKey [maxExactCards + 1]uint64
		best := e.bestSet[e.at(free, 0):e.at(free+1, 0)]
		for set := free; set != 0; set = (set - 1) & free {
			k := bits.OnesCount(uint(set))
			key := own[set] | uint64(leftRank[free&^set])<<16
			if key > bestKey[k] || best[k] == 0 || key == bestKey[k] && lower(set, int(best[k])) {
				best[k], bestKey[k] = uint16(set), key
			}
		}
	}
}

// lower reports whether set comes before other, which has as many cards, when
// both are written as ascending lists of cards.
func lower(set, other int) bool {
	differ := set ^ other
	return set&differ&-differ != 0
}

// rank returns the different values in ascending order, and for each value its position among them.
func rank[T comparable](values []T, compare func(a, b T) int) (sorted []T, ranks []uint16) {
	sorted = slices.Clone(values)
	slices.SortFunc(sorted, compare)
	sorted = slices.Compact(sorted)
	position := make(map[T]uint16, len(sorted))
	for i, v := range sorted {
		position[v] = uint16(i)
	}
	ranks = make([]uint16, len(values))
	for i, v := range values {
		ranks[i] = position[v]
	}
	return sorted, ranks
}
