package trainingjob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// settling is how long a new node may lack what its agents have yet to report.
const settling = 5 * time.Minute

// confirm looks, before a job starts, whether it gets the place that its plan has promised.
// A job that will be placed elsewhere is announced, one that does not fit any more is refused, and
// so is one for which others would be evicted. Where nothing is checked, evictions are told alone.
func (r *trainingJob) confirm(ctx context.Context, client *kube.Client, m model, spec job.Spec) (diags diag.Diagnostics) {
	c := r.checker(m, spec)
	planned := placementOf(ctx, m.PlannedPlacement, &diags)
	if len(planned) == 0 || spec.Suspend || diags.HasError() {
		return diags
	}
	c.admission = r.admission(ctx, client, spec)
	settling := func(at prospect) bool { return settles(planned, at.snapshot.Nodes, at.view) }
	at, err := r.prospect(ctx, c, func(v *snapshot.View, g placement.Gang) placement.Result { return preemption.Plan(v, g) }, func(at prospect) bool {
		return at.Beside.Verdict.NotAsPlanned == "" || settling(at)
	})
	why := at.Beside.Verdict.NotAsPlanned
	switch {
	case err != nil && c.level != session.CheckOff:
		diags.AddWarning("Planned placement is not confirmed", session.Sentence(err))
		return diags
	case at.barred != "":
		return r.invalidQuota(c, at)
	case err != nil || why == "":
		return diags
	case settling(at) && c.level != session.CheckOff:
		return append(diags, r.confirmAdmission(c, at.gang, at.added)...)
	case settling(at):
		return diags
	}
	place, result := path.Root("planned_placement"), at.Beside
	since := lostPlace(spec.ID(), at.added, why, result)
	diags.Append(r.evictions(ctx, client, c, at, since)...)
	switch {
	case c.level == session.CheckOff || diags.HasError():
	case at.Alone.Placement == nil && c.level == session.CheckError && !waitsForQuota(at.view, at.gang):
		diags.AddAttributeError(place, "Job was not started", fmt.Sprintf("%sIt does not fit any more. %s Plan again.", since, result.Verdict))
	case result.Placement == nil:
		diags.AddAttributeWarning(place, "Job will wait", fmt.Sprintf("%sIt does not fit now. %s", since, result.Verdict))
	default:
		diags.AddAttributeWarning(place, "Job will not start where it was planned",
			fmt.Sprintf("%sIt is placed on other nodes or GPUs: %s.", since, placesOf(*result.Placement, at.view)))
	}
	return diags
}

// lostPlace says that a job cannot have its planned place, and why where the verdict, which follows, does not; added is of
// [checker.admitted].
func lostPlace(id, added, why string, result placement.Result) string {
	cause := ": " + why
	if result.Placement == nil && strings.Contains(result.Verdict.String(), why) {
		cause = ""
	}
	if added != "" {
		return fmt.Sprintf("%s So the job cannot have its planned place now%s. ", added, cause)
	}
	return fmt.Sprintf("Job %s cannot have its planned place now%s. ", id, cause)
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
func waitsForQuota(view *snapshot.View, gang placement.Gang) bool {
	free := view.Clone()
	free.SetQuota(nil)
	return planner.Plan(free, gang).Placement != nil
}

// settles reports whether a planned node does not exist yet, or is new and lacks what it
// is about to have.
func settles(planned []assignment.Model, nodes []corev1.Node, view *snapshot.View) bool {
	unsettled := unsettled(nodes, view)
	return slices.ContainsFunc(planned, func(m assignment.Model) bool { return unsettled(m.Node, len(m.GPUs) > 0) })
}

// unsettled tells of a node, by the name that it has or had in a plan, and of whether it is to have GPUs, what
// [settles] asks.
func unsettled(nodes []corev1.Node, view *snapshot.View) func(name string, gpus bool) bool {
	objects, names := map[string]*corev1.Node{}, placement.PlannedNames(nodesIn(view))
	for i := range nodes {
		objects[nodes[i].Name] = &nodes[i]
	}
	return func(planned string, gpus bool) bool {
		name := planned
		if objects[name] == nil {
			name = names[planned]
		}
		object := objects[name]
		if object == nil {
			return strings.HasSuffix(planned, "]")
		}
		known, _ := view.Node(name)
		return time.Since(object.CreationTimestamp.Time) < settling && (!ready(object) || gpus && known.GPUs == nil)
	}
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// elsewhere says why a job that runs is not where it was planned, which is a sentence.
func (m model) elsewhere(why string) (diags diag.Diagnostics) {
	if why != "" && !m.PlacementAsPlanned.IsNull() && !m.PlacementAsPlanned.ValueBool() {
		diags.AddAttributeWarning(path.Root("placement_as_planned"), "Job does not run where it was planned", why)
	}
	return diags
}

// placesOf says where a placement puts each member.
func placesOf(p placement.Placement, view *snapshot.View) string {
	lines := assignment.Lines(assignmentsOf(p, nodesIn(view)))
	var places []string
	for _, node := range slices.Sorted(maps.Keys(lines)) {
		places = append(places, fmt.Sprintf("%s (%s)", node, lines[node]))
	}
	return strings.Join(places, ", ")
}
