package program

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// Model is the attributes of a program's resource. M is a struct with a field for
// each attribute of the schema.
type Model[M any] interface {
	*M
	// Objects are the program's manifests with the options of the attributes.
	Objects() ([]*unstructured.Unstructured, error)
	// Complete fills in what is always the same after an apply.
	Complete()
	// Refresh takes over the options that the live workload runs with.
	Refresh(workload *unstructured.Unstructured)
	// Drifted notes the objects that differ from what was applied.
	Drifted(objects types.List)
	// Limits are the time limits that the user set.
	Limits() timeouts.Value
}

// Resource is the resource of one of our programs, from create to delete.
type Resource[M any, P Model[M]] struct {
	// Manager needs everything but its session.
	Manager Manager
	// Describe returns the schema, but for what all programs have: id, drifted_objects
	// and timeouts.
	Describe func() schema.Schema
	// Published deletes what the program has published and nobody else deletes; nil for nothing.
	Published func(context.Context, *kube.Client) error
}

// Metadata names the type.
func (r *Resource[M, P]) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = r.Manager.Resource
}

// Schema returns the attributes.
func (r *Resource[M, P]) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.Describe()
	resp.Schema.Attributes["id"] = schema.StringAttribute{
		MarkdownDescription: fmt.Sprintf("Namespace and name of the %s, for import.", r.Manager.Kind), Computed: true,
	}
	resp.Schema.Attributes["drifted_objects"] = schema.ListAttribute{
		MarkdownDescription: "Objects that are missing, or differ from what was applied, with the fields. Empty after an apply.",
		Computed:            true, ElementType: types.StringType,
	}
	standard := fmt.Sprintf("Default `%.0fm`.", Timeout.Minutes())
	resp.Schema.Attributes["timeouts"] = duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{Create: true, Update: true, Delete: true,
		CreateDescription: standard, UpdateDescription: standard, DeleteDescription: standard}))
}

// Configure takes the session of the walk.
func (r *Resource[M, P]) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.Manager.Session = session.Of(req.ProviderData, &resp.Diagnostics)
}

// ImportState imports by the ID of the workload.
func (r *Resource[M, P]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	if resp.Diagnostics.Append(r.Manager.CheckImport(req.ID)...); !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), req.ID)...)
	}
}

// ModifyPlan refuses a second install, and makes everything known.
func (r *Resource[M, P]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Manager.Session == nil {
		return
	}
	r.Manager.Session.Ledger.RecordProgram(r.Manager.Name, !req.Plan.Raw.IsNull())
	if req.Plan.Raw.IsNull() {
		return
	}
	m := P(new(M))
	if resp.Diagnostics.Append(req.Plan.Get(ctx, m)...); resp.Diagnostics.HasError() {
		return
	}
	if req.State.Raw.IsNull() {
		resp.Diagnostics.Append(r.Manager.CheckNew(ctx)...)
	}
	m.Complete()
	resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
	if req.Plan.Raw.IsFullyKnown() {
		objs, diags := r.Manager.describe(m.Objects())
		resp.Diagnostics.Append(append(diags, r.Manager.CheckServed(ctx, objs)...)...)
	}
	if !resp.Plan.Raw.Equal(req.State.Raw) && resp.Plan.Raw.IsFullyKnown() && !resp.Diagnostics.HasError() {
		if objs, err := m.Objects(); err == nil {
			resp.Diagnostics.Append(r.Manager.Session.Rights(ctx, objs...)...)
		}
	}
}

