package trainingjob

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Update changes what can change while the job exists. Of settings that only concern the
// provider, what is written on the job for an import changes.
func (r *trainingJob) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.session.Ledger.StartApplying()
	var m, state model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	before, _, diags := state.spec(ctx)
	resp.Diagnostics.Append(diags...)
	spec, _, diags := m.spec(ctx)
	spec.Owner = r.session.Owner
	resp.Diagnostics.Append(diags...)
	timeout, diags := m.Timeouts.Update(ctx, defaultTimeout)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	replace, inPlace := differences(before, spec)
	if len(replace) > 0 {
		// Only a value that was unknown in the plan gets here.
		resp.Diagnostics.AddError("Job must be created again", fmt.Sprintf(
			"Now that all values are known, %s of job %s changed, which needs a new job. Apply again.", strings.Join(replace, ", "), spec.ID()))
		return
	}
	planned := m
	keepResults(&m, state, false)
	resumed := before.Suspend && !spec.Suspend
	if resumed {
		m.PlannedPlacement, m.PlannedNodeCount, m.Placed = planned.PlannedPlacement, planned.PlannedNodeCount, planned.Placed
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := r.session.Kube()
	var live *unstructured.Unstructured
	if err == nil {
		live, err = find(ctx, client, spec.Framework, spec.Namespace, spec.Name)
	}
	if absent(err) && finished(state) {
		keepResults(&m, state, false)
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...) // nothing is left that could change
		return
	}
	if err != nil {
		resp.Diagnostics.AddError("Job was not changed", session.Sentence(err))
		return
	}
	spec.Alpha = job.Alpha(live)
	promised := !m.PlannedPlacement.IsUnknown()
	if !promised {
		if resp.Diagnostics.Append(r.planOnCluster(ctx, &m, spec)...); resp.Diagnostics.HasError() {
			return
		}
	}
	if resp.Diagnostics.Append(m.carry(ctx, &spec)...); resp.Diagnostics.HasError() {
		return
	}
	var stale diag.Diagnostics
	if resumed && promised {
		stale = r.confirm(ctx, m, spec)
	}
	if resp.Diagnostics.Append(stale...); resp.Diagnostics.HasError() {
		return
	}
	notes, err := m.notes(ctx, resp.State, spec)
	if err == nil && len(inPlace) == 0 && noted(live, notes) {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
		return
	}
	var obj *unstructured.Unstructured
	if err == nil {
		obj, err = submit(ctx, client, spec, live, notes)
	}
	if err != nil {
		resp.Diagnostics.AddError("Job was not changed", session.Sentence(err))
		return
	}
	if before.Arena != spec.Arena {
		if err := switchArena(ctx, client, spec, obj.GetUID()); err != nil {
			resp.Diagnostics.AddError("Job was changed, but arena does not know", session.Sentence(err))
			return
		}
	}
	if !moves(before, spec) {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
		return
	}
	_, refreshDiags := r.refresh(ctx, &m, obj)
	resp.Diagnostics.Append(refreshDiags...)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	if before.Suspend == spec.Suspend || finished(m) {
		return
	}
	if obj, err = r.wait(ctx, client, spec, m.WaitFor.ValueString()); err != nil {
		resp.Diagnostics.AddError("Job was changed, but does not follow", session.Sentence(err))
	}
	if obj != nil {
		why, refreshDiags := r.refresh(context.WithoutCancel(ctx), &m, obj)
		resp.Diagnostics.Append(refreshDiags...)
		if len(stale) == 0 {
			resp.Diagnostics.Append(m.elsewhere(why)...)
		}
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}
