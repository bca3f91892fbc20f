package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// cluster is a view of a number of nodes, and what a gang looks like that is placed there.
type cluster struct {
	view           *snapshot.View
	request        placement.Request
	requiredDomain string
}

// workloads make clusters of n nodes.
var workloads = map[string]func(n int) cluster{"racks": racks, "gpus": gpus}

// racks has the shape of Kubernetes' own benchmark of topology-aware gangs
// (scheduler_perf, podgroup/tas): 50 racks, of which the gang must be in one.
func racks(n int) cluster {
	c := cluster{
		view:           snapshot.NewView(),
		request:        placement.Request{Resources: placement.Resources{MilliCPU: 100, MemoryBytes: 100 << 20}},
		requiredDomain: "rack",
	}
	for i := range n {
		c.view.SetNode(placement.Node{
			Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"rack": fmt.Sprintf("r%d", i*50/n)},
			Allocatable: placement.Resources{MilliCPU: 4_000, MemoryBytes: 32 << 30, Pods: 110},
		})
	}
	return c
}

// gpus has nodes of eight GPUs on an NVSwitch, of which every combination is in
// use on some node, so that nodes are in 256 different states.
func gpus(n int) cluster {
	c := cluster{
		view:    snapshot.NewView(),
		request: placement.Request{Mode: placement.ModeTopology, GPUs: 1, Resources: placement.Resources{MilliCPU: 4_000}},
	}
	table := switched()
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		c.view.SetNode(placement.Node{
			Name: name, Mode: placement.ModeTopology, GPUs: table,
			Allocatable: placement.Resources{MilliCPU: 96_000, MemoryBytes: 1 << 40, Pods: 110},
		})
		if used := gpu.Set(i) & gpu.Full(8); used != 0 {
			c.view.AddPod(placement.Pod{
				ID: "before/" + name, Node: name, Own: used,
				Request: placement.Request{Mode: placement.ModeTopology, GPUs: used.Len(), Resources: placement.Resources{MilliCPU: 4_000}},
			})
		}
	}
	return c
}

// switched is the table of eight GPUs with 18 links each to a switch.
func switched() *gpu.Table {
	m := gpu.Machine{Name: "switched", NVSwitch: true, NVLinkGBps: gpu.NVLinkGBps(4), PCIeGeneration: 5}
	for i := range 8 {
		m.GPUs = append(m.GPUs, gpu.GPU{Index: i, NUMANode: i / 4})
		links := make([]gpu.Link, 8)
		for j := range links {
			links[j] = gpu.Link{Class: gpu.NVLink, Lanes: 18}
		}
		links[i] = gpu.Link{Class: gpu.Self}
		m.Links = append(m.Links, links)
	}
	table, err := gpu.NewTable(m)
	if err != nil {
		panic(err) // the machine above is valid
	}
	return table
}

func (c cluster) gang(members int) placement.Gang {
	role := placement.Role{Name: "worker", Request: c.request}
	for i := range members {
		role.Members = append(role.Members, fmt.Sprintf("worker-%d", i))
	}
	return placement.Gang{ID: "scale/gang", Roles: []placement.Role{role}, RequiredDomain: c.requiredDomain}
}

// measure returns the median time of a placement; ok is false when the gang does
// not fit.
func (c cluster) measure(members int, atLeast time.Duration) (p point, ok bool) {
	gang := c.gang(members)
	if planner.Place(c.view, gang) == nil {
		return point{}, false
	}
	var times []time.Duration
	for begin := time.Now(); len(times) < 3 || time.Since(begin) < atLeast; {
		start := time.Now()
		planner.Plan(c.view, gang)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	median := times[len(times)/2]
	return point{Milliseconds: float64(median.Nanoseconds()) / 1e6, Placements: len(times)}, true
}
