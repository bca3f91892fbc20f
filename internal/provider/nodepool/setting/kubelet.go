package setting

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// kubelet is the configuration of the kubelets in Terraform.
type kubelet struct {
	CPUManagerPolicy      types.String `tfsdk:"cpu_manager_policy"`
	TopologyManagerPolicy types.String `tfsdk:"topology_manager_policy"`
	KubeReserved          types.Map    `tfsdk:"kube_reserved"`
	SystemReserved        types.Map    `tfsdk:"system_reserved"`
	MaxPods               types.Int64  `tfsdk:"max_pods"`
	PodPIDsLimit          types.Int64  `tfsdk:"pod_pids_limit"`
	AllowedUnsafeSysctls  types.List   `tfsdk:"allowed_unsafe_sysctls"`
	SerializeImagePulls   types.Bool   `tfsdk:"serialize_image_pulls"`
	RegistryPullQPS       types.Int64  `tfsdk:"registry_pull_qps"`
	RegistryBurst         types.Int64  `tfsdk:"registry_burst"`
	ContainerLogMaxSize   types.String `tfsdk:"container_log_max_size"`
	ContainerLogMaxFiles  types.Int64  `tfsdk:"container_log_max_files"`
}

// reservable is what a kubelet can keep from pods.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

func kubeletConfig() setting {
	reserved := func(whom string) schema.Attribute {
		return schema.MapAttribute{
			MarkdownDescription: "What is kept for " + whom + ": quantities of `cpu`, `memory`, `ephemeral-storage` and `pid`. Nodes that do not exist yet are planned without it, and without what ACK keeps by itself." + serviceDefault,
			Optional:            true, Computed: true, ElementType: types.StringType, Validators: []validator.Map{quantities{}},
		}
	}
	return object("kubelet_config", "Configuration of the kubelets. A change restarts the kubelets of nodes that exist, `kubelet_max_parallelism` at a time; pods go on. What is left out stays."+serviceDefault, map[string]schema.Attribute{
		"cpu_manager_policy": partText("`none` or `static`. Not another one than `cpu_policy`."+serviceDefault, stringvalidator.OneOf("none", "static")),
		"topology_manager_policy": partText("`none`, `best-effort`, `restricted` or `single-numa-node`. With the last two a node refuses pods whose CPUs and GPUs are not of the same NUMA nodes; no plan knows of that."+serviceDefault,
			stringvalidator.OneOf("none", "best-effort", "restricted", "single-numa-node")),
		"kube_reserved":   reserved("the kubelet and the container runtime"),
		"system_reserved": reserved("the operating system"),
		"max_pods":        partNumber("The most pods that a node takes; nodes that do not exist yet are planned with it."+serviceDefault, int64validator.AtLeast(1)),
		"pod_pids_limit":  partNumber("The most processes of a pod; -1 for no limit."+serviceDefault, int64validator.AtLeast(-1)),
		"allowed_unsafe_sysctls": schema.ListAttribute{
			MarkdownDescription: "Sysctls, or patterns of them, that pods may set though they are not safe." + serviceDefault,
			Optional:            true, Computed: true, ElementType: types.StringType, Validators: []validator.List{listvalidator.SizeAtLeast(1)},
		},
		"serialize_image_pulls":   partFlag("Whether images are pulled one after the other." + serviceDefault),
		"registry_pull_qps":       partNumber("Image pulls in a second, 0 for no limit."+serviceDefault, int64validator.AtLeast(0)),
		"registry_burst":          partNumber("Image pulls at once."+serviceDefault, int64validator.AtLeast(0)),
		"container_log_max_size":  partText("Size at which a log of a container is rotated, such as `50Mi`."+serviceDefault, logSize{}),
		"container_log_max_files": partNumber("Log files of a container, at least 2."+serviceDefault, int64validator.AtLeast(2)),
	}, func(v *Values) *types.Object { return &v.KubeletConfig }, readKubelet, writeKubelet)
}

