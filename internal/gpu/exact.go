package gpu

import (
	"cmp"
	"slices"
)

// exact holds the answers for every set of the GPUs of a machine of at most
// maxExactGPUs GPUs. Values are replaced by their rank, the position in a sorted
// list of the different values, so that comparing is one integer comparison.
//
// Time to build is O(3^n): each set of free GPUs is compared with each of its
// subsets. Memory is at most 2^n × (5n + 8) bytes: 12 KiB for 8 GPUs, 5.5 MiB for
// 16; building takes about 18 MiB for 16.
type exact struct {
	gpus int
	// rings are the different rings of the machine, in ascending order. There are
	// less than 256: a link has up to maxLanes lanes or one of few other classes.
	rings []Ring
	// ringRank is the position in rings, by set.
	ringRank []uint8
	// worstRank is the position in rings of the worst set, by (free, k).
	worstRank []uint8
	// bestSet is the best set of k GPUs out of a set of free ones, by (free, k);
	// nearNICSet too, for members of a gang that spans machines.
	bestSet, nearNICSet []uint16
	// leftRank is the rank of what a set offers to the next jobs, by set.
	leftRank []uint16
	machine  Machine
	// nearest is the class of the path to the nearest network device, by GPU.
	nearest []Class
}

func newExact(m Machine, f fabric) *exact {
	e := &exact{gpus: f.gpus}
	e.rings, e.ringRank = ranked[uint8](f.rings(), func(a, b Ring) int {
		return cmp.Or(cmp.Compare(a.GBps, b.GBps), cmp.Compare(a.NVLinkRings, b.NVLinkRings))
	})
	e.worstRank = e.bounds(func(a, b uint8) uint8 { return min(a, b) })
	bestRank := e.bounds(func(a, b uint8) uint8 { return max(a, b) })
	_, e.leftRank = ranked[uint16](e.leftovers(bestRank), compareLeftovers)

	e.machine, e.nearest = m, nearestNIC(m)
	fixed, fixedNearNIC := make([]uint64, len(e.ringRank)), make([]uint64, len(e.ringRank))
	for set := range e.all() {
		fixed[set], fixedNearNIC[set] = e.fixedKey(set, set, false), e.fixedKey(set, set, true)
	}
	e.bestSet = e.choose(fixed)
	e.nearNICSet = e.bestSet
	if len(slices.Compact(slices.Clone(e.nearest))) > 1 {
		e.nearNICSet = e.choose(fixedNearNIC)
	}
	return e
}

// fixedKey is the key by which a set is chosen for a job that has all the GPUs then,
// but for bits 16 to 31, which take the rank of what the set leaves.
func (e *exact) fixedKey(set, all Set, nearNIC bool) uint64 {
	ring := uint64(e.ringRank[all])
	numa := uint64(maxExactGPUs - numaNodes(e.machine, all))
	nic := uint64(nicCloseness(e.nearest, all))
	if nearNIC {
		return ring<<56 | uint64(e.ringRank[set])<<48 | nic<<32 | numa<<8
	}
	return ring<<56 | uint64(e.ringRank[set])<<48 | numa<<8 | nic
}

func (e *exact) ring(s Set) Ring { return e.rings[e.ringRank[s]] }

func (e *exact) best(free Set, k int, nearNIC bool) Set {
	if nearNIC {
		return Set(e.nearNICSet[e.at(free, k)])
	}
	return Set(e.bestSet[e.at(free, k)])
}

func (e *exact) beside(free Set, k int, seed Set, nearNIC bool) Set {
	var best Set
	var highest uint64
	for set := free; set != 0; set = (set - 1) & free {
		if set.Len() != k {
			continue
		}
		key := e.fixedKey(set, set|seed, nearNIC) | uint64(e.leftRank[free&^set])<<16
		if best == 0 || key > highest || key == highest && set.before(best) {
			best, highest = set, key
		}
	}
	return best
}

func (e *exact) worst(free Set, k int) Ring { return e.rings[e.worstRank[e.at(free, k)]] }

// at returns the index of (set, k) in a list with an entry for every set and every k from 0 to GPUs.
func (e *exact) at(set Set, k int) int { return int(set)*(e.gpus+1) + k }

// all returns the number of sets, to range over them.
func (e *exact) all() Set { return 1 << e.gpus }

// bounds returns the rank of the best or worst ring of k GPUs out of each set, by
// (set, k): a set's own, or what leaving out one GPU gives.
func (e *exact) bounds(pick func(a, b uint8) uint8) []uint8 {
	bounds := make([]uint8, len(e.ringRank)*(e.gpus+1))
	for set := range e.all() {
		size := set.Len()
		bounds[e.at(set, size)] = e.ringRank[set]
		for k := 1; k < size; k++ {
			bound := bounds[e.at(set&(set-1), k)]
			for rest := set & (set - 1); rest != 0; rest &= rest - 1 {
				bound = pick(bound, bounds[e.at(set&^(rest&-rest), k)])
			}
			bounds[e.at(set, k)] = bound
		}
	}
	return bounds
}

// choose returns the best set by (free, k): the one with the highest key, of equal
// ones that with the lowest GPUs. The key of a set is fixed, but for what it leaves.
func (e *exact) choose(fixed []uint64) []uint16 {
	chosen := make([]uint16, len(fixed)*(e.gpus+1))
	for free := range e.all() {
		var keys [maxExactGPUs + 1]uint64
		best := chosen[e.at(free, 0):e.at(free+1, 0)]
		for set := free; set != 0; set = (set - 1) & free {
			k := set.Len()
			key := fixed[set] | uint64(e.leftRank[free&^set])<<16
			if key > keys[k] || best[k] == 0 || key == keys[k] && set.before(Set(best[k])) {
				best[k], keys[k] = uint16(set), key
			}
		}
	}
	return chosen
}

// ranked returns the different values in ascending order, and for each value its position among them.
func ranked[R uint8 | uint16, T comparable](values []T, compare func(a, b T) int) (sorted []T, ranks []R) {
	sorted = slices.Clone(values)
	slices.SortFunc(sorted, compare)
	sorted = slices.Compact(sorted)
	position := make(map[T]R, len(sorted))
	for i, v := range sorted {
		position[v] = R(i)
	}
	ranks = make([]R, len(values))
	for i, v := range values {
		ranks[i] = position[v]
	}
	return sorted, ranks
}
