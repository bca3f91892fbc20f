package placement

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// capacity is what a node has left. Nodes in the same state share one capacity, so
// that a gang is tried on it once; it is never changed after it was interned,
// planning works on clones.
type capacity struct {
	mode   Mode
	policy GPUPolicy
	table  *gpu.Table

	milliCPU, memoryBytes, pods int64
	extended                    map[string]int64
	ports                       map[string]bool

	// gpus are the healthy GPUs that nobody uses; whole of them may be given away.
	gpus  gpu.Set
	whole int
	// shares is what is left of each GPU of a node in a shared mode, sizes its whole GiB.
	shares []gpuCapacity
	sizes  []int64
	// memoryOnly and withCore count the pods of either kind, which never share a node.
	memoryOnly, withCore int
	// eligible says which of the workload's rules about nodes the node meets ([distribution.eligible]).
	eligible uint64
}

// gpuCapacity is what is left of a shared GPU.
type gpuCapacity struct{ memoryGiB, corePercent int64 }

// clone returns a copy that may be changed.
func (c *capacity) clone() *capacity {
	d := *c
	d.extended = maps.Clone(c.extended)
	d.ports = maps.Clone(c.ports)
	d.shares = slices.Clone(c.shares)
	return &d
}

// key is equal for equal capacities with the same table, for which the number stands.
func (c *capacity) key(table int) string {
	b := make([]byte, 0, 160)
	b = append(append(append(append(b, c.mode...), 0), c.policy...), 0)
	for _, v := range []int64{
		int64(table), c.milliCPU, c.memoryBytes, c.pods, int64(c.gpus), int64(c.whole),
		int64(c.memoryOnly), int64(c.withCore), int64(c.eligible), int64(len(c.shares)), int64(len(c.extended)), int64(len(c.ports)),
	} {
		b = binary.AppendVarint(b, v)
	}
	for i, s := range c.shares {
		b = binary.AppendVarint(binary.AppendVarint(b, s.memoryGiB), s.corePercent)
		b = binary.AppendVarint(b, c.sizes[i])
	}
	if len(c.extended) > 0 {
		for _, name := range slices.Sorted(maps.Keys(c.extended)) {
			b = binary.AppendVarint(append(append(b, name...), 0), c.extended[name])
		}
	}
	if len(c.ports) > 0 {
		for _, port := range slices.Sorted(maps.Keys(c.ports)) {
			b = append(append(b, port...), 0)
		}
	}
	return string(b)
}

// fits returns how many members with this request the capacity can hold at once, at most limit.
func (c *capacity) fits(r *Request, limit int) int {
	n, _ := c.fitsWhy(r, limit)
	return n
}

// fitsWhy is fits, and the first constraint that allows the least.
func (c *capacity) fitsWhy(r *Request, limit int) (int, rejection) {
	n, why := limit, rejection{}
	atMost := func(m int64, code Code, detail string) {
		if m < int64(n) {
			n, why = int(max(m, 0)), rejection{code, detail}
		}
	}
	switch {
	case r.Mode.whole():
		if c.mode != r.Mode {
			return 0, c.wrongMode()
		}
		left := ""
		if c.whole > 0 {
			left = "some"
		}
		atMost(int64(c.whole/max(r.GPUs, 1)), NotEnoughGPUs, left)
	case r.Mode.shared():
		if !c.mode.shared() || (r.CorePercent > 0 && c.mode != ModeCoreMem) {
			return 0, c.wrongMode()
		}
		if (r.CorePercent > 0 && c.memoryOnly > 0) || (r.CorePercent == 0 && c.withCore > 0) {
			return 0, rejection{code: Mixed}
		}
		atMost(int64(c.shareSlots(r)), NotEnoughShare, "share")
	}
	for _, port := range r.HostPorts {
		if portTaken(c.ports, port) {
			return 0, rejection{HostPortTaken, port}
		}
		atMost(1, HostPortTaken, port)
	}
	atMost(c.pods, NotEnoughPods, "")
	if r.MilliCPU > 0 {
		atMost(c.milliCPU/r.MilliCPU, NotEnoughCPU, "")
	}
	if r.MemoryBytes > 0 {
		atMost(c.memoryBytes/r.MemoryBytes, NotEnoughMemory, "")
	}
	if len(r.Extended) > 0 {
		for _, name := range slices.Sorted(maps.Keys(r.Extended)) {
			if want := r.Extended[name]; want > 0 {
				atMost(c.extended[name]/want, NotEnoughOther, name)
			}
		}
	}
	return n, why
}

