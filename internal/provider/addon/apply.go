package addon

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// add installs the add-on, or takes the one that the cluster has, and configures it.
func (r *addon[M, P]) add(ctx context.Context, _ tfsdk.State, of *M) (exists bool, diags diag.Diagnostics) {
	m := P(of)
	client, err := r.Session.ACS()
	if err != nil {
		return false, failed("Add-on was not installed", err)
	}
	defer r.Session.Ledger.Begin(named(m.name()))()
	clusterID, name := r.Session.ClusterID, m.name().ValueString()
	_, err = client.GetAddon(ctx, clusterID, name)
	installs := acs.Code(err) == "AddonNotFound"
	if err != nil && !installs {
		return false, failed("Add-on was not installed", err)
	}
	b := m.base()
	b.ID, b.Installed = types.StringValue(clusterID+"/"+name), types.BoolValue(installs)
	defer b.settleUnknown(jsontypes.NewNormalizedNull())
	if installs {
		task, err := client.InstallAddon(ctx, clusterID, acs.Addon{Name: name, Version: b.Version.ValueString(), Config: m.settings().ValueString()})
		if err != nil {
			return errors.Is(err, acs.ErrOutcomeUnknown), failed("Add-on was not installed", err)
		}
		if task != "" { // its answer was not lost
			_, err = client.WaitTask(ctx, task, progress(ctx, name))
		}
		if err != nil {
			if _, lost := client.GetAddon(ctx, clusterID, name); acs.Code(lost) == "AddonNotFound" {
				return false, failed("Add-on was not installed", err)
			}
			return true, failed("Add-on is not as planned", err)
		}
	} else {
		_, more := r.set(ctx, client, P(new(M)), m)
		diags.Append(more...)
	}
	return true, append(diags, r.settle(ctx, client, m)...)
}

// change upgrades and configures the add-on.
func (r *addon[M, P]) change(ctx context.Context, _ tfsdk.State, before, of *M) (changed bool, diags diag.Diagnostics) {
	was, m := P(before), P(of)
	client, err := r.Session.ACS()
	if err != nil {
		return false, failed("Add-on was not changed", err)
	}
	m.base().Installed = was.base().Installed
	defer m.base().settleUnknown(was.base().PreviousConfig)
	if changed, diags = r.set(ctx, client, was, m); !changed && diags.HasError() {
		return false, diags
	}
	return true, append(diags, r.settle(ctx, client, m)...)
}

// set upgrades an add-on that is installed to the version of the model, if that is another one,
// and gives it the settings of the model. was is the resource before. changed means that the service has
// accepted all of it.
func (r *addon[M, P]) set(ctx context.Context, client *acs.Client, was, m P) (changed bool, diags diag.Diagnostics) {
	const summary = "Add-on is not as planned"
	b := m.base()
	clusterID, name := b.cluster(), m.name().ValueString()
	owned, err := parse(was.settings().ValueString())
	var wanted, known, is config
	if err == nil {
		wanted, err = parse(m.settings().ValueString())
	}
	if err == nil {
		known, err = parse(was.base().PreviousConfig.ValueString())
	}
	if was.base().imported() {
		owned = config{}
	}
	if b.imported() {
		wanted = config{} // it was read, and is others' still
	}
	var live acs.AddonInstance
	if err == nil {
		live, err = client.WaitAddon(ctx, clusterID, name, progress(ctx, name)) // another change may be under way
	}
	if version := b.Version.ValueString(); err == nil && version != "" && version != live.Version {
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
	if b.PreviousConfig.IsUnknown() && !b.Installed.ValueBool() {
		b.PreviousConfig = jsontypes.NewNormalizedValue(text(before(wanted, known, is)))
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
func (r *addon[M, P]) settle(ctx context.Context, client *acs.Client, m P) diag.Diagnostics {
	live, err := client.WaitAddon(ctx, m.base().cluster(), m.name().ValueString(), progress(ctx, m.name().ValueString()))
	if err != nil {
		return failed("Add-on is not as planned", err)
	}
	b := m.base()
	if b.Version.IsUnknown() {
		b.Version = types.StringValue(live.Version)
	}
	b.State = types.StringValue(live.State)
	return nil
}

// remove uninstalls an add-on that the resource has installed, and gives the settings of another
// one back.
func (r *addon[M, P]) remove(ctx context.Context, of *M) (diags diag.Diagnostics, err error) {
	m := P(of)
	b := m.base()
	if b.KeepOnDestroy.ValueBool() {
		return nil, nil
	}
	client, err := r.Session.ACS()
	if err != nil {
		return nil, err
	}
	clusterID, name := b.cluster(), m.name().ValueString()
	if b.uninstalls() {
		task, err := client.UninstallAddon(ctx, clusterID, name)
		if err == nil && task != "" {
			_, err = client.WaitTask(ctx, task, progress(ctx, name))
		}
		return nil, err
	}
	if b.PreviousConfig.IsNull() { // imported: nobody knows what it was
		return nil, nil
	}
	owned, err := parse(m.settings().ValueString())
	if err != nil {
		return nil, err
	}
	known, err := parse(b.PreviousConfig.ValueString())
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

// progress logs what the service is doing.
func progress(ctx context.Context, name string) func(acs.Progress) {
	return func(p acs.Progress) {
		tflog.Info(ctx, "add-on "+name+": "+p.String(), map[string]any{"task": p.TaskID, "state": p.State, "stage": p.Stage, "message": p.Message})
	}
}
