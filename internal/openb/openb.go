// Package openb is Alibaba's openb trace (cluster-trace-gpu-v2023) as it is replayed: its
// machines and pods, the order in which pods arrive, and how much of the GPUs they get.
//
// The protocol is that of "Beware of Fragmentation" (USENIX ATC'23): the machines start
// empty; the pods are shuffled, and re-sampled until they ask for so many times the GPUs of
// the cluster; they arrive one by one and never leave; a pod that does not fit is dropped.
package openb

import (
	"math/rand"
	"path/filepath"
	"slices"
	"strings"
)

// WholeGPU is a GPU's size in the trace.
const WholeGPU = 1000

// Machine is a line of a node list.
type Machine struct {
	Name                string
	MilliCPU, MemoryMiB int64
	GPUs                int
	Model               string
}

// Pod is a line of a pod list.
type Pod struct {
	MilliCPU, MemoryMiB int64
	GPUs                int
	// ShareMilli is what the pod takes of each of its GPUs, in thousandths.
	ShareMilli int64
	// Models are the GPU models on which the pod may run, joined by "|"; "" for any.
	Models string
}

// RunsOn reports whether the pod may run on a GPU model.
func (p Pod) RunsOn(model string) bool {
	return p.Models == "" || slices.Contains(p.ModelList(), model)
}

// ModelList are the models on which the pod may run, nil for any.
func (p Pod) ModelList() []string {
	if p.Models == "" {
		return nil
	}
	return strings.Split(p.Models, "|")
}

// GPUMilli is what the pod asks for, in thousandths of GPUs.
func (p Pod) GPUMilli() int64 { return int64(p.GPUs) * p.ShareMilli }

// Trace is a pod list on a node list.
type Trace struct {
	// Name is that of the pod list: "default" of openb_pod_list_default.csv.gz.
	Name     string
	Machines []Machine
	Pods     []Pod
	// Demand is how many times the GPUs of the machines the arriving pods ask for.
	Demand float64
}

// nameOf is the name of a pod list by its file.
func nameOf(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	return strings.TrimPrefix(name, "openb_pod_list_")
}

// Capacity is the size of all GPUs, in thousandths.
func (t *Trace) Capacity() (milli int64) {
	for _, m := range t.Machines {
		milli += int64(m.GPUs) * WholeGPU
	}
	return milli
}

// Every keeps every n-th machine: fewer pods arrive then.
func (t *Trace) Every(n int) {
	var kept []Machine
	for i := 0; i < len(t.Machines); i += n {
		kept = append(kept, t.Machines[i])
	}
	t.Machines = kept
}

// Arrivals shuffles the pods and appends pods drawn at random until they ask for the demand.
func (t *Trace) Arrivals(seed int64) []Pod {
	random := rand.New(rand.NewSource(seed))
	list := slices.Clone(t.Pods)
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	target := int64(t.Demand * float64(t.Capacity()))
	list, asked := upTo(list, target)
	for asked < target {
		p := t.Pods[random.Intn(len(t.Pods))]
		list = append(list, p)
		asked += p.GPUMilli()
	}
	return list
}

// UpTo is the start of a list that asks for so much: all of it where it asks for less.
func UpTo(list []Pod, milli int64) []Pod {
	start, _ := upTo(list, milli)
	return start
}

// upTo is UpTo with what the start asks for.
func upTo(list []Pod, milli int64) (start []Pod, asked int64) {
	for i, p := range list {
		if asked >= milli {
			return list[:i], asked
		}
		asked += p.GPUMilli()
	}
	return list, asked
}

// Meter measures how much of the GPUs the pods get that have arrived.
type Meter struct{ capacity, arrived, allocated int64 }

// Meter returns one that no pod has arrived at.
func (t *Trace) Meter() *Meter { return &Meter{capacity: t.Capacity()} }

// Arrive takes in the next pod, and whether it got a place.
func (m *Meter) Arrive(p Pod, placed bool) {
	m.arrived += p.GPUMilli()
	if placed {
		m.allocated += p.GPUMilli()
	}
}

// Demand is what has arrived, in whole percent of all GPUs.
func (m *Meter) Demand() int { return int(m.arrived * 100 / m.capacity) }

// Allocated is what the pods have, in percent of all GPUs.
func (m *Meter) Allocated() float64 { return 100 * float64(m.allocated) / float64(m.capacity) }
