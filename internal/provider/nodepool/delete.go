package nodepool

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

func (r *pool) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.session.Ledger.StartApplying()
	var m model
	if resp.Diagnostics.Append(req.State.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Timeouts.Delete(ctx, deleteTimeout)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer r.session.Ledger.Begin(object(m.Name))()
	if r.session.Ledger.Taken(object(m.Name)) {
		return // it is another resource's now
	}
	if !m.AllowDisruption.ValueBool() && !leaving(m.State.ValueString()) {
		all, diags := r.podsOn(ctx, m)
		if len(all) > 0 {
			diags.AddError("Running jobs would lose their nodes", refusal("deletes node pool "+m.Name.ValueString(), all))
		}
		if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
			return
		}
	}
	if err := r.remove(ctx, m); err != nil {
		resp.Diagnostics.AddError("Node pool was not deleted", session.Sentence(err))
	}
}

// remove deletes the pool with its nodes and waits until it is gone.
func (r *pool) remove(ctx context.Context, m model) error {
	client, err := r.session.ACS()
	if err != nil {
		return err
	}
	clusterID, poolID, report := m.cluster(), m.NodePoolID.ValueString(), progress(ctx, m.Name.ValueString())
	record, err := client.GetNodePool(ctx, clusterID, poolID)
	switch {
	case acs.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case record.Status.State == acs.PoolDeleting:
		return client.WaitNodePoolGone(ctx, clusterID, poolID, report)
	case record.Status.State != acs.PoolDeleteFailed: // a busy pool refuses to be deleted
		switch _, err := client.WaitNodePool(ctx, clusterID, poolID, -1, report); {
		case acs.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
	}
	started, err := client.DeleteNodePool(ctx, clusterID, poolID, true)
	if err != nil {
		return err
	}
	if started.TaskID != "" {
		if _, err := client.WaitTask(ctx, started.TaskID, report); err != nil {
			return err
		}
	}
	return client.WaitNodePoolGone(ctx, clusterID, poolID, report)
}
