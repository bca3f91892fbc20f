package placement

import (
	"cmp"
	"maps"
	"slices"
)

// Workload is the distribution of the requests that arrive: how many members have asked
// for what. It is a plain value; [View.SetWorkload] makes placements follow it.
type Workload map[Demand]int64

// Demand is what fragmentation looks at in the request of a member.
type Demand struct {
	// Mode is [ModeCoreMem] for shared requests with cores, [ModeShare] for all others of
	// them: a node of any shared mode may serve these. It is [ModeNone] for members
	// without GPUs.
	Mode Mode
	// GPUs are the GPUs that the member is on, with the whole or a part of each.
	GPUs int
	// MemoryGiB and CorePercent are what a shared request takes of each of its GPUs, 100
	// percent being all cores of one.
	MemoryGiB, CorePercent int64
	MilliCPU               int64
}

// Demand returns what fragmentation looks at in the request.
func (r *Request) Demand() Demand {
	d := Demand{Mode: r.Mode, MilliCPU: r.MilliCPU}
	switch {
	case r.Mode.whole():
		d.GPUs = r.GPUs
	case r.Mode.shared():
		share := r.perGPU()
		d.Mode, d.GPUs, d.MemoryGiB, d.CorePercent = ModeShare, r.spread(), share.memoryGiB, share.corePercent
		if r.CorePercent > 0 {
			d.Mode = ModeCoreMem
		}
	}
	return d
}

func (d *Demand) share() gpuCapacity {
	return gpuCapacity{memoryGiB: d.MemoryGiB, corePercent: d.CorePercent}
}

// Valid reports whether the demand is one for GPUs that a node can serve.
func (d Demand) Valid() bool {
	if d.GPUs < 1 || d.MilliCPU < 0 {
		return false
	}
	switch {
	case d.Mode.whole():
		return d.MemoryGiB == 0 && d.CorePercent == 0
	case d.Mode == ModeShare:
		return d.MemoryGiB > 0 && d.CorePercent == 0
	case d.Mode == ModeCoreMem:
		return d.MemoryGiB > 0 && d.CorePercent > 0 && d.CorePercent <= fullCore
	}
	return false
}

// Compare orders demands: those that differ in CPU only stand together.
func (d Demand) Compare(o Demand) int {
	return cmp.Or(cmp.Compare(d.Mode, o.Mode), cmp.Compare(d.GPUs, o.GPUs),
		d.share().compare(o.share()), cmp.Compare(d.MilliCPU, o.MilliCPU))
}

// Count counts the members of a gang.
func (w Workload) Count(g Gang) {
	for i := range g.Roles {
		w[g.Roles[i].Request.Demand()] += int64(len(g.Roles[i].Members))
	}
}

// Members is how many members were counted.
func (w Workload) Members() (n int64) {
	for _, members := range w {
		n += members
	}
	return n
}

// Outgrown reports whether so many members more have arrived that a distribution of the
// members counted is out of date: a quarter of them.
func Outgrown(counted, more int64) bool { return more > counted/4 }

// Demands returns what was asked for, in the order of [Demand.Compare].
func (w Workload) Demands() []Demand { return slices.SortedFunc(maps.Keys(w), Demand.Compare) }
