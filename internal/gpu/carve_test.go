package gpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quality returns the slowest ring of the members with more than one GPU, and the sum of all.
func quality(table *Table, members []Set) (slowest, sum float64) {
	slowest = math.Inf(1)
	for _, s := range members {
		if s.Len() > 1 {
			slowest = min(slowest, table.Ring(s).GBps)
			sum += table.Ring(s).GBps
		}
	}
	return slowest, sum
}

// bestSplit returns the quality of the best split by looking at all.
func bestSplit(table *Table, s Set, sizes []int) (slowest, sum float64) {
	slowest = math.Inf(-1)
	var split func(left Set, members []Set)
	split = func(left Set, members []Set) {
		if len(members) == len(sizes) {
			a, b := quality(table, members)
			if a > slowest || a == slowest && b > sum {
				slowest, sum = a, b
			}
			return
		}
		subsets(left, sizes[len(members)], func(s Set) { split(left&^s, append(members[:len(members):len(members)], s)) })
	}
	split(s, nil)
	return slowest, sum
}

func TestCarveIsOptimal(t *testing.T) {
	for name, m := range wirings(t) {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(8, 8))
			for _, m := range []Machine{m, degraded(random, m), degraded(random, m)} {
				table := newTable(t, m)
				for i := range 20 {
					s := Full(len(m.GPUs))
					if i > 0 {
						s &= Set(random.Uint64())
					}
					var sizes []int
					for left := s.Len(); left > 0; left -= sizes[len(sizes)-1] {
						sizes = append(sizes, random.IntN(min(left, 4)+1))
					}
					members := table.Carve(s, sizes)
					require.Len(t, members, len(sizes))
					var all Set
					for i, member := range members {
						require.Equal(t, sizes[i], member.Len())
						require.Zero(t, all&member, "members share a GPU")
						all |= member
					}
					require.Equal(t, s, all)
					slowest, sum := quality(table, members)
					wantSlowest, wantSum := bestSplit(table, s, sizes)
					require.Equal(t, wantSlowest, slowest, "%v into %v: %v", s, sizes, members)
					require.Equal(t, wantSum, sum, "%v into %v: %v", s, sizes, members)
				}
			}
		})
	}
}

func TestCarve(t *testing.T) {
	dgx1 := newTable(t, fixtures(t)["dgx1-v100"])
	dgx2 := newTable(t, fixtures(t)["dgx2-16xv100"])
	for name, tt := range map[string]struct {
		table *Table
		set   Set
		sizes []int
		want  []Set
	}{
		"quads":              {dgx1, Full(8), []int{4, 4}, []Set{SetOf(0, 1, 2, 3), SetOf(4, 5, 6, 7)}},
		"order is kept":      {dgx1, Full(8), []int{1, 4, 0, 3}, []Set{SetOf(7), SetOf(0, 1, 2, 3), 0, SetOf(4, 5, 6)}},
		"pairs of a quad":    {dgx1, SetOf(0, 1, 2, 3), []int{2, 2}, []Set{SetOf(0, 3), SetOf(1, 2)}},
		"whole":              {dgx2, Full(16), []int{16}, []Set{Full(16)}},
		"members of 16":      {dgx2, Full(16), []int{8, 4, 4}, []Set{Full(8), SetOf(8, 9, 10, 11), SetOf(12, 13, 14, 15)}},
		"nothing":            {dgx1, 0, nil, []Set{}},
		"too many GPUs":      {dgx1, Full(4), []int{4, 1}, nil},
		"too few GPUs":       {dgx1, Full(4), []int{2, 1}, nil},
		"negative":           {dgx1, Full(4), []int{5, -1}, nil},
		"GPUs it lacks":      {dgx1, SetOf(3, 40), []int{1, 1}, nil},
		"odd members":        {dgx1, Full(8), []int{3, 3, 2}, []Set{SetOf(0, 2, 3), SetOf(4, 6, 7), SetOf(1, 5)}},
		"the launcher first": {dgx1, Full(4), []int{0, 4}, []Set{0, Full(4)}},
	} {
		assert.Equal(t, tt.want, tt.table.Carve(tt.set, tt.sizes), name)
	}
}

func BenchmarkCarve(b *testing.B) {
	table := newTable(b, fixtures(b)["dgx1-v100"])
	for name, sizes := range map[string][]int{"whole": {8}, "quads": {4, 4}, "single GPUs": {1, 1, 1, 1, 1, 1, 1, 1}, "searched": {2, 3, 3}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Carve(Full(8), sizes)
			}
		})
	}
}

func TestCarveGivesEarlierMembersLowerGPUs(t *testing.T) {
	table := newTable(t, fixtures(t)["dgx1-v100"])
	assert.Equal(t, []Set{SetOf(4), SetOf(7)}, table.Carve(SetOf(4, 7), []int{1, 1}))
	assert.Equal(t, []Set{SetOf(0), SetOf(1), SetOf(2), SetOf(3)}, table.Carve(SetOf(0, 1, 2, 3), []int{1, 1, 1, 1}))
}
