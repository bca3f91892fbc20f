package nodepool

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// remove deletes the pool unless running jobs would lose its nodes.
func (r *pool) remove(ctx context.Context, m *model) (diags diag.Diagnostics, err error) {
	if !m.AllowDisruption.ValueBool() && !leaving(m.State.ValueString()) {
		if diags = r.checkDeleted(ctx, *m); diags.HasError() {
			return diags, nil
		}
		// While the service is busy with the pool, which takes minutes, other jobs may start on it.
		if _, err := r.awaitIdle(ctx, *m); err != nil {
			return diags, err
		}
		r.Session.Changed()
		if more := r.checkDeleted(ctx, *m); more.HasError() {
			return more, nil
		}
	}
	return diags, r.deletePool(ctx, *m)
}

// checkDeleted refuses to delete a pool on whose nodes jobs run.
func (r *pool) checkDeleted(ctx context.Context, m model) diag.Diagnostics {
	all, diags := r.podsOn(ctx, m)
	if len(all) > 0 {
		diags.AddError("Running jobs would lose their nodes", refusal("deletes node pool "+m.Name.ValueString(), consentBefore, all)+
			" Where the pool is tainted, `terraform untaint` comes first.")
	}
	return diags
}

// awaitIdle waits until the service is done with what it does with a pool, unless that is to delete it, and
// returns the state of the pool, "" when it is gone.
func (r *pool) awaitIdle(ctx context.Context, m model) (state string, err error) {
	client, err := r.Session.ACS()
	if err != nil {
		return "", err
	}
	record, err := client.GetNodePool(ctx, m.cluster(), m.NodePoolID.ValueString())
	if err == nil && !leaving(record.Status.State) {
		record, err = client.WaitNodePool(ctx, m.cluster(), m.NodePoolID.ValueString(), -1, progress(ctx, m.Name.ValueString()))
	}
	if r.gone(err, m) {
		return "", nil
	}
	return record.Status.State, err
}

// deletePool deletes the pool, whatever runs on its nodes, and waits until it is gone.
func (r *pool) deletePool(ctx context.Context, m model) error {
	client, err := r.Session.ACS()
	if err != nil {
		return err
	}
	clusterID, poolID, report := m.cluster(), m.NodePoolID.ValueString(), progress(ctx, m.Name.ValueString())
	switch state, err := r.awaitIdle(ctx, m); { // a busy pool refuses to be deleted
	case err != nil:
		return err
	case state == "":
		return nil
	case state == acs.PoolDeleting:
		return client.WaitNodePoolGone(ctx, clusterID, poolID, report)
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
