package placementdata

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

type model struct {
	Mode         types.String         `tfsdk:"mode"`
	Roles        map[string]roleModel `tfsdk:"roles"`
	Minimum      types.Int32          `tfsdk:"minimum"`
	Namespace    types.String         `tfsdk:"namespace"`
	Quota        types.String         `tfsdk:"quota"`
	NodeSelector types.Map            `tfsdk:"node_selector"`
	Pools        types.List           `tfsdk:"pools"`
	PoolSizes    types.Map            `tfsdk:"pool_sizes"`
	WithoutNodes types.Set            `tfsdk:"without_nodes"`

	Fits      types.Bool   `tfsdk:"fits"`
	Verdict   types.String `tfsdk:"verdict"`
	Asked     types.Int64  `tfsdk:"members_asked"`
	Fit       types.Int64  `tfsdk:"members_fit"`
	Placement types.Map    `tfsdk:"placement"`
	Reasons   types.List   `tfsdk:"reasons"`
	Fixes     types.List   `tfsdk:"fixes"`
}

type roleModel struct {
	Replicas    types.Int32  `tfsdk:"replicas"`
	Minimum     types.Int32  `tfsdk:"minimum"`
	GPUs        types.Int64  `tfsdk:"gpus"`
	MemoryGiB   types.Int64  `tfsdk:"memory_gib"`
	CorePercent types.Int64  `tfsdk:"core_percent"`
	CPU         types.String `tfsdk:"cpu"`
	Memory      types.String `tfsdk:"memory"`
	RDMA        types.Bool   `tfsdk:"rdma"`
}

type reasonModel struct {
	Code  string `tfsdk:"code"`
	Nodes int64  `tfsdk:"nodes"`
	Text  string `tfsdk:"text"`
}

type fixModel struct {
	Kind   string `tfsdk:"kind"`
	Target string `tfsdk:"target"`
	From   string `tfsdk:"from"`
	To     string `tfsdk:"to"`
	Text   string `tfsdk:"text"`
}

var (
	reasonType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"code": types.StringType, "nodes": types.Int64Type, "text": types.StringType,
	}}
	fixType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"kind": types.StringType, "target": types.StringType, "from": types.StringType, "to": types.StringType, "text": types.StringType,
	}}
)

// spec is a job of the asked shape; its name and image do not matter.
func (m model) spec(ctx context.Context) (job.Spec, diag.Diagnostics) {
	s := job.Spec{
		Namespace: cmp.Or(m.Namespace.ValueString(), "default"), Name: "what-if", Framework: job.PyTorch, Mode: job.Topology,
		Roles: map[string]job.Role{}, Gang: true, Minimum: m.Minimum.ValueInt32(),
		Quota: m.Quota.ValueString(), SchedulerName: contract.SchedulerName,
	}
	if mode := m.Mode.ValueString(); mode != "" {
		s.Mode = job.Mode(mode)
	}
	diags := m.NodeSelector.ElementsAs(ctx, &s.NodeSelector, false)
	for name, r := range m.Roles {
		at := path.Root("roles").AtMapKey(name)
		if !slices.Contains(s.Framework.Roles(), name) {
			diags.AddAttributeError(at, "Invalid gang", fmt.Sprintf("%s: the roles are %s; leave out others, such as a launcher, which starts once the workers run.",
				at, strings.Join(s.Framework.Roles(), " and ")))
			continue
		}
		role := job.Role{
			Replicas: 1, Image: "any", Minimum: r.Minimum.ValueInt32(),
			GPUs: r.GPUs.ValueInt64(), MemoryGiB: r.MemoryGiB.ValueInt64(), CorePercent: r.CorePercent.ValueInt64(),
			CPU: quantity(at.AtName("cpu"), r.CPU, &diags), Memory: quantity(at.AtName("memory"), r.Memory, &diags),
			RDMA: r.RDMA.ValueBool(),
		}
		if !r.Replicas.IsNull() {
			role.Replicas = r.Replicas.ValueInt32()
		}
		s.Roles[name] = role
	}
	if diags.HasError() {
		return s, diags
	}
	for _, p := range s.Check() {
		at := path.Root(p.Field)
		if p.Field == "gang" {
			at = path.Root("minimum")
		}
		if p.Role != "" {
			at = path.Root("roles").AtMapKey(p.Role)
			if p.Field != "" {
				at = at.AtName(p.Field)
			}
		}
		diags.AddAttributeError(at, "Invalid gang", fmt.Sprintf("%s: %s.", at, strings.TrimSuffix(p.Text, ".")))
	}
	return s.Complete(), diags
}

func quantity(at path.Path, value types.String, diags *diag.Diagnostics) resource.Quantity {
	if value.IsNull() {
		return resource.Quantity{}
	}
	q, err := amount.Parse(value.ValueString())
	if err != nil {
		diags.AddAttributeError(at, "Malformed quantity", fmt.Sprintf("%s: %s.", at, err))
	}
	return q
}

// set fills in what the planner found.
func (m *model) set(ctx context.Context, result placement.Result, view *snapshot.View) (diags diag.Diagnostics) {
	v := result.Verdict
	m.Fits, m.Verdict = types.BoolValue(v.Fits), types.StringValue(v.String())
	m.Asked, m.Fit = types.Int64Value(int64(v.Asked)), types.Int64Value(int64(v.Fit))
	assignments := v.Partial
	if result.Placement != nil {
		assignments = result.Placement.Assignments
	}
	placed := assignment.Planned(assignments, func(name string) *gpu.Table {
		node, _ := view.Node(name)
		return node.GPUs
	})
	reasons := make([]reasonModel, 0, len(v.Reasons))
	for _, r := range v.Reasons {
		reasons = append(reasons, reasonModel{Code: string(r.Code), Nodes: int64(r.Nodes), Text: r.Text})
	}
	fixes := make([]fixModel, 0, len(v.Fixes))
	for _, f := range v.Fixes {
		fixes = append(fixes, fixModel{Kind: string(f.Kind), Target: f.Target, From: f.From, To: f.To, Text: f.Text})
	}
	var more diag.Diagnostics
	m.Placement = assignment.Value(placed)
	m.Reasons, more = types.ListValueFrom(ctx, reasonType, reasons)
	diags.Append(more...)
	m.Fixes, more = types.ListValueFrom(ctx, fixType, fixes)
	diags.Append(more...)
	return diags
}
