package placement

import (
	"reflect"
	"slices"
	"sort"
)

// elastic is a gang that runs without some of its members, too.
type elastic struct {
	minimum int
	// members are the IDs of all its pods that are members, in the gang's order.
	members []string
	parts   []Part
}

// Part is what a subgroup of an elastic gang needs: so many of its members, by the IDs of their
// pods.
type Part struct {
	Minimum int
	Pods    []string
}

// SetMinimum notes that a gang needs only so many of its members; pods are the IDs of all of
// them, in the gang's order. When others take its places, the members beyond the minimum, the
// last of those that run, go before it goes as a whole, but none that one of its parts needs.
// A gang for which this is not told needs all of its pods, as does one with a minimum of 0.
func (v *View) SetMinimum(gang string, minimum int, pods []string, parts ...Part) {
	before, known := v.elastic[gang]
	if minimum == 0 {
		if known {
			v.changed()
			delete(v.elastic, gang)
		}
		return
	}
	after := elastic{minimum: minimum, members: pods, parts: parts}
	if known && reflect.DeepEqual(before, after) {
		return
	}
	v.changed()
	if v.elastic == nil {
		v.elastic = map[string]elastic{}
	}
	v.elastic[gang] = after
}

// runsOn reports whether an elastic gang has the members that it needs without those that go.
func (v *View) runsOn(gang string, goes func(*Pod) bool) bool {
	e, ok := v.elastic[gang]
	stay := func(pods []string) (n int) {
		for _, id := range pods {
			if pod := v.pods[id]; pod != nil && !goes(pod) {
				n++
			}
		}
		return n
	}
	short := func(part Part) bool { return stay(part.Pods) < part.Minimum }
	return ok && stay(e.members) >= e.minimum && !slices.ContainsFunc(e.parts, short)
}

// surplus returns the pods of a running gang that it does not need.
func (v *View) surplus(r *runningGang) []*Pod {
	e, ok := v.elastic[r.Gang]
	if !ok {
		return nil
	}
	running := func(pods []string) (list []string) {
		for _, id := range pods {
			if _, runs := slices.BinarySearch(r.Pods, id); runs {
				list = append(list, id)
			}
		}
		return list
	}
	needed := map[string]bool{}
	for _, part := range e.parts {
		pods := running(part.Pods)
		for _, id := range pods[:min(part.Minimum, len(pods))] {
			needed[id] = true
		}
	}
	members := running(e.members)
	for _, id := range members {
		if len(needed) >= e.minimum {
			break
		}
		needed[id] = true
	}
	var surplus []*Pod
	for _, id := range members {
		if !needed[id] {
			surplus = append(surplus, v.pods[id])
		}
	}
	return surplus
}

// splitSurplus makes a victim of its own of each member that a gang does not need; what the gang
// needs goes only with all of these.
func (v *View) splitSurplus(gangs []*runningGang) []*runningGang {
	var list []*runningGang
	for _, r := range gangs {
		surplus := v.surplus(r)
		if len(surplus) == 0 {
			list = append(list, r)
			continue
		}
		rest := r.part()
		rest.surplus = len(surplus)
		for i, pod := range surplus {
			victim := r.part()
			victim.Surplus, victim.rank = true, i
			victim.add(pod)
			list = append(list, victim)
		}
		for _, pod := range r.pods {
			if !slices.Contains(surplus, pod) {
				rest.add(pod)
			}
		}
		list = append(list, rest)
	}
	return list
}

// preemptForGrowth is claim for members beyond the minimum of a gang that runs and has no place for
// any of them: for as many as stay within the minimum of its leaf and find places.
func (v *View) preemptForGrowth(p *planner, now Result) (r Reservation, ok bool) {
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
		preemption, found := v.preempt(newPlanner(v.seen(&g, nil), g))
		if found {
			r, ok = preemption, true
		}
		return !found
	})
	return r, ok
}

// Growth returns the places that a gang takes from others later for members beyond its minimum,
// once it has what Reclaim found for it; a result without a placement when it takes none.
func (v *View) Growth(g Gang, found Result) Result {
	members := 0
	for _, role := range g.Roles {
		members += len(role.Members)
	}
	if found.Placement == nil || v.quota == nil || len(g.Running)+len(found.Placement.Assignments) >= members {
		return Result{}
	}
	later := v.Clone()
	if r := found.Reservation; r != nil {
		for _, gone := range r.After {
			for _, id := range gone.Pods {
				later.RemovePod(id)
			}
		}
	}
	later.Apply(g, *found.Placement)
	g.Running = slices.Concat(g.Running, found.Placement.Assignments)
	if more := later.Reclaim(g); len(more.Victims) > 0 {
		return more
	}
	return Result{}
}

// part is a part of the gang, without pods.
func (r *runningGang) part() *runningGang {
	return &runningGang{
		Victim:      Victim{Gang: r.Gang, Leaf: r.Leaf, Priority: r.Priority},
		preemptible: true, endsAt: r.endsAt, terminating: r.terminating,
	}
}

// entire drops what gangs need when not all that they do not need is in the list.
func entire(list []*runningGang) []*runningGang {
	surplus := map[string]int{}
	for _, r := range list {
		if r.Surplus {
			surplus[r.Gang]++
		}
	}
	return slices.DeleteFunc(list, func(r *runningGang) bool { return r.surplus > surplus[r.Gang] })
}

// joined makes one victim of all that a gang loses. One that loses what it needs loses the
// rest, too, which is among the candidates.
func joined(chosen, candidates []*runningGang) []*runningGang {
	all := map[string]bool{}
	for _, r := range chosen {
		all[r.Gang] = all[r.Gang] || r.surplus > 0
	}
	for _, r := range candidates {
		if r.Surplus && !r.Leaving && all[r.Gang] && !slices.Contains(chosen, r) {
			chosen = append(chosen, r)
		}
	}
	var list []*runningGang
	parts := map[string]*runningGang{}
	for _, r := range chosen {
		if r.Leaving || !r.Surplus && r.surplus == 0 {
			list = append(list, r)
			continue
		}
		one := parts[r.Gang]
		if one == nil {
			one = r.part()
			one.Surplus = !all[r.Gang]
			parts[r.Gang] = one
			list = append(list, one)
		}
		for _, pod := range r.pods {
			one.add(pod)
		}
	}
	return list
}

// near keeps the gangs that have a pod on one of the nodes, with all that goes with them.
func near(list []*runningGang, nodes map[string]bool) []*runningGang {
	on := func(r *runningGang) bool {
		return slices.ContainsFunc(r.pods, func(pod *Pod) bool { return nodes[pod.Node] })
	}
	all := map[string]bool{}
	for _, r := range list {
		all[r.Gang] = all[r.Gang] || r.surplus > 0 && on(r)
	}
	return slices.DeleteFunc(slices.Clone(list), func(r *runningGang) bool { return !on(r) && !all[r.Gang] })
}
