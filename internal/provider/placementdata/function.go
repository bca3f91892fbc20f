package placementdata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

// NewFunction returns the function placement.
func NewFunction() function.Function { return simulate{} }

type simulate struct{}

// poolModel describes the nodes of a pool that need not exist.
type poolModel struct {
	Name         types.String      `tfsdk:"name"`
	InstanceType types.String      `tfsdk:"instance_type"`
	Size         types.Int64       `tfsdk:"size"`
	Mode         types.String      `tfsdk:"mode"`
	GPUPolicy    types.String      `tfsdk:"gpu_policy"`
	Labels       map[string]string `tfsdk:"labels"`
	Taints       []taintModel      `tfsdk:"taints"`
}

type taintModel struct {
	Key    types.String `tfsdk:"key"`
	Value  types.String `tfsdk:"value"`
	Effect types.String `tfsdk:"effect"`
}

var poolType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"name": types.StringType, "instance_type": types.StringType, "size": types.Int64Type, "mode": types.StringType, "gpu_policy": types.StringType,
	"labels": types.MapType{ElemType: types.StringType},
	"taints": types.ListType{ElemType: types.ObjectType{AttrTypes: map[string]attr.Type{
		"key": types.StringType, "value": types.StringType, "effect": types.StringType,
	}}},
}}

// gangModel is the gang of the data source without what only a cluster has.
type gangModel struct {
	Mode         types.String         `tfsdk:"mode"`
	Roles        map[string]roleModel `tfsdk:"roles"`
	Minimum      types.Int32          `tfsdk:"minimum"`
	NodeSelector types.Map            `tfsdk:"node_selector"`
}

var gangType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"mode": types.StringType, "minimum": types.Int32Type, "node_selector": types.MapType{ElemType: types.StringType},
	"roles": types.MapType{ElemType: types.ObjectType{AttrTypes: map[string]attr.Type{
		"replicas": types.Int32Type, "minimum": types.Int32Type, "gpus": types.Int64Type, "memory_gib": types.Int64Type, "core_percent": types.Int64Type,
		"cpu": types.StringType, "memory": types.StringType, "rdma": types.BoolType,
	}}},
}}

// resultModel is what the planner answers, as the data source shows it.
type resultModel struct {
	Fits      types.Bool   `tfsdk:"fits"`
	Verdict   types.String `tfsdk:"verdict"`
	Asked     types.Int64  `tfsdk:"members_asked"`
	Fit       types.Int64  `tfsdk:"members_fit"`
	Placement types.Map    `tfsdk:"placement"`
	Reasons   types.List   `tfsdk:"reasons"`
	Fixes     types.List   `tfsdk:"fixes"`
}

var resultTypes = map[string]attr.Type{
	"fits": types.BoolType, "verdict": types.StringType, "members_asked": types.Int64Type, "members_fit": types.Int64Type,
	"placement": types.MapType{ElemType: types.StringType}, "reasons": types.ListType{ElemType: reasonType}, "fixes": types.ListType{ElemType: fixType},
}

func (simulate) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "placement"
}

func (simulate) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Would this gang fit on these nodes, and where?",
		MarkdownDescription: "Places a gang on nodes that are given as data, with the planner of the plan and of the scheduler, for `check` blocks, conditions and tests without a cluster. " +
			"It looks at nothing but its arguments. The data source `gpuplan_placement` asks the same of a cluster, with what runs there and with its quota tree.\n\n" +
			"It returns an object with `fits`, `verdict` (the verdict in words), `members_asked`, `members_fit`, `placement` (where the members run, by node), " +
			"`reasons` (what keeps the next member from fitting: `code`, `nodes`, `text`) and `fixes` (changes after each of which all fit: `kind`, `target`, `from`, `to`, `text`), as the data source does.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "nodes",
				MarkdownDescription: "List of pools of nodes. Each is the `capacity` of a `gpuplan_node_pool`, or an object that describes empty nodes: `instance_type`, " +
					"and optionally `name` (default: the instance type), `size` (number of nodes, default 1), `mode` (default `default`), `gpu_policy`, `labels` and `taints` (a list of objects with `key`, `value` and `effect`).",
			},
			function.DynamicParameter{
				Name: "gang",
				MarkdownDescription: "Object with `roles`, a map from `master` and `worker` to objects with `replicas`, `minimum`, `gpus`, `memory_gib`, `core_percent`, `cpu`, `memory` and `rdma`, of which all are optional; " +
					"and optionally `mode` (default `topology`), `minimum` and `node_selector`. They mean what they do for the data source.",
			},
		},
		Return: function.ObjectReturn{AttributeTypes: resultTypes},
	}
}

