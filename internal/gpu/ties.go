package gpu

import (
	"cmp"
	"math/bits"
	"slices"
)

// rankLeftovers ranks every set by what it offers to the next jobs when it is all
// that remains: the ranks of its best rings, by size, the sizes that jobs ask for
// most first. bestRank is by (set, k), as [exact] keeps it.
func rankLeftovers(cards int, bestRank []uint16) []uint16 {
	sizes := jobSizes(cards)
	profiles := make([][maxExactCards]uint16, 1<<cards)
	for set := range profiles {
		for i, k := range sizes {
			profiles[set][i] = bestRank[set*(cards+1)+k]
		}
	}
	_, ranks := rank(profiles, func(a, b [maxExactCards]uint16) int { return slices.Compare(a[:], b[:]) })
	return ranks
}

// jobSizes returns the sizes 2 to n: first the powers of two, which jobs mostly
// ask for, from the largest, because a large set is the harder one to keep
// together, then the others from the largest.
func jobSizes(n int) []int {
	var sizes []int
	for k := 2; k <= n; k++ {
		sizes = append(sizes, k)
	}
	powerOfTwo := func(k int) bool { return bits.OnesCount(uint(k)) == 1 }
	slices.SortFunc(sizes, func(a, b int) int {
		if powerOfTwo(a) != powerOfTwo(b) {
			if powerOfTwo(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(b, a)
	})
	return sizes
}

// closeness says how near the cards of a set are to each other's memory and to the network.
type closeness struct {
	// numaNodes counts the NUMA nodes of the cards; cards of unknown node are on one of their own.
	numaNodes int
	// nic sums up the class of the nearest network device over the cards.
	nic int
}

// rankCloseness ranks every set: fewer NUMA nodes first, then nearer network devices.
func rankCloseness(m Machine) []uint16 {
	nearest := make([]int, len(m.Cards))
	for _, nic := range m.NICs {
		for card, link := range nic.Links {
			nearest[card] = max(nearest[card], int(link.Class))
		}
	}
	sets := make([]closeness, 1<<len(m.Cards))
	for s := range sets {
		for rest := Set(s); rest != 0; rest &= rest - 1 {
			sets[s].nic += nearest[rest.lowest()]
		}
		sets[s].numaNodes = numaNodes(m, Set(s))
	}
	_, ranks := rank(sets, func(a, b closeness) int {
		return cmp.Or(cmp.Compare(b.numaNodes, a.numaNodes), cmp.Compare(a.nic, b.nic))
	})
	return ranks
}

// numaNodes counts the NUMA nodes of the cards of a set.
func numaNodes(m Machine, s Set) int {
	var known [MaxCards]int
	nodes := known[:0]
	for rest := s; rest != 0; rest &= rest - 1 {
		if node := m.Cards[rest.lowest()].NUMANode; !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return len(nodes)
}
