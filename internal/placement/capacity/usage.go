package capacity

import (
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Usage is what pods take of a node. It consists of counters only, so that adding
// and removing a pod restores it exactly.
type Usage struct {
	milliCPU, memoryBytes, Pods int64
	extended                    map[string]int64
	ports                       map[string]int
	// anonymous counts whole GPUs of pods whose GPUs are not known.
	anonymous            int
	gpus                 []gpuUsage
	memoryOnly, withCore int
	// unknown is what pods share of GPUs of which nobody knows which they are: each GPU
	// may be one of them.
	unknown gpuUsage
}

// gpuUsage is what pods take of one GPU.
type gpuUsage struct {
	owners                 int
	memoryGiB, corePercent int64
}

// Clone returns an independent copy.
func (u *Usage) Clone() Usage {
	c := *u
	c.extended = maps.Clone(u.extended)
	c.ports = maps.Clone(u.ports)
	c.gpus = slices.Clone(u.gpus)
	return c
}

// Charge adds a pod (sign 1) or takes it back (sign -1).
func (u *Usage) Charge(p *placement.Pod, sign int) {
	s := int64(sign)
	u.milliCPU += s * p.Request.MilliCPU
	u.memoryBytes += s * p.Request.MemoryBytes
	u.Pods += s
	for name, amount := range p.Request.Extended {
		u.extended = count(u.extended, name, s*amount)
	}
	for _, port := range p.Request.HostPorts {
		u.ports = count(u.ports, port, sign)
	}
	for _, device := range p.Own.GPUs() {
		u.gpu(device).owners += sign
	}
	if p.Request.Mode.Whole() && p.Own == 0 {
		u.anonymous += sign * p.Request.GPUs
	}
	for _, share := range p.Shares {
		c := u.gpu(share.GPU)
		c.memoryGiB += s * share.MemoryGiB
		c.corePercent += s * share.CorePercent
	}
	if p.Request.Mode.Shared() && len(p.Shares) == 0 {
		part := PerGPU(&p.Request)
		u.unknown.owners += sign * p.Request.SpreadOver()
		u.unknown.memoryGiB += s * part.MemoryGiB
		u.unknown.corePercent += s * part.CorePercent
	}
	if p.Request.Mode.Shared() {
		if p.Request.CorePercent > 0 {
			u.withCore += sign
		} else {
			u.memoryOnly += sign
		}
	}
}

// Owned reports whether a pod has the whole of a GPU.
func (u *Usage) Owned(i int) bool { return i < len(u.gpus) && u.gpus[i].owners > 0 }

func (u *Usage) gpu(i int) *gpuUsage {
	for len(u.gpus) <= i {
		u.gpus = append(u.gpus, gpuUsage{})
	}
	return &u.gpus[i]
}

// count adds to a counter and drops it at zero.
func count[K comparable, N int | int64](m map[K]N, key K, by N) map[K]N {
	if m == nil {
		m = map[K]N{}
	}
	if m[key] += by; m[key] == 0 {
		delete(m, key)
	}
	return m
}

// AddBeyond adds what a place takes beyond what others use that it waits for.
func (u *Usage) AddBeyond(place, waits *Usage) {
	beyond := func(a, b int64) int64 { return max(a-max(b, 0), 0) }
	u.milliCPU += beyond(place.milliCPU, waits.milliCPU)
	u.memoryBytes += beyond(place.memoryBytes, waits.memoryBytes)
	u.Pods += beyond(place.Pods, waits.Pods)
	for name, amount := range place.extended {
		u.extended = count(u.extended, name, beyond(amount, waits.extended[name]))
	}
	for port, amount := range place.ports {
		u.ports = count(u.ports, port, max(amount-waits.ports[port], 0))
	}
	u.anonymous += max(place.anonymous-waits.anonymous, 0)
	u.memoryOnly += max(place.memoryOnly-waits.memoryOnly, 0)
	u.withCore += max(place.withCore-waits.withCore, 0)
	for i, gpu := range place.gpus {
		have := u.gpu(i)
		var w gpuUsage
		if i < len(waits.gpus) {
			w = waits.gpus[i]
		}
		have.owners += max(gpu.owners-w.owners, 0)
		have.memoryGiB += beyond(gpu.memoryGiB, w.memoryGiB)
		have.corePercent += beyond(gpu.corePercent, w.corePercent)
	}
}