func readKubelet(ctx context.Context, spec acs.NodePoolSpec, before *kubelet) (*kubelet, diag.Diagnostics) {
	var was kubelet
	if before != nil {
		was = *before
	}
	k := spec.NodeConfig.Kubelet
	if k == nil && before == nil {
		return nil, nil
	}
	if k == nil {
		k = new(acs.KubeletConfig)
	}
	out := kubelet{
		CPUManagerPolicy: word(k.CPUManagerPolicy), TopologyManagerPolicy: word(k.TopologyManagerPolicy),
		KubeReserved: was.KubeReserved, SystemReserved: was.SystemReserved, AllowedUnsafeSysctls: types.ListNull(types.StringType),
		MaxPods: types.Int64PointerValue(k.MaxPods), PodPIDsLimit: types.Int64PointerValue(k.PodPIDsLimit),
		SerializeImagePulls: onOff(k.SerializeImagePulls, was.SerializeImagePulls),
		RegistryPullQPS:     count(k.RegistryPullQPS, was.RegistryPullQPS), RegistryBurst: count(k.RegistryBurst, was.RegistryBurst),
		ContainerLogMaxSize: word(k.ContainerLogMaxSize), ContainerLogMaxFiles: types.Int64PointerValue(k.ContainerLogMaxFiles),
	}
	var diags diag.Diagnostics
	for from, to := range map[*map[string]string]*types.Map{&k.KubeReserved: &out.KubeReserved, &k.SystemReserved: &out.SystemReserved} {
		switch {
		case len(*from) == 0 && !saysNone(*to):
			*to = types.MapNull(types.StringType)
		case len(*from) > 0:
			value, more := types.MapValueFrom(ctx, types.StringType, *from)
			diags.Append(more...)
			*to = value
		}
	}
	if len(k.AllowedUnsafeSysctls) > 0 {
		value, more := types.ListValueFrom(ctx, types.StringType, k.AllowedUnsafeSysctls)
		diags.Append(more...)
		out.AllowedUnsafeSysctls = value
	}
	return &out, diags
}

func writeKubelet(ctx context.Context, k kubelet, spec *acs.NodePoolSpec) (diags diag.Diagnostics) {
	to := orEmpty(spec.NodeConfig.Kubelet)
	for _, text := range []struct {
		value types.String
		to    *string
	}{{k.CPUManagerPolicy, &to.CPUManagerPolicy}, {k.TopologyManagerPolicy, &to.TopologyManagerPolicy}, {k.ContainerLogMaxSize, &to.ContainerLogMaxSize}} {
		if known.Set(text.value) {
			*text.to = text.value.ValueString()
		}
	}
	for _, number := range []struct {
		value types.Int64
		to    **int64
	}{
		{k.MaxPods, &to.MaxPods}, {k.PodPIDsLimit, &to.PodPIDsLimit}, {k.RegistryPullQPS, &to.RegistryPullQPS}, {k.RegistryBurst, &to.RegistryBurst}, {k.ContainerLogMaxFiles, &to.ContainerLogMaxFiles},
	} {
		if known.Set(number.value) {
			*number.to = number.value.ValueInt64Pointer()
		}
	}
	put(&to.SerializeImagePulls, k.SerializeImagePulls)
	for to, value := range map[*map[string]string]types.Map{&to.KubeReserved: k.KubeReserved, &to.SystemReserved: k.SystemReserved} {
		switch {
		case saysNone(value):
			*to = nil
		case known.Set(value):
			diags.Append(value.ElementsAs(ctx, to, false)...)
		}
	}
	if known.Set(k.AllowedUnsafeSysctls) {
		to.AllowedUnsafeSysctls = nil
		diags.Append(k.AllowedUnsafeSysctls.ElementsAs(ctx, &to.AllowedUnsafeSysctls, false)...)
	}
	if spec.NodeConfig.Kubelet != nil || !reflect.DeepEqual(to, acs.KubeletConfig{}) {
		spec.NodeConfig.Kubelet = &to
	}
	return diags
}

