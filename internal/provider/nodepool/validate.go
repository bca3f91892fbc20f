package nodepool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fields"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/mode"
)

// Limits of the service for labels, those of the provider included.
const (
	maxLabels   = 20
	maxLabelKey = 64
)

// ValidateConfig checks what more than one attribute decides.
func (r *pool) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	if resp.Diagnostics.Append(fields.Get(ctx, tfsdk.State(req.Config), &m)...); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(m.checkFallbacks()...)
	resp.Diagnostics.Append(m.CheckConfig(ctx)...)
	resp.Diagnostics.Append(m.Check(ctx, m.types())...)
	resp.Diagnostics.Append(mode.CheckPolicy(m.Mode, m.GPUPolicy)...)
}

// types are the instance types of the nodes, none while they are unknown.
func (m model) types() []string {
	if !known.Set(m.InstanceType) || m.Fallbacks.IsUnknown() {
		return nil
	}
	names := []string{m.InstanceType.ValueString()}
	for _, element := range m.Fallbacks.Elements() {
		name, ok := element.(types.String)
		if !ok || !known.Set(name) {
			return nil
		}
		names = append(names, name.ValueString())
	}
	return names
}

// checkFallbacks refuses instance types with other GPUs: a plan is for nodes of one kind.
func (m model) checkFallbacks() (diags diag.Diagnostics) {
	first, ok := catalog.Lookup(m.InstanceType.ValueString())
	if !ok {
		return nil
	}
	for i, name := range m.types() {
		other, ok := catalog.Lookup(name)
		switch {
		case i == 0 || !ok:
		case name == first.Name:
			diags.AddAttributeError(path.Root("fallback_instance_types"), "Instance type twice", fmt.Sprintf("%s is the instance_type: leave it out here.", name))
		case !catalog.SameGPUs(first.Name, name):
			diags.AddAttributeError(path.Root("fallback_instance_types"), "Instance type with other GPUs", fmt.Sprintf(
				"%s has %s, and the instance_type %s has %s. Jobs are planned on nodes with the same GPUs and the same links, whichever type they get: make another node pool, and give jobs both.",
				name, gpusOf(other), first.Name, gpusOf(first)))
		}
	}
	return diags
}

func gpusOf(it catalog.InstanceType) string {
	return fmt.Sprintf("%d × %s with %d GiB (%s)", it.GPUs, it.GPUModel, it.GPUMemoryGiB, it.Wiring)
}

// modeReplaces reports whether nodes cannot be switched between two modes, or it may turn out that they cannot.
func modeReplaces(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
	resp.RequiresReplace = req.PlanValue.IsUnknown() || mode.Replaces(req.StateValue.ValueString(), req.PlanValue.ValueString())
}

// instanceType checks that the catalogue has the type.
type instanceType struct{}

func (instanceType) Description(context.Context) string {
	return "must be a GPU instance type of the catalogue"
}
func (v instanceType) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (instanceType) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	name := req.ConfigValue.ValueString()
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, ok := catalog.Lookup(name); ok {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Unknown instance type", catalog.Unknown(name))
}

// labelValue checks the syntax of a label's or taint's value.
type labelValue struct{}

func (labelValue) Description(context.Context) string {
	return "must have the form of a Kubernetes label value"
}
func (v labelValue) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (labelValue) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if faults := validation.IsValidLabelValue(req.ConfigValue.ValueString()); len(faults) > 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid label value", fmt.Sprintf("%q: %s.", req.ConfigValue.ValueString(), strings.Join(faults, "; ")))
	}
}

// labelKey checks the syntax of a taint's key.
type labelKey struct{}

func (labelKey) Description(context.Context) string {
	return "must have the form of a Kubernetes label key"
}
func (v labelKey) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (labelKey) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if fault := keyFault(req.ConfigValue.ValueString()); fault != "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid key", fault)
	}
}

// keyFault says what is wrong with a key, "" when it is fine.
func keyFault(key string) string {
	if faults := validation.IsQualifiedName(key); len(faults) > 0 {
		return fmt.Sprintf("%q: %s.", key, strings.Join(faults, "; "))
	}
	if len(key) > maxLabelKey {
		return fmt.Sprintf("%q has %d characters; the service takes at most %d.", key, len(key), maxLabelKey)
	}
	return ""
}

// distinctTaints checks that no two taints have one key and effect, which Kubernetes refuses.
type distinctTaints struct{}

func (distinctTaints) Description(context.Context) string {
	return "must have one taint per key and effect"
}
func (v distinctTaints) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (distinctTaints) ValidateSet(ctx context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	var taints []taint
	if resp.Diagnostics.Append(req.ConfigValue.ElementsAs(ctx, &taints, false)...); resp.Diagnostics.HasError() {
		return
	}
	seen := map[[2]string]bool{}
	for _, t := range taints {
		if t.Key.IsUnknown() || t.Effect.IsUnknown() {
			continue
		}
		at := [2]string{t.Key.ValueString(), t.Effect.ValueString()}
		if seen[at] {
			resp.Diagnostics.AddAttributeError(req.Path, "Two taints with one key and effect", fmt.Sprintf(
				"A node has one taint per key and effect, and there are two with key %q and effect %s: leave one of them out.", at[0], at[1]))
		}
		seen[at] = true
	}
}

// nodeLabels checks the user's labels.
type nodeLabels struct{}

func (nodeLabels) Description(context.Context) string               { return "must be labels that a pool may set" }
func (v nodeLabels) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (nodeLabels) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	own := len(capacity.Pool{GPUPolicy: "any"}.OwnLabels())
	if n := len(req.ConfigValue.Elements()); n > maxLabels-own {
		resp.Diagnostics.AddAttributeError(req.Path, "Too many labels", fmt.Sprintf(
			"There are %d labels; a pool can have %d, since the service takes %d and the provider needs %d itself.", n, maxLabels-own, maxLabels, own))
	}
	for key, element := range req.ConfigValue.Elements() {
		at := req.Path.AtMapKey(key)
		if text := reserved(key); text != "" {
			resp.Diagnostics.AddAttributeError(at, "Reserved label", text)
		} else if fault := keyFault(key); fault != "" {
			resp.Diagnostics.AddAttributeError(at, "Invalid label key", fault)
		}
		value, ok := element.(types.String)
		if !ok || value.IsUnknown() {
			continue
		}
		if faults := validation.IsValidLabelValue(value.ValueString()); len(faults) > 0 {
			resp.Diagnostics.AddAttributeError(at, "Invalid label value", fmt.Sprintf("%q: %s.", value.ValueString(), strings.Join(faults, "; ")))
		}
	}
}

// ofTheNode are the labels that differ from node to node, or say what hardware a node is.
var ofTheNode = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// reserved says why a label is not the user's to set, "" when it is.
func reserved(key string) string {
	switch key {
	case contract.NodeModeLabel:
		return fmt.Sprintf("The label %s is set by the attribute mode.", key)
	case contract.NodeGPUPolicyLabel:
		return fmt.Sprintf("The label %s is set by the attribute gpu_policy.", key)
	}
	for _, prefix := range []string{"aliyun", "acs:", "http://", "https://"} {
		if strings.HasPrefix(key, prefix) {
			return fmt.Sprintf("The service refuses labels that begin with %q.", prefix)
		}
	}
	if _, ok := (capacity.Pool{}).NodeLabels()[key]; ok || key == contract.NodePoolIDLabel || key == contract.ClusterIDLabel || slices.Contains(ofTheNode, key) {
		return fmt.Sprintf("The label %s is set by the provider or by the platform.", key)
	}
	return ""
}
