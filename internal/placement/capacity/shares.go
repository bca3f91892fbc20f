package capacity

import (
	"cmp"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// PerGPU returns what a shared request takes of each of its GPUs: equal shares
// (Alibaba Cloud, "multi-GPU-sharing": N/M GiB on each of M GPUs).
func PerGPU(r *placement.Request) GPU {
	return GPU{MemoryGiB: r.MemoryGiB / int64(r.SpreadOver()), CorePercent: r.CorePercent}
}

// Takes returns how many shares of the size fit on the GPU.
func (room GPU) Takes(share GPU) int {
	n := int64(Unlimited)
	if share.MemoryGiB > 0 {
		n = min(n, room.MemoryGiB/share.MemoryGiB)
	}
	if share.CorePercent > 0 {
		n = min(n, room.CorePercent/share.CorePercent)
	}
	return int(n)
}

// shareSlots returns how many members with a shared request fit on the node's
// GPUs. A member takes one share of each of m distinct GPUs, so t members fit if
// and only if Σ over GPUs of min(shares the GPU holds, t) ≥ m·t.
func (c *Capacity) shareSlots(r *placement.Request) int {
	m, share := r.SpreadOver(), PerGPU(r)
	total := 0
	slots := make([]int, 0, len(c.Shares))
	for _, room := range c.Shares {
		h := room.Takes(share)
		slots = append(slots, h)
		total += h
	}
	if m == 1 {
		return total
	}
	slices.Sort(slots)
	for t := total / m; t > 0; t-- {
		sum := 0
		for _, h := range slots {
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
func (c *Capacity) takeShares(r *placement.Request, n int, choice Choice) [][]placement.GPUShare {
	before := slices.Clone(c.Shares)
	for _, roomiest := range []bool{c.policy == placement.Spread, true} {
		given := make([][]placement.GPUShare, 0, n)
		for range n {
			gpus := c.gpusFor(r, roomiest, choice)
			if gpus == nil {
				break
			}
			given = append(given, c.TakeFrom(gpus, PerGPU(r)))
		}
		if len(given) == n {
			return given
		}
		copy(c.Shares, before)
	}
	return nil
}

// Choice picks the GPU of a share among those of a node that have room for it.
type Choice interface {
	ChooseGPU(c *Capacity, fitting []int, share GPU) int
}

// gpusFor chooses the GPUs of one member, nil when it does not fit: the tightest
// or the roomiest, or the GPU that a choice picks.
func (c *Capacity) gpusFor(r *placement.Request, roomiest bool, choice Choice) []int {
	share := PerGPU(r)
	fitting := make([]int, 0, len(c.Shares))
	for i, room := range c.Shares {
		if room.Takes(share) > 0 {
			fitting = append(fitting, i)
		}
	}
	if len(fitting) < r.SpreadOver() {
		return nil
	}
	if choice != nil && !roomiest && r.SpreadOver() == 1 {
		return []int{choice.ChooseGPU(c, fitting, share)}
	}
	slices.SortStableFunc(fitting, func(a, b int) int {
		d := c.Shares[a].Compare(c.Shares[b])
		if roomiest {
			return -d
		}
		return d
	})
	chosen := fitting[:r.SpreadOver()]
	slices.Sort(chosen)
	return chosen
}

// TakeFrom takes a share of each of the GPUs.
func (c *Capacity) TakeFrom(gpus []int, share GPU) []placement.GPUShare {
	shares := make([]placement.GPUShare, 0, len(gpus))
	for _, i := range gpus {
		c.Shares[i] = c.Shares[i].Less(share)
		shares = append(shares, placement.GPUShare{GPU: i, MemoryGiB: share.MemoryGiB, CorePercent: share.CorePercent})
	}
	return shares
}

// Less is what a share leaves of it.
func (room GPU) Less(share GPU) GPU {
	return GPU{room.MemoryGiB - share.MemoryGiB, room.CorePercent - share.CorePercent}
}

// Compare orders GPUs from the tightest to the roomiest.
func (room GPU) Compare(other GPU) int {
	return cmp.Or(cmp.Compare(room.MemoryGiB, other.MemoryGiB), cmp.Compare(room.CorePercent, other.CorePercent))
}
