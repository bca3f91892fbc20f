package nodepool

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/setting"
)

// model is the resource in Terraform.
type model struct {
	Name                  types.String   `tfsdk:"name"`
	InstanceType          types.String   `tfsdk:"instance_type"`
	Fallbacks             types.List     `tfsdk:"fallback_instance_types"`
	Size                  types.Int64    `tfsdk:"size"`
	RemoveNodes           types.Set      `tfsdk:"remove_nodes"`
	Mode                  types.String   `tfsdk:"mode"`
	ModeChangePolicy      types.String   `tfsdk:"mode_change_policy"`
	GPUPolicy             types.String   `tfsdk:"gpu_policy"`
	Labels                types.Map      `tfsdk:"labels"`
	Taints                types.Set      `tfsdk:"taints"`
	VSwitchIDs            types.Set      `tfsdk:"vswitch_ids"`
	AllowDisruption       types.Bool     `tfsdk:"allow_disruption"`
	Timeouts              timeouts.Value `tfsdk:"timeouts"`
	KubeletMaxParallelism types.Int64    `tfsdk:"kubelet_max_parallelism"`
	setting.Values

	ID             types.String `tfsdk:"id"`
	NodePoolID     types.String `tfsdk:"nodepool_id"`
	State          types.String `tfsdk:"state"`
	NodeNames      types.List   `tfsdk:"node_names"`
	DriftedNodes   types.Map    `tfsdk:"drifted_nodes"`
	OtherModeNodes types.Map    `tfsdk:"other_mode_nodes"`
	Capacity       types.Object `tfsdk:"capacity"`

	kept lifecycle.Kept
}

type taint struct {
	Key    types.String `tfsdk:"key"`
	Value  types.String `tfsdk:"value"`
	Effect types.String `tfsdk:"effect"`
}

var taintType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"key":    types.StringType,
	"value":  types.StringType,
	"effect": types.StringType,
}}

// known reports whether everything that decides the capacity is known, apart from the size of the system
// disk, which is unknown in a plan also where it is left out.
func (m model) known(ctx context.Context) bool {
	return known.Wholly(ctx, m.Name, m.InstanceType, m.Fallbacks, m.Size, m.Mode, m.ModeChangePolicy, m.GPUPolicy, m.Labels, m.Taints, m.KubeletConfig)
}

// shrinksUnknown reports whether the pool of a state loses nodes of which it is unknown which ones.
func (m model) shrinksUnknown(ctx context.Context, state model) bool {
	return m.Size.ValueInt64() < state.Size.ValueInt64() && !known.Wholly(ctx, m.RemoveNodes)
}

