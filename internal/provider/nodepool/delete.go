package nodepool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

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
			spent := map[string]bool{}
			if diags, err = r.awaitJobs(ctx, *m, state, spent); err != nil || diags.HasError() {
				return diags, err
			}
			// While the service is busy with the pool, which takes minutes, other jobs may start on it.
			if state, err = r.awaitIdle(ctx, *m); err != nil {
				return diags, err
			}
			r.Session.Changed()
			if more, err := r.awaitJobs(ctx, *m, state, spent); err != nil || more.HasError() {
				return more, err
			}
		}
	}
	return diags, r.deletePool(ctx, *m)
}

// How long jobs of this configuration may stay on the nodes of a pool that is deleted while nobody deletes any: undeleted
// where none of their pods ends, ending where one does. They are looked at again every often.
const undeleted, ending, often = 10 * time.Second, 2 * time.Minute, 2 * time.Second

// awaitJobs waits until no jobs run on the nodes of a pool, which is in a state, as long as they may be deleted by the same
// apply: nothing but a reference orders the two. It refuses to take nodes away from others. Jobs that the plan deletes, and
// that are still there when nothing is deleted any more, are spared no longer: with -parallelism=1 their deletion waits for this one.
func (r *pool) awaitJobs(ctx context.Context, m model, state string, spent map[string]bool) (diags diag.Diagnostics, err error) {
	planned := func(p running.Pod) bool { return r.Session.Ledger.ExpectsDeletion(p.Owner) }
	seen, since := "", time.Now()
	for {
		all, more := r.podsOn(ctx, m)
		all = slices.DeleteFunc(all, func(p running.Pod) bool { return spent[p.Owner] })
		if diags = more; len(all) == 0 || diags.HasError() {
			return diags, nil
		}
		if slices.ContainsFunc(all, func(p running.Pod) bool { return !planned(p) && !r.Session.Owns(p.Object.Labels) }) {
			return append(diags, r.refuseDeletion(m, state, all)...), nil
		}
		patience, there := undeleted, running.Describe(all)
		switch {
		case slices.ContainsFunc(all, func(p running.Pod) bool { return p.Object.DeletionTimestamp != nil }):
			patience = ending
		case r.Session.Parallelism == 1:
			patience = 0 // whatever deletes them waits for this
		}
		if there != seen {
			seen, since = there, time.Now()
		}
		tflog.Info(ctx, fmt.Sprintf("node pool %s: waiting for jobs of this configuration to leave its nodes: %s", m.Name.ValueString(), there))
		switch going := r.Session.Ledger.AwaitDeletion(ctx, min(often, patience)); {
		case going:
			since = time.Now()
		case time.Since(since) >= patience:
			if !slices.ContainsFunc(all, func(p running.Pod) bool { return !planned(p) }) {
				for _, owner := range running.Owners(all) {
					spent[owner] = true
				}
				return diags, nil
			}
			return append(diags, r.refuseDeletion(m, state, all)...), nil
		}
		if err := ctx.Err(); err != nil {
			return diags, fmt.Errorf("jobs of this configuration do not leave the nodes of node pool %s: %s: %w", m.Name.ValueString(), there, err)
		}
		r.Session.Changed()
	}
}

// refuseDeletion refuses to delete a pool, which is in a state, on whose nodes jobs run.
func (r *pool) refuseDeletion(m model, state string, all []running.Pod) (diags diag.Diagnostics) {
	ours := ""
	if own := slices.DeleteFunc(slices.Clone(all), func(p running.Pod) bool { return !r.Session.Owns(p.Object.Labels) }); len(own) > 0 {
		ours = fmt.Sprintf(" Of this configuration are %s, which this apply has not deleted so far. What it deletes comes before its nodes where it names the pool in pools or depends_on; "+
			"what is in no state, as after an apply that was cut off, another `terraform apply` takes over, so that a destroy deletes it before its nodes.", strings.Join(running.Owners(own), ", "))
	}
	diags.AddError("Running jobs would lose their nodes", refusal("deletes node pool "+m.Name.ValueString(), consentBefore(state), all)+
		" Where the pool is tainted, `terraform untaint` comes first."+ours)
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
