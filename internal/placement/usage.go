package placement

import (
	"maps"
	"slices"
)

// usage is what pods take of a node. It consists of counters only, so that adding
// and removing a pod restores it exactly.
type usage struct {
	milliCPU, memoryBytes, pods int64
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

// clone returns an independent copy.
func (u *usage) clone() usage {
	c := *u
	c.extended = maps.Clone(u.extended)
	c.ports = maps.Clone(u.ports)
	c.gpus = slices.Clone(u.gpus)
	return c
}

// charge adds a pod (sign 1) or takes it back (sign -1).
func (u *usage) charge(p *Pod, sign int) {
	s := int64(sign)
	u.milliCPU += s * p.Request.MilliCPU
	u.memoryBytes += s * p.Request.MemoryBytes
	u.pods += s
	for name, amount := range p.Request.Extended {
		u.extended = count(u.extended, name, s*amount)
	}
	for _, port := range p.Request.HostPorts {
		u.ports = count(u.ports, port, sign)
	}
	for _, device := range p.Own.GPUs() {
		u.gpu(device).owners += sign
	}
	if p.Request.Mode.whole() && p.Own == 0 {
		u.anonymous += sign * p.Request.GPUs
	}
	for _, share := range p.Shares {
		c := u.gpu(share.GPU)
		c.memoryGiB += s * share.MemoryGiB
		c.corePercent += s * share.CorePercent
	}
	if p.Request.Mode.shared() && len(p.Shares) == 0 {
		part := p.Request.perGPU()
		u.unknown.owners += sign * p.Request.spread()
		u.unknown.memoryGiB += s * part.memoryGiB
		u.unknown.corePercent += s * part.corePercent
	}
	if p.Request.Mode.shared() {
		if p.Request.CorePercent > 0 {
			u.withCore += sign
		} else {
			u.memoryOnly += sign
		}
	}
}

// owned reports whether a pod has the whole of a GPU.
func (u *usage) owned(i int) bool { return i < len(u.gpus) && u.gpus[i].owners > 0 }

func (u *usage) gpu(i int) *gpuUsage {
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

// addBeyond adds what a place takes beyond what others use that it waits for.
func (u *usage) addBeyond(place, waits *usage) {
	beyond := func(a, b int64) int64 { return max(a-max(b, 0), 0) }
	u.milliCPU += beyond(place.milliCPU, waits.milliCPU)
	u.memoryBytes += beyond(place.memoryBytes, waits.memoryBytes)
	u.pods += beyond(place.pods, waits.pods)
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
