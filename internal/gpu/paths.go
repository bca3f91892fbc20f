package gpu

import "slices"

// NVLinkRings returns edge-disjoint NVLink rings through all cards of the set, as
// many as Ring counts: each is the cards in the order of the ring, from the lowest
// card on. It is nil for fewer than three cards, on a switched fabric, where every
// order is a ring, and where there is none.
func (t *Table) NVLinkRings(s Set) [][]int {
	f := newFabric(t.machine)
	s &= Full(f.cards)
	if s.Len() < 3 || f.cards > maxExactCards || f.switched {
		return nil
	}
	rings := newPacker(f.lanes).paths(s)
	for i, ring := range rings {
		low := slices.Index(ring, slices.Min(ring))
		rings[i] = slices.Concat(ring[low:], ring[:low])
	}
	return rings
}
