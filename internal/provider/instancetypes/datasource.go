// Package instancetypes tells the facts of the built-in catalogue of GPU instance types: the data
// source gpuplan_instance_types finds types, the function instance_type describes one.
package instancetypes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
)

// New returns the data source.
func New() datasource.DataSource { return instanceTypes{} }

type instanceTypes struct{}

type model struct {
	GPUModel     types.String `tfsdk:"gpu_model"`
	MinGPUs      types.Int64  `tfsdk:"min_gpus"`
	MinGPUMemory types.Int64  `tfsdk:"min_gpu_memory_gib"`
	ERDMA        types.Bool   `tfsdk:"erdma"`
	Types        []facts      `tfsdk:"instance_types"`
}

func (instanceTypes) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_instance_types"
}

func (instanceTypes) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "GPU instance types of the provider's built-in catalogue, with all that a plan counts with: GPUs, the links between them, and what a node offers to pods. " +
			"It asks neither the cloud nor the cluster, and knows nothing of stock, prices or zones.",
		Attributes: map[string]schema.Attribute{
			"gpu_model": schema.StringAttribute{
				MarkdownDescription: "Part of the GPUs' product name, as in `\"V100\"`; upper and lower case are the same.",
				Optional:            true,
				Validators:          []validator.String{gpuModel{}},
			},
			"min_gpus": schema.Int64Attribute{
				MarkdownDescription: "Least number of GPUs.", Optional: true, Validators: []validator.Int64{int64validator.AtLeast(1)},
			},
			"min_gpu_memory_gib": schema.Int64Attribute{
				MarkdownDescription: "Least memory of each GPU in GiB that pods can have.", Optional: true, Validators: []validator.Int64{int64validator.AtLeast(1)},
			},
			"erdma": schema.BoolAttribute{
				MarkdownDescription: "Whether the types have eRDMA devices.", Optional: true,
			},
			"instance_types": schema.ListNestedAttribute{
				MarkdownDescription: "The types of which all of this is true, by name; all types without any of it.", Computed: true,
				NestedObject: schema.NestedAttributeObject{Attributes: attributes()},
			},
		},
	}
}

// Read selects instance types.
func (instanceTypes) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	m.Types = []facts{}
	for _, it := range catalog.InstanceTypes() {
		if m.wants(it) {
			m.Types = append(m.Types, factsOf(it))
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// wants reports whether the filters let an instance type through.
func (m model) wants(it catalog.InstanceType) bool {
	return hasModel(it, m.GPUModel.ValueString()) &&
		int64(it.GPUs) >= m.MinGPUs.ValueInt64() &&
		it.GPUMemoryMiB>>10 >= m.MinGPUMemory.ValueInt64() &&
		(m.ERDMA.IsNull() || m.ERDMA.ValueBool() == (it.ERDMADevices > 0))
}

// hasModel reports whether a text is in the product name of the type's GPUs.
func hasModel(it catalog.InstanceType, text string) bool {
	return strings.Contains(strings.ToLower(it.GPUModel), strings.ToLower(text))
}

// gpuModel accepts what is in the product name of some GPU.
type gpuModel struct{}

func (gpuModel) Description(context.Context) string { return "part of a GPU's product name" }

func (v gpuModel) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (gpuModel) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	var models []string
	for _, it := range catalog.InstanceTypes() {
		if hasModel(it, req.ConfigValue.ValueString()) {
			return
		}
		models = append(models, it.GPUModel)
	}
	slices.Sort(models)
	resp.Diagnostics.AddAttributeError(req.Path, "Unknown GPU", fmt.Sprintf("No GPU of the catalogue has %s in its name; the GPUs are %s.",
		req.ConfigValue, strings.Join(slices.Compact(models), ", ")))
}
