package placement

// Plan places a gang, or says why it cannot be. It does not change the view. Places
// that are held for others ([View.AddReservation]) are left alone.
//
// A gang of members of one shape is placed whenever it can be. With several shapes
// packing is a bin-packing problem: the planner fills node after node with the biggest
// shapes first, then tries one shape after the other, then the smallest first, and may
// miss a placement that only another order finds.
func (v *View) Plan(g Gang) Result {
	followed, why, ok := v.follow(&g)
	if ok {
		return followed
	}
	g.Planned = nil
	p := newPlanner(v.seen(&g, nil), g)
	result, done := p.place()
	if done {
		result = v.grown(p, result)
	} else {
		result = v.unschedulable(p)
	}
	result.Verdict.NotAsPlanned = why
	return result
}

// Place is Plan for callers that do not ask why: it returns nil when the gang does not fit.
func (v *View) Place(g Gang) *Placement {
	if v.cachedUnschedulable(&g) {
		return nil
	}
	result, ok := newPlanner(v.seen(&g, nil), g).place()
	if !ok {
		v.cacheUnschedulable(&g)
	}
	return result.Placement
}

// Infeasible reports whether a gang could not be placed even if nothing else ran: only a
// change of nodes or of the quota tree can help it.
func (v *View) Infeasible(g Gang) bool {
	return v.cachedInfeasible(&g, func(alone cluster) bool {
		_, fits := newPlanner(alone, g).place()
		return !fits
	})
}
