// Package scheduler is the resource gpuplan_scheduler: our scheduler in the cluster.
package scheduler

import (
	"context"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// New returns the resource.
func New() resource.Resource { return &scheduler{} }

type scheduler struct{ program program.Manager }

type model struct {
	Image          types.String   `tfsdk:"image"`
	Replicas       types.Int64    `tfsdk:"replicas"`
	LogLevel       types.Int64    `tfsdk:"log_level"`
	Port           types.Int64    `tfsdk:"port"`
	ID             types.String   `tfsdk:"id"`
	SchedulerName  types.String   `tfsdk:"scheduler_name"`
	DriftedObjects types.List     `tfsdk:"drifted_objects"`
	Timeouts       timeouts.Value `tfsdk:"timeouts"`
}

func (r *scheduler) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_scheduler"
}

func (r *scheduler) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.program = program.Manager{
		Session: session.Of(req.ProviderData, &resp.Diagnostics),
		Title:   "Scheduler", Resource: "gpuplan_scheduler", Name: contract.SchedulerName, Kind: "Deployment",
	}
}

func (r *scheduler) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	if resp.Diagnostics.Append(r.program.CheckImport(req.ID)...); !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), req.ID)...)
	}
}

func (r *scheduler) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
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

func (r *scheduler) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
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

func (r *scheduler) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
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

func (r *scheduler) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
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

func (r *scheduler) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
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
	if err := r.program.Remove(ctx, objs); err != nil {
		resp.Diagnostics.AddError("Scheduler was not removed", session.Sentence(err))
	}
}

// complete fills in what is always the same after an apply.
func (m *model) complete() {
	m.ID = types.StringValue(contract.SystemNamespace + "/" + contract.SchedulerName)
	m.SchedulerName = types.StringValue(contract.SchedulerName)
	m.DriftedObjects = types.ListValueMust(types.StringType, nil)
}

// refresh takes over the options that the Deployment runs with.
func (m *model) refresh(workload *unstructured.Unstructured) {
	m.Image = types.StringValue(program.Image(workload))
	replicas, _, _ := unstructured.NestedInt64(workload.Object, "spec", "replicas")
	m.Replicas = types.Int64Value(replicas)
	m.LogLevel = types.Int64Value(number(program.Flag(workload, "v")))
	m.Port = types.Int64Value(number(program.Flag(workload, "secure-port")))
}

// number reads a decimal number, 0 for anything else.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (m *model) objects() (objs []*unstructured.Unstructured, diags diag.Diagnostics) {
	objs, err := deploy.Objects(deploy.Options{
		Image:    m.Image.ValueString(),
		Replicas: int(m.Replicas.ValueInt64()),
		LogLevel: int(m.LogLevel.ValueInt64()),
		Port:     int(m.Port.ValueInt64()),
	})
	if err != nil {
		diags.AddError("Scheduler cannot be described", session.Sentence(err))
	}
	return objs, diags
}
