package placement

import (
	"maps"
	"slices"
)

// Workload is the distribution of the requests that arrive: how many members have asked
// for what. It is a plain value; [snapshot.View.SetWorkload] makes placements follow it.
type Workload map[Demand]int64

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

// Outgrown reports whether so many members more have arrived that a distribution of the
// members counted is out of date: a quarter of them.
func Outgrown(counted, more int64) bool { return more > counted/4 }

// Demands returns what was asked for, in the order of [Demand.Compare].
func (w Workload) Demands() []Demand { return slices.SortedFunc(maps.Keys(w), Demand.Compare) }
