package addon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/erdma"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// planDevices refuses one eRDMA device by NUMA node where nodes do not pin CPUs, by which the device is chosen. It
// says the same to the walk, whichever type of resource configures the controller. was is the resource before.
func (r *addon[M, P]) planDevices(ctx context.Context, was, plan P, changes bool) (diags diag.Diagnostics) {
	if plan.name().ValueString() != contract.ERDMAController || plan.settings().IsUnknown() || r.Session.Ledger.Applying() {
		return nil
	}
	var live acs.AddonInstance
	if instance, err := r.Session.Addon(ctx, contract.ERDMAController); err == nil && instance != nil { // the check says what cannot be read
		live = *instance
	}
	will, err := becomes(was, plan, live)
	if err != nil {
		return nil
	}
	d := ledger.Devices{ByNUMANode: erdma.ByNUMANode(will), Changes: changes}
	pools, old := r.Session.Ledger.PlanDevices(d)
	if client, err := r.Session.ACS(); d.ByNUMANode && changes && err == nil {
		listed, err := client.ListNodePools(ctx, r.Session.ClusterID)
		if err != nil {
			diags.AddError("Node pools cannot be listed", session.Sentence(err))
			return diags
		}
		pools = append(pools, r.unpinned(listed)...)
	}
	at, called := plan.place(erdma.AllDevices)
	if len(old) > 0 {
		diags.AddAttributeWarning(at, "Nodes keep their CPU policy", fmt.Sprintf(
			"%s is not true: each pod gets the eRDMA device of its NUMA node, which takes nodes with the CPU policy static. Nodes of these pools have joined with another one, which they keep until they are replaced: %s.",
			called, strings.Join(old, ", ")))
	}
	if len(pools) == 0 {
		return diags
	}
	diags.AddAttributeError(at, "CPU policy is not static", fmt.Sprintf(
		"%s is not true: each pod gets the eRDMA device of its NUMA node, which takes nodes with the CPU policy static, and the nodes of these pools have eRDMA devices and another policy: %s. "+
			"Replace them by pools with cpu_policy = \"static\", since nodes get it when they join, or give pods all devices of their nodes: set it to true.", called, strings.Join(pools, ", ")))
	return diags
}

// unpinned names the pools with nodes that have eRDMA devices and do not pin CPUs. Of those of this configuration their
// own visit says what becomes of them, unless the walk visits a part only.
func (r *addon[M, P]) unpinned(pools []acs.NodePool) (names []string) {
	for _, p := range pools {
		ours := r.Session.Ledger.VisitedPool(r.Session.ClusterID+"/"+p.Info.ID) || r.Session.Mine(p.Tag(contract.OwnerTag)) && !r.Session.Targets
		goes := p.Status.State == acs.PoolDeleting || p.Status.Total == 0
		if !ours && !goes && !erdma.Pins(p.NodePoolSpec) && erdma.HasDevices(p.ScalingGroup.InstanceTypes) {
			names = append(names, p.Info.Name)
		}
	}
	return names
}

// becomes is the configuration of an add-on once it is as planned, where the service has live. It is what
// [addon.set] brings about.
func becomes[M any, P model[M]](was, plan P, live acs.AddonInstance) (config, error) {
	var failed error
	read := func(text string) config {
		c, err := parse(text)
		failed = errors.Join(failed, err)
		return c
	}
	owned, wanted := read(was.settings().ValueString()), read(plan.settings().ValueString())
	known, is := read(was.base().PreviousConfig.ValueString()), read(live.Config)
	return merged(is, merged(undo(owned, wanted, known), wanted)), failed
}
