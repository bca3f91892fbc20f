package gpu

import "slices"

// linkage answers for machines with more GPUs than can be looked at set by set.
// It joins the GPUs into a tree, the pair of groups first whose slowest hop is
// fastest (complete linkage), and only offers sets that are groups of that tree,
// or parts of one.
//
// A set's ring is taken to be its slowest pair. That is exact where the bandwidth
// between two GPUs depends only on the smallest group that holds both, as on a
// switched NVLink fabric and in a tree of PCIe switches, bridges and sockets:
// every machine of more than 16 GPUs that is built. On any other graph both the
// ring of a set and the best set may be better than stated, never worse. Of equal
// groups it takes the one that is tightest; it does not look at network devices.
type linkage struct {
	fabric fabric
	groups []group
}

// group is a node of the tree.
type group struct {
	gpus Set
	// halves are the two groups that were joined, as positions in the list of groups; -1 for a single GPU.
	halves [2]int
	// slowest is the bandwidth of the slowest pair, 0 for a single GPU.
	slowest float64
	// numaNodes counts the NUMA nodes of the GPUs.
	numaNodes int
}

func newLinkage(m Machine, f fabric) *linkage {
	l := &linkage{fabric: f}
	var open []int
	for gpu := range f.gpus {
		l.groups = append(l.groups, group{gpus: SetOf(gpu), halves: [2]int{-1, -1}, numaNodes: 1})
		open = append(open, gpu)
	}
	for len(open) > 1 {
		var joined group
		for i, a := range open {
			for _, b := range open[i+1:] {
				g := l.join(m, a, b)
				if joined.gpus == 0 || g.slowest > joined.slowest || g.slowest == joined.slowest && g.numaNodes < joined.numaNodes {
					joined = g
				}
			}
		}
		open = slices.DeleteFunc(open, func(i int) bool { return slices.Contains(joined.halves[:], i) })
		open = append(open, len(l.groups))
		l.groups = append(l.groups, joined)
	}
	return l
}

// join returns the group that groups a and b make together.
func (l *linkage) join(m Machine, a, b int) group {
	gpus := l.groups[a].gpus | l.groups[b].gpus
	return group{
		gpus:      gpus,
		halves:    [2]int{a, b},
		slowest:   l.ring(gpus).GBps,
		numaNodes: numaNodes(m, gpus),
	}
}

func (l *linkage) ring(s Set) Ring {
	var slowest Ring
	for rest := s; rest != 0; rest &= rest - 1 {
		i := rest.lowest()
		for others := rest & (rest - 1); others != 0; others &= others - 1 {
			j := others.lowest()
			hop := Ring{GBps: l.fabric.hops[i][j], NVLinkRings: l.fabric.lanes[i][j]}
			if slowest.GBps == 0 || hop.GBps < slowest.GBps {
				slowest = hop
			}
		}
	}
	return slowest
}

// best takes the fastest group that has k free GPUs, of equal ones that with the
// fewest. Neither half of it has as many, or that half would have been taken: so
// one half goes whole, and the other gives the rest.
func (l *linkage) best(free Set, k int, _ bool) Set {
	if free.Len() == k {
		return free
	}
	chosen := -1
	for i, g := range l.groups {
		n := (g.gpus & free).Len()
		if n < k {
			continue
		}
		if k == 1 && n == 1 {
			return g.gpus & free
		}
		if chosen < 0 || g.slowest > l.groups[chosen].slowest ||
			g.slowest == l.groups[chosen].slowest && n < (l.groups[chosen].gpus&free).Len() {
			chosen = i
		}
	}
	halves := l.groups[chosen].halves
	whole, part := l.groups[halves[0]].gpus&free, l.groups[halves[1]].gpus&free
	return whole | l.best(part, k-whole.Len(), false)
}

// beside takes GPUs of the fastest group that has them and the whole seed.
func (l *linkage) beside(free Set, k int, seed Set, _ bool) Set {
	chosen := -1
	for i, g := range l.groups {
		if seed&^g.gpus == 0 && (g.gpus&free).Len() >= k && (chosen < 0 || g.slowest > l.groups[chosen].slowest) {
			chosen = i
		}
	}
	return l.best(l.groups[chosen].gpus&free, k, false)
}

// worst is the ring of all free GPUs: some set of k has their slowest pair.
func (l *linkage) worst(free Set, k int) Ring {
	if k == 1 {
		return Ring{}
	}
	return l.ring(free)
}
