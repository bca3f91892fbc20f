package placement

import (
	"maps"
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// ReclaimSlowly is [View.Reclaim] for a gang that holds no place and was planned nowhere, with a
// whole placement for every set of victims that is looked at: what the dry run is measured by.
func (v *View) ReclaimSlowly(g Gang) Result {
	p := newPlanner(v.seen(&g, nil), g)
	if result, done := p.place(); done {
		if r, ok := v.preemptForGrowthSlowly(p, result); ok {
			return r.result()
		}
		return v.grown(p, result)
	}
	if p.invalid() == nil {
		if r, ok := v.preemptSlowly(p); ok {
			return r.result()
		}
	}
	return v.unschedulable(p)
}

// ReserveSlowly is [View.Reserve] in the same way.
func (v *View) ReserveSlowly(g Gang) (r Reservation, ok bool) {
	p := newPlanner(v.seen(&g, nil), g)
	if p.invalid() != nil {
		return Reservation{}, false
	}
	leaving, running := v.runningGangs(g.ID, func(*Pod) bool { return true })
	if loses(leaving, g.ID) {
		return Reservation{}, false
	}
	if !v.fitsWithout(g, slices.Concat(leaving, running)) {
		return Reservation{}, false
	}
	v.sortEnds(running, p)
	after, ok := v.fewestSlowly(g, slices.Concat(leaving, running))
	if !ok {
		return Reservation{}, false
	}
	r = Reservation{Gang: g, Placement: *v.placeWithout(g, after), QuotaOnly: p.allowed() < p.needed}
	for _, ended := range after {
		r.After = append(r.After, ended.Victim)
	}
	return r, true
}

func (v *View) preemptForGrowthSlowly(p *planner, now Result) (r Reservation, ok bool) {
	if p.needed > 0 || p.total == 0 || len(now.Placement.Assignments) > 0 {
		return Reservation{}, false
	}
	leaving, _ := v.runningGangs(p.gang.ID, func(*Pod) bool { return false })
	tree := v.seen(&p.gang, podsOf(leaving)).last()
	if tree == nil {
		return Reservation{}, false
	}
	entitled := sort.Search(p.total, func(n int) bool { return !tree.Entitled(p.gang.Leaf, p.charge(n+1)) })
	sort.Search(entitled, func(n int) bool {
		g := p.gang
		g.more = n + 1
		preemption, found := v.preemptSlowly(newPlanner(v.seen(&g, nil), g))
		if found {
			r, ok = preemption, true
		}
		return !found
	})
	return r, ok
}

func (v *View) preemptSlowly(p *planner) (Reservation, bool) {
	leaving, _ := v.runningGangs(p.gang.ID, func(*Pod) bool { return false })
	if loses(leaving, p.gang.ID) {
		return Reservation{}, false
	}
	tree := v.seen(&p.gang, podsOf(leaving)).last()
	leaving, victims := v.runningGangs(p.gang.ID, p.gang.mayPreempt(tree, p.charge(p.needed)))
	if !v.fitsWithout(p.gang, slices.Concat(leaving, victims)) {
		return Reservation{}, false
	}
	victims = v.splitSurplus(victims)
	v.sortVictims(victims, p, tree)
	allowed := func(victims []*runningGang) []*runningGang {
		if tree != nil && tree.Entitled(p.gang.Leaf, p.charge(p.needed)) {
			victims = p.borrowers(tree.Clone(), victims)
		}
		return slices.Concat(leaving, entire(v.withinBudgets(victims)))
	}
	after, ok := v.fewestSlowly(p.gang, allowed(victims))
	if !ok {
		after, ok = v.fewestByNodesSlowly(p.gang, leaving, victims, allowed)
	}
	if !ok {
		return Reservation{}, false
	}
	placed, ok := newPlanner(v.seen(&p.gang, podsOf(after)), p.gang).place()
	if !ok {
		return Reservation{}, false
	}
	r := Reservation{Gang: p.gang, Placement: *placed.Placement, Evicts: true}
	r.Gang.more = 0
	for _, gone := range after {
		r.After = append(r.After, gone.Victim)
	}
	return r, true
}

func (v *View) fewestByNodesSlowly(g Gang, leaving, victims []*runningGang, allowed func([]*runningGang) []*runningGang) ([]*runningGang, bool) {
	elsewhere := g
	elsewhere.ExcludeNodes = map[string]bool{}
	maps.Copy(elsewhere.ExcludeNodes, g.ExcludeNodes)
	for range victimsFor {
		place := v.placeWithout(elsewhere, slices.Concat(leaving, victims))
		if place == nil {
			break
		}
		nodes := map[string]bool{}
		for _, a := range place.Assignments {
			nodes[a.Node] = true
		}
		if after, ok := v.fewestSlowly(g, allowed(near(victims, nodes))); ok {
			return after, true
		}
		maps.Copy(elsewhere.ExcludeNodes, nodes)
	}
	return nil, false
}

func (v *View) fitsWithout(g Gang, gone []*runningGang) bool {
	return len(gone) > 0 && v.placeWithout(g, gone) != nil
}

func (v *View) placeWithout(g Gang, gone []*runningGang) *Placement {
	p := newPlanner(v.seen(&g, podsOf(gone)), g)
	p.elastic = false
	result, _ := p.place()
	return result.Placement
}

func (v *View) fewestSlowly(g Gang, candidates []*runningGang) ([]*runningGang, bool) {
	if !v.fitsWithout(g, candidates) {
		return nil, false
	}
	n := sort.Search(len(candidates), func(n int) bool { return v.fitsWithout(g, candidates[:n]) })
	chosen := slices.Clone(candidates[:n])
	for i := len(chosen) - 2; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(chosen), i, i+1); v.fitsWithout(g, without) {
			chosen = without
		}
	}
	return joined(chosen, candidates), true
}

// EachUsage evicts gangs in a dry run, restores some, and calls check after each step with what
// the quota tree has now, with each reservation in its place and with all: made at once from
// who has gone, and as the dry run keeps it.
func (v *View) EachUsage(g Gang, steps int, pick func(n int) int, check func(want, got *quota.Tree)) {
	d := v.newDryRun(g)
	leaving, running := v.runningGangs(g.ID, func(*Pod) bool { return true })
	victims := slices.Concat(leaving, running)
	kept, lifted := v.reservationsFor(&g)
	evicted := map[*runningGang]bool{}
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
		whole := v.after(podsOf(slices.Collect(maps.Keys(evicted))), kept, lifted)
		check(whole.quota, d.quota)
		for i, later := range whole.later {
			check(whole.quota.With(later), d.quota.With(d.later[i]))
		}
	}
}
