package placement

import (
	"cmp"
	"slices"
)

// perGPU returns what a shared request takes of each of its GPUs: equal shares
// (Alibaba Cloud, "multi-GPU-sharing": N/M GiB on each of M GPUs).
func (r *Request) perGPU() gpuCapacity {
	return gpuCapacity{memoryGiB: r.MemoryGiB / int64(r.spread()), corePercent: r.CorePercent}
}

// takes returns how many shares of the size fit on the GPU.
func (room gpuCapacity) takes(share gpuCapacity) int {
	n := int64(unlimited)
	if share.memoryGiB > 0 {
		n = min(n, room.memoryGiB/share.memoryGiB)
	}
	if share.corePercent > 0 {
		n = min(n, room.corePercent/share.corePercent)
	}
	return int(n)
}

// shareSlots returns how many members with a shared request fit on the node's
// GPUs. A member takes one share of each of m distinct GPUs, so t members fit if
// and only if Σ over GPUs of min(shares the GPU holds, t) ≥ m·t.
func (c *capacity) shareSlots(r *Request) int {
	m, share := r.spread(), r.perGPU()
	total := 0
	reservations := make([]int, 0, len(c.shares))
	for _, room := range c.shares {
		h := room.takes(share)
		reservations = append(reservations, h)
		total += h
	}
	if m == 1 {
		return total
	}
	slices.Sort(reservations)
	for t := total / m; t > 0; t-- {
		sum := 0
		for _, h := range reservations {
			sum += min(h, t)
		}
		if sum >= m*t {
			return t
		}
	}
	return 0
}

// takeShares gives n members their shares. GPUs are chosen by the node's policy;
// where that would strand a member that fits, the GPUs with most room come first.
func (c *capacity) takeShares(r *Request, n int, choice gpuChoice) [][]GPUShare {
	before := slices.Clone(c.shares)
	for _, roomiest := range []bool{c.policy == Spread, true} {
		given := make([][]GPUShare, 0, n)
		for range n {
			gpus := c.gpusFor(r, roomiest, choice)
			if gpus == nil {
				break
			}
			given = append(given, c.takeFrom(gpus, r.perGPU()))
		}
		if len(given) == n {
			return given
		}
		copy(c.shares, before)
	}
	return nil
}

// gpuChoice picks the GPU of a share among those of a node that have room for it.
type gpuChoice interface {
	ChooseGPU(c *capacity, fitting []int, share gpuCapacity) int
}

// gpusFor chooses the GPUs of one member, nil when it does not fit: the tightest
// or the roomiest, or the GPU that a choice picks.
func (c *capacity) gpusFor(r *Request, roomiest bool, choice gpuChoice) []int {
	share := r.perGPU()
	fitting := make([]int, 0, len(c.shares))
	for i, room := range c.shares {
		if room.takes(share) > 0 {
			fitting = append(fitting, i)
		}
	}
	if len(fitting) < r.spread() {
		return nil
	}
	if choice != nil && !roomiest && r.spread() == 1 {
		return []int{choice.ChooseGPU(c, fitting, share)}
	}
	slices.SortStableFunc(fitting, func(a, b int) int {
		d := c.shares[a].compare(c.shares[b])
		if roomiest {
			return -d
		}
		return d
	})
	chosen := fitting[:r.spread()]
	slices.Sort(chosen)
	return chosen
}

// takeFrom takes a share of each of the GPUs.
func (c *capacity) takeFrom(gpus []int, share gpuCapacity) []GPUShare {
	shares := make([]GPUShare, 0, len(gpus))
	for _, i := range gpus {
		c.shares[i] = c.shares[i].less(share)
		shares = append(shares, GPUShare{GPU: i, MemoryGiB: share.memoryGiB, CorePercent: share.corePercent})
	}
	return shares
}

// less is what a share leaves of it.
func (room gpuCapacity) less(share gpuCapacity) gpuCapacity {
	return gpuCapacity{room.memoryGiB - share.memoryGiB, room.corePercent - share.corePercent}
}

// compare orders GPUs from the tightest to the roomiest.
func (room gpuCapacity) compare(other gpuCapacity) int {
	return cmp.Or(cmp.Compare(room.memoryGiB, other.memoryGiB), cmp.Compare(room.corePercent, other.corePercent))
}
