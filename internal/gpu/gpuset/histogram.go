package main

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/chart"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// histogram draws how many sets of k free GPUs have which ring, how many of these
// a rule rates best that looks at the slowest pair of GPUs (max-min), and where the
// chosen set is.
func histogram(table *gpu.Table, q question, nearNIC bool) []byte {
	var rings, slowest []float64
	for set := range gpu.Full(len(table.Machine().GPUs)) + 1 {
		if set&^q.free == 0 && bits.OnesCount64(uint64(set)) == q.k {
			rings = append(rings, table.Ring(set).GBps)
			slowest = append(slowest, slowestPair(table, set))
		}
	}
	best := slices.Max(slowest)
	levels := slices.Compact(slices.Sorted(slices.Values(rings)))
	all, ratedBest := make([]float64, len(levels)), make([]float64, len(levels))
	for i, ring := range rings {
		level, _ := slices.BinarySearch(levels, ring)
		all[level]++
		if slowest[i] == best {
			ratedBest[level]++
		}
	}
	chosen, _ := slices.BinarySearch(levels, answer(table, q, nearNIC).GBps)
	b := chart.Bars{
		Title:  fmt.Sprintf("%s: sets of %d out of %d free GPUs by their ring", table.Machine().Name, q.k, q.free.Len()),
		XLabel: "bandwidth of the best ring, GB/s", YLabel: "sets",
		Series: []chart.BarSeries{{Name: "all sets", Values: all}, {Name: "sets that max-min rates best", Values: ratedBest}},
		Marks:  []chart.Mark{{Category: 0, Text: "worst"}, {Category: chosen, Text: "chosen"}},
	}
	for _, level := range levels {
		b.Categories = append(b.Categories, decimal(level))
	}
	return b.SVG()
}

// slowestPair is the bandwidth of the slowest pair of GPUs of a set.
func slowestPair(table *gpu.Table, set gpu.Set) float64 {
	slowest := math.Inf(1)
	gpus := set.GPUs()
	for i, a := range gpus {
		for _, b := range gpus[i+1:] {
			slowest = min(slowest, table.Ring(gpu.SetOf(a, b)).GBps)
		}
	}
	return slowest
}