// wrongMode says which mode the node is in; without GPUs it is in none.
func (c *capacity) wrongMode() rejection {
	if c.table == nil {
		return rejection{WrongMode, string(ModeNone)}
	}
	return rejection{WrongMode, string(c.mode)}
}

// take charges n members to the capacity and returns the shares of each, nil when
// the request is not for shares. The members must fit. A choice, where there is one, picks
// the GPU of a share.
func (c *capacity) take(r *Request, n int, choice gpuChoice) [][]GPUShare {
	if n == 0 {
		return nil
	}
	c.milliCPU -= int64(n) * r.MilliCPU
	c.memoryBytes -= int64(n) * r.MemoryBytes
	c.pods -= int64(n)
	for name, want := range r.Extended {
		if c.extended == nil {
			c.extended = map[string]int64{}
		}
		c.extended[name] -= int64(n) * want
	}
	for _, port := range r.HostPorts {
		if c.ports == nil {
			c.ports = map[string]bool{}
		}
		c.ports[port] = true
	}
	switch {
	case r.Mode.whole():
		c.whole -= n * r.GPUs
	case r.Mode.shared():
		if r.CorePercent > 0 {
			c.withCore += n
		} else {
			c.memoryOnly += n
		}
		return c.takeShares(r, n, choice)
	}
	return nil
}

// size is what a member takes of what left counts.
func (r *Request) size() int64 {
	if r.Mode.shared() {
		return r.MemoryGiB
	}
	return int64(r.GPUs)
}

// left is how much of the node's GPUs stays free; the tighter of two equal choices leaves less.
func (c *capacity) left() int64 {
	if !c.mode.shared() {
		return int64(c.whole)
	}
	var gib int64
	for _, s := range c.shares {
		gib += s.memoryGiB
	}
	return gib
}

// ring returns the ring that a gang gets whose members use k whole GPUs of the node.
func (c *capacity) ring(k int) gpu.Ring {
	if k == 0 || c.table == nil {
		return gpu.Ring{}
	}
	switch c.mode {
	case ModeTopology:
		if s, ok := c.table.Best(c.gpus, k); ok {
			return c.table.Ring(s)
		}
	case ModeDefault:
		return c.table.Worst(c.gpus, k)
	}
	return gpu.Ring{}
}

// unlimited stands for an amount that nothing limits.
const unlimited = math.MaxInt32

// takeAt takes what a request asks of GPUs from these GPUs, and reports whether they have it.
func (c *capacity) takeAt(r *Request, gpus gpu.Set) bool {
	switch {
	case r.Mode == ModeTopology:
		if c.mode != r.Mode || gpus.Len() != r.GPUs || gpus&^c.gpus != 0 {
			return false
		}
		c.gpus &^= gpus
	case r.Mode.shared():
		if gpus.Len() != r.spread() || len(c.shares) == 0 {
			return false
		}
		for _, device := range gpus.GPUs() {
			if c.shares[device].takes(r.perGPU()) == 0 {
				return false
			}
		}
		c.takeFrom(gpus.GPUs(), r.perGPU())
	}
	return true
}

// has is how much there is of what a refusal says that there is too little of.
func (c *capacity) has(r rejection) int64 {
	switch r.code {
	case NotEnoughCPU:
		return c.milliCPU
	case NotEnoughMemory:
		return c.memoryBytes
	case NotEnoughOther:
		return c.extended[r.detail]
	case NotEnoughShare:
		var most int64
		for _, room := range c.shares {
			most = max(most, room.memoryGiB)
		}
		return most
	}
	return 0
}
