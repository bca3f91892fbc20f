package gpu

import (
	"math/bits"
	"slices"
)

// bottlenecks returns, for every set of at most maxExactGPUs GPUs, the highest
// bandwidth that the slowest hop of one ring through all its GPUs can have, in
// GB/s; 0 for sets of less than two GPUs. A ring of two GPUs is their hop.
//
// A ring that has no hop below x GB/s is a Hamiltonian cycle of the graph whose
// edges are the hops of at least x, and there are few different x on a machine.
func bottlenecks(hops [][]float64) []float64 {
	n := len(hops)
	best := make([]float64, 1<<n)
	ends := make([]uint16, 1<<n)
	for _, x := range hopLevels(hops) {
		adjacent := make([]uint16, n)
		for i := range n {
			for j := range n {
				if i != j && hops[i][j] >= x {
					adjacent[i] |= 1 << j
				}
			}
		}
		hamiltonian(adjacent, ends, func(set int) { best[set] = x })
	}
	return best
}

// hopLevels returns the different hop bandwidths in ascending order.
func hopLevels(hops [][]float64) []float64 {
	var levels []float64
	for i, row := range hops {
		levels = append(levels, row[:i]...)
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}

// hamiltonian calls found for every set of at least two GPUs that has a ring in
// the graph; for two GPUs that is an edge. The scratch space ends has one entry
// per set: the GPUs where a path can end that starts at the set's lowest GPU
// and visits all of it (the recurrence of Bellman, Held and Karp, 1962).
func hamiltonian(adjacent, ends []uint16, found func(set int)) {
	for set := 1; set < len(ends); set++ {
		lowest := bits.TrailingZeros(uint(set))
		rest := set &^ (1 << lowest)
		if rest == 0 {
			ends[set] = 1 << lowest
			continue
		}
		var reached uint16
		for m := uint(rest); m != 0; m &= m - 1 {
			gpu := bits.TrailingZeros(m)
			if ends[set&^(1<<gpu)]&adjacent[gpu] != 0 {
				reached |= 1 << gpu
			}
		}
		ends[set] = reached
		if reached&adjacent[lowest] != 0 {
			found(set)
		}
	}
}
