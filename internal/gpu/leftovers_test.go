package gpu

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// policy picks a set of k GPUs out of free.
type policy func(free Set, k int) Set

// byScore picks the first set with the highest score.
func byScore(score func(Set) float64) policy {
	return func(free Set, k int) Set {
		best, highest := Set(0), math.Inf(-1)
		subsets(free, k, func(s Set) {
			if x := score(s); x > highest {
				best, highest = s, x
			}
		})
		return best
	}
}

// slowestPair picks the set whose slowest pair of GPUs is fastest.
func slowestPair(f fabric) policy {
	return byScore(func(s Set) float64 {
		slowest := math.Inf(1)
		subsets(s, 2, func(pair Set) { slowest = min(slowest, f.hops[pair.GPUs()[0]][pair.GPUs()[1]]) })
		return slowest
	})
}

// sumOfPairs picks the set with the highest sum of bandwidth over all pairs of GPUs.
func sumOfPairs(f fabric) policy {
	return byScore(func(s Set) float64 {
		sum := 0.0
		subsets(s, 2, func(pair Set) { sum += f.hops[pair.GPUs()[0]][pair.GPUs()[1]] })
		return sum
	})
}

func (t *Table) policy() policy {
	return func(free Set, k int) Set {
		s, _ := t.Best(free, k)
		return s
	}
}

// arrivals returns every sequence of the sizes that fills n GPUs exactly.
func arrivals(n int, sizes []int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var sequences [][]int
	for _, k := range sizes {
		if k <= n {
			for _, rest := range arrivals(n-k, sizes) {
				sequences = append(sequences, append([]int{k}, rest...))
			}
		}
	}
	return sequences
}

// mean returns the sum of ring bandwidth that the jobs of a sequence get, on average over the sequences.
func mean(table *Table, pick policy, sequences [][]int) float64 {
	sum := 0.0
	for _, sequence := range sequences {
		free := Full(len(table.Machine().GPUs))
		for _, k := range sequence {
			s := pick(free, k)
			sum += table.Ring(s).GBps
			free &^= s
		}
	}
	return sum / float64(len(sequences))
}

// optimum returns the highest mean that any policy can have that does not know
// what comes next, where every sequence of the sizes that fills the machine is
// equally likely: by dynamic programming over what is free.
func optimum(table *Table, sizes []int) float64 {
	n := len(table.Machine().GPUs)
	total := make([]float64, 1<<n)
	for free := Set(1); free < 1<<n; free++ {
		for _, k := range sizes {
			if k > free.Len() {
				continue
			}
			sequences := float64(len(arrivals(free.Len()-k, sizes)))
			best := 0.0
			subsets(free, k, func(s Set) { best = max(best, table.Ring(s).GBps*sequences+total[free&^s]) })
			total[free] += best
		}
	}
	return total[Full(n)] / float64(len(arrivals(n, sizes)))
}

// Nobody who has to decide job by job does better, and looking at pairs alone does worse.
func TestLeftoversServeTheNextJobs(t *testing.T) {
	for _, sizes := range [][]int{{1, 2, 4}, {2, 4}, {1, 2, 4, 6}} {
		t.Logf("mean sum of ring bandwidth in GB/s over all arrivals of %v that fill the machine", sizes)
		t.Logf("%-30s %9s %9s %12s %12s", "machine", "optimum", "best", "slowest pair", "sum of pairs")
		machines := wirings(t)
		for _, name := range slices.Sorted(maps.Keys(machines)) {
			m := machines[name]
			if len(m.GPUs) != 8 {
				continue
			}
			table, f := newTable(t, m), newFabric(m)
			sequences := arrivals(8, sizes)
			highest, ours := optimum(table, sizes), mean(table, table.policy(), sequences)
			bySlowest, bySum := mean(table, slowestPair(f), sequences), mean(table, sumOfPairs(f), sequences)
			t.Logf("%-30s %9.2f %9.2f %12.2f %12.2f", name, highest, ours, bySlowest, bySum)
			assert.InDelta(t, highest, ours, 1e-9, "%s: against the optimal policy", name)
			assert.LessOrEqual(t, bySlowest, ours+1e-9, "%s: against slowest pair", name)
			assert.LessOrEqual(t, bySum, ours+1e-9, "%s: against sum of pairs", name)
		}
	}
	m := wirings(t)["dgx1-v100-numbered-otherwise"]
	table, f := newTable(t, m), newFabric(m)
	assert.Greater(t, mean(table, table.policy(), arrivals(8, []int{1, 2, 4})), mean(table, sumOfPairs(f), arrivals(8, []int{1, 2, 4})))
}

// Whatever is free, a job of one, two or three GPUs leaves the best quad that a job
// with its bandwidth can leave, and one of one or two GPUs the best pair.
func TestLeftoversKeepTheBestQuad(t *testing.T) {
	for name, m := range wirings(t) {
		t.Run(name, func(t *testing.T) {
			table := newTable(t, m)
			ring := func(free Set, k int) float64 {
				best, _ := table.Best(free, k)
				return table.Ring(best).GBps
			}
			for free := range Full(len(m.GPUs)) + 1 {
				for k := 1; k <= min(3, free.Len()); k++ {
					chosen, _ := table.Best(free, k)
					quad, pair := 0.0, 0.0
					subsets(free, k, func(s Set) {
						if table.Ring(s) != table.Ring(chosen) {
							return
						}
						if x := ring(free&^s, 4); x > quad {
							quad, pair = x, 0
						}
						if ring(free&^s, 4) == quad {
							pair = max(pair, ring(free&^s, 2))
						}
					})
					require.Equal(t, quad, ring(free&^chosen, 4), "quad after %d of %v", k, free)
					require.Equal(t, pair, ring(free&^chosen, 2), "pair after %d of %v", k, free)
				}
			}
		})
	}
}

func TestSequencesKeepTheBestQuad(t *testing.T) {
	sequences := map[string][]int{
		"two, then four":         {2, 4},
		"two, two, then four":    {2, 2, 4},
		"one by one, then four":  {1, 1, 1, 1, 4},
		"one, two, one and four": {1, 2, 1, 4},
	}
	machines := wirings(t)
	for _, name := range []string{"dgx1-v100", "dgx1-v100-numbered-otherwise", "2x-ack-sample-4xv100", "2x-v100-4-nv2"} {
		table := newTable(t, machines[name])
		empty, _ := table.Best(Full(8), 4)
		for what, sequence := range sequences {
			free := Full(8)
			var last Set
			for _, k := range sequence {
				s, ok := table.Best(free, k)
				require.True(t, ok)
				free &^= s
				last = s
			}
			assert.Equal(t, table.Ring(empty), table.Ring(last), "%s: %s: the quad is as good as on the empty machine", name, what)
		}
	}
}