// Run plans the gang.
func (simulate) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var nodes, gang types.Dynamic
	if resp.Error = req.Arguments.Get(ctx, &nodes, &gang); resp.Error != nil {
		return
	}
	pools, err := poolsOf(ctx, nodes.UnderlyingValue())
	if err != nil {
		resp.Error = argumentError(0, err.Error())
		return
	}
	view, err := capacity.ToView(pools...)
	if err != nil {
		resp.Error = argumentError(0, err.Error())
		return
	}
	m, err := gangOf(ctx, gang.UnderlyingValue())
	if err != nil {
		resp.Error = argumentError(1, err.Error())
		return
	}
	spec, diags := m.spec(ctx)
	if diags.HasError() {
		resp.Error = argumentError(1, details(diags))
		return
	}
	planned, err := spec.PlannerGang(nil)
	if err != nil {
		resp.Error = argumentError(1, err.Error())
		return
	}
	planned.Leaf = "" // there is no tree
	if resp.Error = function.FuncErrorFromDiags(ctx, m.set(ctx, planner.Plan(view, planned), view)); resp.Error != nil {
		return
	}
	resp.Error = resp.Result.Set(ctx, resultModel{
		Fits: m.Fits, Verdict: m.Verdict, Asked: m.Asked, Fit: m.Fit, Placement: m.Placement, Reasons: m.Reasons, Fixes: m.Fixes,
	})
}

// argumentError says what is wrong with an argument; Terraform ends the sentence.
func argumentError(position int64, text string) *function.FuncError {
	return function.NewArgumentFuncError(position, strings.TrimRight(text, ".?"))
}

// mostNodes are many more than a cluster has. A plan with more of them would take minutes.
const mostNodes = 100_000

// poolsOf reads the argument nodes.
func poolsOf(ctx context.Context, v attr.Value) (pools []capacity.Capacity, err error) {
	list, ok := v.(interface{ Elements() []attr.Value })
	if !ok {
		return nil, errors.New("nodes: write a list of pools, as in [gpuplan_node_pool.NAME.capacity] or [{ instance_type = \"ecs.gn6v-c10g1.20xlarge\", size = 2 }]")
	}
	names, total := map[string]bool{}, 0
	for i, element := range list.Elements() {
		at := path.Root("nodes").AtListIndex(i)
		if dynamic, ok := element.(types.Dynamic); ok {
			element = dynamic.UnderlyingValue()
		}
		c, err := poolOf(ctx, at, element)
		if err != nil {
			return nil, err
		}
		if names[c.Pool] {
			return nil, fmt.Errorf("%s: there are two pools %q: give each a name of its own", at, c.Pool)
		}
		names[c.Pool] = true
		if total += len(c.Nodes); total > mostNodes {
			return nil, fmt.Errorf("%s: the pools have more than %d nodes together: leave some out", path.Root("nodes"), mostNodes)
		}
		pools = append(pools, c)
	}
	return pools, nil
}

func poolOf(ctx context.Context, at path.Path, v attr.Value) (c capacity.Capacity, err error) {
	object, ok := v.(types.Object)
	if !ok {
		return c, fmt.Errorf("%s: write an object", at)
	}
	if _, ok := object.Attributes()["nodes"]; ok {
		read, err := shaped(ctx, at, v, capacity.Type)
		if err != nil {
			return c, err
		}
		c, diags := capacity.From(ctx, read.(types.Object)) //nolint:forcetypeassert // an object type has object values
		if diags.HasError() {
			return c, fmt.Errorf("%s is not the capacity of a gpuplan_node_pool as it is; to describe nodes, leave out the attribute nodes", at)
		}
		return c, nil
	}
	var m poolModel
	if err := readAs(ctx, at, v, poolType, &m); err != nil {
		return c, err
	}
	return m.capacity(at)
}

