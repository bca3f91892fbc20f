package nodepool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/erdma"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// planDevices refuses nodes with eRDMA devices that do not pin CPUs, where pods get such devices by NUMA node, and says
// the same to the walk. It warns where that is so in the cluster and the walk has not come to the controller, which it may
// be about to change. state is nil for a pool all of whose nodes are new.
func (r *pool) planDevices(ctx context.Context, config tfsdk.Config, state *model, plan model) (diags diag.Diagnostics) {
	if !erdma.HasDevices(plan.types()) || plan.Size.ValueInt64() == 0 || r.Session.Ledger.Applying() {
		return nil
	}
	var written types.String
	if diags = config.GetAttribute(ctx, path.Root("cpu_policy"), &written); diags.HasError() || written.IsUnknown() {
		return diags
	}
	p := ledger.DevicePool{Name: plan.Name.ValueString()}
	p.CPUs, p.Changes = r.pinning(ctx, state, plan)
	d, now := r.Session.Ledger.PlanDevicePool(p), ""
	if !d.Known && p.Changes && p.CPUs != ledger.Pinned && r.givesByNUMANode(ctx) {
		d.ByNUMANode, now = true, " as it is configured now"
	}
	gives := fmt.Sprintf("The nodes of node pool %s have eRDMA devices, and the add-on %s%s gives each pod one of them, by its NUMA node (allocateAllDevices is not true): only pods that are pinned to CPUs have one", p.Name, contract.ERDMAController, now)
	at := path.Root("cpu_policy")
	if plan.KubeletCPUPolicy(ctx) != "" {
		at = path.Root("kubelet_config")
	}
	const notStatic = ", and the CPU policy of the nodes is not static. Set cpu_policy = \"static\", which nodes get when they join, or give pods all devices of their nodes."
	switch {
	case d.Refuse(p) && !d.Known:
		diags.AddAttributeWarning(at, "CPU policy is not static", gives+notStatic)
	case d.Refuse(p):
		diags.AddAttributeError(at, "CPU policy is not static", gives+notStatic)
	case d.Warn(p):
		diags.AddAttributeWarning(at, "Nodes keep their CPU policy", fmt.Sprintf(
			"%s. Nodes get cpu_policy when they join, and these have joined with another one: %s. Pods have no such device there until the nodes are replaced, for example with the option -replace.", gives, join(texts(state.NodeNames.Elements()))))
	}
	return diags
}

// givesByNUMANode reports whether pods get eRDMA devices by NUMA node in the cluster as it is, as far as its service tells.
func (r *pool) givesByNUMANode(ctx context.Context) bool {
	if _, visited := r.Session.Ledger.Program(contract.ERDMAController); visited {
		return false // it goes, or becomes what is not known yet
	}
	live, err := r.Session.Addon(ctx, contract.ERDMAController)
	if err != nil || live == nil {
		return false
	}
	var config map[string]any
	return json.Unmarshal([]byte(cmp.Or(live.Config, "{}")), &config) == nil && erdma.ByNUMANode(config)
}

// pinning reports which nodes of a pool will pin CPUs, and whether the plan changes what decides about that. Kubelets
// get their configuration again on nodes that are there; all else a node gets when it joins.
func (r *pool) pinning(ctx context.Context, state *model, plan model) (which ledger.Pinning, changes bool) {
	if state == nil {
		if plan.PinsCPUs(ctx) {
			return ledger.Pinned, true
		}
		return ledger.Unpinned, true
	}
	have := state.PinsCPUs(ctx) || !known.Set(state.CPUPolicy) && r.pinsAtTheService(ctx, *state)
	will := plan.PinsCPUs(ctx) || !known.Set(plan.CPUPolicy) && have
	changes = have != will || !plan.Size.Equal(state.Size) || !slices.Equal(plan.types(), state.types())
	switch {
	case !will:
		return ledger.Unpinned, changes
	case !have && state.Size.ValueInt64() > 0 && plan.KubeletCPUPolicy(ctx) != acs.CPUPolicyStatic:
		return ledger.PinnedOnceReplaced, changes
	}
	return ledger.Pinned, changes
}

// pinsAtTheService reports whether nodes that join a pool pin CPUs though its configuration does not say so.
func (r *pool) pinsAtTheService(ctx context.Context, state model) bool {
	client, err := r.Session.ACS()
	if err != nil {
		return false
	}
	record, err := client.GetNodePool(ctx, state.cluster(), state.NodePoolID.ValueString())
	return err == nil && erdma.Pins(record.NodePoolSpec)
}
