package trainingjob

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// update changes what can change while the job exists. Of settings that only concern the
// provider, what is written on the job for an import changes.
func (r *trainingJob) update(ctx context.Context, of tfsdk.State, state, m *model) (changed bool, diags diag.Diagnostics) {
	before, _, diags := state.spec(ctx)
	spec, _, more := m.spec(ctx)
	spec.Owner = r.Session.Owner
	if diags.Append(more...); diags.HasError() {
		return false, diags
	}
	replace, inPlace := differences(before, spec)
	if len(replace) > 0 {
		// Only a value that was unknown in the plan gets here.
		diags.AddError("Job must be created again", fmt.Sprintf(
			"Now that all values are known, %s of job %s changed, which needs a new job. Apply again.", strings.Join(replace, ", "), spec.ID()))
		return false, diags
	}
	planned := *m
	keepResults(m, *state, false)
	resumed := state.resumes(before, spec)
	if resumed {
		m.PlannedPlacement, m.PlannedNodeCount, m.Placed = planned.PlannedPlacement, planned.PlannedNodeCount, planned.Placed
	}
	client, err := r.Session.Kube()
	var live *unstructured.Unstructured
	if err == nil {
		live, err = find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	}
	other := err == nil && (state.kept.UIDs.Other(live) || r.TakenOver(state, live.GetLabels()[contract.OwnerLabel]))
	switch {
	case finished(*state) && (absent(err) || other):
		return true, diags // nothing is left that could change
	case other:
		err = fmt.Errorf("job %s is another one since the plan was made: plan again", spec.ID())
	case kube.IsNotFound(err):
		err = fmt.Errorf("job %s is gone since the plan was made: plan again, which creates it", spec.ID())
	}
	if err != nil {
		diags.AddError("Job was not changed", session.Sentence(err))
		return false, diags
	}
	if _, err := asItRuns(ctx, client, before, live); err != nil {
		diags.AddError("Job was not changed", session.Sentence(err))
		return false, diags
	}
	spec.Version, spec.Ended = job.VersionOf(live), job.Ended(live)
	promised := len(m.PlannedPlacement.Elements()) > 0
	if resumed && !promised {
		diags.Append(r.planOnCluster(ctx, client, m, spec)...)
	}
	if diags.HasError() {
		return false, diags
	}
	if diags.Append(m.carry(ctx, &spec)...); diags.HasError() {
		return false, diags
	}
	var stale diag.Diagnostics
	if resumed && promised {
		stale = r.confirm(ctx, client, *m, spec)
	}
	if diags.Append(stale...); diags.HasError() {
		return false, diags
	}
	if resumed {
		if diags.Append(r.checkGang(ctx, *m, spec)...); diags.HasError() {
			return false, diags
		}
		if !m.ofFleet() {
			diags.Append(r.sayMissing(ctx, client, *m, spec)...)
		}
	}
	notes, err := m.notes(ctx, of, spec)
	if err == nil && len(inPlace) == 0 && noted(live, notes) && state.kept.Stamp == "" && state.kept.Runtime == "" {
		return true, diags
	}
	if err == nil && r.Session.Theirs(live.GetLabels()[contract.OwnerLabel]) {
		if err := stampPods(ctx, client, spec); err != nil {
			diags.AddWarning("Pods keep their owner", fmt.Sprintf("The job gets the owner of this configuration. %s", session.Sentence(err)))
		}
	}
	if err == nil && before.Arena != spec.Arena {
		// The job's own label, by which the next plan tells whether arena knows it, comes last.
		err = switchArena(ctx, client, spec, live.GetUID())
	}
	if err == nil {
		err = switchTensorBoard(ctx, client, before, spec, live.GetUID())
	}
	if err == nil && state.kept.Runtime == runtimeChanged {
		err = restoreRuntime(ctx, client, live)
	}
	var obj *unstructured.Unstructured
	if err == nil {
		obj, err = submit(ctx, client, spec, live, notes)
	}
	if err != nil {
		diags.AddError("Job was not changed", session.Sentence(err))
		return false, diags
	}
	r.Stamped(m)
	m.kept.Runtime = ""
	if !state.moves(before, spec) {
		return true, diags
	}
	_, more = r.refresh(ctx, m, obj)
	diags.Append(more...)
	if before.Suspend == spec.Suspend || finished(*m) {
		return true, diags
	}
	if obj, err = r.wait(ctx, client, spec, m.WaitFor.ValueString(), spec.Ended.Count()+max(1, m.expected(ctx, len(stale) == 0))); err != nil {
		diags.Append(m.unreached(ctx, "Job was changed, but does not follow", obj, err))
	}
	if obj != nil {
		why, more := r.refresh(context.WithoutCancel(ctx), m, obj)
		diags.Append(more...)
		if len(stale) == 0 {
			diags.Append(m.elsewhere(why)...)
		}
	}
	return true, diags
}