// saysNone reports whether a map says that there is nothing, which the service has as nothing said.
func saysNone(m types.Map) bool { return known.Set(m) && len(m.Elements()) == 0 }

// Reserved returns what the kubelets are told to keep from pods.
func (v Values) Reserved(ctx context.Context) (r capacity.Reserved, diags diag.Diagnostics) {
	k, diags := v.kubelet(ctx)
	if k == nil || diags.HasError() {
		return r, diags
	}
	r.MaxPods = k.MaxPods.ValueInt64()
	for _, reserved := range []types.Map{k.KubeReserved, k.SystemReserved} {
		for name, element := range reserved.Elements() {
			text, _ := element.(types.String)
			q, err := amount.Parse(text.ValueString())
			if err != nil {
				continue // found by the validator, or the service's own
			}
			switch name {
			case "cpu":
				r.MilliCPU += q.MilliValue()
			case "memory":
				r.MemoryBytes += q.Value()
			case "ephemeral-storage":
				r.EphemeralStorageBytes += q.Value()
			}
		}
	}
	return r, diags
}

// kubelet is the kubelets' configuration, nil where nothing is said.
func (v Values) kubelet(ctx context.Context) (*kubelet, diag.Diagnostics) {
	if !known.Set(v.KubeletConfig) {
		return nil, nil
	}
	k := new(kubelet)
	return k, v.KubeletConfig.As(ctx, k, basetypes.ObjectAsOptions{})
}

// RefusesPods reports by which policy kubelets refuse pods that the scheduler gives them, "" for none.
func (v Values) RefusesPods(ctx context.Context) string {
	k, diags := v.kubelet(ctx)
	if k != nil && !diags.HasError() && is(k.TopologyManagerPolicy, "restricted", "single-numa-node") {
		return k.TopologyManagerPolicy.ValueString()
	}
	return ""
}

// PinsCPUs reports whether nodes pin pods with whole CPUs to them, whichever of the two settings says so.
func (v Values) PinsCPUs(ctx context.Context) bool {
	return is(v.CPUPolicy, acs.CPUPolicyStatic) || v.KubeletCPUPolicy(ctx) == acs.CPUPolicyStatic
}

// KubeletCPUPolicy is the CPU policy that the kubelets are configured with, "" where nothing is said.
func (v Values) KubeletCPUPolicy(ctx context.Context) string {
	k, diags := v.kubelet(ctx)
	if k == nil || diags.HasError() {
		return ""
	}
	return k.CPUManagerPolicy.ValueString()
}

// logSize checks the size of a log.
type logSize struct{}

func (logSize) Description(context.Context) string               { return "must be a size, such as 50Mi" }
func (v logSize) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (logSize) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if !known.Set(req.ConfigValue) {
		return
	}
	if q, err := amount.Parse(req.ConfigValue.ValueString()); err != nil || q.Value() <= 0 {
		resp.Diagnostics.AddAttributeError(path.Root("kubelet_config"), "Invalid size", fmt.Sprintf("%s: %q is no size of a log: write a quantity such as \"50Mi\".", req.Path, req.ConfigValue.ValueString()))
	}
}

// quantities checks what a kubelet is to reserve.
type quantities struct{}

func (quantities) Description(context.Context) string {
	return "must be quantities of what a kubelet can reserve"
}
func (v quantities) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (quantities) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	elements := req.ConfigValue.Elements()
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		if !slices.Contains(reservable, name) {
			resp.Diagnostics.AddAttributeError(path.Root("kubelet_config"), "Unknown resource", fmt.Sprintf("%s: a kubelet reserves no %q; it reserves cpu, memory, ephemeral-storage and pid.", req.Path, name))
		}
		text, ok := elements[name].(types.String)
		if !ok || !known.Set(text) {
			continue
		}
		if _, err := amount.Parse(text.ValueString()); err != nil {
			resp.Diagnostics.AddAttributeError(path.Root("kubelet_config"), "Invalid quantity", fmt.Sprintf("%s: %s: %s.", req.Path, name, err))
		}
	}
}
