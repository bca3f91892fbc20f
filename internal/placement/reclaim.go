package placement

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Reclaim is Plan for a gang that may preempt others. When the gang fits
// without, or has a reservation that is free by now, it takes none; otherwise the result has
// a reservation to hold, and names the victims to evict. Nobody needs to go unless the
// whole gang has its place after that. A gang for which others have to go waits for the
// place that they leave, also when it would fit elsewhere once the first of them have
// gone: none of them is evicted in vain, and the place is the best that was found. Nobody is evicted
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
// Only gangs that are preemptible go, and no more pods of a disruption budget than it
// allows. A gang goes as a whole, or it loses members beyond its minimum and runs on
// ([View.SetMinimum]). What is going already comes first, because it costs nobody anything;
// then what is left of gangs that lose members already that they need; then lowest priority
// first; of equal ones members beyond a minimum, then those that free the most of the places
// that are needed, then the smallest, then those whose leaf borrows most, then the youngest.
// No victim is taken that the others make superfluous.
//
// Nobody is taken from in turn: a victim of another leaf is by construction not
// entitled to its place, because its leaf used more than its minimum with it; any other
// victim has a lower priority. So what is reclaimed stays, unless amounts in the tree, or
// what runs, change. A leaf that loses something for members beyond a minimum still uses its
// minimum of what it borrowed, so it is entitled to nothing of that. Several claims are
// consistent: each counts what the ones before it hold as taken, and their victims as gone.
func (v *View) Reclaim(g Gang) Result {
	held := v.reservationOf(g.ID)
	if held != nil && !held.QuotaOnly && v.free(held, &g, nil) {
		placed := held.Placement
		return Result{Placement: &placed, Verdict: Verdict{
			Fits: true, Gang: g.ID, Asked: len(g.Running) + len(placed.Assignments), Fit: len(g.Running) + len(placed.Assignments),
		}}
	}
	if held != nil && held.Evicts && v.valid(held, &g) {
		return held.Reservation.result()
	}
	followed, why, ok := v.followWaiting(&g)
	if ok {
		return followed
	}
	g.Planned = nil
	result := v.reclaim(g)
	result.Verdict.NotAsPlanned = why
	return result
}

// reclaim is Reclaim for a gang that holds no place, wherever it was planned.
func (v *View) reclaim(g Gang) Result {
	if verdict, ok := v.cachedVerdict(&g); ok {
		return Result{Verdict: verdict}
	}
	p := newPlanner(v.seen(&g, nil), g)
	if result, done := p.place(); done {
		if r, ok := v.preemptForGrowth(p, result); ok {
			return r.result()
		}
		return v.grown(p, result)
	}
	if p.invalid() == nil {
		if r, ok := v.preempt(p); ok {
			return r.result()
		}
	}
	result := v.unschedulable(p)
	v.cacheVerdict(&g, result.Verdict)
	return result
}

// preempt finds a place for the planner's gang that is free once some gangs have gone.
func (v *View) preempt(p *planner) (Reservation, bool) {
	leaving, _ := v.runningGangs(p.gang.ID, func(*Pod) bool { return false })
	if loses(leaving, p.gang.ID) {
		return Reservation{}, false
	}
	tree := v.seen(&p.gang, podsOf(leaving)).last()
	leaving, victims := v.runningGangs(p.gang.ID, p.gang.mayPreempt(tree, p.charge(p.needed)))
	empty := v.newDryRun(p.gang)
	if !empty.fitsWithout(slices.Concat(leaving, victims)) {
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
	after, ok := v.fewest(p.gang, allowed(victims))
	if !ok {
		after, ok = v.fewestByNodes(empty, victims, allowed)
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

// mayPreempt returns the rule by which the gang may take from pods.
func (g *Gang) mayPreempt(tree *quota.Tree, reservation quota.Resources) func(*Pod) bool {
	lower := func(pod *Pod) bool { return pod.Priority < g.Priority }
	rule := lower
	switch {
	case g.NeverPreempts, tree != nil && !tree.HasLeaf(g.Leaf):
		return func(*Pod) bool { return false }
	case tree == nil:
	case tree.Entitled(g.Leaf, reservation):
		rule = func(pod *Pod) bool { return pod.Leaf != g.Leaf }
	default:
		rule = func(pod *Pod) bool { return pod.Leaf == g.Leaf && lower(pod) }
	}
	return func(pod *Pod) bool { return pod.Preemptible && !pod.Pinned && rule(pod) }
}

// borrowers keeps the candidates whose leaf still borrows when those before them have gone.
// For members beyond a minimum nobody is evicted whose leaf would use less than its minimum then.
func (p *planner) borrowers(tree *quota.Tree, candidates []*runningGang) []*runningGang {
	reservation := p.charge(p.needed)
	takes := tree.Borrows
	if p.gang.more > 0 {
		takes = tree.Spares
	}
	var list []*runningGang
	for _, r := range candidates {
		charge := chargeOf(r.pods)
		if takes(r.Leaf, charge, reservation) {
			tree.Remove(r.Leaf, charge, r.preemptible)
			list = append(list, r)
		}
	}
	return list
}

// withinBudgets keeps the candidates that disruption budgets let go together with those
// before them, and with pods that are evicted already and that a budget may not have
// counted yet.
func (v *View) withinBudgets(candidates []*runningGang) []*runningGang {
	evictions := v.countEvictions()
	return slices.DeleteFunc(slices.Clone(candidates), func(r *runningGang) bool { return !evictions.allow(r.pods) })
}

// followWaiting is follow for a gang that may wait: where its place is free once those have gone
// that are leaving, the result is a reservation that waits for them.
func (v *View) followWaiting(g *Gang) (result Result, why string, ok bool) {
	result, why, ok = v.follow(g)
	if why == "" {
		return result, why, ok
	}
	leaving, _ := v.runningGangs(g.ID, func(*Pod) bool { return false })
	if len(leaving) == 0 || loses(leaving, g.ID) {
		return Result{}, why, false
	}
	result, still := v.asPlanned(g, podsOf(leaving))
	if still != "" {
		return Result{}, why, false
	}
	nodes := map[string]bool{}
	for _, a := range result.Placement.Assignments {
		nodes[a.Node] = true
	}
	r := Reservation{Gang: *g, Placement: *result.Placement, Evicts: true}
	for _, gone := range near(leaving, nodes) {
		r.After = append(r.After, gone.Victim)
	}
	return r.result(), "", true
}
