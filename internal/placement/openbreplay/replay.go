package main

import (
	"fmt"
	"math"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// wholeGPU is a GPU's size in the trace. The planner counts GPU memory in GiB: a
// thousandth of a GPU stands for one.
const wholeGPU = 1000

// modelLabel says which model a node's GPUs are.
const modelLabel = "model"

// replay is one trace on one cluster.
type replay struct {
	machines []machine
	pods     []pod
	demand   float64
	tightest bool
}

// curve is the course of one seed; index i is at i percent of arrived demand.
type curve struct {
	allocated, fragmented []float64
	// most is the most that any scheduler can have allocated, at 100 and at all percent of demand.
	most []float64
	took time.Duration
}

// report is the mean over seeds.
type report struct {
	Trace string `json:"trace"`
	Seeds int    `json:"seeds"`
	// AllocatedPercent is the allocated part of all GPUs, FragmentedPercent the part
	// of the idle GPUs that is fragmented; index i is at i percent of arrived demand.
	AllocatedPercent  []float64 `json:"allocatedPercent"`
	FragmentedPercent []float64 `json:"fragmentedPercent"`
	// MostPercent bounds the allocated part for any scheduler, at 100 and at all percent of demand.
	MostPercent []float64 `json:"mostPercent"`
	// Seconds is the time of all seeds on one core.
	Seconds float64 `json:"seconds"`
}

// seeds replays the trace once per seed, as many at a time as there are cores.
func (r *replay) seeds(first, last int64) ([]curve, error) {
	tables, err := r.tables()
	if err != nil {
		return nil, err
	}
	curves := make([]curve, last-first+1)
	var wait sync.WaitGroup
	order := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range curves {
		order <- struct{}{}
		wait.Go(func() {
			curves[i] = r.seed(first+int64(i), tables)
			<-order
		})
	}
	wait.Wait()
	return curves, nil
}

// tables makes one machine model per number of GPUs.
func (r *replay) tables() (map[int]*gpu.Table, error) {
	tables := map[int]*gpu.Table{0: nil}
	for _, m := range r.machines {
		if _, ok := tables[m.gpus]; ok {
			continue
		}
		model := gpu.Machine{Name: fmt.Sprintf("%d GPUs", m.gpus)}
		for i := range m.gpus {
			model.GPUs = append(model.GPUs, gpu.GPU{Index: i, MemoryMiB: wholeGPU * 1024, NUMANode: -1})
			links := make([]gpu.Link, m.gpus)
			for j := range links {
				links[j].Class = gpu.SYS
			}
			links[i].Class = gpu.Self
			model.Links = append(model.Links, links)
		}
		table, err := gpu.NewTable(model)
		if err != nil {
			return nil, fmt.Errorf("model a machine of %d GPUs: %w", m.gpus, err)
		}
		tables[m.gpus] = table
	}
	return tables, nil
}

func (r *replay) seed(seed int64, tables map[int]*gpu.Table) curve {
	start := time.Now()
	view := snapshot.NewView()
	var capacity int64
	for _, m := range r.machines {
		capacity += int64(m.gpus) * wholeGPU
		view.SetNode(placement.Node{
			Name: m.name, Labels: map[string]string{modelLabel: m.model}, Mode: placement.ModeShare, GPUs: tables[m.gpus],
			Allocatable: placement.Resources{MilliCPU: m.milliCPU, MemoryBytes: m.memoryMB << 20, Pods: math.MaxInt32},
		})
	}
	workload, weighed, arrivals := placement.Workload{}, int64(0), int64(0)
	state := newUsage(r.machines, r.pods)
	var c curve
	var arrived, allocated int64
	record := func() {
		for percent := int(arrived * 100 / capacity); len(c.allocated) <= percent; {
			c.allocated = append(c.allocated, 100*float64(allocated)/float64(capacity))
			c.fragmented = append(c.fragmented, state.fragmentedPercent())
		}
	}
	record()
	list := r.arrivals(seed, capacity)
	for i, p := range list {
		g := p.gang(i)
		workload.Count(g)
		if arrivals++; !r.tightest && placement.Outgrown(weighed, arrivals-weighed) {
			view.SetWorkload(workload)
			weighed = arrivals
		}
		if placed := planner.Place(view, g); placed != nil {
			view.Apply(g, *placed)
			state.place(p, placed.Assignments[0])
			allocated += p.gpuMilli()
		}
		arrived += p.gpuMilli()
		record()
	}
	c.took = time.Since(start)
	whole, _ := upTo(list, capacity)
	for _, part := range [][]pod{whole, list} {
		c.most = append(c.most, 100*float64(bound(r.machines, part))/float64(capacity))
	}
	return c
}

// upTo is the start of a list that asks for so much, and what it asks for: less where the list does.
func upTo(list []pod, milli int64) (start []pod, asked int64) {
	for i, p := range list {
		if asked >= milli {
			return list[:i], asked
		}
		asked += p.gpuMilli()
	}
	return list, asked
}

// arrivals shuffles the pods and appends pods drawn at random until they ask for the demand.
func (r *replay) arrivals(seed, capacity int64) []pod {
	random := rand.New(rand.NewSource(seed))
	list := slices.Clone(r.pods)
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	target := int64(r.demand * float64(capacity))
	list, asked := upTo(list, target)
	for asked < target {
		p := r.pods[random.Intn(len(r.pods))]
		list = append(list, p)
		asked += p.gpuMilli()
	}
	return list
}

// gang is the pod as the planner sees it: a gang of one.
func (p pod) gang(i int) placement.Gang {
	request := placement.Request{Resources: placement.Resources{MilliCPU: p.milliCPU, MemoryBytes: p.memoryMB << 20}}
	if p.wholeGPUs > 0 {
		request.Mode, request.GPUs, request.MemoryGiB = placement.ModeShare, p.wholeGPUs, p.gpuMilli()
	}
	role := placement.Role{Name: "pod", Members: []string{"pod-0"}, Request: request}
	if p.models != "" {
		role.Affinity = [][]placement.Requirement{{{Key: modelLabel, Operator: "In", Values: strings.Split(p.models, "|")}}}
	}
	return placement.Gang{ID: fmt.Sprintf("openb/%d", i), Roles: []placement.Role{role}}
}

// summarise takes the means of the curves.
func summarise(trace string, curves []curve) report {
	r := report{Trace: trace, Seeds: len(curves)}
	shortest := math.MaxInt
	for _, c := range curves {
		shortest = min(shortest, len(c.allocated))
		r.Seconds += c.took.Seconds()
	}
	r.MostPercent = make([]float64, 2)
	for _, c := range curves {
		for i, most := range c.most {
			r.MostPercent[i] += most / float64(len(curves))
		}
	}
	for i := range shortest {
		var allocated, fragmented float64
		for _, c := range curves {
			allocated += c.allocated[i]
			fragmented += c.fragmented[i]
		}
		r.AllocatedPercent = append(r.AllocatedPercent, allocated/float64(len(curves)))
		r.FragmentedPercent = append(r.FragmentedPercent, fragmented/float64(len(curves)))
	}
	return r
}
