package nodepool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
)

// remove deletes the pool unless running jobs would lose its nodes, which they lose anyway where it is being deleted.
func (r *pool) remove(ctx context.Context, m *model) (diags diag.Diagnostics, err error) {
	if diags = r.refuseElsewhere(*m); diags.HasError() {
		return diags, nil
	}
	if !m.AllowDisruption.ValueBool() {
		state, err := r.stateOf(ctx, *m)
		if err != nil {
			return nil, err
		}
		if state != "" && state != acs.PoolDeleting {
			if diags = r.checkDeleted(ctx, *m, state); diags.HasError() {
				return diags, nil
			}
			// While the service is busy with the pool, which takes minutes, other jobs may start on it.
			if state, err = r.awaitIdle(ctx, *m); err != nil {
				return diags, err
			}
			r.Session.Changed()
			if more := r.checkDeleted(ctx, *m, state); more.HasError() {
				return more, nil
			}
		}
	}
	return diags, r.deletePool(ctx, *m)
}

// checkDeleted refuses to delete a pool, which is in a state, on whose nodes jobs run.
func (r *pool) checkDeleted(ctx context.Context, m model, state string) diag.Diagnostics {
	all, diags := r.podsOn(ctx, m)
	if len(all) > 0 {
		ours := ""
		if own := slices.DeleteFunc(slices.Clone(all), func(p running.Pod) bool { return !r.Session.Owns(p.Object.Labels) }); len(own) > 0 {
			ours = fmt.Sprintf(" Of this configuration are %s: what is in no state, as after an apply that was cut off, another `terraform apply` takes over, so that a destroy deletes it before its nodes.", strings.Join(running.Owners(own), ", "))
		}
		diags.AddError("Running jobs would lose their nodes", refusal("deletes node pool "+m.Name.ValueString(), consentBefore(state), all)+
			" Where the pool is tainted, `terraform untaint` comes first."+ours)
	}
	return diags
}

// stateOf is the state in which the service has a pool now, "" when it is gone, or another configuration's by now.
func (r *pool) stateOf(ctx context.Context, m model) (string, error) {
	client, err := r.Session.ACS()
	if err != nil {
		return "", err
	}
	record, err := client.GetNodePool(ctx, m.cluster(), m.NodePoolID.ValueString())
	if r.gone(err, m) || err == nil && r.TakenOver(&m, record.Tag(contract.OwnerTag)) {
		return "", nil
	}
	return record.Status.State, err
}

// awaitIdle waits until the service is done with what it does with a pool, unless that is to delete it, and
// returns the state of the pool, "" when it is gone.
func (r *pool) awaitIdle(ctx context.Context, m model) (string, error) {
	state, err := r.stateOf(ctx, m)
	if err != nil || state == "" || leaving(state) {
		return state, err
	}
	client, err := r.Session.ACS()
	if err != nil {
		return "", err
	}
	record, err := client.WaitNodePool(ctx, m.cluster(), m.NodePoolID.ValueString(), -1, progress(ctx, m.Name.ValueString()))
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
