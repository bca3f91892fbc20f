package trainingjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// look refreshes what is known of the job. A job that is gone is drift only when it
// had not finished.
func (r *trainingJob) look(ctx context.Context, of tfsdk.State, m *model) (found bool, diags diag.Diagnostics, err error) {
	client, err := r.Session.Kube()
	if err != nil {
		return false, nil, err
	}
	obj, err := find(ctx, client, job.Framework(m.Framework.ValueString()), m.Namespace.ValueString(), m.Name.ValueString())
	other := err == nil && m.kept.UIDs.Other(obj)
	gone := absent(err) || other && !r.again(ctx, of, *m, obj)
	if gone {
		m.kept.Stamp, m.kept.Runtime = "", "" // nothing is left that carries it
	}
	switch {
	case gone && finished(*m):
		m.Placed = placed(m.ID, existsMark)
		return true, nil, nil
	case gone && m.mayBeCleanedUp():
		m.Status, m.Placed = types.StringValue(phaseCleanedUp), placed(m.ID, existsMark)
		return true, nil, nil
	case gone:
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case !other && r.TakenOver(m, obj.GetLabels()[contract.OwnerLabel]):
		return false, nil, nil
	}
	if err := copyOfHub(obj); err != nil {
		return false, nil, err
	}
	m.kept.UIDs, m.kept.Ended = lifecycle.UIDsOf(obj), job.Ended(obj)
	imported := m.ID.IsNull()
	if m.kept.Runtime = ""; !imported {
		known, _, more := m.spec(ctx)
		diags.Append(more...)
		if m.kept.Runtime, err = asItRuns(ctx, client, known, obj); err != nil {
			return false, diags, err
		}
	}
	if imported {
		diags.Append(m.takeOver(obj)...)
		diags.Append(written.Restore(ctx, of, obj.GetAnnotations()[contract.SettingsAnnotation], m)...)
	}
	diags.Append(m.drift(ctx, obj)...)
	m.Placed = placed(m.ID, existsMark)
	named := job.Spec{Namespace: obj.GetNamespace(), Name: obj.GetName(), Framework: job.Framework(m.Framework.ValueString())}
	if err := m.seeTensorBoard(ctx, client, named); err != nil {
		return false, diags, err
	}
	_, more := r.refresh(ctx, m, obj)
	diags.Append(more...)
	if diags.Append(r.nameNodes(ctx, m, obj)...); diags.HasError() {
		return false, diags, nil
	}
	if obj.GetDeletionTimestamp() != nil && !finished(*m) {
		m.Status = types.StringValue(phaseDeleting)
	}
	r.NoteStamp(m, obj.GetLabels()[contract.OwnerLabel], imported)
	r.Session.Ledger.Own(object(named))
	return true, diags, nil
}

// again reports whether another object of the job's name is the same job, written again: by a restored
// backup, or kubectl replace --force.
func (r *trainingJob) again(ctx context.Context, of tfsdk.State, m model, obj *unstructured.Unstructured) bool {
	spec, _, diags := m.spec(ctx)
	if diags.HasError() || !r.Session.Mine(obj.GetLabels()[contract.OwnerLabel]) {
		return false
	}
	_, replace, err := outdated(ctx, obj, m, of, spec)
	return err == nil && len(replace) == 0
}

// mayBeCleanedUp reports whether a job that is gone may have been removed by its time to live. One that was
// suspended when it was seen last has not run.
func (m model) mayBeCleanedUp() bool {
	return !m.TTLSecondsAfterFinished.IsNull() && !m.Suspend.ValueBool()
}

// finished reports whether the job was seen to be over.
func finished(m model) bool {
	return slices.Contains([]string{string(job.Succeeded), string(job.Failed), phaseCleanedUp}, m.Status.ValueString())
}

