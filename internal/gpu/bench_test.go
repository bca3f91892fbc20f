package gpu

import (
	"math/rand/v2"
	"testing"
)

// measured returns the machines to measure: the fixtures, and two of 16 GPUs with many different sets.
func measured(b *testing.B) map[string]Machine {
	machines := fixtures(b)
	machines["2x-dgx1-v100"] = twice(machines["dgx1-v100"])
	machines["2x-pcie-8-switch-pix-phb"] = twice(machines["pcie-8-switch-pix-phb"])
	return machines
}

func BenchmarkNewTable(b *testing.B) {
	for name, m := range measured(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewTable(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBest(b *testing.B) {
	for name, m := range measured(b) {
		tab := newTable(b, m)
		n := len(m.GPUs)
		free := make([]Set, 1<<12)
		k := make([]int, len(free))
		random := rand.New(rand.NewPCG(1, 2))
		for i := range free {
			for free[i] == 0 {
				free[i] = Set(random.Uint64()) & Full(n)
			}
			k[i] = 1 + random.IntN(free[i].Len())
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tab.Best(free[i%len(free)], k[i%len(k)])
			}
		})
	}
}
