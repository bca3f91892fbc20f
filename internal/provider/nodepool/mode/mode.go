// Package mode checks that a cluster can run nodes in a GPU mode.
package mode

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/gates"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Check refuses a mode that the region or the kind of cluster does not offer, or for which the cluster or an add-on is too
// old, and warns of an add-on that the mode needs and the cluster lacks, as they are once the plan is carried out, as far
// as the walk has come. Its findings are at the attribute mode of a pool.
func Check(ctx context.Context, s *session.Session, mode string, instanceTypes []string) (diags diag.Diagnostics) {
	at := path.Root("mode")
	diags.Append(checkRegion(s.Region, mode)...)
	if at, without := withoutMIG(instanceTypes); mode == "mig" && without != "" {
		diags.AddAttributeError(path.Root("mode"), "GPUs without MIG", fmt.Sprintf("Mode mig divides GPUs by MIG, which %s does not have (%s). Use mode share, or another instance type.", without, at))
	}
	if len(catalog.Gates(mode)) == 0 || s.Ledger.Applying() {
		return diags
	}
	cluster, err := s.Record(ctx)
	if err != nil {
		return diags // the apply will tell
	}
	if kind := notPro(cluster); mode == "core_mem" && kind != "" {
		diags.AddAttributeError(at, "Mode needs an ACK Pro cluster", fmt.Sprintf(
			"Mode core_mem works in ACK Pro clusters, and cluster %s is %s. Migrate it to a Pro cluster, or use mode share.", cluster.ID, kind))
	}
	runs := map[string]string{gates.Kubernetes: cluster.Version}
	for _, g := range catalog.Gates(mode) {
		if g.Component == gates.Kubernetes {
			continue
		}
		if runs[g.Component], err = s.AddonVersion(ctx, g.Component); err != nil {
			return diags
		}
		if has, err := s.KeepsAddon(ctx, g.Component); err == nil && !has && g.Required && !s.OffersDevices(ctx) {
			diags.AddAttributeWarning(at, "Mode lacks its add-on", fmt.Sprintf(
				"Mode %s needs the add-on %s, which cluster %s lacks (%s): without it the nodes offer no GPUs, and jobs wait. Declare a gpuplan_addon of that name, and name it in depends_on of the node pool. "+
					"Where device_plugins of a gpuplan_node_agent is true the node agent offers the GPUs, and the add-on is not needed: name that one in depends_on then.", mode, g.Component, cluster.ID, g.Source))
		}
	}
	for _, g := range gates.Unmet(mode, runs) {
		text := fmt.Sprintf("Mode %s needs %s %s or newer, and cluster %s has %s (%s).", mode, g.Component, g.Minimum, cluster.ID, runs[g.Component], g.Source)
		const first = "and name it in depends_on of the node pool, so that its version counts"
		switch g.Component {
		case gates.Kubernetes:
			diags.AddAttributeError(at, "Kubernetes is too old for the mode", text+" Upgrade the cluster.")
		case contract.KubeScheduler:
			diags.AddAttributeWarning(at, "ACK's scheduler is too old for the mode", text+" That matters to jobs that it places: upgrade the add-on, for example with version of a gpuplan_scheduler_config, "+first+"; or have gpuplan_scheduler place them.")
		default:
			diags.AddAttributeError(at, "Add-on is too old for the mode", text+" Upgrade it, for example with version of a gpuplan_addon, "+first+".")
		}
	}
	return diags
}

// notPro says what a cluster is that is known to be no ACK Pro cluster, "" for others. Only managed clusters have a
// specification, so that the type tells of those without.
func notPro(cluster acs.Cluster) string {
	switch {
	case strings.HasPrefix(cluster.Spec, "ack.pro."):
		return ""
	case cluster.Spec != "":
		return "of the specification " + cluster.Spec
	case cluster.Type != "" && cluster.Type != acs.ManagedCluster:
		return "of the type " + cluster.Type
	default:
		return ""
	}
}

// withoutMIG is the first instance type of which the GPUs are known to have no MIG, and their model.
func withoutMIG(instanceTypes []string) (instanceType, model string) {
	for _, name := range instanceTypes {
		if it, ok := catalog.Lookup(name); ok && it.NoMIG {
			return name, it.GPUModel
		}
	}
	return "", ""
}

// checkRegion refuses a mode that the region does not offer.
func checkRegion(name, mode string) (diags diag.Diagnostics) {
	region, ok := catalog.LookupRegion(name)
	if !ok && name != "" && mode == "core_mem" {
		diags.AddAttributeWarning(path.Root("mode"), "Region is not known", fmt.Sprintf(
			"Whether region %s offers mode core_mem is not known here: this provider does not know the region.", name))
	}
	if ok && mode == "core_mem" && !region.CoreMem {
		var offering []string
		for _, other := range catalog.Regions() {
			if other.CoreMem {
				offering = append(offering, other.Name)
			}
		}
		diags.AddAttributeError(path.Root("mode"), "Mode is not offered in the region", fmt.Sprintf(
			"Region %s does not offer mode core_mem; these do: %s.", region.Name, strings.Join(offering, ", ")))
	}
	return diags
}
