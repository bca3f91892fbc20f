// Package nodeagent is the resource gpuplan_node_agent: our agent on every GPU node.
package nodeagent

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

// New returns the resource.
func New() resource.Resource { return &agent{} }

type agent struct{ program program.Manager }

type model struct {
	Image          types.String   `tfsdk:"image"`
	Interval       types.String   `tfsdk:"interval"`
	MetricsPort    types.Int64    `tfsdk:"metrics_port"`
	ID             types.String   `tfsdk:"id"`
	DriftedObjects types.List     `tfsdk:"drifted_objects"`
	Timeouts       timeouts.Value `tfsdk:"timeouts"`
}

func (r *agent) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_node_agent"
}

func (r *agent) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.program = program.Manager{
		Session: session.Of(req.ProviderData, &resp.Diagnostics),
		Title:   "Node agent", Resource: "gpuplan_node_agent", Name: contract.NodeAgentName, Kind: "DaemonSet",
	}
}

func (r *agent) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	if resp.Diagnostics.Append(r.program.CheckImport(req.ID)...); !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), req.ID)...)
	}
}

func (r *agent) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() || r.program.Session == nil {
		return
	}
	var m model
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	if req.State.Raw.IsNull() {
		resp.Diagnostics.Append(r.program.CheckNew(ctx)...)
	}
	m.complete()
	resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
}

func (r *agent) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.program.Session.Ledger.StartApplying()
	var m model
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Timeouts.Create(ctx, program.Timeout)
	objs, more := m.objects()
	if resp.Diagnostics.Append(append(diags, more...)...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp.Diagnostics.Append(r.program.CheckNew(ctx)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(r.program.Apply(ctx, objs)...)
	m.complete() // also when it does not run: the objects exist
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *agent) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m model
	if resp.Diagnostics.Append(req.State.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	workload, known, diags := r.program.Live(ctx)
	if resp.Diagnostics.Append(diags...); !known {
		return
	}
	if workload == nil {
		resp.State.RemoveResource(ctx)
		return
	}
	m.complete()
	m.refresh(workload)
	objs, diags := m.objects()
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	drifted, diags := r.program.Drift(ctx, objs)
	resp.Diagnostics.Append(diags...)
	list, diags := types.ListValueFrom(ctx, types.StringType, drifted)
	resp.Diagnostics.Append(diags...)
	m.DriftedObjects = list
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}

func (r *agent) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.program.Session.Ledger.StartApplying()
	var m model
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Timeouts.Update(ctx, program.Timeout)
	objs, more := m.objects()
	if resp.Diagnostics.Append(append(diags, more...)...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp.Diagnostics.Append(r.program.Apply(ctx, objs)...)
	m.complete()
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *agent) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.program.Session.Ledger.StartApplying()
	var m model
	if resp.Diagnostics.Append(req.State.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Timeouts.Delete(ctx, program.Timeout)
	objs, more := m.objects()
	if resp.Diagnostics.Append(append(diags, more...)...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.remove(ctx, objs); err != nil {
		resp.Diagnostics.AddError("Node agent was not removed", session.Sentence(err))
	}
}

// remove deletes the agent, and what agents have published and nobody else deletes.
func (r *agent) remove(ctx context.Context, objs []*unstructured.Unstructured) error {
	if err := r.program.Remove(ctx, objs); err != nil {
		return err
	}
	client, err := r.program.Session.Kube()
	if err != nil {
		return err
	}
	return deploy.RemovePublished(ctx, client)
}

// complete fills in what is always the same after an apply.
func (m *model) complete() {
	m.ID = types.StringValue(contract.SystemNamespace + "/" + contract.NodeAgentName)
	m.DriftedObjects = types.ListValueMust(types.StringType, nil)
}

// refresh takes over the options that the DaemonSet runs with. An interval of the same
// length keeps the user's spelling.
func (m *model) refresh(workload *unstructured.Unstructured) {
	m.Image = types.StringValue(program.Image(workload))
	port, err := strconv.ParseInt(strings.TrimPrefix(program.Flag(workload, "metrics-addr"), ":"), 10, 64)
	if err != nil {
		port = 0
	}
	m.MetricsPort = types.Int64Value(port)
	live, err := time.ParseDuration(program.Flag(workload, "interval"))
	if err != nil {
		m.Interval = types.StringNull()
		return
	}
	if written, err := time.ParseDuration(m.Interval.ValueString()); err != nil || written != live {
		m.Interval = types.StringValue(live.String())
	}
}

func (m *model) objects() (objs []*unstructured.Unstructured, diags diag.Diagnostics) {
	options := deploy.Options{Image: m.Image.ValueString(), MetricsPort: int(m.MetricsPort.ValueInt64())}
	var err error
	if text := m.Interval.ValueString(); text != "" {
		options.Interval, err = time.ParseDuration(text)
	}
	if err == nil {
		objs, err = deploy.Objects(options)
	}
	if err != nil {
		diags.AddError("Node agent cannot be described", session.Sentence(err))
	}
	return objs, diags
}
