// Package capacity is one node: what its pods take of it, what that leaves, and how many members
// with a request what is left can hold.
package capacity

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Capacity is what a node has left. Nodes in the same state share one capacity, so
// that a gang is tried on it once; it is never changed after it was interned,
// planning works on clones.
type Capacity struct {
	Mode   placement.Mode
	policy placement.GPUPolicy
	Table  *gpu.Table

	MilliCPU, MemoryBytes, pods int64
	extended                    map[string]int64
	// delegated are extended resources that others allocate, unless extended counts them. It is the view's, and in no key.
	delegated placement.Delegated
	Ports     map[string]bool

	// GPUs are the healthy GPUs that nobody uses; whole of them may be given away.
	GPUs  gpu.Set
	Whole int
	// Shares is what is left of each GPU of a node in a shared mode, sizes its whole GiB.
	Shares []GPU
	Sizes  []int64
	// MemoryOnly and withCore count the pods of either kind, which never share a node.
	MemoryOnly, WithCore int
	// Eligible says which of the workload's rules about nodes the node meets ([fragmentation.Distribution.Eligible]).
	Eligible uint64
}

// GPU is what is left of a shared GPU.
type GPU struct{ MemoryGiB, CorePercent int64 }

// Clone returns a copy that may be changed.
func (c *Capacity) Clone() *Capacity {
	d := *c
	d.extended = maps.Clone(c.extended)
	d.Ports = maps.Clone(c.Ports)
	d.Shares = slices.Clone(c.Shares)
	return &d
}

// Key is equal for equal capacities with the same table, for which the number stands.
func (c *Capacity) Key(table int) string {
	b := make([]byte, 0, 160)
	b = append(append(append(append(b, c.Mode...), 0), c.policy...), 0)
	for _, v := range []int64{
		int64(table), c.MilliCPU, c.MemoryBytes, c.pods, int64(c.GPUs), int64(c.Whole),
		int64(c.MemoryOnly), int64(c.WithCore), int64(c.Eligible), int64(len(c.Shares)), int64(len(c.extended)), int64(len(c.Ports)),
	} {
		b = binary.AppendVarint(b, v)
	}
	for i, s := range c.Shares {
		b = binary.AppendVarint(binary.AppendVarint(b, s.MemoryGiB), s.CorePercent)
		b = binary.AppendVarint(b, c.Sizes[i])
	}
	if len(c.extended) > 0 {
		for _, name := range slices.Sorted(maps.Keys(c.extended)) {
			b = binary.AppendVarint(append(append(b, name...), 0), c.extended[name])
		}
	}
	if len(c.Ports) > 0 {
		for _, port := range slices.Sorted(maps.Keys(c.Ports)) {
			b = append(append(b, port...), 0)
		}
	}
	return string(b)
}

// Fits returns how many members with this request the capacity can hold at once, at most limit.
func (c *Capacity) Fits(r *placement.Request, limit int) int {
	n, _ := c.FitsWhy(r, limit)
	return n
}

// FitsWhy is Fits, and the first constraint that allows the least.
func (c *Capacity) FitsWhy(r *placement.Request, limit int) (int, placement.Rejection) {
	n, why := limit, placement.Rejection{}
	atMost := func(m int64, code placement.Code, detail string) {
		if m < int64(n) {
			n, why = int(max(m, 0)), placement.Rejection{Code: code, Detail: detail}
		}
	}
	switch {
	case r.Mode.Whole():
		if c.Mode != r.Mode {
			return 0, c.wrongMode()
		}
		left := ""
		if c.Whole > 0 {
			left = "some"
		}
		atMost(int64(c.Whole/max(r.GPUs, 1)), placement.NotEnoughGPUs, left)
	case r.Mode.Shared():
		if !c.Mode.Shared() || (r.CorePercent > 0 && c.Mode != placement.ModeCoreMem) {
			return 0, c.wrongMode()
		}
		if (r.CorePercent > 0 && c.MemoryOnly > 0) || (r.CorePercent == 0 && c.WithCore > 0) {
			return 0, placement.Rejection{Code: placement.Mixed}
		}
		atMost(int64(c.shareSlots(r)), placement.NotEnoughShare, "share")
	}
	for _, port := range r.HostPorts {
		if PortTaken(c.Ports, port) {
			return 0, placement.Rejection{Code: placement.HostPortTaken, Detail: port}
		}
		atMost(1, placement.HostPortTaken, port)
	}
	atMost(c.pods, placement.NotEnoughPods, "")
	if r.MilliCPU > 0 {
		atMost(c.MilliCPU/r.MilliCPU, placement.NotEnoughCPU, "")
	}
	if r.MemoryBytes > 0 {
		atMost(c.MemoryBytes/r.MemoryBytes, placement.NotEnoughMemory, "")
	}
	if len(r.Extended) > 0 {
		for _, name := range slices.Sorted(maps.Keys(r.Extended)) {
			if want := r.Extended[name]; want > 0 && !c.delegates(name) {
				atMost(c.extended[name]/want, placement.NotEnoughOther, name)
			}
		}
	}
	return n, why
}

