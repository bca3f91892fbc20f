package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// Late is what there is to say about pods that start once the members of their gang run, and do not run yet.
type Late struct {
	Members []string `json:"members"`
	// Rejections are what keeps them from starting wherever there is room.
	Rejections []string `json:"rejections,omitempty"`
	// Reasons are the planner's, none where it finds room; Fixes make them start, the nearest first.
	Reasons []Reason `json:"reasons,omitempty"`
	Fixes   []Fix    `json:"fixes,omitempty"`
	// Said is what the scheduler last wrote on the first of them that it wrote on, and since when that waits.
	Said  string    `json:"said,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// late describes those of a gang whose members run that are late and are not bound, nil when there are none.
func (a Around) late(state inventory.GangState) *Late {
	var l Late
	for _, role := range state.Gang.Roles {
		for _, member := range role.Members {
			pod := state.Pods[member]
			if !role.Late || pod.Spec.NodeName != "" {
				continue
			}
			l.Members = append(l.Members, member)
			l.Rejections = append(l.Rejections, a.podRejections(pod)...)
			if said, _, since := saidOn(pod); l.Said == "" {
				l.Said, l.Since = said, since
			}
		}
	}
	if len(l.Members) == 0 {
		return nil
	}
	l.Rejections = sorted(l.Rejections)
	return &l
}

// plan adds what the planner says about them.
func (l *Late) plan(snapshot *clusterstate.Snapshot, g placement.Gang) {
	verdict := planner.Plan(snapshot.View, g.Late(g.Running)).Verdict
	l.Reasons, l.Fixes = reasons(verdict.Reasons), fixes(verdict.Fixes)
}

// text says who waits, and for what: "launcher waits, because …".
func (l *Late) text() string {
	wait := "wait"
	if len(l.Members) == 1 {
		wait = "waits"
	}
	text := strings.Join(l.Members, ", ") + " " + wait
	why := slices.Clone(l.Rejections)
	if planned := joinReasons(l.Reasons); planned != "" {
		why = append(why, planned)
	}
	if because := cmp.Or(strings.Join(why, "; "), strings.TrimSuffix(l.Said, ".")); because != "" {
		text += ", because " + because
	}
	return text
}
