package placement

import (
	"cmp"
	"maps"
	"slices"
)

// Workload is the distribution of the requests that arrive: how many members have asked
// for what. It is a plain value; [View.SetWorkload] makes placements follow it.
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
