package addon

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/gates"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// restate gives a model of an add-on the settings of another one.
func restate[M any, P model[M]](m P, of *M) {
	base := *m.base()
	*m = *of
	*m.base() = base
}

// ModifyPlan says what a change brings about, and refuses what the service would.
func (r *addon[M, P]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Session == nil {
		return
	}
	var planned, stated, written M
	plan, state := P(&planned), P(&stated)
	exists, stays := !req.State.Raw.IsNull(), !req.Plan.Raw.IsNull()
	if stays {
		resp.Diagnostics.Append(req.Plan.Get(ctx, plan)...)
		resp.Diagnostics.Append(req.Config.Get(ctx, &written)...)
	}
	if exists {
		resp.Diagnostics.Append(req.State.Get(ctx, state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if !stays {
		if state.base().uninstalls() {
			r.Session.Ledger.RecordProgram(state.name().ValueString(), false)
		}
		return
	}
	kept := exists && plan.name().Equal(state.name())
	if restate(plan, &written); kept && state.base().imported() && covers(state.settings(), plan.settings()) {
		restate(plan, &stated)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
	if exists && !kept && state.base().uninstalls() {
		r.Session.Ledger.RecordProgram(state.name().ValueString(), false)
	}
	if exists && !kept { // where none is written, the plan has the version of the add-on that goes
		resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("version"), &plan.base().Version)...)
	}
	r.Session.Ledger.RecordVersion(plan.name().ValueString(), plan.base().Version.ValueString())
	if kept {
		was, b := state.base(), plan.base()
		b.Installed, b.PreviousConfig = was.Installed, was.PreviousConfig
		if !plan.settings().Equal(state.settings()) && !was.Installed.ValueBool() {
			b.PreviousConfig = jsontypes.NewNormalizedUnknown()
		}
		b.State = was.State
		resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
		if was.State.ValueString() != acs.AddonActive && !resp.Plan.Raw.Equal(req.State.Raw) {
			b.State = types.StringUnknown() // a change waits until it is
			resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
		}
		if r.Session.ClusterID != "" && was.cluster() != r.Session.ClusterID {
			resp.Diagnostics.AddAttributeError(path.Root("id"), "Add-on is of another cluster", fmt.Sprintf(
				"Add-on %s is one of cluster %s, and the provider is configured for cluster %s. Set %s back, use another provider configuration (alias), or give it up with `terraform state rm`.",
				state.name().ValueString(), was.cluster(), r.Session.ClusterID, session.ClusterID))
			return
		}
	}
	changes := !exists || !resp.Plan.Raw.Equal(req.State.Raw)
	was := P(new(M))
	if kept {
		was = state
	}
	resp.Diagnostics.Append(r.planDevices(ctx, was, plan, changes)...)
	if r.Session.Ledger.Applying() || !changes || plan.name().IsUnknown() || plan.settings().IsUnknown() || plan.base().Version.IsUnknown() && exists {
		return
	}
	resp.Diagnostics.Append(r.check(ctx, plan)...)
}

// check asks the service whether the add-on can become what the plan says.
func (r *addon[M, P]) check(ctx context.Context, plan P) (diags diag.Diagnostics) {
	client, err := r.Session.ACS()
	if r.Session.NotChecked(err, &diags) {
		return diags
	}
	name, clusterID, wantedVersion := plan.name().ValueString(), r.Session.ClusterID, plan.base().Version.ValueString()
	var live acs.AddonInstance
	if err == nil {
		if live, err = client.GetAddon(ctx, clusterID, name); acs.Code(err) == "AddonNotFound" {
			err = nil
		}
	}
	var info acs.AddonInfo
	if err == nil {
		info, err = client.AddonMetadata(ctx, clusterID, name, wantedVersion)
	}
	switch {
	case acs.Code(err) == "AddonNotFound":
		diags.AddAttributeError(r.atName(), "No such add-on", fmt.Sprintf("The service has no add-on %q for cluster %s. The console lists those that it has, under Add-ons.", name, clusterID))
		return diags
	case err != nil:
		diags.AddError("Add-on cannot be checked", session.Sentence(err))
		return diags
	}
	if live.Name == "" && len(info.SupportedActions) > 0 && !slices.Contains(info.SupportedActions, "Install") {
		diags.AddAttributeError(r.atName(), "Add-on cannot be installed", fmt.Sprintf("Cluster %s lacks add-on %s, and the service does not install it.", clusterID, name))
	}
	diags.Append(checkVersion(live.Version, wantedVersion)...)
	wanted, err := parse(plan.settings().ValueString())
	if err != nil {
		return diags // said by the validator
	}
	diags.Append(checkEmpty(wanted, plan.place)...) // it may have been unknown before
	diags.Append(checkSettings(name, info.ConfigSchema, wanted, plan.place)...)
	diags.Append(r.checkGates(ctx, plan, cmp.Or(wantedVersion, live.Version), wanted)...)
	if r.rules != nil {
		diags.Append(r.rules(ctx, client, clusterID, plan)...)
	}
	if name == contract.ERDMAController {
		diags.Append(r.checkClusterType(ctx)...)
		diags.Append(r.checkTerway(ctx)...)
	}
	return diags
}

// atName is where the user says which add-on it is.
func (r *addon[M, P]) atName() path.Path {
	if r.only != "" {
		return path.Empty()
	}
	return path.Root("name")
}

// checkVersion refuses to go back to an older version, which the service does not.
func checkVersion(from, to string) (diags diag.Diagnostics) {
	have, err := version.ParseGeneric(from)
	if err != nil {
		return nil
	}
	if want, err := version.ParseGeneric(to); err == nil && want.LessThan(have) {
		diags.AddAttributeError(path.Root("version"), "Add-on cannot go back", fmt.Sprintf("Version %s is older than %s, which runs: the service only upgrades add-ons. Write %[2]s or a newer one, or leave version out.", to, from))
	}
	return diags
}

// features are those of the catalogue's gates that a setting of an add-on asks for.
var features = map[string]map[string]string{contract.KubeScheduler: {"enableReservation": "enable_reservation"}}

// checkGates refuses settings that the cluster's version or the add-on's is too old for.
func (r *addon[M, P]) checkGates(ctx context.Context, plan P, addonVersion string, wanted config) (diags diag.Diagnostics) {
	name := plan.name().ValueString()
	for setting, feature := range features[name] {
		if wanted[setting] != true {
			continue
		}
		cluster, err := r.Session.Record(ctx)
		if err != nil {
			diags.AddError("Add-on cannot be checked", session.Sentence(err))
			return diags
		}
		runs := map[string]string{gates.Kubernetes: cluster.Version, contract.KubeScheduler: addonVersion}
		for _, g := range gates.Unmet(feature, runs) {
			at, called := plan.place([]string{setting})
			upgrade := "Upgrade the cluster"
			if g.Component == name {
				upgrade = "Set version to a newer one"
			}
			diags.AddAttributeError(at, "Version is too old", fmt.Sprintf(
				"%s of add-on %s needs %s %s or newer, and it is %s (%s). %s, or leave the setting out.", called, name, g.Component, g.Minimum, runs[g.Component], g.Source, upgrade))
		}
	}
	return diags
}
