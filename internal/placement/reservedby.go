package placement

import "slices"

// unschedulable explains why a gang has no place, and whose reservation keeps it from one.
func (v *View) unschedulable(p *planner) Result {
	verdict := p.explain()
	verdict.ReservedBy = v.reservedBy(&p.gang, func(c cluster) bool {
		_, ok := newPlanner(c, p.gang).place()
		return ok
	})
	return Result{Verdict: verdict}
}

// grown tells of a gang that runs, and for which more members wait than get a place, whose
// reservation keeps it from growing.
func (v *View) grown(p *planner, result Result) Result {
	if p.total > 0 && len(result.Placement.Assignments) == 0 {
		result.Verdict.ReservedBy = v.reservedBy(&p.gang, func(c cluster) bool {
			more, ok := newPlanner(c, p.gang).place()
			return ok && len(more.Placement.Assignments) > 0
		})
	}
	return result
}

// reservedBy returns the gang whose reservation keeps another from a place that it would have
// in the cluster without, "" when that is not what keeps it.
func (v *View) reservedBy(g *Gang, fits func(cluster) bool) string {
	kept, lifted := v.reservationsFor(g)
	if len(kept) == 0 || !fits(v.unreserved()) {
		return ""
	}
	for i, h := range kept {
		others := slices.Delete(slices.Clone(kept), i, i+1)
		if fits(v.after(nil, others, append(slices.Clone(lifted), h))) {
			return h.Gang.ID
		}
	}
	return kept[0].Gang.ID
}
