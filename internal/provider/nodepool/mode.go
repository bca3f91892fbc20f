package nodepool

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/gates"
)

// kubeScheduler is the add-on that is ACK's own scheduler.
const kubeScheduler = "kube-scheduler"

// checkMode refuses a mode that the region does not offer, or for which the cluster is too old.
func (r *pool) checkMode(ctx context.Context, mode types.String) (diags diag.Diagnostics) {
	at := path.Root("mode")
	diags.Append(r.checkRegion(mode)...)
	if len(catalog.Gates(mode.ValueString())) == 0 || r.Session.Ledger.Applying() {
		return diags
	}
	cluster, err := r.Session.Record(ctx)
	if err != nil {
		return diags // the apply will tell
	}
	if mode.ValueString() == "core_mem" && cluster.Spec != "" && !strings.HasPrefix(cluster.Spec, "ack.pro.") {
		diags.AddAttributeError(at, "Mode needs an ACK Pro cluster", fmt.Sprintf(
			"Mode core_mem works in ACK Pro clusters, and cluster %s is of the specification %s. Upgrade the cluster, or use mode share.", cluster.ID, cluster.Spec))
	}
	addons, err := r.Session.Addons(ctx)
	if err != nil {
		return diags
	}
	runs := maps.Clone(addons)
	runs[gates.Kubernetes] = cluster.Version
	for _, g := range gates.Unmet(mode.ValueString(), runs) {
		text := fmt.Sprintf("Mode %s needs %s %s or newer, and cluster %s has %s (%s).", mode.ValueString(), g.Component, g.Minimum, cluster.ID, runs[g.Component], g.Source)
		switch g.Component {
		case gates.Kubernetes:
			diags.AddAttributeError(at, "Kubernetes is too old for the mode", text+" Upgrade the cluster.")
		case kubeScheduler:
			diags.AddAttributeWarning(at, "ACK's scheduler is too old for the mode", text+" That matters to jobs that it places: upgrade the add-on, or have gpuplan_scheduler place them.")
		default:
			diags.AddAttributeError(at, "Add-on is too old for the mode", text+" Upgrade it, for example with version of a gpuplan_addon.")
		}
	}
	return diags
}

// checkRegion refuses a mode that the region does not offer.
func (r *pool) checkRegion(mode types.String) (diags diag.Diagnostics) {
	region, ok := catalog.LookupRegion(r.Session.Region)
	if ok && mode.ValueString() == "core_mem" && !region.CoreMem {
		var offering []string
		for _, other := range catalog.Regions() {
			if other.CoreMem {
				offering = append(offering, other.Name)
			}
		}
		diags.AddAttributeError(path.Root("mode"), "Mode is not offered in the region", fmt.Sprintf(
			"Region %s does not offer mode core_mem; these do: %s.", region.Name, join(offering)))
	}
	return diags
}
