package nodepool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/setting"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// limits hold unless the user sets others; a pool usually takes 3 to 8 minutes, draining up to 30.
var limits = lifecycle.Limits{Create: 60 * time.Minute, Update: 60 * time.Minute, Delete: 40 * time.Minute}

func (r *pool) add(ctx context.Context, _ tfsdk.State, m *model) (exists bool, diags diag.Diagnostics) {
	client, err := r.Session.ACS()
	if err != nil {
		diags.AddError("Node pool was not created", session.Sentence(err))
		return false, diags
	}
	defer r.Session.Ledger.Begin(object(m.Name))()
	started, before, diags := r.start(ctx, client, m)
	if started.PoolID == "" {
		return false, diags
	}
	// From here on the pool exists: whatever happens, Terraform must know it.
	m.NodePoolID, m.ID = types.StringValue(started.PoolID), types.StringValue(r.Session.ClusterID+"/"+started.PoolID)
	if !diags.HasError() {
		settled := r.settle(ctx, client, m, started, before, true, "replaces it; to keep it, run `terraform untaint` on it first")
		if lifecycle.Interrupted(ctx) { // the next plan sees by the pool itself what is missing
			settled = lifecycle.Warnings(settled)
		}
		diags.Append(settled...)
	}
	m.settleUnknown()
	if lifecycle.Interrupted(ctx) {
		m.State = types.StringValue(incomplete)
	}
	if diags.HasError() {
		m.note()
	}
	return true, diags
}

// incomplete is the state of a pool whose create broke off, until a refresh shows how far the service is.
const incomplete = "incomplete"

// settle waits until a change of the pool has reached its nodes, and reads what the
// plan left open. before is the pool before the change, first means that it had no nodes then, next
// is what the next apply does when it fails, and does not when it was interrupted.
func (r *pool) settle(ctx context.Context, client *acs.Client, m *model, started acs.Started, before capacity.Pool, first bool, next string) (diags diag.Diagnostics) {
	p, diags := m.pool(ctx)
	if diags.HasError() {
		return diags
	}
	clusterID, poolID, report := m.cluster(), m.NodePoolID.ValueString(), progress(ctx, p.Name)
	fail := func(err error) diag.Diagnostics {
		if lifecycle.Interrupted(ctx) {
			next = "goes on from here"
		}
		diags.AddError("Node pool is not as planned", fmt.Sprintf(
			"Node pool %s (%s) exists, but the change did not complete. %s The next apply %s.", p.Name, poolID, session.Sentence(err), next))
		return diags
	}
	if started.TaskID != "" {
		if _, err := client.WaitTask(ctx, started.TaskID, report); err != nil {
			return fail(err)
		}
	}
	record, err := client.WaitNodePool(ctx, clusterID, poolID, m.Size.ValueInt64(), report)
	if err != nil {
		return fail(err)
	}
	planned := *m
	diags.Append(m.refresh(ctx, clusterID, record, false)...)
	m.keepKnown(planned)

	listed, err := client.ListNodes(ctx, clusterID, poolID)
	if err != nil {
		return fail(err)
	}
	nodeNames := namesOf(listed)
	kubeClient, err := r.Session.Kube()
	if errors.Is(err, session.ErrNotConfigured) {
		diags.AddWarning("Nodes were not checked", fmt.Sprintf(
			"Node pool %s is complete at the service; whether its nodes are ready in Kubernetes was not checked: %s", p.Name, session.Sentence(err)))
	} else {
		var came []*corev1.Node
		if err == nil {
			came, err = converge(ctx, kubeClient, nodeNames, before, p)
		}
		if err != nil {
			return fail(err)
		}
		if first { // others are planned as these are
			diags.Append(short(p, came)...)
		}
	}
	if m.NodeNames.IsUnknown() {
		diags.Append(m.setNodes(ctx, nodeNames, nil)...)
	}
	m.DriftedNodes = types.MapValueMust(types.StringType, nil)
	if m.capacityOpen() {
		diags.Append(r.readCapacity(ctx, m, p)...)
	}
	return diags
}

// keepKnown puts back what the plan has decided, as Terraform demands of an apply.
func (m *model) keepKnown(planned model) {
	read := *m
	*m = planned
	m.State = read.State
	m.Settle(read.Values)
}

// settleUnknown gives a value to everything that a change which broke off left open.
func (m *model) settleUnknown() {
	m.Settle(setting.Values{})
	if m.NodeNames.IsUnknown() {
		m.NodeNames = types.ListValueMust(types.StringType, nil)
	}
	if m.DriftedNodes.IsUnknown() {
		m.DriftedNodes = types.MapValueMust(types.StringType, nil)
	}
	if m.OtherModeNodes.IsUnknown() {
		m.OtherModeNodes = types.MapValueMust(types.StringType, nil)
	}
	if m.State.IsUnknown() {
		m.State = types.StringValue(incomplete)
	}
	if m.capacityOpen() {
		m.Capacity = types.ObjectNull(capacity.Type.AttrTypes)
	}
}
