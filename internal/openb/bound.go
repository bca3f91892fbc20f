package openb

import (
	"math"
	"slices"
)

// Bound is the most, in percent of all GPUs, that any scheduler can have placed of pods: a relaxation
// in which all GPUs of one model are one, and nothing but GPUs is needed. By the max-flow min-cut
// theorem it is the least, over sets of models, of their GPUs with what pods ask for that may run
// elsewhere, too.
func (t *Trace) Bound(pods []Pod) float64 {
	return 100 * float64(bound(t.Machines, pods)) / float64(t.Capacity())
}

// bound is Bound in thousandths of GPUs.
func bound(machines []Machine, pods []Pod) int64 {
	var models []string
	gpus, asked := map[string]int64{}, map[string]int64{}
	for _, m := range machines {
		if !slices.Contains(models, m.Model) {
			models = append(models, m.Model)
		}
		gpus[m.Model] += int64(m.GPUs) * WholeGPU
	}
	for _, p := range pods {
		asked[p.Models] += p.GPUMilli()
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
			p := Pod{Models: allowed}
			for i, model := range models {
				if set&(1<<i) == 0 && p.RunsOn(model) {
					cut += amount
					break
				}
			}
		}
		least = min(least, cut)
	}
	return least
}
