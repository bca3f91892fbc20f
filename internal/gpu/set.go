package gpu

import (
	"math/bits"
	"strconv"
	"strings"
)

// Set is a set of GPUs of one machine, as a bit mask over GPU positions (bit i
// is the i-th GPU of [Machine.GPUs], which on every healthy machine is the GPU
// with NVML index i). A machine has at most 64 GPUs.
type Set uint64

// SetOf returns the set of the given GPU positions.
func SetOf(gpus ...int) Set {
	var s Set
	for _, c := range gpus {
		s |= 1 << uint(c)
	}
	return s
}

// Full returns the set of the first n GPUs.
func Full(n int) Set {
	if n >= 64 {
		return ^Set(0)
	}
	return Set(1)<<uint(n) - 1
}

// Len returns the number of GPUs in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// Has reports whether GPU is in the set.
func (s Set) Has(gpu int) bool { return s&(1<<uint(gpu)) != 0 }

// lowest returns the lowest position of a set that is not empty.
func (s Set) lowest() int { return bits.TrailingZeros64(uint64(s)) }

// first returns the lowest k positions of a set that has at least as many.
func (s Set) first(k int) Set {
	var first Set
	for range k {
		first |= s & -s
		s &= s - 1
	}
	return first
}

// before reports whether a set comes before another one with as many GPUs when
// both are written as ascending lists of GPUs.
func (s Set) before(other Set) bool {
	differ := s ^ other
	return s&differ&-differ != 0
}

// GPUs returns the positions in ascending order.
func (s Set) GPUs() []int {
	gpus := make([]int, 0, s.Len())
	for m := uint64(s); m != 0; m &= m - 1 {
		gpus = append(gpus, bits.TrailingZeros64(m))
	}
	return gpus
}

// String returns the positions as a comma list in ascending order, "0,1,4"; "" for the empty set.
func (s Set) String() string {
	parts := make([]string, 0, s.Len())
	for _, c := range s.GPUs() {
		parts = append(parts, strconv.Itoa(c))
	}
	return strings.Join(parts, ",")
}
