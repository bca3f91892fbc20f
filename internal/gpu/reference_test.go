package gpu

import (
	"math/rand/v2"
	"slices"
)

// reference answers like a table, but slowly and in another way: it lists the
// rings of a set GPU by GPU, and looks at every set for every question.
type reference struct {
	machine  Machine
	known    map[Set]Ring
	packings map[packingOf][]float64
}

func newReference(m Machine) *reference {
	return &reference{machine: m, known: map[Set]Ring{}, packings: map[packingOf][]float64{}}
}

func (r *reference) link(a, b int) Link {
	x, y := r.machine.Links[a][b], r.machine.Links[b][a]
	switch {
	case x.Class < y.Class:
		return x
	case y.Class < x.Class:
		return y
	case x.Lanes < y.Lanes:
		return x
	}
	return y
}

func (r *reference) hop(a, b int) float64 { return hopGBps(r.machine, a, b, r.link(a, b)) }

func (r *reference) switched() bool {
	for a := range r.machine.GPUs {
		total := 0
		for b := range r.machine.GPUs {
			if a != b {
				total += r.link(a, b).Lanes
			}
		}
		if total > 18 {
			return true
		}
	}
	return r.machine.NVSwitch
}

// ring returns the best ring of a set.
func (r *reference) ring(s Set) Ring {
	if ring, ok := r.known[s]; ok {
		return ring
	}
	gpus := s.GPUs()
	var best Ring
	if len(gpus) == 2 {
		best.GBps = r.hop(gpus[0], gpus[1])
		best.NVLinkRings = r.link(gpus[0], gpus[1]).Lanes
	}
	if len(gpus) > 2 {
		best.GBps = r.slowestHop(gpus)
		n := 0
		if r.switched() {
			for n < maxLanes && r.tours(gpus, func(a, b int) bool { return r.link(a, b).Lanes > n }, func([]int) bool { return true }) {
				n++
			}
		} else {
			n = r.disjoint(gpus)
		}
		if gbps := float64(n) * r.machine.NVLinkGBps; n > 0 && gbps >= best.GBps {
			best = Ring{GBps: gbps, NVLinkRings: n}
		}
	}
	r.known[s] = best
	return best
}

// tours calls f with every ring through the GPUs whose hops are all usable, each
// in one direction only, until f returns true, and reports whether it did.
func (r *reference) tours(gpus []int, usable func(a, b int) bool, f func(tour []int) bool) bool {
	tour := []int{gpus[0]}
	var extend func() bool
	extend = func() bool {
		at := tour[len(tour)-1]
		if len(tour) == len(gpus) {
			return tour[1] < at && usable(at, tour[0]) && f(tour)
		}
		for _, next := range gpus[1:] {
			if !slices.Contains(tour, next) && usable(at, next) {
				tour = append(tour, next)
				if extend() {
					return true
				}
				tour = tour[:len(tour)-1]
			}
		}
		return false
	}
	return extend()
}

// slowestHop returns the bandwidth of the slowest hop of the ring where that is fastest.
func (r *reference) slowestHop(gpus []int) float64 {
	var levels []float64
	for _, a := range gpus {
		for _, b := range gpus {
			if a != b {
				levels = append(levels, r.hop(a, b))
			}
		}
	}
	slices.Sort(levels)
	for _, level := range slices.Backward(slices.Compact(levels)) {
		if r.tours(gpus, func(a, b int) bool { return r.hop(a, b) >= level }, func([]int) bool { return true }) {
			return level
		}
	}
	panic("every pair of GPUs has a hop")
}

// disjoint returns the largest number of NVLink rings that share no link: it lists
// all rings, and tries all selections of them.
func (r *reference) disjoint(gpus []int) int {
	var tours [][]int
	r.tours(gpus, func(a, b int) bool { return r.link(a, b).Lanes > 0 }, func(tour []int) bool {
		tours = append(tours, slices.Clone(tour))
		return false
	})
	left := map[[2]int]int{}
	limit := maxLanes
	for _, a := range gpus {
		degree := 0
		for _, b := range gpus {
			if a != b {
				left[[2]int{a, b}] = r.link(a, b).Lanes
				degree += r.link(a, b).Lanes
			}
		}
		limit = min(limit, degree/2)
	}
	use := func(tour []int, n int) (ok bool) {
		ok = true
		for i, a := range tour {
			b := tour[(i+1)%len(tour)]
			left[[2]int{a, b}] -= n
			left[[2]int{b, a}] -= n
			ok = ok && left[[2]int{a, b}] >= 0
		}
		return ok
	}
	best := 0
	var choose func(from, rings int)
	choose = func(from, rings int) {
		best = max(best, rings)
		for i := from; i < len(tours) && best < limit; i++ {
			if use(tours[i], 1) {
				choose(i, rings+1)
			}
			use(tours[i], -1)
		}
	}
	choose(0, 0)
	return best
}

// bounds returns the bandwidth of the best and the worst ring of k GPUs out of free.
func (r *reference) bounds(free Set, k int) (best, worst float64) {
	first := true
	subsets(free, k, func(s Set) {
		gbps := r.ring(s).GBps
		if first {
			best, worst, first = gbps, gbps, false
		}
		best, worst = max(best, gbps), min(worst, gbps)
	})
	return best, worst
}