// refresh fills in how the job stands, and whether its members run where they were planned.
// why says in a sentence what kept them from there, "" when nothing did.
func (r *trainingJob) refresh(ctx context.Context, m *model, obj *unstructured.Unstructured) (why string, diags diag.Diagnostics) {
	at, err := r.siteOf(ctx, m, obj)
	if err == nil && m.ofFleet() {
		m.Cluster = textOrNull(at.cluster)
	}
	obj = at.shown(obj)
	status, statusErr := job.StatusOf(obj)
	if statusErr != nil {
		diags.AddError("Job cannot be read", session.Sentence(statusErr))
		return why, diags
	}
	m.Status = types.StringValue(string(status.Phase))
	var actual whereabouts
	var names map[string]string
	if err == nil && at.obj != nil {
		actual, err = whereaboutsOf(ctx, at.seen, obj, &diags)
	}
	if err == nil && at.obj != nil {
		names, err = plannedNames(ctx, at.seen, obj)
	}
	if apierrors.IsForbidden(err) || err != nil && m.ofFleet() { // the job can be changed and deleted all the same, also while its cluster is away
		if m.PlacementAsPlanned.IsUnknown() {
			m.PlacementAsPlanned = types.BoolNull()
		}
		diags.AddWarning("Placement is not known", fmt.Sprintf("%s What the state says of the placement of job %s stays as it is.", session.Sentence(err), m.ID.ValueString()))
		return "", diags
	}
	if err != nil {
		diags.AddError("Placement cannot be read", session.Sentence(err))
		return "", diags
	}
	if len(actual.members) == 0 && status.Finished() && !m.PlacementAsPlanned.IsUnknown() {
		return actual.why, diags // its pods were cleaned up
	}
	m.PlacementAsPlanned = asPlanned(placementOf(ctx, m.PlannedPlacement, &diags), actual.members, names)
	if planned := m.PlannedCluster.ValueString(); planned != at.cluster && m.PlacementAsPlanned.ValueBool() {
		m.PlacementAsPlanned = types.BoolValue(false)
	}
	if planned := m.PlannedCluster.ValueString(); planned != at.cluster && at.cluster != "" && planned != "" {
		actual.why = fmt.Sprintf("The hub sent job %s to cluster %s, and not to %s.", m.ID.ValueString(), at.cluster, planned)
	}
	return actual.why, diags
}

// nameNodes gives the nodes of the planned placement that exist by now their names. A plan
// of the same places then shows no change.
func (r *trainingJob) nameNodes(ctx context.Context, m *model, obj *unstructured.Unstructured) (diags diag.Diagnostics) {
	planned := placementOf(ctx, m.PlannedPlacement, &diags)
	if !slices.ContainsFunc(planned, func(a assignment.Model) bool { return strings.HasSuffix(a.Node, "]") }) {
		return diags
	}
	at, err := r.siteOf(ctx, m, obj)
	var names map[string]string
	if err == nil && at.obj != nil && at.cluster == m.PlannedCluster.ValueString() {
		names, err = plannedNames(ctx, at.seen, at.obj)
	}
	if apierrors.IsForbidden(err) || err != nil && m.ofFleet() { // which is said already
		return diags
	}
	if err != nil {
		diags.AddError("Placement cannot be read", session.Sentence(err))
		return diags
	}
	for i, a := range planned {
		planned[i].Node = cmp.Or(names[a.Node], a.Node)
	}
	m.setPlanned(planned)
	return diags
}

// plannedNames gives the names that the nodes of the job's pools had before they
// existed, "pool[0]": the i-th in the planner's order.
func plannedNames(ctx context.Context, seen *cluster.Cluster, obj *unstructured.Unstructured) (map[string]string, error) {
	spec, err := job.Parse(obj)
	if err != nil || len(spec.Pools) == 0 {
		return nil, err
	}
	requirement, err := labels.NewRequirement(contract.NodePoolNameLabel, selection.In, spec.Pools)
	if err != nil {
		return nil, fmt.Errorf("pools of job %s: %w", spec.ID(), err)
	}
	objects, err := seen.Nodes(ctx, labels.NewSelector().Add(*requirement))
	if err != nil {
		return nil, fmt.Errorf("nodes of the pools of job %s: %w", spec.ID(), err)
	}
	nodes := make([]placement.Node, 0, len(objects))
	for _, n := range objects {
		nodes = append(nodes, placement.Node{Name: n.Name, Pool: n.Labels[contract.NodePoolNameLabel], Since: n.CreationTimestamp.Unix()})
	}
	slices.SortFunc(nodes, placement.CompareNodes)
	return placement.PlannedNames(nodes), nil
}

// nodesIn returns the nodes of a view in the planner's order.
func nodesIn(view *snapshot.View) []placement.Node {
	var nodes []placement.Node
	for _, name := range view.Nodes() {
		if n, ok := view.Node(name); ok {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// textOrNull is a text, null for none.
func textOrNull(text string) types.String {
	if text == "" {
		return types.StringNull()
	}
	return types.StringValue(text)
}

func timeValue(t *metav1.Time) types.String {
	if t == nil || t.IsZero() {
		return types.StringNull()
	}
	return types.StringValue(t.UTC().Format(time.RFC3339))
}