// pool describes the nodes; the model must be [model.known].
func (m model) pool(ctx context.Context) (capacity.Pool, diag.Diagnostics) {
	p := capacity.Pool{
		Name:         m.Name.ValueString(),
		InstanceType: m.InstanceType.ValueString(),
		Mode:         m.Mode.ValueString(),
		GPUPolicy:    m.GPUPolicy.ValueString(),
		Labels:       map[string]string{},
	}
	diags := m.Labels.ElementsAs(ctx, &p.Labels, false)
	diags.Append(m.Fallbacks.ElementsAs(ctx, &p.Fallbacks, false)...)
	reserved, more := m.Reserved(ctx)
	diags.Append(more...)
	p.Reserved, p.SystemDiskGiB = reserved, m.SystemDiskSize.ValueInt64()
	var taints []taint
	diags.Append(m.Taints.ElementsAs(ctx, &taints, false)...)
	for _, t := range taints {
		p.Taints = append(p.Taints, capacity.Taint{Key: t.Key.ValueString(), Value: t.Value.ValueString(), Effect: t.Effect.ValueString()})
	}
	slices.SortFunc(p.Taints, func(a, b capacity.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	return p, diags
}

// apply lays the model over a pool as the service has it, or over nothing for a new
// one. What the model does not say stays, since the service resets what a request
// leaves out.
func (m model) apply(ctx context.Context, spec acs.NodePoolSpec) (acs.NodePoolSpec, diag.Diagnostics) {
	p, diags := m.pool(ctx)
	spec.Info = acs.NodePoolInfo{Name: p.Name, Type: "ess", ResourceGroupID: spec.Info.ResourceGroupID}
	g := &spec.ScalingGroup
	g.InstanceTypes = append([]string{p.InstanceType}, p.Fallbacks...)
	g.LoginPassword = "" // the service answers it masked
	size := m.Size.ValueInt64()
	g.DesiredSize = &size
	spec.AutoScaling = acs.AutoScaling{}
	diags.Append(m.VSwitchIDs.ElementsAs(ctx, &g.VSwitchIDs, false)...)
	slices.Sort(g.VSwitchIDs)
	diags.Append(m.Write(ctx, &spec)...)
	spec.KubernetesConfig.Labels = nil
	labels := p.OwnLabels()
	for key, value := range p.Labels {
		labels[key] = value
	}
	for key, value := range labels {
		spec.KubernetesConfig.Labels = append(spec.KubernetesConfig.Labels, acs.Label{Key: key, Value: value})
	}
	slices.SortFunc(spec.KubernetesConfig.Labels, func(a, b acs.Label) int { return cmp.Compare(a.Key, b.Key) })
	spec.KubernetesConfig.Taints = nil
	for _, t := range p.Taints {
		spec.KubernetesConfig.Taints = append(spec.KubernetesConfig.Taints, acs.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return spec, diags
}

// refresh takes over what the service says of the pool. Labels of the provider and a
// missing mode are not the user's; see [recordDrift] for them. all is for a pool of which nothing is known
// yet, otherwise settings that nobody wrote are the service's business.
func (m *model) refresh(ctx context.Context, clusterID string, p acs.NodePool, all bool) diag.Diagnostics {
	var diags diag.Diagnostics
	m.ID = types.StringValue(clusterID + "/" + p.Info.ID)
	m.NodePoolID = types.StringValue(p.Info.ID)
	m.Name = types.StringValue(p.Info.Name)
	m.State = types.StringValue(p.Status.State)
	m.Size = types.Int64Value(p.Status.Total)
	if p.ScalingGroup.DesiredSize != nil {
		m.Size = types.Int64Value(*p.ScalingGroup.DesiredSize)
	}
	if len(p.ScalingGroup.InstanceTypes) > 0 {
		m.InstanceType = types.StringValue(p.ScalingGroup.InstanceTypes[0])
	}
	if len(p.ScalingGroup.InstanceTypes) > 1 || len(m.Fallbacks.Elements()) > 0 {
		fallbacks, more := types.ListValueFrom(ctx, types.StringType, p.ScalingGroup.InstanceTypes[min(1, len(p.ScalingGroup.InstanceTypes)):])
		diags.Append(more...)
		m.Fallbacks = fallbacks
	}
	vSwitches, more := types.SetValueFrom(ctx, types.StringType, p.ScalingGroup.VSwitchIDs)
	diags.Append(more...)
	m.VSwitchIDs = vSwitches
	diags.Append(m.Read(ctx, p.NodePoolSpec, all)...)

	m.Mode, m.GPUPolicy = types.StringValue(string(placement.ModeDefault)), types.StringNull()
	labels := map[string]string{}
	for _, l := range p.KubernetesConfig.Labels {
		switch l.Key {
		case contract.NodeModeLabel:
			m.Mode = types.StringValue(l.Value)
		case contract.NodeGPUPolicyLabel:
			m.GPUPolicy = types.StringValue(l.Value)
		case contract.NodePoolNameLabel:
		default:
			labels[l.Key] = l.Value
		}
	}
	if len(labels) > 0 || len(m.Labels.Elements()) > 0 {
		value, more := types.MapValueFrom(ctx, types.StringType, labels)
		diags.Append(more...)
		m.Labels = value
	}
	taints := make([]taint, 0, len(p.KubernetesConfig.Taints))
	for _, t := range p.KubernetesConfig.Taints {
		taints = append(taints, taint{types.StringValue(t.Key), types.StringValue(t.Value), types.StringValue(t.Effect)})
	}
	if len(taints) > 0 || len(m.Taints.Elements()) > 0 {
		value, more := types.SetValueFrom(ctx, taintType, taints)
		diags.Append(more...)
		m.Taints = value
	}
	return diags
}