// capacity is what the described nodes offer.
func (m poolModel) capacity(at path.Path) (capacity.Capacity, error) {
	p := capacity.Pool{
		Name: m.Name.ValueString(), InstanceType: m.InstanceType.ValueString(),
		Mode: m.Mode.ValueString(), GPUPolicy: m.GPUPolicy.ValueString(), Labels: m.Labels,
	}
	if p.Name == "" {
		p.Name = p.InstanceType
	}
	if p.Mode == "" {
		p.Mode = string(job.Default)
	}
	if _, ok := catalog.Lookup(p.InstanceType); !ok {
		return capacity.Capacity{}, fmt.Errorf("%s: %s", at.AtName("instance_type"), catalog.Unknown(p.InstanceType))
	}
	if _, ok := catalog.LookupMode(p.Mode); !ok {
		return capacity.Capacity{}, fmt.Errorf("%s: there is no mode %q; the modes are %s", at.AtName("mode"), p.Mode, strings.Join(modes(), ", "))
	}
	size := int64(1)
	if !m.Size.IsNull() {
		size = m.Size.ValueInt64()
	}
	if size < 0 || size > catalog.MaxPoolSize {
		return capacity.Capacity{}, fmt.Errorf("%s: a pool has 0 to %d nodes, not %d", at.AtName("size"), catalog.MaxPoolSize, size)
	}
	if policies := []string{"", string(placement.Binpack), string(placement.Spread)}; !slices.Contains(policies, p.GPUPolicy) {
		return capacity.Capacity{}, fmt.Errorf("%s: there is no policy %q; the policies are %s and %s", at.AtName("gpu_policy"), p.GPUPolicy, placement.Binpack, placement.Spread)
	}
	for i, t := range m.Taints {
		if effects := []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}; t.Key.ValueString() == "" || !slices.Contains(effects, t.Effect.ValueString()) {
			return capacity.Capacity{}, fmt.Errorf("%s: a taint has a key, and one of the effects %s", at.AtName("taints").AtListIndex(i), strings.Join(effects, ", "))
		}
		p.Taints = append(p.Taints, capacity.Taint{Key: t.Key.ValueString(), Value: t.Value.ValueString(), Effect: t.Effect.ValueString()})
	}
	return p.Planned(capacity.Capacity{}, int(size))
}

func modes() (names []string) {
	for _, m := range catalog.Modes() {
		names = append(names, m.Name)
	}
	return names
}

// gangOf reads the argument gang.
func gangOf(ctx context.Context, v attr.Value) (model, error) {
	at := path.Root("gang")
	var g gangModel
	if err := readAs(ctx, at, v, gangType, &g); err != nil {
		return model{}, err
	}
	if mode := job.Mode(g.Mode.ValueString()); mode != "" && !slices.Contains(job.Modes(), mode) {
		return model{}, fmt.Errorf("%s: there is no mode %q; the modes are %s, %s and %s", at.AtName("mode"), mode, job.Topology, job.Default, job.Shared)
	}
	if len(g.Roles) == 0 { // the rules of jobs would speak of a framework
		return model{}, fmt.Errorf("%s: write at least one role, as in { worker = { replicas = 2, gpus = 1 } }", at.AtName("roles"))
	}
	return model{Mode: g.Mode, Roles: g.Roles, Minimum: g.Minimum, NodeSelector: g.NodeSelector}, nil
}

// readAs reads an object of any type into a struct.
func readAs(ctx context.Context, at path.Path, v attr.Value, of types.ObjectType, into any) error {
	read, err := shaped(ctx, at, v, of)
	if err != nil {
		return err
	}
	if diags := read.(types.Object).As(ctx, into, basetypes.ObjectAsOptions{}); diags.HasError() { //nolint:forcetypeassert // an object type has object values
		return errors.New(details(diags))
	}
	return nil
}

// details are the texts of errors.
func details(diags diag.Diagnostics) string {
	var texts []string
	for _, d := range diags.Errors() {
		texts = append(texts, d.Detail())
	}
	return strings.Join(texts, " ")
}