// Create installs the program and waits until it runs.
func (r *Resource[M, P]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.Manager.Session.Ledger.StartApplying()
	m := P(new(M))
	if resp.Diagnostics.Append(req.Plan.Get(ctx, m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Limits().Create(ctx, Timeout)
	objs, more := r.objects(ctx, resp.State, m)
	if resp.Diagnostics.Append(append(diags, more...)...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer r.Manager.Session.Ledger.Begin(r.Manager.ID())()
	resp.Diagnostics.Append(r.Manager.CheckNew(ctx)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if resp.Diagnostics.Append(r.Manager.Take(ctx, objs)...); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(r.Manager.Apply(ctx, objs)...)
	m.Complete() // also when it does not run: the objects exist
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// Read takes over what runs, and notes what differs.
func (r *Resource[M, P]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	m := P(new(M))
	if resp.Diagnostics.Append(req.State.Get(ctx, m)...); resp.Diagnostics.HasError() {
		return
	}
	workload, known, diags := r.Manager.Live(ctx)
	if resp.Diagnostics.Append(diags...); !known {
		return
	}
	var before types.List
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("drifted_objects"), &before)...)
	if workload == nil && before.IsNull() {
		resp.State.RemoveResource(ctx)
		return
	}
	m.Complete()
	if workload != nil {
		if before.IsNull() { // imported
			resp.Diagnostics.Append(written.Restore(ctx, resp.State, workload.GetAnnotations()[contract.SettingsAnnotation], m)...)
		}
		m.Refresh(workload)
	}
	objs, diags := r.objects(ctx, resp.State, m)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	drifted, diags := r.Manager.Drift(ctx, objs)
	if resp.Diagnostics.Append(diags...); drifted == nil && !diags.HasError() {
		resp.State.RemoveResource(ctx)
		return
	}
	if noted(before) {
		unfinished, diags := r.Manager.Unfinished(ctx, objs)
		resp.Diagnostics.Append(diags...)
		drifted = append(drifted, unfinished...)
	}
	list, diags := types.ListValueFrom(ctx, types.StringType, drifted)
	resp.Diagnostics.Append(diags...)
	m.Drifted(list)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}

// Update applies other options, and what drifted.
func (r *Resource[M, P]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.Manager.Session.Ledger.StartApplying()
	m, before := P(new(M)), P(new(M))
	if resp.Diagnostics.Append(append(req.Plan.Get(ctx, m), req.State.Get(ctx, before)...)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Limits().Update(ctx, Timeout)
	objs, more := r.objects(ctx, resp.State, m)
	old, evenMore := r.Manager.describe(before.Objects())
	if resp.Diagnostics.Append(slices.Concat(diags, more, evenMore)...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.Manager.Remove(ctx, dropped(old, objs)); err != nil {
		resp.Diagnostics.AddError(r.Manager.Title+" was not changed", session.Sentence(err))
		return
	}
	failed := r.Manager.Apply(ctx, objs)
	m.Complete()
	if failed.HasError() {
		// The next plan goes on with what does not run yet.
		unfinished, more := r.Manager.Unfinished(context.WithoutCancel(ctx), objs)
		list, evenMore := types.ListValueFrom(ctx, types.StringType, unfinished)
		failed = slices.Concat(failed, more, evenMore)
		m.Drifted(list)
	}
	resp.Diagnostics.Append(failed...)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// dropped are the objects that are not among the new ones.
func dropped(old, objs []*unstructured.Unstructured) (gone []*unstructured.Unstructured) {
	for _, obj := range old {
		if !slices.ContainsFunc(objs, func(o *unstructured.Unstructured) bool { return title(o) == title(obj) }) {
			gone = append(gone, obj)
		}
	}
	return gone
}

// objects are the program's manifests, with what they cannot tell of the model.
func (r *Resource[M, P]) objects(ctx context.Context, of tfsdk.State, m P) ([]*unstructured.Unstructured, diag.Diagnostics) {
	objs, diags := r.Manager.describe(m.Objects())
	i := slices.IndexFunc(objs, func(obj *unstructured.Unstructured) bool { return isWorkload(obj) && obj.GetName() == r.Manager.Name })
	if i < 0 {
		return objs, diags
	}
	derived := P(new(M))
	diags.Append(written.Blank(ctx, of, derived)...)
	derived.Complete()
	derived.Refresh(objs[i])
	diags.Append(written.Note(ctx, of, objs[i], m, derived)...)
	return objs, diags
}

// Delete removes exactly what Create installed, and what the program published.
func (r *Resource[M, P]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.Manager.Session.Ledger.StartApplying()
	m := P(new(M))
	if resp.Diagnostics.Append(req.State.Get(ctx, m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := m.Limits().Delete(ctx, Timeout)
	objs, more := r.Manager.describe(m.Objects())
	if resp.Diagnostics.Append(append(diags, more...)...); resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer r.Manager.Session.Ledger.Begin(r.Manager.ID())()
	if r.Manager.Session.Ledger.Taken(r.Manager.ID()) {
		return // it is another resource's now
	}
	if err := r.remove(ctx, objs); err != nil {
		resp.Diagnostics.AddError(r.Manager.Title+" was not removed", session.Sentence(err))
	}
}

func (r *Resource[M, P]) remove(ctx context.Context, objs []*unstructured.Unstructured) error {
	if err := r.Manager.Remove(ctx, objs); err != nil || r.Published == nil {
		return err
	}
	client, err := r.Manager.Session.Kube()
	if err != nil {
		return err
	}
	return r.Published(ctx, client)
}
