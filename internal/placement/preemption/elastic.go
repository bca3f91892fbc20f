package preemption

import (
	"slices"
	"sort"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// splitSurplus makes a victim of its own of each member that a gang does not need; what the gang
// needs goes only with all of these.
func splitSurplus(v *snapshot.View, gangs []*RunningGang) []*RunningGang {
	var list []*RunningGang
	for _, r := range gangs {
		surplus := v.Surplus(r.Gang, r.Pods)
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

// preemptForGrowth is preempt for members beyond the minimum of a gang that runs and has no place for
// any of them: for as many as stay within the minimum of its leaf and find places. What starts late goes
// first: the gang needs it more, and may need the room that others would leave.
func preemptForGrowth(v *snapshot.View, p *packing.Packer, now placement.Result) (r placement.Reservation, ok bool) {
	if p.Needed > 0 || p.Total == 0 || len(now.Placement.Assignments) > 0 || p.Gang.LateMissing() > 0 {
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
		preemption, found := preempt(v, packing.NewPacker(v.Seen(&g, nil), g))
		if found {
			r, ok = preemption, true
		}
		return !found
	})
	return r, ok
}

// Growth returns the places that a gang takes from others later for members beyond its minimum,
// once it has what Plan found for it and its late members run; a result without a placement when it takes none.
// For late members, which are placed as any pod without GPUs is, it takes none.
func Growth(v *snapshot.View, g placement.Gang, found placement.Result) placement.Result {
	members := 0
	for _, role := range g.Roles {
		if !role.Late {
			members += len(role.Members)
		}
	}
	if found.Placement == nil || v.Cluster().Quota == nil || len(g.Running)+len(found.Placement.Assignments) >= members {
		return placement.Result{}
	}
	later := Afterwards(v, found)
	running, _, why := planner.Start(later, g, *found.Placement)
	if why != nil {
		return placement.Result{}
	}
	g.Running = running
	if more := Plan(later, g); len(more.Victims) > 0 {
		return more
	}
	return placement.Result{}
}

// Afterwards returns a view without those that have to leave for what Plan found.
func Afterwards(v *snapshot.View, found placement.Result) *snapshot.View {
	later := v.Clone()
	if r := found.Reservation; r != nil {
		for _, gone := range r.After {
			for _, id := range gone.Pods {
				later.RemovePod(id)
			}
		}
	}
	return later
}

// part is a part of the gang, without pods.
func (r *RunningGang) part() *RunningGang {
	return &RunningGang{
		Victim:      placement.Victim{Gang: r.Gang, Leaf: r.Leaf, Priority: r.Priority},
		preemptible: true, endsAt: r.endsAt, terminating: r.terminating,
	}
}

// entire drops what gangs need when not all that they do not need is in the list.
func entire(list []*RunningGang) []*RunningGang {
	surplus := map[string]int{}
	for _, r := range list {
		if r.Surplus {
			surplus[r.Gang]++
		}
	}
	return slices.DeleteFunc(list, func(r *RunningGang) bool { return r.surplus > surplus[r.Gang] })
}

// joined makes one victim of all that a gang loses. One that loses what it needs loses the
// rest, too, which is among the candidates.
func joined(chosen, candidates []*RunningGang) []*RunningGang {
	all := map[string]bool{}
	for _, r := range chosen {
		all[r.Gang] = all[r.Gang] || r.surplus > 0
	}
	for _, r := range candidates {
		if r.Surplus && !r.Leaving && all[r.Gang] && !slices.Contains(chosen, r) {
			chosen = append(chosen, r)
		}
	}
	var list []*RunningGang
	parts := map[string]*RunningGang{}
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

// near keeps the gangs that have a pod on one of the nodes of a place, with all that goes with them.
func near(list []*RunningGang, place *placement.Placement) []*RunningGang {
	nodes := map[string]bool{}
	for _, a := range place.Assignments {
		nodes[a.Node] = true
	}
	on := func(r *RunningGang) bool {
		for i, pod := range r.pods {
			if (i == 0 || pod.Node != r.pods[i-1].Node) && nodes[pod.Node] {
				return true
			}
		}
		return false
	}
	all := map[string]bool{}
	for _, r := range list {
		if r.surplus > 0 && on(r) {
			all[r.Gang] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r *RunningGang) bool { return !on(r) && !all[r.Gang] })
}
