package nodepool

import (
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

func (r *pool) update(ctx context.Context, _ tfsdk.State, state, m *model) (changed bool, diags diag.Diagnostics) {
	changed, diags = r.modify(ctx, *state, m)
	if diags.HasError() && !changed {
		return false, diags
	}
	if m.capacityOpen() { // the change broke off
		m.Capacity = state.Capacity
	}
	m.settleUnknown()
	if diags.HasError() {
		m.note()
	}
	return true, diags
}

// modify makes the pool what the model says. changed means that the service has
// accepted the change, whether or not it completed.
func (r *pool) modify(ctx context.Context, state model, m *model) (changed bool, diags diag.Diagnostics) {
	before, diags := state.pool(ctx)
	after, more := m.pool(ctx)
	if diags.Append(more...); diags.HasError() {
		return false, diags
	}
	c := change{before: before, after: after, from: state, to: *m}
	diags.Append(c.checkLeaving()...)
	if diags.Append(r.checkReleased(ctx, c)...); diags.HasError() {
		return false, diags
	}
	if diags.Append(r.refuseDisplaced(ctx, c)...); diags.HasError() {
		return false, diags
	}
	if !c.changesPool() && !state.differs() {
		diags.Append(r.keepSettings(ctx, m)...)
		if m.State.IsUnknown() {
			m.State = state.State
		}
		return true, diags
	}
	if diags.Append(r.checkDisplaced(ctx, c)...); diags.HasError() {
		return false, diags
	}
	client, err := r.Session.ACS()
	if err != nil {
		diags.AddError("Node pool was not changed", session.Sentence(err))
		return false, diags
	}
	clusterID, poolID := m.cluster(), m.NodePoolID.ValueString()
	record, err := client.WaitNodePool(ctx, clusterID, poolID, -1, progress(ctx, after.Name))
	if err != nil {
		diags.AddError("Node pool was not changed", session.Sentence(err))
		return false, diags
	}
	// The wait may have taken minutes, and the plan may be older still.
	if had, has := state.Size.ValueInt64(), record.ScalingGroup.DesiredSize; has != nil && *has != had {
		diags.AddAttributeError(path.Root("size"), "Node pool has another size by now", fmt.Sprintf(
			"Node pool %s had %s when the state was read by which this change is planned, and has %d now, so that the plan does not say which nodes go. Plan again, without -refresh=false.",
			after.Name, nodeCount(had), *has))
		return false, diags
	}
	if r.TakenOver(&state, record.Tag(contract.OwnerTag)) {
		diags.AddError("Node pool was not changed", fmt.Sprintf("Another configuration has taken node pool %s over since the state was read. Plan again, without -refresh=false.", after.Name))
		return false, diags
	}
	r.Session.Changed()
	if diags.Append(r.refuseDisplaced(ctx, c)...); diags.HasError() {
		return false, diags
	}
	spec, more := r.request(ctx, *m, record.NodePoolSpec)
	if diags.Append(more...); diags.HasError() {
		return false, diags
	}
	started, accepted, err := carryOut(ctx, client, clusterID, record, spec, c)
	if err != nil {
		diags.AddError("Node pool was not changed", session.Sentence(err))
		return accepted, diags
	}
	r.Stamped(m)
	diags.Append(r.settle(ctx, client, m, started, before, len(state.NodeNames.Elements()) == 0, "goes on from here")...)
	return true, diags
}

// carryOut asks the service for a change: it removes the nodes that are to go by name, changes the pool,
// and then the kubelets of its nodes where they are to be configured otherwise. accepted means that the
// service has begun, also together with an error.
func carryOut(ctx context.Context, client *acs.Client, clusterID string, record acs.NodePool, spec acs.NodePoolSpec, c change) (started acs.Started, accepted bool, err error) {
	poolID, report := record.Info.ID, progress(ctx, record.Info.Name)
	if len(c.going()) > 0 {
		if accepted, err = c.removeNodes(ctx, client, clusterID, record); err != nil {
			return started, accepted, err
		}
	}
	// The service would label nodes of another mode as well; the others are brought up to date node by node then.
	updates := len(c.otherModesLeft().Elements()) == 0
	started, err = client.ModifyNodePool(ctx, clusterID, poolID, spec, acs.ModifyOptions{UpdateNodes: updates})
	if err != nil || reflect.DeepEqual(record.NodeConfig, spec.NodeConfig) {
		return started, accepted || err == nil, err
	}
	if started.TaskID != "" {
		if _, err = client.WaitTask(ctx, started.TaskID, report); err != nil {
			return started, true, err
		}
	}
	if _, err = client.WaitNodePool(ctx, clusterID, poolID, -1, report); err != nil {
		return started, true, err
	}
	started, err = client.ModifyNodeConfig(ctx, clusterID, poolID, spec.NodeConfig, c.to.KubeletMaxParallelism.ValueInt64())
	return started, true, err
}
