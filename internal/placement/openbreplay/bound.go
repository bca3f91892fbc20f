package main

import (
	"math"
	"slices"
)

// bound is the most, in thousandths of GPUs, that any scheduler can have placed of pods: a relaxation
// in which all GPUs of one model are one, and nothing but GPUs is needed. By the max-flow min-cut
// theorem it is the least, over sets of models, of their GPUs with what pods ask for that may run
// elsewhere, too.
func bound(machines []machine, pods []pod) int64 {
	var models []string
	gpus, asked := map[string]int64{}, map[string]int64{}
	for _, m := range machines {
		if !slices.Contains(models, m.model) {
			models = append(models, m.model)
		}
		gpus[m.model] += int64(m.gpus) * wholeGPU
	}
	for _, p := range pods {
		asked[p.models] += p.gpuMilli()
	}
	least := int64(math.MaxInt64)
	for set := range 1 << len(models) {
		var cut int64
		for i, model := range models {
			if set&(1<<i) != 0 {
				cut += gpus[model]
			}
		}
		for allowed, amount := range asked {
			p := pod{models: allowed}
			for i, model := range models {
				if set&(1<<i) == 0 && p.runsOn(model) {
					cut += amount
					break
				}
			}
		}
		least = min(least, cut)
	}
	return least
}
