package planner

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Start has a gang run in a view where it is placed, with what starts once it does ([placement.Gang.Late]), and returns
// all of it that runs then. Where there is no room for what starts late, why says so, and the view is as it was.
func Start(v *snapshot.View, g placement.Gang, placed placement.Placement) (running []placement.Assignment, undo func(), why *placement.Verdict) {
	back := v.Apply(g, placed)
	running = slices.Concat(g.Running, placed.Assignments)
	due := g.Late(running)
	if due.LateMissing() == 0 {
		return running, back, nil
	}
	late := Plan(v, due)
	if late.Placement == nil {
		back()
		return nil, nil, &late.Verdict
	}
	stop := v.Apply(due, *late.Placement)
	return slices.Concat(running, late.Placement.Assignments), func() { stop(); back() }, nil
}
