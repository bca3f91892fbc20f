package addon

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// add installs the add-on, or takes the one that the cluster has, and configures it.
func (r *addon) add(ctx context.Context, _ tfsdk.State, m *model) (exists bool, diags diag.Diagnostics) {
	client, err := r.Session.ACS()
	if err != nil {
		return false, failed("Add-on was not installed", err)
	}
	defer r.Session.Ledger.Begin(named(m.Name))()
	if !r.Session.Ledger.Take(named(m.Name)) {
		return false, failed("Add-on was not installed", session.Taken(named(m.Name)))
	}
	clusterID, name := r.Session.ClusterID, m.Name.ValueString()
	_, err = client.GetAddon(ctx, clusterID, name)
	installs := acs.Code(err) == "AddonNotFound"
	if err != nil && !installs {
		return false, failed("Add-on was not installed", err)
	}
	m.ID, m.Installed = types.StringValue(clusterID+"/"+name), types.BoolValue(installs)
	defer m.settleUnknown(jsontypes.NewNormalizedNull())
	if installs {
		task, err := client.InstallAddon(ctx, clusterID, acs.Addon{Name: name, Version: m.Version.ValueString(), Config: m.Config.ValueString()})
		if err != nil {
			return false, failed("Add-on was not installed", err)
		}
		_, err = client.WaitTask(ctx, task, progress(ctx, name))
		if err != nil {
			if _, lost := client.GetAddon(ctx, clusterID, name); acs.Code(lost) == "AddonNotFound" {
				return false, failed("Add-on was not installed", err)
			}
			diags.Append(failed("Add-on is not as planned", err)...)
		}
	} else {
		_, more := r.set(ctx, client, model{}, m)
		diags.Append(more...)
	}
	return true, append(diags, r.settle(ctx, client, m)...)
}

// change upgrades and configures the add-on.
func (r *addon) change(ctx context.Context, _ tfsdk.State, was, m *model) (changed bool, diags diag.Diagnostics) {
	client, err := r.Session.ACS()
	if err != nil {
		return false, failed("Add-on was not changed", err)
	}
	m.Installed = was.Installed
	defer m.settleUnknown(was.PreviousConfig)
	if changed, diags = r.set(ctx, client, *was, m); !changed && diags.HasError() {
		return false, diags
	}
	return true, append(diags, r.settle(ctx, client, m)...)
}

// set upgrades an add-on that is installed to the version of the model, if that is another one,
// and gives it the settings of the model. was is the resource before. changed means that the service has
// accepted all of it.
func (r *addon) set(ctx context.Context, client *acs.Client, was model, m *model) (changed bool, diags diag.Diagnostics) {
	const summary = "Add-on is not as planned"
	clusterID, name := m.cluster(), m.Name.ValueString()
	owned, err := parse(was.Config.ValueString())
	var wanted, known, is config
	if err == nil {
		wanted, err = parse(m.Config.ValueString())
	}
	if err == nil {
		known, err = parse(was.PreviousConfig.ValueString())
	}
	var live acs.AddonInstance
	if err == nil {
		live, err = client.WaitAddon(ctx, clusterID, name, progress(ctx, name)) // another change may be under way
	}
	if version := m.Version.ValueString(); err == nil && version != "" && version != live.Version {
		live, err = upgrade(ctx, client, clusterID, live, version)
	}
	if err == nil {
		if is, err = parse(live.Config); err != nil {
			err = fmt.Errorf("the service's configuration of add-on %s cannot be read: %w", name, err)
		}
	}
	if err != nil {
		return false, failed(summary, err)
	}
	if m.PreviousConfig.IsUnknown() && !m.Installed.ValueBool() {
		m.PreviousConfig = jsontypes.NewNormalizedValue(text(before(wanted, known, is)))
	}
	send := merged(undo(owned, wanted, known), wanted)
	if same(only(is, send), send) {
		return true, nil
	}
	if err := client.ModifyAddon(ctx, clusterID, name, text(send)); err != nil {
		return false, failed(summary, err)
	}
	return true, nil
}

// upgrade changes the version of an add-on and waits until it runs.
func upgrade(ctx context.Context, client *acs.Client, clusterID string, live acs.AddonInstance, version string) (acs.AddonInstance, error) {
	task, err := client.UpgradeAddon(ctx, clusterID, live.Name, live.Version, version)
	if err == nil && task != "" {
		_, err = client.WaitTask(ctx, task, progress(ctx, live.Name))
	}
	if err != nil {
		return live, err
	}
	return client.WaitAddon(ctx, clusterID, live.Name, progress(ctx, live.Name))
}

// settle waits until the add-on runs as it is configured, and reads what the plan left open.
func (r *addon) settle(ctx context.Context, client *acs.Client, m *model) diag.Diagnostics {
	live, err := client.WaitAddon(ctx, m.cluster(), m.Name.ValueString(), progress(ctx, m.Name.ValueString()))
	if err != nil {
		return failed("Add-on is not as planned", err)
	}
	if m.Version.IsUnknown() {
		m.Version = types.StringValue(live.Version)
	}
	m.State = types.StringValue(live.State)
	return nil
}

// settleUnknown gives a value to everything that a change left open, or that broke off.
func (m *model) settleUnknown(previous jsontypes.Normalized) {
	if m.PreviousConfig.IsUnknown() {
		m.PreviousConfig = previous
	}
	for _, s := range []*types.String{&m.Version, &m.State} {
		if s.IsUnknown() {
			*s = types.StringNull()
		}
	}
}

// remove uninstalls an add-on that the resource has installed, and gives the settings of another
// one back.
func (r *addon) remove(ctx context.Context, m *model) (diags diag.Diagnostics, err error) {
	if m.KeepOnDestroy.ValueBool() {
		return nil, nil
	}
	client, err := r.Session.ACS()
	if err != nil {
		return nil, err
	}
	clusterID, name := m.cluster(), m.Name.ValueString()
	if m.uninstalls() {
		task, err := client.UninstallAddon(ctx, clusterID, name)
		if err == nil && task != "" {
			_, err = client.WaitTask(ctx, task, progress(ctx, name))
		}
		return nil, err
	}
	if m.PreviousConfig.IsNull() { // imported: nobody knows what it was
		return nil, nil
	}
	owned, err := parse(m.Config.ValueString())
	if err != nil {
		return nil, err
	}
	known, err := parse(m.PreviousConfig.ValueString())
	if err != nil {
		return nil, err
	}
	send := undo(owned, config{}, known)
	if len(send) == 0 {
		return nil, nil
	}
	switch err := client.ModifyAddon(ctx, clusterID, name, text(send)); {
	case acs.Code(err) == "AddonNotFound":
		return nil, nil
	case err != nil:
		return nil, err
	}
	_, err = client.WaitAddon(ctx, clusterID, name, progress(ctx, name))
	return nil, err
}

// uninstalls reports whether the add-on goes with the resource.
func (m model) uninstalls() bool { return m.Installed.ValueBool() && !m.KeepOnDestroy.ValueBool() }

// progress logs what the service is doing.
func progress(ctx context.Context, name string) func(acs.Progress) {
	return func(p acs.Progress) {
		tflog.Info(ctx, "add-on "+name+": "+p.String(), map[string]any{"task": p.TaskID, "state": p.State, "stage": p.Stage, "message": p.Message})
	}
}
