package gpu

import (
	"cmp"
	"math/bits"
)

// leftover is what a set offers to the next jobs when it is all that remains.
// Jobs mostly ask for a power of two of GPUs, and a large part is harder to keep
// together than a small one; so sets are compared
//
//   - first by their best packing into parts of the largest power of two that can
//     be asked for, then of half that size, and so on down to pairs,
//   - then by the best ring of every size, from the largest.
type leftover struct {
	// packings has the best packing by the base-2 logarithm of the size of its parts.
	packings [maxExactLog2 + 1]packingRank
	// best has the rank of the best ring by size.
	best [maxExactGPUs + 1]uint8
}

// packingRank orders the ways to cut sets of equal size into parts of one size as
// long as they fit, then of half that size, and so on. The ranks of the parts'
// rings fill it from the highest byte on: the first part as good as can be, then
// the second.
type packingRank uint64

// maxExactLog2 is the base-2 logarithm of maxExactGPUs.
const maxExactLog2 = 4

// after returns the rank of a packing whose first part has a ring of the given
// rank, and the rest of which is p. Up to eight parts have two GPUs or more, so
// that none is shifted out.
func (p packingRank) after(ring uint8) packingRank { return packingRank(ring)<<56 | p>>8 }

func compareLeftovers(a, b leftover) int {
	for i := maxExactLog2; i > 0; i-- {
		if c := cmp.Compare(a.packings[i], b.packings[i]); c != 0 {
			return c
		}
	}
	for k := maxExactGPUs; k > 1; k-- {
		if c := cmp.Compare(a.best[k], b.best[k]); c != 0 {
			return c
		}
	}
	return 0
}

// leftovers returns the leftover of every set. bestRank is the rank of the best ring by (set, k).
func (e *exact) leftovers(bestRank []uint8) []leftover {
	values := make([]leftover, len(e.ringRank))
	for set := range e.all() {
		own := &values[set]
		for part := set; part != 0; part = (part - 1) & set {
			if size := part.Len(); size&(size-1) == 0 {
				i := log2(size)
				own.packings[i] = max(own.packings[i], values[set&^part].packings[i].after(e.ringRank[part]))
			}
		}
		// Parts that do not fit are cut smaller.
		for i := log2(max(1, set.Len())) + 1; i <= maxExactLog2; i++ {
			own.packings[i] = own.packings[i-1]
		}
		copy(own.best[:], bestRank[e.at(set, 0):e.at(set+1, 0)])
	}
	return values
}

// log2 returns the base-2 logarithm of a positive number, rounded down.
func log2(n int) int { return bits.Len(uint(n)) - 1 }
