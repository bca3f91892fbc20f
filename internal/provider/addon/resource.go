// Package addon has the resources that configure add-ons of an ACK cluster: gpuplan_addon, any of them by its name,
// and gpuplan_scheduler_config and gpuplan_erdma_controller, one each with its settings as attributes. Of an add-on's
// configuration each owns the settings that it was given.
package addon

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// limits hold unless the user sets others; an add-on usually takes half a minute to five.
var limits = lifecycle.Limits{Create: 30 * time.Minute, Update: 30 * time.Minute, Delete: 20 * time.Minute}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// addon is a type of resource that configures an add-on. P is a pointer to its model M.
type addon[M any, P model[M]] struct {
	lifecycle.Resource[M]
	schema func(ctx context.Context) schema.Schema
	// only is the name of the add-on for a type that has one; every other takes a name.
	only string
	// rules refuses what the service takes of a plan and does not work; nil for nothing.
	rules func(ctx context.Context, client *acs.Client, clusterID string, plan P) diag.Diagnostics
}

// model is what a type of resource says of its add-on.
type model[M any] interface {
	*M
	// base is what all types have.
	base() *common
	// name is the add-on's.
	name() types.String
	// settings is the JSON object of all settings that the resource owns, null for none.
	settings() jsontypes.Normalized
	// take takes over what the settings are that it owns, read all that the add-on has.
	take(is config)
	read(is config)
	// place is the attribute of a setting, and what the user calls it.
	place(setting []string) (at path.Path, called string)
}

// newResource completes a type of resource.
func newResource[M any, P model[M]](r *addon[M, P], typeName, title string) resource.Resource {
	r.Resource = lifecycle.Resource[M]{
		Type: typeName, Title: title,
		Timeouts: func(m *M) timeouts.Value { return P(m).base().Timeouts }, Default: limits,
		Object: func(m *M) string { return named(P(m).name()) },
		Identity: lifecycle.Identity{
			{Name: "cluster_id", Description: "ID of the cluster; default: the provider's.", Default: func() string { return r.Session.ClusterID }},
			{Name: "name", Description: "Name of the add-on."},
		},
		ID: func(m *M) string { return P(m).base().ID.ValueString() }, Import: r.importID,
		Succeeds: lifecycle.Successor{Of: "alicloud_cs_kubernetes_addon", Attributes: r.moved},
		Add:      r.add, Look: r.look, Change: r.change, Remove: r.remove,
	}
	return r
}

// named is the ledger's name of an add-on.
func named(name types.String) string { return "add-on " + name.ValueString() }

// Schema is that of the type.
func (r *addon[M, P]) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.schema(ctx)
}

// Manages names the object of a type which has one only, as gpuplan_addon has it; "" for every other.
func (r *addon[M, P]) Manages() string {
	if r.only == "" {
		return ""
	}
	return addonType + " " + r.only
}

// importID takes the name of an add-on, or "CLUSTER/NAME".
func (r *addon[M, P]) importID(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	clusterID, name, full := strings.Cut(id, "/")
	if !full {
		clusterID, name = r.Session.ClusterID, id
	}
	example := r.only
	if example == "" {
		example = contract.KubeScheduler
	}
	if clusterID != r.Session.ClusterID || !nameForm.MatchString(name) || r.only != "" && name != r.only {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name an add-on of cluster %s that %s configures: write NAME or CLUSTER/NAME, as in %s.", id, r.Session.ClusterID, r.Type, example))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), clusterID+"/"+name)...)
	if r.only == "" {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
	}
}

// moved is what the state has of an add-on that another type had, nil where this type does not configure it.
func (r *addon[M, P]) moved(clusterID, name string) map[string]string {
	if !nameForm.MatchString(name) || r.only != "" && name != r.only {
		return nil
	}
	attributes := map[string]string{"id": clusterID + "/" + name}
	if r.only == "" {
		attributes["name"] = name
	}
	return attributes
}

func (r *addon[M, P]) look(ctx context.Context, _ tfsdk.State, of *M) (found bool, diags diag.Diagnostics, err error) {
	m := P(of)
	client, err := r.Session.ACS()
	if err != nil {
		return false, nil, err
	}
	live, err := client.GetAddon(ctx, m.base().cluster(), m.name().ValueString())
	if acs.Code(err) == "AddonNotFound" {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	b := m.base()
	if b.KeepOnDestroy.IsNull() { // imported
		b.KeepOnDestroy, b.Installed = types.BoolValue(false), types.BoolValue(false)
	}
	b.Version, b.State = types.StringValue(live.Version), types.StringValue(live.State)
	if b.imported() {
		if is, err := parse(live.Config); err == nil {
			m.read(given(is))
		}
		return true, nil, nil
	}
	return true, drift[M](m, live), nil
}

// drift takes over the settings of the resource that others changed.
func drift[M any, P model[M]](m P, live acs.AddonInstance) (diags diag.Diagnostics) {
	if m.settings().IsNull() {
		return diags
	}
	owned, err := parse(m.settings().ValueString())
	is, liveErr := parse(live.Config)
	if err != nil || liveErr != nil {
		diags.AddWarning("Configuration cannot be read", fmt.Sprintf(
			"What the service says of the configuration of add-on %s cannot be compared with the resource's: it is no JSON object.", live.Name))
		return diags
	}
	if is = only(is, owned); !same(is, owned) {
		m.take(is)
	}
	return diags
}

func failed(summary string, err error) (diags diag.Diagnostics) {
	diags.AddError(summary, session.Sentence(err))
	return diags
}