// delegates reports whether others allocate an extended resource.
func (c *Capacity) delegates(name string) bool {
	_, counted := c.extended[name]
	return !counted && c.delegated.Has(name)
}

// wrongMode says which mode the node is in; without GPUs it is in none.
func (c *Capacity) wrongMode() placement.Rejection {
	if c.Table == nil {
		return placement.Rejection{Code: placement.WrongMode, Detail: string(placement.ModeNone)}
	}
	return placement.Rejection{Code: placement.WrongMode, Detail: string(c.Mode)}
}

// Take charges n members to the capacity and returns the shares of each, nil when
// the request is not for shares. The members must fit. A choice, where there is one, picks
// the GPU of a share.
func (c *Capacity) Take(r *placement.Request, n int, choice Choice) [][]placement.GPUShare {
	if n == 0 {
		return nil
	}
	c.MilliCPU -= int64(n) * r.MilliCPU
	c.MemoryBytes -= int64(n) * r.MemoryBytes
	c.pods -= int64(n)
	for name, want := range r.Extended {
		if c.delegates(name) {
			continue
		}
		if c.extended == nil {
			c.extended = map[string]int64{}
		}
		c.extended[name] -= int64(n) * want
	}
	for _, port := range r.HostPorts {
		if c.Ports == nil {
			c.Ports = map[string]bool{}
		}
		c.Ports[port] = true
	}
	switch {
	case r.Mode.Whole():
		c.Whole -= n * r.GPUs
	case r.Mode.Shared():
		if r.CorePercent > 0 {
			c.WithCore += n
		} else {
			c.MemoryOnly += n
		}
		return c.takeShares(r, n, choice)
	}
	return nil
}

// Size is what a member takes of what left counts.
func Size(r *placement.Request) int64 {
	if r.Mode.Shared() {
		return r.MemoryGiB
	}
	return int64(r.GPUs)
}

// Left is how much of the node's GPUs stays free; the tighter of two equal choices leaves less.
func (c *Capacity) Left() int64 {
	if !c.Mode.Shared() {
		return int64(c.Whole)
	}
	var gib int64
	for _, s := range c.Shares {
		gib += s.MemoryGiB
	}
	return gib
}

// Resources are the CPU, the memory, the pods and the other resources that are left.
func (c *Capacity) Resources() placement.Resources {
	return placement.Resources{MilliCPU: c.MilliCPU, MemoryBytes: c.MemoryBytes, Pods: c.pods, Extended: maps.Clone(c.extended)}
}

// Ring returns the ring that a gang gets whose members use k whole GPUs of the node.
func (c *Capacity) Ring(k int) gpu.Ring {
	if k == 0 || c.Table == nil {
		return gpu.Ring{}
	}
	switch c.Mode {
	case placement.ModeTopology:
		if s, ok := c.Table.Best(c.GPUs, k); ok {
			return c.Table.Ring(s)
		}
	case placement.ModeDefault:
		return c.Table.Worst(c.GPUs, k)
	}
	return gpu.Ring{}
}

// Unlimited stands for an amount that nothing limits.
const Unlimited = math.MaxInt32

// TakeAt takes what a request asks of GPUs from these GPUs, and reports whether they have it.
func (c *Capacity) TakeAt(r *placement.Request, gpus gpu.Set) bool {
	switch {
	case r.Mode == placement.ModeTopology:
		if c.Mode != r.Mode || gpus.Len() != r.GPUs || gpus&^c.GPUs != 0 {
			return false
		}
		c.GPUs &^= gpus
	case r.Mode.Shared():
		if gpus.Len() != r.SpreadOver() || len(c.Shares) == 0 {
			return false
		}
		for _, device := range gpus.GPUs() {
			if c.Shares[device].Takes(PerGPU(r)) == 0 {
				return false
			}
		}
		c.TakeFrom(gpus.GPUs(), PerGPU(r))
	}
	return true
}

// Has is how much there is of what a refusal says that there is too little of.
func (c *Capacity) Has(r placement.Rejection) int64 {
	switch r.Code {
	case placement.NotEnoughCPU:
		return c.MilliCPU
	case placement.NotEnoughMemory:
		return c.MemoryBytes
	case placement.NotEnoughOther:
		return c.extended[r.Detail]
	case placement.NotEnoughShare:
		var most int64
		for _, room := range c.Shares {
			most = max(most, room.MemoryGiB)
		}
		return most
	}
	return 0
}
