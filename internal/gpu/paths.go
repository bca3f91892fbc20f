package gpu

import "slices"

// NVLinkRings returns edge-disjoint NVLink rings through all GPUs of the set, as
// many as Ring counts: each is the GPUs in the order of the ring, from the lowest
// GPU on. It is nil for fewer than three GPUs, on a switched fabric, where every
// order is a ring, and where there is none.
func (t *Table) NVLinkRings(s Set) [][]int {
	f := newFabric(t.machine)
	s &= Full(f.gpus)
	if s.Len() < 3 || f.gpus > maxExactGPUs || f.switched {
		return nil
	}
	rings := newPacker(f.lanes).paths(s)
	for i, ring := range rings {
		low := slices.Index(ring, slices.Min(ring))
		rings[i] = slices.Concat(ring[low:], ring[:low])
	}
	return rings
}
