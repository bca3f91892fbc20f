package replay

import (
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// usage keeps what is idle on each machine, apart from the planner, so that
// fragmentation is measured by the definition of the paper and against the whole
// trace, not against what the planner has learnt.
type usage struct {
	machines map[string]*idle
	shapes   []shape
	pods     int64
}

// idle is what one machine has left.
type idle struct {
	milliCPU int64
	gpus     []int64
	model    string
}

// shape is a kind of pod with the number of pods of the kind.
type shape struct {
	openb.Pod
	count int64
}

func newUsage(machines []openb.Machine, pods []openb.Pod) *usage {
	l := &usage{machines: map[string]*idle{}, pods: int64(len(pods))}
	for _, m := range machines {
		left := &idle{milliCPU: m.MilliCPU, gpus: make([]int64, m.GPUs), model: m.Model}
		for i := range left.gpus {
			left.gpus[i] = openb.WholeGPU
		}
		l.machines[m.Name] = left
	}
	counts := map[openb.Pod]int{}
	for _, p := range pods {
		p.MemoryMiB = 0
		i, ok := counts[p]
		if !ok {
			i = len(l.shapes)
			counts[p] = i
			l.shapes = append(l.shapes, shape{Pod: p})
		}
		l.shapes[i].count++
	}
	return l
}

// place takes what an assignment gives away.
func (l *usage) place(p openb.Pod, a placement.Assignment) {
	m := l.machines[a.Node]
	m.milliCPU -= p.MilliCPU
	for _, s := range a.Shares {
		m.gpus[s.GPU] -= s.MemoryGiB
	}
}

// fragmentedPercent is the expected part of the idle GPUs that a pod of the trace
// cannot use: all that is idle on a machine that cannot serve it, and the idle part of
// the GPUs that are too small for it.
func (l *usage) fragmentedPercent() float64 {
	var fragments, total int64
	for _, m := range l.machines {
		var all int64
		for _, left := range m.gpus {
			all += left
		}
		if all == 0 {
			continue
		}
		total += all
		for _, s := range l.shapes {
			fragments += s.count * m.fragments(s.Pod, all)
		}
	}
	if total == 0 {
		return 0
	}
	return 100 * float64(fragments) / float64(total*l.pods)
}

func (m *idle) fragments(p openb.Pod, all int64) int64 {
	if p.GPUs == 0 || p.MilliCPU > m.milliCPU || !p.RunsOn(m.model) {
		return all
	}
	var small int64
	fitting := 0
	for _, left := range m.gpus {
		if left >= p.ShareMilli {
			fitting++
		} else {
			small += left
		}
	}
	if fitting < p.GPUs {
		return all
	}
	return small
}
