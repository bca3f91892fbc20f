package preemption

import (
	"maps"
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// PlanSlowly is [Plan] for a gang that holds no place and was planned nowhere, with a
// whole placement for every set of victims that is looked at: what the dry run is measured by.
func PlanSlowly(v *snapshot.View, g placement.Gang) placement.Result {
	p := packing.NewPacker(v.Seen(&g, nil), g)
	if result, done := p.Place(); done {
		if r, ok := preemptForGrowthSlowly(v, p, result); ok {
			return r.Result()
		}
		return planner.Grown(v, p, result)
	}
	if p.Invalid() == nil {
		if r, ok := preemptSlowly(v, p); ok {
			return r.Result()
		}
	}
	return planner.Unschedulable(v, p)
}

// ReserveSlowly is [backfill.Reserve] in the same way.
func ReserveSlowly(v *snapshot.View, g placement.Gang) (r placement.Reservation, ok bool) {
	p := packing.NewPacker(v.Seen(&g, nil), g)
	if p.Invalid() != nil {
		return placement.Reservation{}, false
	}
	leaving, running := RunningGangs(v, g.ID, func(pod *placement.Pod) bool { return !g.DependsOn(pod) })
	if Loses(leaving, g.ID) {
		return placement.Reservation{}, false
	}
	if !fitsWithout(v, g, slices.Concat(leaving, running)) {
		return placement.Reservation{}, false
	}
	SortEnds(v, running, p)
	after, ok := fewestSlowly(v, g, slices.Concat(leaving, running))
	if !ok {
		return placement.Reservation{}, false
	}
	r = placement.Reservation{Gang: g, Placement: *placeWithout(v, g, after), QuotaOnly: p.Allowed() < p.Needed}
	for _, ended := range after {
		r.After = append(r.After, ended.Victim)
	}
	return r, true
}

func preemptForGrowthSlowly(v *snapshot.View, p *packing.Packer, now placement.Result) (r placement.Reservation, ok bool) {
	if p.Needed > 0 || p.Total == 0 || len(now.Placement.Assignments) > 0 {
		return placement.Reservation{}, false
	}
	leaving, _ := RunningGangs(v, p.Gang.ID, func(*placement.Pod) bool { return false })
	tree := v.Seen(&p.Gang, PodsOf(leaving)).LastQuota()
	if tree == nil {
		return placement.Reservation{}, false
	}
	entitled := sort.Search(p.Total, func(n int) bool { return !tree.Entitled(p.Gang.Leaf, p.Charge(n+1)) })
	sort.Search(entitled, func(n int) bool {
		g := p.Gang
		g.More = n + 1
		preemption, found := preemptSlowly(v, packing.NewPacker(v.Seen(&g, nil), g))
		if found {
			r, ok = preemption, true
		}
		return !found
	})
	return r, ok
}

func preemptSlowly(v *snapshot.View, p *packing.Packer) (placement.Reservation, bool) {
	leaving, _ := RunningGangs(v, p.Gang.ID, func(*placement.Pod) bool { return false })
	if Loses(leaving, p.Gang.ID) {
		return placement.Reservation{}, false
	}
	tree := v.Seen(&p.Gang, PodsOf(leaving)).LastQuota()
	leaving, victims := RunningGangs(v, p.Gang.ID, mayPreempt(&p.Gang, tree, p.Charge(p.Needed)))
	rules := newRules(v, p, tree)
	victims = rules.alone(splitSurplus(v, victims))
	if !fitsWithout(v, p.Gang, slices.Concat(leaving, victims)) {
		return placement.Reservation{}, false
	}
	sortVictims(v, victims, p, tree)
	fewest := func(victims []*RunningGang) ([]*RunningGang, bool) {
		return fewestSlowly(v, p.Gang, slices.Concat(leaving, victims))
	}
	after, ok := fewest(rules.together(victims))
	if !ok {
		place := func(stay []*RunningGang) *placement.Placement {
			_, gone := divide(victims, stay)
			return placeWithout(v, p.Gang, slices.Concat(leaving, gone))
		}
		after, ok = rules.search(victims, place, fewest)
	}
	if !ok {
		return placement.Reservation{}, false
	}
	placed, ok := packing.NewPacker(v.Seen(&p.Gang, PodsOf(after)), p.Gang).Place()
	if !ok {
		return placement.Reservation{}, false
	}
	r := placement.Reservation{Gang: p.Gang, Placement: *placed.Placement, Evicts: true}
	r.Gang.More = 0
	for _, gone := range after {
		r.After = append(r.After, gone.Victim)
	}
	return r, true
}

func fitsWithout(v *snapshot.View, g placement.Gang, gone []*RunningGang) bool {
	return len(gone) > 0 && placeWithout(v, g, gone) != nil
}

func placeWithout(v *snapshot.View, g placement.Gang, gone []*RunningGang) *placement.Placement {
	p := packing.NewPacker(v.Seen(&g, PodsOf(gone)), g)
	p.Elastic = false
	result, _ := p.Place()
	return result.Placement
}

func fewestSlowly(v *snapshot.View, g placement.Gang, candidates []*RunningGang) ([]*RunningGang, bool) {
	if !fitsWithout(v, g, candidates) {
		return nil, false
	}
	n := sort.Search(len(candidates), func(n int) bool { return fitsWithout(v, g, candidates[:n]) })
	chosen := slices.Clone(candidates[:n])
	for i := len(chosen) - 2; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(chosen), i, i+1); fitsWithout(v, g, without) {
			chosen = without
		}
	}
	return joined(chosen, candidates), true
}

// EachUsage evicts gangs in a dry run, restores some, and calls check after each step with what
// the quota tree has now, with each reservation in its place and with all: made at once from
// who has gone, and as the dry run keeps it.
func EachUsage(v *snapshot.View, g placement.Gang, steps int, pick func(n int) int, check func(want, got *quota.Tree)) {
	d := newDryRun(v, g)
	leaving, running := RunningGangs(v, g.ID, func(*placement.Pod) bool { return true })
	victims := slices.Concat(leaving, running)
	kept, lifted := v.ReservationsFor(&g)
	evicted := map[*RunningGang]bool{}
	if len(victims) == 0 {
		return
	}
	for range steps {
		r := victims[pick(len(victims))]
		if evicted[r] {
			delete(evicted, r)
			d.restore(r)
		} else {
			evicted[r] = true
			d.evict(r)
		}
		whole := v.SeenAfter(PodsOf(slices.Collect(maps.Keys(evicted))), kept, lifted)
		check(whole.Quota, d.Quota)
		for i, later := range whole.Later {
			check(whole.Quota.With(later), d.Quota.With(d.Later[i]))
		}
	}
}
