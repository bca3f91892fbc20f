package ledger

import (
	"fmt"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// startsWhole reports whether there is room for a gang, and beside it for what starts once it runs.
func startsWhole(view *snapshot.View, g placement.Gang) bool {
	placed := planner.Place(view, g)
	return placed != nil && late(view, g, *placed) == nil
}

// late says why what starts once a gang runs where it is placed has no room beside it, nil when
// it has.
func late(view *snapshot.View, g placement.Gang, placed placement.Placement) *placement.Verdict {
	_, undo, why := planner.Start(view, g, placed)
	if why == nil {
		undo()
	}
	return why
}

// lateMisfit says that a job fits and what starts once it runs does not, nil when that is not so.
func (l *Ledger) lateMisfit(j *job, g placement.Gang) *Finding {
	placed := planner.Place(l.live.hoped, g)
	if placed == nil {
		return nil
	}
	return launcherMisfit(j, late(l.live.hoped, g, *placed))
}

// lateAfter is late for a gang that has its place once others have left.
func lateAfter(view *snapshot.View, g placement.Gang, found placement.Result) *placement.Verdict {
	if found.Placement == nil || len(g.Late(found.Placement.Assignments).Roles) == 0 {
		return nil
	}
	return late(preemption.Afterwards(view, found), g, *found.Placement)
}

// launcherMisfit says why what starts once a job runs has no room, nil when it has.
func launcherMisfit(j *job, why *placement.Verdict) *Finding {
	if why == nil {
		return nil
	}
	return &Finding{
		Kind: LateMisfit, Jobs: []string{j.Gang.ID}, Error: true, Summary: "Launcher does not fit",
		Detail: fmt.Sprintf("The members of job %s fit, but what starts once they run does not fit beside them, on any node that exists or is planned for the job: %s "+
			"It would wait, or kube-scheduler would evict pods of lower priority for it.", j.Gang.ID, why),
	}
}
