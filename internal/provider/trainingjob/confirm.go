package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

const (
	// recent is how old what many jobs look at may be that are created at the same time.
	recent = time.Second
	// settling is how long a new node may lack what its agents have yet to report.
	settling = 5 * time.Minute
)

// confirm looks, before a job starts, whether it gets the place that its plan has promised.
// A job that will be placed elsewhere is announced, one that does not fit any more is refused.
func (r *trainingJob) confirm(ctx context.Context, client *kube.Client, m model, spec job.Spec) (diags diag.Diagnostics) {
	c := r.checker(m, spec)
	planned := placementOf(ctx, m.PlannedPlacement, &diags)
	if len(planned) == 0 || spec.Suspend || c.level == session.CheckOff || diags.HasError() {
		return diags
	}
	c.admission = r.admission(ctx, client, spec)
	seen, err := r.Session.Cluster()
	var snapshot *cluster.Snapshot
	if err == nil {
		snapshot, err = seen.Recent(ctx, recent)
	}
	var view *placement.View
	var gang placement.Gang
	var added string
	if err == nil {
		view, gang, added, err = c.onCluster(snapshot)
	}
	if err != nil {
		diags.AddWarning("Planned placement is not confirmed", session.Sentence(err))
		return diags
	}
	result, alone := r.Session.Ledger.Start(view, gang, spec.Gang, func(v *placement.View) placement.Result { return v.Reclaim(gang) })
	if result.Verdict.NotAsPlanned == "" {
		return diags
	}
	if settles(planned, snapshot.Nodes, view) {
		return append(diags, r.confirmAdmission(c, gang, added)...)
	}
	since := fmt.Sprintf("The cluster has changed since the plan was made: %s. ", result.Verdict.NotAsPlanned)
	if added != "" {
		since = fmt.Sprintf("%s So the planned place does not do: %s. ", added, result.Verdict.NotAsPlanned)
	}
	at, id := path.Root("planned_placement"), spec.ID()
	strangers := r.strangers(snapshot, result.Victims)
	switch {
	case alone.Placement == nil && c.level == session.CheckError && !waitsForQuota(view, gang):
		diags.AddAttributeError(at, "Job was not started",
			fmt.Sprintf("%sJob %s does not fit any more. %s Plan again.", since, id, result.Verdict))
	case result.Placement == nil:
		diags.AddAttributeWarning(at, "Job will wait", fmt.Sprintf("%sJob %s does not fit now. %s", since, id, result.Verdict))
	case len(strangers) > 0 && c.level == session.CheckError && !c.allowPreemption:
		diags.AddAttributeError(path.Root("allow_preemption"), "Job was not started", fmt.Sprintf(
			"%sThe scheduler would evict for job %s: %s. Plan again, or set allow_preemption = true to agree.", since, id, strings.Join(strangers, ", ")))
	case len(strangers) > 0:
		diags.AddAttributeWarning(at, "Job will not start where it was planned",
			fmt.Sprintf("%sThe scheduler evicts for job %s: %s.", since, id, strings.Join(strangers, ", ")))
	default:
		diags.AddAttributeWarning(at, "Job will not start where it was planned",
			fmt.Sprintf("%sJob %s is placed on other nodes or GPUs: %s.", since, id, strings.Join(placesOf(*result.Placement), ", ")))
	}
	return diags
}

// confirmAdmission says of a job whose nodes are not all there yet what admission, as it is by
// now, makes of its place on what its pools offer.
func (r *trainingJob) confirmAdmission(c checker, gang placement.Gang, added string) (diags diag.Diagnostics) {
	at, id := path.Root("planned_placement"), c.spec.ID()
	result := r.Session.Ledger.Admit(gang)
	switch {
	case result.Verdict.NotAsPlanned == "":
	case result.Placement == nil && c.level == session.CheckError:
		diags.AddAttributeError(at, "Job was not started", fmt.Sprintf("%s So job %s does not fit any more. %s Plan again.", added, id, result.Verdict))
	case result.Placement == nil:
		diags.AddAttributeWarning(at, "Job will wait", fmt.Sprintf("%s So job %s does not fit now. %s", added, id, result.Verdict))
	default:
		diags.AddAttributeWarning(at, "Job will not start where it was planned", fmt.Sprintf("%s So the planned place of job %s does not do: %s.", added, id, result.Verdict.NotAsPlanned))
	}
	return diags
}

// waitsForQuota reports whether quota alone keeps a gang from running.
func waitsForQuota(view *placement.View, gang placement.Gang) bool {
	free := view.Clone()
	free.SetQuota(nil)
	return free.Plan(gang).Placement != nil
}

// settles reports whether a planned node does not exist yet, or is new and lacks what it
// is about to have.
func settles(planned []assignment.Model, nodes []corev1.Node, view *placement.View) bool {
	objects, names := map[string]*corev1.Node{}, placement.PlannedNames(nodesIn(view))
	for i := range nodes {
		objects[nodes[i].Name] = &nodes[i]
	}
	return slices.ContainsFunc(planned, func(m assignment.Model) bool {
		name := m.Node
		if objects[name] == nil {
			name = names[m.Node]
		}
		object := objects[name]
		if object == nil {
			return strings.HasSuffix(m.Node, "]")
		}
		known, _ := view.Node(name)
		return time.Since(object.CreationTimestamp.Time) < settling && (!ready(object) || len(m.GPUs) > 0 && known.GPUs == nil)
	})
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
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
