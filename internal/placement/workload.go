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
	// them: a node of any shared mode may serve these.
	Mode Mode
	// GPUs are the GPUs that the member is on, with the whole or a part of each.
	GPUs int
	// MemoryGiB and CorePercent are what a shared request takes of each of its GPUs, 100
	// percent being all cores of one.
	MemoryGiB, CorePercent int64
	MilliCPU, MemoryMiB    int64
	// Nodes says on which nodes the members may run, "" for any: alternatives separated by ";",
	// each of requirements separated by ",", as in "model In A10|T4,zone In a".
	Nodes string
}

// Demand returns what fragmentation looks at in a member of the role.
func (r *Role) Demand() Demand {
	d := r.Request.demand()
	d.Nodes = r.eligible()
	return d
}

func (r *Request) demand() Demand {
	d := Demand{Mode: r.Mode, MilliCPU: r.MilliCPU, MemoryMiB: r.MemoryBytes >> 20}
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
	if d.GPUs < 1 || d.MilliCPU < 0 || d.MemoryMiB < 0 {
		return false
	}
	if _, ok := eligibleNodes(d.Nodes); d.Nodes != "" && !ok {
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

// Compare orders demands: those that differ in CPU and memory only stand together.
func (d Demand) Compare(o Demand) int {
	return cmp.Or(cmp.Compare(d.Mode, o.Mode), cmp.Compare(d.GPUs, o.GPUs),
		d.share().compare(o.share()), cmp.Compare(d.Nodes, o.Nodes), cmp.Compare(d.MilliCPU, o.MilliCPU), cmp.Compare(d.MemoryMiB, o.MemoryMiB))
}

// Count counts the members of a gang that ask for GPUs.
func (w Workload) Count(g Gang) {
	for i := range g.Roles {
		if d := g.Roles[i].Demand(); d.Valid() {
			w[d] += int64(len(g.Roles[i].Members))
		}
	}
}

// Members is how many members were counted.
func (w Workload) Members() (n int64) {
	for _, members := range w {
		n += members
	}
	return n
}

// usualPercent is the part of all members whose demands [Workload.usual] keeps in any case.
const usualPercent = 95

// usual is the workload without its rarest demands for one GPU or a part of one: what is asked for
// once in a while and fits nearly everywhere is no reason to keep room (Weng et al. score by the
// demands of 95 % of the members, too).
func (w Workload) usual() Workload {
	demands := slices.DeleteFunc(w.Demands(), func(d Demand) bool { return !d.Valid() })
	slices.SortStableFunc(demands, func(a, b Demand) int { return cmp.Compare(w[b], w[a]) })
	var all, members int64
	for _, d := range demands {
		all += w[d]
	}
	usual := Workload{}
	for _, d := range demands {
		if d.GPUs > 1 || members*100 < all*usualPercent {
			usual[d] = w[d]
			members += w[d]
		}
	}
	return usual
}

// Outgrown reports whether so many members more have arrived that a distribution of the
// members counted is out of date: a quarter of them.
func Outgrown(counted, more int64) bool { return more > counted/4 }

// Demands returns what was asked for, in the order of [Demand.Compare].
func (w Workload) Demands() []Demand { return slices.SortedFunc(maps.Keys(w), Demand.Compare) }
