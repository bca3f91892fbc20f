package gpu

import (
	"math"
	"math/bits"
)

// Ring is the best collective ring that NCCL could build inside a set of GPUs.
type Ring struct {
	// GBps is the bandwidth in GB/s, one direction: edge-disjoint NVLink rings ×
	// bandwidth of one link, or the slowest hop of the best PCIe ring. For one
	// GPU it is 0: there is no ring.
	GBps float64
	// NVLinkRings counts the edge-disjoint NVLink rings; 0 when the ring runs over PCIe.
	NVLinkRings int
}

// packer counts edge-disjoint rings in the sets of one machine. Packing
// Hamiltonian cycles is hard in general, so a search has a budget; when that runs
// out the count may be too low, never too high. It does not run out on boards of
// up to 8 GPUs with up to 6 NVLinks each, the largest that were built without a
// switch.
type packer struct {
	lanes [][]int
	// budget of the search for a number of rings in one set, in hops tried.
	budget int
}

// newPacker makes the packer of a machine, whose rows of lanes count the parallel
// NVLinks from each GPU to each other one.
func newPacker(lanes [][]int) packer {
	// 16 Ki hops for 8 GPUs, 256 for 16: sets grow in number faster than time may.
	return packer{lanes: lanes, budget: 1 << (20 - len(lanes)*3/4)}
}

// rings returns the number of edge-disjoint rings through all GPUs of a set of at least three.
func (p packer) rings(set Set) int { return len(p.paths(set)) }

// paths returns edge-disjoint rings through all GPUs of a set of at least three, as
// many as there are; each is the GPUs in the order of the ring.
func (p packer) paths(set Set) [][]int {
	gpus := set.GPUs()
	s := packing{gpus: len(gpus), dead: map[links]bool{}}
	for a, i := range gpus {
		for b, j := range gpus {
			s.free[a][b] = uint8(p.lanes[i][j])
		}
	}
	for rings := s.bound(); rings > 0; rings-- {
		s.budget = p.budget
		if rings == 1 {
			s.budget = math.MaxInt // whether there is a ring at all is never left open
		}
		if s.pack(rings) {
			for _, ring := range s.found {
				for i, at := range ring {
					ring[i] = gpus[at]
				}
			}
			return s.found
		}
		clear(s.dead)
	}
	return nil
}

// links counts the links between each two GPUs of a set.
type links [maxExactGPUs][maxExactGPUs]uint8

// packing is a search for rings in one set: the links that no ring uses yet, and
// the states from which the wanted number of rings is known to be out of reach.
type packing struct {
	gpus   int
	free   links
	budget int
	dead   map[links]bool
	// found are the rings of a search that succeeded, as positions in the set.
	found [][]int
}

// bound returns a number of rings that cannot be exceeded.
func (p *packing) bound() int {
	rings := maxLinksPerGPU / 2
	for rings > 0 && (!p.roomFor(rings) || !p.roomAcross(rings)) {
		rings--
	}
	return rings
}

// roomFor reports whether the GPUs have links enough for the rings: each ring
// takes two at every GPU, and no link between the same two GPUs twice.
func (p *packing) roomFor(rings int) bool {
	for i := range p.gpus {
		usable := 0
		for _, lanes := range p.free[i] {
			usable += min(int(lanes), rings)
		}
		if usable < 2*rings {
			return false
		}
	}
	return true
}

// maxCutGPUs bounds the sets for which roomAcross looks at all subsets.
const maxCutGPUs = 10

// roomAcross reports whether each subset of k of the n GPUs has links enough for
// the rings: each ring leaves the subset and comes back, so it takes two links
// across; and at most 2(n-k) of its 2k ends in the subset are across, so it takes
// at least 2k-n links inside.
func (p *packing) roomAcross(rings int) bool {
	if p.gpus > maxCutGPUs {
		return true
	}
	var inside, degree [1 << maxCutGPUs]int
	for subset := 1; subset < 1<<p.gpus-1; subset++ {
		gpu, rest := bits.TrailingZeros(uint(subset)), subset&(subset-1)
		inside[subset], degree[subset] = inside[rest], degree[rest]
		for other, lanes := range p.free[gpu][:p.gpus] {
			usable := min(int(lanes), rings)
			degree[subset] += usable
			if rest&(1<<other) != 0 {
				inside[subset] += usable
			}
		}
		k := bits.OnesCount(uint(subset))
		if degree[subset]-2*inside[subset] < 2*rings || inside[subset] < (2*k-p.gpus)*rings {
			return false
		}
	}
	return true
}

// pack reports whether the free links hold the given number of edge-disjoint rings.
func (p *packing) pack(rings int) bool {
	if rings == 0 {
		return true
	}
	if !p.roomFor(rings) || p.dead[p.free] {
		return false
	}
	state := p.free
	if p.extend(rings, 0, 0, 1) {
		return true
	}
	p.dead[state] = true
	return false
}

// extend continues a ring that starts at GPU 0, has visited some GPUs and is
// now at GPU at, and packs the remaining rings once it is closed.
func (p *packing) extend(rings, first, at int, visited uint16) bool {
	if bits.OnesCount16(visited) == p.gpus {
		if at < first || p.free[at][0] == 0 {
			return false
		}
		p.take(at, 0)
		ok := p.pack(rings - 1)
		p.release(at, 0)
		if ok {
			p.found = append(p.found, []int{at})
		}
		return ok
	}
	// The most links first: what is plentiful is missed least.
	for lanes := p.most(at, visited); lanes > 0; lanes-- {
		for next := range p.gpus {
			if p.free[at][next] != lanes || visited&(1<<next) != 0 {
				continue
			}
			if p.budget--; p.budget < 0 {
				return false
			}
			if at == 0 {
				first = next
			}
			p.take(at, next)
			ok := p.extend(rings, first, next, visited|1<<next)
			p.release(at, next)
			if ok {
				last := len(p.found) - 1
				p.found[last] = append(p.found[last], at)
				return true
			}
		}
	}
	return false
}

// most returns the largest number of free links from a GPU to one that is not visited.
func (p *packing) most(at int, visited uint16) uint8 {
	var most uint8
	for next := range p.gpus {
		if visited&(1<<next) == 0 {
			most = max(most, p.free[at][next])
		}
	}
	return most
}

func (p *packing) take(a, b int) {
	p.free[a][b]--
	p.free[b][a]--
}

func (p *packing) release(a, b int) {
	p.free[a][b]++
	p.free[b][a]++
}
