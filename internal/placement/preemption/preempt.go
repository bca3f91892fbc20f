// Package preemption finds out who has to go so that a gang gets a place. Evictions are tried in
// a dry run, and nobody is evicted unless the whole gang has its place after that.
package preemption

import (
	"reflect"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/packing"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Plan is [planner.Plan] for a gang that may preempt others. When the gang fits
// without, or has a reservation that is free by now, it takes none; otherwise the result has
// a reservation to hold, and names the victims to evict. Nobody needs to go unless the
// whole gang has its place after that. A gang for which others have to go waits for the
// place that they leave, also when it would fit elsewhere once the first of them have
// gone: none of them is evicted in vain, and the place is the best that was found. One that waits for
// others to end goes where it was planned when it can by then, and one that was granted a place goes there
// when it can and was planned nowhere else. Nobody is evicted
// for a gang of which members are going themselves: it will need more than it lacks now.
//
// Members beyond the minimum get what is free beside the others. With a quota tree, a gang
// that runs and finds no place for any more of them may take places for as many as stay within
// the minimum of its leaf, from leaves that borrow, and use all of their minimum without them.
//
// With a quota tree the rules are those of ACK's PreemptionAlgorithm ElasticQuota. A
// gang that stays within the minimum of its leaf may take from gangs of other leaves that
// borrow, that is, whose leaf uses more than its minimum of something the gang asks for;
// a gang that borrows itself may take from gangs of lower priority in its own leaf; a
// gang without a leaf cannot preempt. Without a tree a gang may take from every gang
// of lower priority.
//
// Only gangs that are preemptible go, none of which the API server refuses to delete a pod, and no more
// pods of a disruption budget than it allows. A gang goes as a whole, or it loses members beyond its minimum and runs on
// ([snapshot.View.SetMinimum]). Who may not go does not count as gone: others of its leaf go in its place.
// What is going already comes first, because it costs nobody anything; then what is left of gangs that
// lose members already that they need; then lowest priority first; of equal ones members beyond a minimum, then those that free the most of the places
// that are needed, then the smallest, then those whose leaf borrows most, then the youngest.
// No victim is taken that the others make superfluous.
//
// Nobody is taken from in turn: a victim of another leaf is by construction not
// entitled to its place, because its leaf used more than its minimum with it; any other
// victim has a lower priority. So what is reclaimed stays, unless amounts in the tree, or
// what runs, change. A leaf that loses something for members beyond a minimum still uses its
// minimum of what it borrowed, so it is entitled to nothing of that. Several nominations are
// consistent: each counts what the ones before it hold as taken, and their victims as gone.
func Plan(v *snapshot.View, g placement.Gang) placement.Result {
	held := v.ReservationOf(g.ID)
	free := held != nil && !held.QuotaOnly && v.Evicted(held) && planner.ReservationFree(v, held, &g, nil)
	switch {
	case free && held.Evicts:
		return held.Taken()
	case held != nil && held.Evicts && planner.ReservationValid(v, held, &g):
		return planner.Renewed(held, &g).Result()
	}
	if held != nil && held.Granted && len(g.Planned) == 0 {
		g.Planned = held.Gang.Planned // also where it is another gang by now than the place was granted for
	}
	followed, why, ok := followWaiting(v, &g)
	if ok {
		return followed
	}
	var result placement.Result
	if free {
		result = held.Taken()
	} else {
		g.Planned = nil
		result = plan(v, g)
	}
	result.Verdict.NotAsPlanned = why
	if result.Reservation != nil {
		result.Reservation.NotAsPlanned = why
	}
	return result
}

// plan is Plan for a gang that holds no place, wherever it was planned.
func plan(v *snapshot.View, g placement.Gang) placement.Result {
	if verdict, ok := v.CachedVerdict(&g); ok {
		return placement.Result{Verdict: verdict}
	}
	p := packing.NewPacker(v.Seen(&g, nil), g)
	if result, done := p.Place(); done {
		if r, ok := preemptForGrowth(v, p, result); ok {
			return r.Result()
		}
		return planner.Grown(v, p, result)
	}
	if p.Invalid() == nil {
		if r, ok := preempt(v, p); ok {
			return r.Result()
		}
	}
	result := planner.Unschedulable(v, p)
	v.CacheVerdict(&g, result.Verdict)
	return result
}

// preempt finds a place for the packer's gang that is free once some gangs have gone.
func preempt(v *snapshot.View, p *packing.Packer) (placement.Reservation, bool) {
	leaving, _ := RunningGangs(v, p.Gang.ID, func(*placement.Pod) bool { return false })
	if Loses(leaving, p.Gang.ID) {
		return placement.Reservation{}, false
	}
	tree := v.Seen(&p.Gang, PodsOf(leaving)).LastQuota()
	leaving, victims := RunningGangs(v, p.Gang.ID, mayPreempt(&p.Gang, tree, p.Charge(p.Needed)))
	rules := newRules(v, p, tree)
	victims = rules.alone(splitSurplus(v, victims))
	empty := newDryRun(v, p.Gang)
	if !empty.fitsWithout(slices.Concat(leaving, victims)) {
		return placement.Reservation{}, false
	}
	sortVictims(v, victims, p, tree)
	fewest := func(victims []*RunningGang) ([]*RunningGang, bool) {
		return Fewest(v, p.Gang, slices.Concat(leaving, victims))
	}
	after, ok := fewest(rules.together(victims))
	if !ok {
		after, ok = rules.search(victims, empty.placeBeside, fewest)
	}
	if !ok {
		return placement.Reservation{}, false
	}
	placed, ok := packing.NewPacker(v.Seen(&p.Gang, PodsOf(after)), p.Gang).Place()
	if !ok {
		return placement.Reservation{}, false
	}
	r := placement.Reservation{Gang: p.Gang, Placement: *placed.Placement, After: VictimsOf(after), Evicts: true}
	r.Gang.More = 0
	return r, true
}

// mayPreempt returns the rule by which the gang may take from pods. Those near which it has to run
// stay.
func mayPreempt(g *placement.Gang, tree *quota.Tree, charge quota.Resources) func(*placement.Pod) bool {
	lower := func(pod *placement.Pod) bool { return pod.Priority < g.Priority }
	rule := lower
	switch {
	case g.NeverPreempts, tree != nil && !tree.HasLeaf(g.Leaf):
		return func(*placement.Pod) bool { return false }
	case tree == nil:
	case tree.Entitled(g.Leaf, charge):
		rule = func(pod *placement.Pod) bool { return pod.Leaf != g.Leaf }
	default:
		rule = func(pod *placement.Pod) bool { return pod.Leaf == g.Leaf && lower(pod) }
	}
	return func(pod *placement.Pod) bool {
		return pod.Preemptible && !pod.Pinned && !pod.Undeletable && rule(pod) && !g.DependsOn(pod)
	}
}

// followWaiting is [planner.Follow] for a gang that may wait: where its place is free once those have gone
// that are leaving, the result is a reservation that waits for them.
func followWaiting(v *snapshot.View, g *placement.Gang) (result placement.Result, why string, ok bool) {
	result, why, ok = planner.Follow(v, g, nil)
	if why == "" {
		return result, why, ok
	}
	leaving, _ := RunningGangs(v, g.ID, func(*placement.Pod) bool { return false })
	if len(leaving) == 0 || Loses(leaving, g.ID) {
		return placement.Result{}, why, false
	}
	result, still := planner.AsPlanned(v, g, PodsOf(leaving))
	if still != "" {
		return placement.Result{}, why, false
	}
	after := near(leaving, result.Placement)
	if fewer, _ := planner.AsPlanned(v, g, PodsOf(after)); !reflect.DeepEqual(fewer, result) {
		after = leaving // from other nodes they leave quota
	}
	r := placement.Reservation{Gang: *g, Placement: *result.Placement, After: VictimsOf(after), Evicts: true}
	return r.Result(), "", true
}
