package gpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// policy picks a set of k cards out of free.
type policy func(free Set, k int) Set

// subsets calls f for every set of k cards out of free, lowest cards first.
func subsets(free Set, k int, f func(Set)) {
	if k == 0 {
		f(0)
		return
	}
	for rest := free; rest.Len() >= k; rest &= rest - 1 {
		first := rest & -rest
		subsets(rest&^first, k-1, func(s Set) { f(first | s) })
	}
}

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

// pairs calls f with the bandwidth of every pair of cards of a set.
func pairs(f fabric, s Set, do func(gbps float64)) {
	subsets(s, 2, func(pair Set) {
		c := pair.Cards()
		do(f.hops[c[0]][c[1]])
	})
}

func maxMin(f fabric) policy {
	return byScore(func(s Set) float64 {
		slowest := math.Inf(1)
		pairs(f, s, func(x float64) { slowest = min(slowest, x) })
		return slowest
	})
}

func maxSum(f fabric) policy {
	return byScore(func(s Set) float64 {
		sum := 0.0
		pairs(f, s, func(x float64) { sum += x })
		return sum
	})
}

// arrivals calls f with every sequence of the sizes that fills n cards exactly.
func arrivals(n int, sizes []int, f func([]int)) {
	var extend func(left int, sequence []int)
	extend = func(left int, sequence []int) {
		if left == 0 {
			f(sequence)
			return
		}
		for _, k := range sizes {
			if k <= left {
				extend(left-k, append(sequence, k))
			}
		}
	}
	extend(n, nil)
}

// play returns the sum of ring bandwidth of a policy over a sequence, and what remains after each job.
func play(tab *Table, pick policy, sequence []int) float64 {
	sum := 0.0
	for free, i := Full(len(tab.Machine().Cards)), 0; i < len(sequence); i++ {
		s := pick(free, sequence[i])
		sum += tab.Ring(s).GBps
		free &^= s
	}
	return sum
}

// optimalOnline returns the policy that has the highest sum of ring bandwidth over
// all sequences without knowing the next arrival, and that sum per sequence. With greedy it
// must give every job the best ring that it can have.
func optimalOnline(tab *Table, sizes []int, greedy bool) (policy, float64) {
	n := len(tab.Machine().Cards)
	sequences := make([]float64, n+1)
	sequences[0] = 1
	for m := 1; m <= n; m++ {
		for _, k := range sizes {
			if k <= m {
				sequences[m] += sequences[m-k]
			}
		}
	}
	value := make([]float64, 1<<n)
	choice := make(map[[2]int]Set)
	for free := Set(1); free < 1<<n; free++ {
		for _, k := range sizes {
			left := free.Len() - k
			if left < 0 {
				continue
			}
			best, chosen, ring := -1.0, Set(0), 0.0
			subsets(free, k, func(s Set) { ring = max(ring, tab.Ring(s).GBps) })
			subsets(free, k, func(s Set) {
				own := tab.Ring(s).GBps
				if greedy && own < ring {
					return
				}
				if x := own*sequences[left] + value[free&^s]; x > best {
					best, chosen = x, s
				}
			})
			value[free] += best
			choice[[2]int{int(free), k}] = chosen
		}
	}
	return func(free Set, k int) Set { return choice[[2]int{int(free), k}] }, value[Full(n)] / sequences[n]
}

func TestStudy(t *testing.T) {
	for name, m := range wirings(t) {
		tab := table(t, m)
		f := newFabric(m)
		sizes := []int{1, 2, 4}
		online, best := optimalOnline(tab, sizes, false)
		greedy, bestGreedy := optimalOnline(tab, sizes, true)
		ours := func(free Set, k int) Set { s, _ := tab.Best(free, k); return s }
		sums := map[string]float64{}
		count := 0.0
		arrivals(8, sizes, func(seq []int) {
			count++
			for p, pick := range map[string]policy{"ours": ours, "online": online, "greedy": greedy, "maxmin": maxMin(f), "maxsum": maxSum(f)} {
				sums[p] += play(tab, pick, seq)
			}
		})
		require.InDelta(t, best, sums["online"]/count, 1e-9)
		require.InDelta(t, bestGreedy, sums["greedy"]/count, 1e-9)
		line := fmt.Sprintf("%-30s %v", name, count)
		for _, p := range []string{"online", "greedy", "ours", "maxmin", "maxsum"} {
			line += fmt.Sprintf(" %s %.3f", p, sums[p]/count)
		}
		t.Log(line)
		assert.True(t, true)
	}
}

// wirings returns the machines of eight cards: the fixtures and three more ways to wire eight V100.
func wirings(t testing.TB) map[string]Machine {
	t.Helper()
	all := fixtures(t)
	machines := map[string]Machine{}
	for name, m := range all {
		if len(m.Cards) == 8 {
			machines[name] = m
		}
	}
	machines["2x-ack-sample-4xv100"] = twice(all["ack-sample-4xv100"])
	machines["2x-v100-4-nv2"] = twice(fullMesh(4, 2))
	machines["dgx1-v100-shuffled"] = reorder(all["dgx1-v100"], []int{0, 5, 2, 7, 4, 1, 6, 3})
	return machines
}

func fullMesh(n, lanes int) Machine {
	m := Machine{Name: "full-mesh", NVLinkGBps: 25, PCIeGeneration: 3}
	for i := range n {
		m.Cards = append(m.Cards, Card{Index: i})
		row := make([]Link, n)
		for j := range n {
			row[j] = Link{Class: NVLink, Lanes: lanes}
		}
		row[i] = Link{Class: Self}
		m.Links = append(m.Links, row)
	}
	return m
}

// twice puts two boards into one machine, one per socket.
func twice(board Machine) Machine {
	n := len(board.Cards)
	m := board
	m.Cards, m.Links = nil, nil
	for i := range 2 * n {
		m.Cards = append(m.Cards, Card{Index: i, NUMANode: i / n})
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

// reorder numbers the cards of a machine anew: card order[i] becomes card i.
func reorder(m Machine, order []int) Machine {
	out := m
	out.NICs, out.PCIeLinks = nil, nil
	out.Cards = permute(m.Cards, order)
	for i := range out.Cards {
		out.Cards[i].Index = i
	}
	out.Links = permute(m.Links, order)
	for i, row := range out.Links {
		out.Links[i] = permute(row, order)
	}
	return out
}
