package nodepool

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/erdma"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// planDevices refuses nodes with eRDMA devices that do not pin CPUs, where pods get such devices by NUMA node, and says
// the same to the walk. state is nil for a pool all of whose nodes are new.
func (r *pool) planDevices(ctx context.Context, config tfsdk.Config, state *model, plan model) (diags diag.Diagnostics) {
	if !erdma.HasDevices(plan.types()) || plan.Size.ValueInt64() == 0 || r.Session.Ledger.Applying() {
		return nil
	}
	var written types.String
	if diags = config.GetAttribute(ctx, path.Root("cpu_policy"), &written); diags.HasError() || written.IsUnknown() {
		return diags
	}
	p := ledger.DevicePool{Name: plan.Name.ValueString(), Pinned: plan.PinsCPUs(ctx)}
	p.Changes = state == nil || !plan.CPUPolicy.Equal(state.CPUPolicy) || !plan.Size.Equal(state.Size) || !slices.Equal(plan.types(), state.types())
	if r.Session.Ledger.PlanDevicePool(p).Refuse(p) {
		diags.AddAttributeError(path.Root("cpu_policy"), "CPU policy is not static", fmt.Sprintf(
			"cpu_policy of node pool %s is not static, its nodes have eRDMA devices, and the add-on %s gives each pod one of them, by its NUMA node (allocateAllDevices is not true): only pods that are pinned to CPUs have one. "+
				"Set cpu_policy = \"static\", which nodes get when they join, or give pods all devices of their nodes.", p.Name, contract.ERDMAController))
	}
	return diags
}
