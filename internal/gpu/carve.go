package gpu

import (
	"cmp"
	"math"
	"slices"
)

// maxCarveGPUs bounds the sets that Carve searches exhaustively.
const maxCarveGPUs = 12

// Carve splits a set into members of the given sizes, in order, so that each
// member's own GPUs have the best ring among themselves: the slowest of the
// members' rings is as fast as can be, then their sum is as high as can be. On
// sets of more than 12 GPUs that holds when every member can have the best ring
// that the set has for its size; otherwise the largest members choose first.
//
// Carve returns nil when a size is negative or the sizes do not add up to the
// GPUs of the set. Health does not matter: the GPUs are the caller's already.
func (t *Table) Carve(s Set, sizes []int) []Set {
	s &= Full(len(t.machine.GPUs))
	left := s.Len()
	for _, k := range sizes {
		if k < 0 {
			return nil
		}
		left -= k
	}
	if left != 0 {
		return nil
	}
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })

	c := carving{ring: t.sets.ring, sizes: make([]int, len(sizes)), members: make([]Set, len(sizes))}
	for i, member := range order {
		c.sizes[i] = sizes[member]
	}
	if !c.inOrder(t.sets, s) && s.Len() <= maxCarveGPUs {
		c.search(s)
	}
	// Members of one size are interchangeable: the earlier one gets the lower GPUs.
	slices.SortStableFunc(c.members, func(a, b Set) int {
		return cmp.Or(cmp.Compare(b.Len(), a.Len()), cmp.Compare(a&-a, b&-b))
	})
	members := make([]Set, len(sizes))
	for i, member := range order {
		members[member] = c.members[i]
	}
	return members
}

// carving is the split of one set, with members in descending size.
type carving struct {
	ring    func(Set) Ring
	sizes   []int
	members []Set
}

// inOrder lets one member after the other choose, and reports whether each got the
// best ring that the whole set has for its size: no split is better then.
func (c *carving) inOrder(sets chooser, s Set) (optimal bool) {
	optimal = true
	left := s
	for i, k := range c.sizes {
		if k == 0 {
			break
		}
		c.members[i] = sets.best(left, k, false)
		left &^= c.members[i]
		if c.ring(c.members[i]).GBps < c.ring(sets.best(s, k, false)).GBps {
			optimal = false
		}
	}
	return optimal
}

// search finds the split with the fastest slowest ring, of those with the highest sum of rings.
func (c *carving) search(s Set) {
	slowest := c.solve(s, math.Inf(1), func(own, others float64) float64 { return min(own, others) })
	c.solve(s, 0, func(own, others float64) float64 {
		if own < slowest {
			return math.Inf(-1)
		}
		return own + others
	})
}

// solve finds the members for which the combined bandwidth of their rings is
// highest, and returns it; none is that of no ring at all. Members of one GPU
// have no ring: they come last and take what is left.
func (c *carving) solve(s Set, none float64, combine func(own, others float64) float64) float64 {
	type split struct {
		value float64
		first Set
	}
	solved := map[Set]split{}
	var from func(member int, left Set) float64
	from = func(member int, left Set) float64 {
		if member == len(c.sizes) || c.sizes[member] < 2 {
			return none
		}
		if known, ok := solved[left]; ok {
			return known.value
		}
		best := split{value: math.Inf(-1)}
		for set := left; set != 0; set = (set - 1) & left {
			if set.Len() != c.sizes[member] {
				continue
			}
			value := combine(c.ring(set).GBps, from(member+1, left&^set))
			if best.first == 0 || value > best.value || value == best.value && set.before(best.first) {
				best = split{value, set}
			}
		}
		solved[left] = best
		return best.value
	}
	value := from(0, s)
	for i, k := range c.sizes {
		c.members[i] = solved[s].first
		if k < 2 {
			c.members[i] = s.first(k)
		}
		s &^= c.members[i]
	}
	return value
}
