package nodepool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// longestTag is how many characters the cloud lets the value of a tag have.
const longestTag = 128

// request is what the service is asked for: the model laid over the pool as the service
// has it, and on it whose it is, and what it cannot tell of the resource.
func (r *pool) request(ctx context.Context, m model, spec acs.NodePoolSpec) (acs.NodePoolSpec, diag.Diagnostics) {
	spec, diags := m.apply(ctx, spec)
	if diags.HasError() {
		return spec, diags
	}
	of := r.blank(ctx)
	var derived model
	diags.Append(written.Blank(ctx, of, &derived)...)
	diags.Append(derived.imported(ctx, of, "")...)
	derived.Values = m.Values
	diags.Append(derived.refresh(ctx, m.cluster(), acs.NodePool{NodePoolSpec: spec}, false)...)
	settings, err := written.Text(ctx, of, m, derived)
	if err != nil {
		diags.AddError("Settings cannot be written down", fmt.Sprintf("Node pool %s: %s.", m.Name.ValueString(), err))
	}
	if len(settings) > longestTag {
		settings = "" // an import plans them again, which changes the state alone
	}
	tags := slices.DeleteFunc(slices.Clone(spec.ScalingGroup.Tags), func(t acs.Tag) bool {
		return t.Key == contract.SettingsTag || t.Key == contract.OwnerTag && r.Session.Owner != ""
	})
	for _, t := range []acs.Tag{{Key: contract.OwnerTag, Value: r.Session.Owner}, {Key: contract.SettingsTag, Value: settings}} {
		if t.Value != "" {
			tags = append(tags, t)
		}
	}
	spec.ScalingGroup.Tags = tags
	return spec, diags
}

// blank is a state of which only the schema counts.
func (r *pool) blank(ctx context.Context) tfsdk.State {
	var s resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &s)
	return tfsdk.State{Schema: s.Schema}
}

// imported sets what the service does not tell, from the settings that are written on the
// pool. What the service tells is refreshed afterwards.
func (m *model) imported(ctx context.Context, of tfsdk.State, settings string) diag.Diagnostics {
	m.AllowDisruption = types.BoolValue(false)
	return written.Restore(ctx, of, settings, m)
}

// keepSettings writes down settings of the provider alone, and whose the pool is. They hold without that; only a
// later import would not know them.
func (r *pool) keepSettings(ctx context.Context, m *model) (diags diag.Diagnostics) {
	client, err := r.Session.ACS()
	var record acs.NodePool
	if err == nil {
		record, err = client.GetNodePool(ctx, m.cluster(), m.NodePoolID.ValueString())
	}
	if err == nil && r.TakenOver(m, record.Tag(contract.OwnerTag)) {
		err = errors.New("another configuration has taken the pool over: plan again")
	}
	if err == nil {
		var spec acs.NodePoolSpec
		if spec, diags = r.request(ctx, *m, record.NodePoolSpec); diags.HasError() {
			return diags
		}
		spec.ScalingGroup.DesiredSize = record.ScalingGroup.DesiredSize // it may have changed since the state was read
		if (acs.NodePool{NodePoolSpec: spec}).Tag(contract.SettingsTag) == record.Tag(contract.SettingsTag) && m.kept.Stamp == "" {
			return diags
		}
		var started acs.Started
		started, err = client.ModifyNodePool(ctx, m.cluster(), m.NodePoolID.ValueString(), spec, acs.ModifyOptions{})
		if err == nil && started.TaskID != "" {
			_, err = client.WaitTask(ctx, started.TaskID, progress(ctx, m.Name.ValueString()))
		}
	}
	if err != nil {
		diags.AddWarning("Settings were not written down", fmt.Sprintf(
			"The settings of node pool %s hold, but a later import would not know them, and plan to set them again. %s", m.Name.ValueString(), session.Sentence(err)))
		return diags
	}
	r.Stamped(m)
	return diags
}
