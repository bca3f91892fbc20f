// Package addon is the resource gpuplan_addon: an add-on of an ACK cluster, of whose
// configuration it owns the settings that it was given.
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
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// limits hold unless the user sets others; an add-on usually takes half a minute to five.
var limits = lifecycle.Limits{Create: 30 * time.Minute, Update: 30 * time.Minute, Delete: 20 * time.Minute}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// New returns the resource.
func New() resource.Resource {
	r := &addon{}
	r.Resource = lifecycle.Resource[model]{
		Type: "gpuplan_addon", Title: "Add-on",
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts }, Default: limits,
		Object: func(m *model) string { return named(m.Name) },
		Add:    r.add, Look: r.look, Change: r.change, Remove: r.remove,
	}
	return r
}

type addon struct{ lifecycle.Resource[model] }

// named is the ledger's name of an add-on.
func named(name types.String) string { return "add-on " + name.ValueString() }

// ImportState takes the name of an add-on, or "CLUSTER/NAME".
func (r *addon) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	clusterID, name, full := strings.Cut(req.ID, "/")
	if !full {
		clusterID, name = r.Session.ClusterID, req.ID
	}
	if clusterID != r.Session.ClusterID || !nameForm.MatchString(name) {
		resp.Diagnostics.AddError("Invalid import ID", fmt.Sprintf(
			"%q does not name an add-on of cluster %s: write NAME or CLUSTER/NAME, as in kube-scheduler.", req.ID, r.Session.ClusterID))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), clusterID+"/"+name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

func (r *addon) look(ctx context.Context, _ tfsdk.State, m *model) (found bool, diags diag.Diagnostics, err error) {
	client, err := r.Session.ACS()
	if err != nil {
		return false, nil, err
	}
	live, err := client.GetAddon(ctx, m.cluster(), m.Name.ValueString())
	if acs.Code(err) == "AddonNotFound" {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	if m.KeepOnDestroy.IsNull() { // imported
		m.KeepOnDestroy, m.Installed = types.BoolValue(false), types.BoolValue(false)
	}
	m.Version, m.State = types.StringValue(live.Version), types.StringValue(live.State)
	return true, m.drift(live), nil
}

// drift takes over the settings of the resource that others changed.
func (m *model) drift(live acs.AddonInstance) (diags diag.Diagnostics) {
	if m.Config.IsNull() {
		return diags
	}
	owned, err := parse(m.Config.ValueString())
	is, liveErr := parse(live.Config)
	if err != nil || liveErr != nil {
		diags.AddWarning("Configuration cannot be read", fmt.Sprintf(
			"What the service says of the configuration of add-on %s cannot be compared with config: it is no JSON object.", live.Name))
		return diags
	}
	if is = only(is, owned); !same(is, owned) {
		m.Config = jsontypes.NewNormalizedValue(text(is))
	}
	return diags
}

// cluster is the ID of the add-on's cluster.
func (m model) cluster() string {
	clusterID, _, _ := strings.Cut(m.ID.ValueString(), "/")
	return clusterID
}

// object checks that a text is a JSON object.
type object struct{}

func (object) Description(context.Context) string               { return "must be a JSON object" }
func (v object) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (object) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	c, err := parse(req.ConfigValue.ValueString())
	if err != nil || req.ConfigValue.ValueString() == "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid configuration", fmt.Sprintf(
			"%s is no JSON object: write it as %[1]s = jsonencode({ enableReservation = true }).", req.Path))
	}
	resp.Diagnostics.Append(checkEmpty(c)...)
}

func failed(summary string, err error) (diags diag.Diagnostics) {
	diags.AddError(summary, session.Sentence(err))
	return diags
}
