// Package replay replays the openb trace through the planner in memory, with a workload
// distribution that it learns on the way.
package replay

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/workload/tally"
)

// Replay is one trace, and how the planner chooses.
type Replay struct {
	*openb.Trace
	// Tightest chooses the tightest fit instead of the least fragmentation.
	Tightest bool
	// Learned is what is recorded before the first pod arrives.
	Learned placement.Workload
}

// Curve is the course of one seed; index i is at i percent of arrived demand.
type Curve struct {
	Allocated, Fragmented []float64
	// Most is the most that any scheduler can have allocated, at 100 and at all percent of demand.
	Most []float64
	// Nodes are where the pods went in the order of their arrival, "" for one that was dropped.
	Nodes []string
	Took  time.Duration
}

// Seeds replays the trace once per seed, as many at a time as there are cores.
func (r *Replay) Seeds(first, last int64) ([]Curve, error) {
	nodes, err := Nodes(r.Machines)
	if err != nil {
		return nil, err
	}
	curves := make([]Curve, last-first+1)
	var wait sync.WaitGroup
	order := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range curves {
		order <- struct{}{}
		wait.Go(func() {
			curves[i] = r.seed(first+int64(i), nodes)
			<-order
		})
	}
	wait.Wait()
	return curves, nil
}

// Mean is the mean of curves, as far as all of them go; it took as long as all together.
func Mean(curves []Curve) Curve {
	mean := Curve{
		Allocated:  meanOf(curves, func(c *Curve) []float64 { return c.Allocated }),
		Fragmented: meanOf(curves, func(c *Curve) []float64 { return c.Fragmented }),
		Most:       meanOf(curves, func(c *Curve) []float64 { return c.Most }),
	}
	for _, c := range curves {
		mean.Took += c.Took
	}
	return mean
}

func meanOf(curves []Curve, series func(*Curve) []float64) (mean []float64) {
	for i := range series(&curves[0]) {
		sum := 0.0
		for j := range curves {
			values := series(&curves[j])
			if i >= len(values) {
				return mean
			}
			sum += values[i]
		}
		mean = append(mean, sum/float64(len(curves)))
	}
	return mean
}

// Nodes are machines as the planner sees them. It counts GPU memory in GiB: a thousandth of
// a GPU stands for one.
func Nodes(machines []openb.Machine) ([]placement.Node, error) {
	tables := map[int]*gpu.Table{0: nil}
	var nodes []placement.Node
	for _, m := range machines {
		if _, ok := tables[m.GPUs]; !ok {
			table, err := newTable(m.GPUs)
			if err != nil {
				return nil, err
			}
			tables[m.GPUs] = table
		}
		nodes = append(nodes, placement.Node{
			Name: m.Name, Labels: map[string]string{contract.GPUModelLabel: m.Model}, Mode: placement.ModeShare, GPUs: tables[m.GPUs],
			Allocatable: placement.Resources{MilliCPU: m.MilliCPU, MemoryBytes: m.MemoryMiB << 20, Pods: math.MaxInt32},
		})
	}
	return nodes, nil
}

// newTable is a machine of so many GPUs.
func newTable(gpus int) (*gpu.Table, error) {
	model := gpu.Machine{Name: fmt.Sprintf("%d GPUs", gpus)}
	for i := range gpus {
		model.GPUs = append(model.GPUs, gpu.GPU{Index: i, MemoryMiB: openb.WholeGPU * 1024, NUMANode: -1})
		links := make([]gpu.Link, gpus)
		for j := range links {
			links[j].Class = gpu.SYS
		}
		links[i].Class = gpu.Self
		model.Links = append(model.Links, links)
	}
	table, err := gpu.NewTable(model)
	if err != nil {
		return nil, fmt.Errorf("model a machine of %d GPUs: %w", gpus, err)
	}
	return table, nil
}

func (r *Replay) seed(seed int64, nodes []placement.Node) Curve {
	start := time.Now()
	view := snapshot.NewView()
	for _, n := range nodes {
		view.SetNode(n)
	}
	learned := tally.Tally{Counted: r.Learned}
	if r.Learned != nil {
		view.SetWorkload(r.Learned)
	}
	state, meter := newUsage(r.Machines, r.Pods), r.Meter()
	var c Curve
	record := func() {
		for len(c.Allocated) <= meter.Demand() {
			c.Allocated = append(c.Allocated, meter.Allocated())
			c.Fragmented = append(c.Fragmented, state.fragmentedPercent())
		}
	}
	record()
	list := r.Arrivals(seed)
	for i, p := range list {
		g := Gang(p, i)
		placed, node := planner.Place(view, g), ""
		if placed != nil {
			view.Apply(g, *placed)
			state.place(p, placed.Assignments[0])
			node = placed.Assignments[0].Node
		}
		c.Nodes = append(c.Nodes, node)
		meter.Arrive(p, placed != nil)
		record()
		if d := g.Roles[0].Demand(); d.Valid() && !r.Tightest {
			learn(&learned, d, i, view)
		}
	}
	c.Took = time.Since(start)
	for _, part := range [][]openb.Pod{openb.UpTo(list, r.Capacity()), list} {
		c.Most = append(c.Most, r.Bound(part))
	}
	return c
}

// learn counts a request, which arrives long after the one before, and has the view follow what is
// recorded as soon as it is.
func learn(learned *tally.Tally, d placement.Demand, i int, view *snapshot.View) {
	created := time.Unix(int64(i+1)*int64(tally.Seen/time.Second), 0)
	learned.Arrive(tally.Arrival{Created: created, Demand: d})
	if next, until, ok := learned.Due(created.Add(tally.Seen)); ok {
		learned.Record(next, until, created.Add(tally.Seen))
		view.SetWorkload(next)
	}
}

// Gang is a pod as the planner sees it: a gang of one.
func Gang(p openb.Pod, i int) placement.Gang {
	request := placement.Request{Resources: placement.Resources{MilliCPU: p.MilliCPU, MemoryBytes: p.MemoryMiB << 20}}
	if p.GPUs > 0 {
		request.Mode, request.GPUs, request.MemoryGiB = placement.ModeShare, p.GPUs, p.GPUMilli()
	}
	role := placement.Role{Name: "pod", Members: []string{"pod-0"}, Request: request}
	if models := p.ModelList(); models != nil {
		role.Affinity = [][]placement.Requirement{{{Key: contract.GPUModelLabel, Operator: "In", Values: models}}}
	}
	return placement.Gang{ID: fmt.Sprintf("openb/%d", i), Roles: []placement.Role{role}}
}
