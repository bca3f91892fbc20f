package gpu

// rings returns the best ring of every set of a machine of at most maxExactCards cards.
func (f fabric) rings() []Ring {
	slowest := bottlenecks(f.hops)
	rings := make([]Ring, len(slowest))
	linked := f.linkedRings()
	for s := range rings {
		rings[s].GBps = slowest[s]
		if n := linked[s]; n > 0 && float64(n)*f.perLinkGBps >= slowest[s] {
			rings[s] = Ring{GBps: float64(n) * f.perLinkGBps, NVLinkRings: n}
		}
	}
	return rings
}

// linkedRings returns the number of NVLink rings of every set.
func (f fabric) linkedRings() []int {
	counts := make([]int, 1<<f.cards)
	lanes := make([][]float64, f.cards)
	for i, row := range f.lanes {
		lanes[i] = make([]float64, f.cards)
		for j, n := range row {
			lanes[i][j] = float64(n)
		}
	}
	packer := newPacker(f.lanes)
	for s, slowest := range bottlenecks(lanes) {
		switch set := Set(s); {
		case slowest == 0 || f.switched || set.Len() == 2:
			counts[s] = int(slowest)
		default:
			counts[s] = packer.rings(set)
		}
	}
	return counts
}
