package quotatree

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// model is the resource in Terraform.
type model struct {
	ID              types.String   `tfsdk:"id"`
	Total           types.Map      `tfsdk:"total"`
	MaxJobs         types.Int64    `tfsdk:"max_jobs"`
	Quotas          types.Map      `tfsdk:"quotas"`
	Leaves          types.Map      `tfsdk:"leaves"`
	AllowDisruption types.Bool     `tfsdk:"allow_disruption"`
	Timeouts        timeouts.Value `tfsdk:"timeouts"`

	kept     lifecycle.Kept
	replaced bool // a new one follows its deletion
}

// node is one entry of quotas.
type node struct {
	Min        types.Map   `tfsdk:"min"`
	Max        types.Map   `tfsdk:"max"`
	MaxJobs    types.Int64 `tfsdk:"max_jobs"`
	Namespaces types.Set   `tfsdk:"namespaces"`
	LendLimit  types.Map   `tfsdk:"lend_limit"`
}

var nodeType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"min":        types.MapType{ElemType: types.StringType},
	"max":        types.MapType{ElemType: types.StringType},
	"max_jobs":   types.Int64Type,
	"namespaces": types.SetType{ElemType: types.StringType},
	"lend_limit": types.MapType{ElemType: types.StringType},
}}

// nodes reads the entries of quotas, which must be known as a map. Of an entry that is unknown its limits are.
func (m model) nodes(ctx context.Context) (nodes map[string]node, diags diag.Diagnostics) {
	var entries map[string]types.Object
	diags.Append(m.Quotas.ElementsAs(ctx, &entries, false)...)
	nodes = map[string]node{}
	for key, entry := range entries {
		n := node{Min: types.MapUnknown(types.StringType)}
		if !entry.IsUnknown() {
			diags.Append(entry.As(ctx, &n, basetypes.ObjectAsOptions{})...)
		}
		nodes[key] = n
	}
	return nodes, diags
}

// leaves returns the names of the paths below which there is no other.
func leaves(paths []string) []string {
	var names []string
	for _, p := range paths {
		if !slices.ContainsFunc(paths, func(q string) bool { return strings.HasPrefix(q, p+"/") }) {
			names = append(names, name(p))
		}
	}
	return names
}

// leavesValue is the attribute leaves for the entries of quotas; their content may be unknown.
func leavesValue(ctx context.Context, quotas types.Map) (types.Map, diag.Diagnostics) {
	if quotas.IsUnknown() {
		return types.MapUnknown(types.StringType), nil
	}
	byName := map[string]string{}
	for _, leaf := range leaves(slices.Sorted(maps.Keys(quotas.Elements()))) {
		byName[leaf] = leaf
	}
	return types.MapValueFrom(ctx, types.StringType, byName)
}

// name is the last part of a path.
func name(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// parent is the path without its last part, "" at the top.
func parent(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return ""
	}
	return path[:i]
}