// value is what decides for a set out of free, the most important number first.
func (r *reference) value(s, free Set, nearNIC bool) []float64 {
	numa := map[int]bool{}
	nic := 0.0
	for _, gpu := range s.GPUs() {
		numa[r.machine.GPUs[gpu].NUMANode] = true
		nearest := None
		for _, device := range r.machine.NICs {
			nearest = max(nearest, device.Links[gpu].Class)
		}
		nic += float64(nearest)
	}
	var left []float64
	for part := 8; part > 1; part /= 2 {
		left = append(left, r.packing(free&^s, part)...)
	}
	for k := len(r.machine.GPUs); k > 1; k-- {
		var best Ring
		subsets(free&^s, k, func(s Set) {
			if ring := r.ring(s); slices.Compare(ring.numbers(), best.numbers()) > 0 {
				best = ring
			}
		})
		left = append(left, best.numbers()...)
	}
	own := r.ring(s).numbers()
	closeness := -float64(len(numa))
	if nearNIC {
		return slices.Concat(own, []float64{nic}, left, []float64{closeness})
	}
	return slices.Concat(own, left, []float64{closeness, nic})
}

// packing returns the rings of the best packing of a set into parts of a size, and
// of half of that where it does not fit.
func (r *reference) packing(s Set, part int) []float64 {
	if s == 0 {
		return nil
	}
	key := packingOf{s, part}
	if known, ok := r.packings[key]; ok {
		return known
	}
	size := part
	for size > s.Len() {
		size /= 2
	}
	var best []float64
	subsets(s, size, func(first Set) {
		if p := slices.Concat(r.ring(first).numbers(), r.packing(s&^first, part)); slices.Compare(p, best) > 0 {
			best = p
		}
	})
	r.packings[key] = best
	return best
}

type packingOf struct {
	set  Set
	part int
}

func (r Ring) numbers() []float64 { return []float64{r.GBps, float64(r.NVLinkRings)} }

// subsets calls f for every set of k GPUs out of free, lowest GPUs first.
func subsets(free Set, k int, f func(Set)) {
	if k == 0 {
		f(0)
		return
	}
	for rest := free; rest.Len() >= k; rest &= rest - 1 {
		lowest := rest & -rest
		subsets(rest&^lowest, k-1, func(s Set) { f(lowest | s) })
	}
}

// degraded returns a copy of a machine after some of what happens to machines:
// links that dropped or lost lanes, in both directions or in one, pairs without a
// known path, lost GPUs, GPUs in another order, unknown NUMA nodes.
func degraded(random *rand.Rand, m Machine) Machine {
	m.GPUs = slices.Clone(m.GPUs)
	m.Links = slices.Clone(m.Links)
	for i, row := range m.Links {
		m.Links[i] = slices.Clone(row)
	}
	n := len(m.GPUs)
	for range random.IntN(2 * n) {
		a, b := random.IntN(n), random.IntN(n)
		if a == b {
			continue
		}
		worse := m.Links[a][b]
		switch random.IntN(4) {
		case 0:
			worse = Link{Class: SYS}
		case 1:
			worse = Link{}
		default:
			if worse.Lanes > 1 {
				worse.Lanes--
			} else {
				worse = Link{Class: Class(random.IntN(int(NVLink)))}
			}
		}
		m.Links[a][b] = worse
		if random.IntN(2) == 0 {
			m.Links[b][a] = worse
		}
		switch random.IntN(12) {
		case 0:
			m.GPUs[a].Unhealthy = "fell off the bus"
		case 1:
			m.GPUs[a].NUMANode = -1
		}
	}
	return reorder(m, random.Perm(n))
}

// reorder numbers the GPUs of a machine again: GPU order[i] becomes GPU i.
func reorder(m Machine, order []int) Machine {
	m.PCIeLinks = nil
	m.GPUs = permute(m.GPUs, order)
	for i := range m.GPUs {
		m.GPUs[i].Index = i
	}
	m.Links = permute(m.Links, order)
	for i, row := range m.Links {
		m.Links[i] = permute(row, order)
	}
	m.NICs = slices.Clone(m.NICs)
	for i := range m.NICs {
		m.NICs[i].Links = permute(m.NICs[i].Links, order)
	}
	return m
}

// twice puts two boards into one machine, one per socket.
func twice(board Machine) Machine {
	n := len(board.GPUs)
	m := Machine{Name: "2x-" + board.Name, Model: board.Model, NVLinkGBps: board.NVLinkGBps, PCIeGeneration: board.PCIeGeneration}
	for i := range 2 * n {
		m.GPUs = append(m.GPUs, GPU{Index: i, NUMANode: i / n})
		row := make([]Link, 2*n)
		for j := range row {
			row[j] = Link{Class: SYS}
			if i/n == j/n {
				row[j] = board.Links[i%n][j%n]
			}
		}
		m.Links = append(m.Links, row)
	}
	return m
}

// mesh returns a machine in which each two GPUs have the same link.
func mesh(gpus int, link Link) Machine {
	m := Machine{Name: "mesh", NVLinkGBps: 25, PCIeGeneration: 3}
	for i := range gpus {
		m.GPUs = append(m.GPUs, GPU{Index: i})
		row := slices.Repeat([]Link{link}, gpus)
		row[i] = Link{Class: Self}
		m.Links = append(m.Links, row)
	}
	return m
}
