package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-log/tflog"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

const (
	// handover is how long a new job waits for jobs of its configuration that stand where it
	// was planned: Terraform may delete them at the same time, or a little later.
	handover  = 30 * time.Second
	lookAgain = time.Second
	// settling is how long a new node may lack what its agents have yet to report.
	settling = 5 * time.Minute
)

// outlook is what a planned job meets on the cluster as it is now.
type outlook struct {
	snapshot *cluster.Snapshot
	// result is what the scheduler would do now.
	result placement.Result
	// withoutOwn is the same as if no other job of the configuration was there.
	withoutOwn placement.Result
	// settling tells that a node of the planned place is new, or does not exist yet.
	settling bool
}

func (o outlook) asPlanned() bool { return o.result.Verdict.NotAsPlanned == "" }

// confirm looks, before a job starts, whether it gets the place that its plan has promised.
// Other jobs of the configuration that are there still get some time to leave. A job that
// will be placed elsewhere is announced, one that does not fit any more is refused.
func (r *trainingJob) confirm(ctx context.Context, m model, spec job.Spec) (diags diag.Diagnostics) {
	c := r.checker(m, spec)
	planned := placementOf(ctx, m.PlannedPlacement, &diags)
	if len(planned) == 0 || spec.Suspend || c.level == session.CheckOff || diags.HasError() {
		return diags
	}
	var now outlook
	for end := time.Now().Add(handover); ; {
		var err error
		if now, err = r.outlook(ctx, c, planned); err != nil {
			diags.AddWarning("Planned placement is not confirmed", session.Sentence(err))
			return diags
		}
		if now.asPlanned() || now.withoutOwn.Verdict.NotAsPlanned != "" || time.Now().After(end) {
			break
		}
		tflog.Info(ctx, "the job waits for others of this configuration to leave its place", map[string]any{"job": spec.ID()})
		select {
		case <-ctx.Done():
			return diags
		case <-time.After(lookAgain):
		}
	}
	if !now.asPlanned() && !now.settling {
		diags.Append(r.stale(c, now)...)
	}
	return diags
}

// outlook looks at the cluster.
func (r *trainingJob) outlook(ctx context.Context, c checker, planned []assignment.Model) (o outlook, err error) {
	seen, err := r.session.Cluster()
	if err != nil {
		return outlook{}, err
	}
	if o.snapshot, err = seen.Recent(ctx, lookAgain); err != nil {
		return outlook{}, err
	}
	view, err := o.snapshot.View()
	if err != nil {
		return outlook{}, err
	}
	gang, err := c.gang(o.snapshot, view.Quota())
	if err != nil {
		return outlook{}, err
	}
	o.settling = isNew(planned, o.snapshot.Nodes, placement.PlannedNames(nodesIn(view)))
	if o.result = view.Reclaim(gang); o.asPlanned() {
		return o, nil
	}
	live := o.snapshot.Live(r.session.Owns)
	for _, pod := range live.Pods {
		if live.Own[pod.Job] && pod.Job != c.spec.ID() {
			view.RemovePod(pod.ID)
		}
	}
	o.withoutOwn = view.Reclaim(gang)
	return o, nil
}

// isNew reports whether a planned node does not exist yet, or not for long.
func isNew(planned []assignment.Model, nodes []corev1.Node, names map[string]string) bool {
	created := map[string]time.Time{}
	for i := range nodes {
		created[nodes[i].Name] = nodes[i].CreationTimestamp.Time
	}
	return slices.ContainsFunc(planned, func(m assignment.Model) bool {
		if at, exists := created[m.Node]; exists {
			return time.Since(at) < settling
		}
		name, exists := names[m.Node]
		return strings.HasSuffix(m.Node, "]") && (!exists || time.Since(created[name]) < settling)
	})
}

// stale says what has become of a plan that cannot be kept.
func (r *trainingJob) stale(c checker, now outlook) (diags diag.Diagnostics) {
	since := fmt.Sprintf("The cluster has changed since the plan was made: %s. ", now.result.Verdict.NotAsPlanned)
	strangers := r.strangers(now.snapshot, now.result.Victims)
	at, id := path.Root("planned_placement"), c.spec.ID()
	switch {
	case now.result.Placement == nil && now.withoutOwn.Placement != nil:
		diags.AddAttributeWarning(at, "Job will not start where it was planned",
			fmt.Sprintf("%sJob %s waits for other jobs of this configuration. %s", since, id, now.result.Verdict))
	case now.result.Placement == nil && c.level == session.CheckError:
		diags.AddAttributeError(at, "Job was not started",
			fmt.Sprintf("%sJob %s does not fit any more. %s Plan again.", since, id, now.result.Verdict))
	case now.result.Placement == nil:
		diags.AddAttributeWarning(at, "Job will wait", fmt.Sprintf("%sJob %s does not fit any more. %s", since, id, now.result.Verdict))
	case len(strangers) > 0 && c.level == session.CheckError && !c.allowPreemption:
		diags.AddAttributeError(path.Root("allow_preemption"), "Job was not started", fmt.Sprintf(
			"%sThe scheduler would evict for job %s: %s. Plan again, or set allow_preemption = true to agree.", since, id, strings.Join(strangers, ", ")))
	case len(strangers) > 0:
		diags.AddAttributeWarning(at, "Job will not start where it was planned",
			fmt.Sprintf("%sThe scheduler evicts for job %s: %s.", since, id, strings.Join(strangers, ", ")))
	default:
		diags.AddAttributeWarning(at, "Job will not start where it was planned",
			fmt.Sprintf("%sJob %s is placed on other nodes or GPUs: %s.", since, id, strings.Join(placesOf(*now.result.Placement), ", ")))
	}
	return diags
}

// elsewhere says why a job that runs is not where it was planned.
func (m model) elsewhere(why string) (diags diag.Diagnostics) {
	if why != "" && !m.PlacementAsPlanned.IsNull() && !m.PlacementAsPlanned.ValueBool() {
		diags.AddAttributeWarning(path.Root("placement_as_planned"), "Job does not run where it was planned",
			fmt.Sprintf("The scheduler placed job %s elsewhere: %s.", m.ID.ValueString(), why))
	}
	return diags
}

// placesOf names the nodes of a placement.
func placesOf(p placement.Placement) []string {
	var nodes []string
	for _, a := range p.Assignments {
		if !slices.Contains(nodes, a.Node) {
			nodes = append(nodes, a.Node)
		}
	}
	return nodes
}
