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
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
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
	// Drifted are the objects that differ from what was applied.
	Drifted() *types.List
	// Limits are the time limits that the user set.
	Limits() timeouts.Value
	// Kept is what Terraform keeps beside the attributes: the UID of the workload, and whether it ran.
	Kept() *lifecycle.Kept
}

// Resource is the resource of one of our programs, from create to delete.
type Resource[M any, P Model[M]] struct {
	lifecycle.Resource[M]
	// Manager needs everything but its session.
	Manager Manager
	// Describe returns the schema, but for what all programs have: id, drifted_objects
	// and timeouts.
	Describe func() schema.Schema
	// Published deletes what the program has published and nobody else deletes; nil for nothing.
	Published func(context.Context, *kube.Client) error
}

// New returns the resource of a program.
func New[M any, P Model[M]](manager Manager, describe func() schema.Schema, published func(context.Context, *kube.Client) error) resource.Resource {
	r := &Resource[M, P]{Manager: manager, Describe: describe, Published: published}
	r.Resource = lifecycle.Resource[M]{
		Type: manager.Resource, Title: manager.Title,
		Timeouts: func(m *M) timeouts.Value { return P(m).Limits() },
		Default:  lifecycle.Limits{Create: Timeout, Update: Timeout, Delete: Timeout},
		Object:   func(*M) string { return manager.ID() },
		Identity: lifecycle.Identity{
			{Name: "namespace", Description: fmt.Sprintf("Namespace of the %s; default: %s.", manager.Kind, contract.SystemNamespace), Default: func() string { return contract.SystemNamespace }},
			{Name: "name", Description: fmt.Sprintf("Name of the %s: %s.", manager.Kind, manager.Name)},
		},
		ID: func(*M) string { return manager.ID() }, Import: r.importID,
		Add: r.add, Look: r.look, Change: r.change, Remove: r.remove,
		Kept:      func(m *M) *lifecycle.Kept { return P(m).Kept() },
		InCluster: true,
	}
	return r
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
func (r *Resource[M, P]) Configure(ctx context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.Resource.Configure(ctx, req, resp)
	r.Manager.Session = r.Session
}

// importID takes the ID of the workload.
func (r *Resource[M, P]) importID(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	if resp.Diagnostics.Append(r.Manager.CheckImport(id)...); !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id)...)
	}
}

// ModifyPlan refuses a second install, and makes everything known.
func (r *Resource[M, P]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.Manager.Session == nil {
		return
	}
	r.Manager.Session.Ledger.RecordProgram(r.Manager.Name, !req.Plan.Raw.IsNull())
	if req.Plan.Raw.IsNull() {
		r.recordDevices(nil)
		if r.Manager.Removed != nil {
			resp.Diagnostics.Append(r.Manager.Removed(ctx, r.Manager.Session)...)
		}
		return
	}
	m := P(new(M))
	if resp.Diagnostics.Append(req.Plan.Get(ctx, m)...); resp.Diagnostics.HasError() {
		return
	}
	if req.State.Raw.IsNull() {
		resp.Diagnostics.Append(r.Manager.CheckNew(ctx)...)
	}
	r.recordDevices(m)
	m.Complete()
	resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
	known := resp.Plan.Raw.IsFullyKnown()
	if !req.State.Raw.IsNull() {
		if resp.Diagnostics.Append(r.Recall(ctx, req.Private, (*M)(m))...); m.Kept().Unfinished && resp.Plan.Raw.Equal(req.State.Raw) {
			// Of an apply that was interrupted, which a plan without a refresh goes on with, too.
			*m.Drifted() = types.ListUnknown(types.StringType)
			resp.Diagnostics.Append(resp.Plan.Set(ctx, m)...)
		}
	}
	if known {
		objs, diags := r.Manager.describe(m.Objects())
		resp.Diagnostics.Append(append(diags, r.Manager.CheckServed(ctx, objs)...)...)
	}
	if !resp.Plan.Raw.Equal(req.State.Raw) && known && !resp.Diagnostics.HasError() {
		if objs, err := m.Objects(); err == nil {
			resp.Diagnostics.Append(r.Manager.Session.Rights(ctx, objs...)...)
		}
	}
}

// recordDevices records whether a program that can do so offers the GPUs of nodes once the walk is carried out; m is nil for one that goes.
func (r *Resource[M, P]) recordDevices(m P) {
	if offers, can := any(m).(interface{ OffersDevices() bool }); can {
		r.Session.Ledger.RecordProgram(session.DevicePlugins, m != nil && offers.OffersDevices())
	}
}

// add installs the program and waits until it runs.
func (r *Resource[M, P]) add(ctx context.Context, of tfsdk.State, m *M) (exists bool, diags diag.Diagnostics) {
	objs, diags := r.objects(ctx, of, P(m))
	if diags.HasError() {
		return false, diags
	}
	defer r.Session.Ledger.Begin(r.Manager.ID())()
	if diags.Append(r.Manager.CheckNew(ctx)...); diags.HasError() {
		return false, diags
	}
	if diags.Append(r.Manager.CheckObjects(ctx, objs, func(labels map[string]string) bool { return !r.Session.Mine(labels[contract.OwnerLabel]) })...); diags.HasError() {
		return false, diags
	}
	failed := r.apply(ctx, P(m), objs)
	if lifecycle.Interrupted(ctx) {
		return true, append(diags, lifecycle.Warnings(failed)...) // the drift has to be as planned: the next look sees it
	}
	return true, append(diags, r.noteUnfinished(ctx, failed, m, objs)...)
}

// apply installs the objects or brings them up to date, and keeps for the next plan whether they run: it goes on with
// what does not.
func (r *Resource[M, P]) apply(ctx context.Context, m P, objs []*unstructured.Unstructured) diag.Diagnostics {
	diags := r.Manager.Apply(ctx, objs)
	m.Complete() // also when it does not run: the objects exist
	m.Kept().Unfinished = diags.HasError()
	if workload, err := r.Manager.Live(context.WithoutCancel(ctx)); err == nil && workload != nil {
		m.Kept().UIDs, m.Kept().Stamp = lifecycle.UIDsOf(workload), workload.GetLabels()[contract.OwnerLabel]
		r.NoteOwner((*M)(m), m.Kept().Stamp)
	}
	return diags
}

// noteUnfinished writes down, of an apply that failed, what does not run yet.
func (r *Resource[M, P]) noteUnfinished(ctx context.Context, failed diag.Diagnostics, m *M, objs []*unstructured.Unstructured) diag.Diagnostics {
	if !failed.HasError() {
		return failed
	}
	unfinished, more := r.Manager.Unfinished(context.WithoutCancel(ctx), objs)
	list, evenMore := types.ListValueFrom(ctx, types.StringType, unfinished)
	*P(m).Drifted() = list
	return slices.Concat(failed, more, evenMore)
}

// live is the workload, nil when there is none that stays, and whether it is someone else's by now.
func (r *Resource[M, P]) live(ctx context.Context, m *M) (workload *unstructured.Unstructured, others bool, err error) {
	workload, err = r.Manager.Live(ctx)
	return workload, err == nil && workload != nil && r.Foreign(m, workload), err
}

// look takes over what runs, and notes what differs.
func (r *Resource[M, P]) look(ctx context.Context, of tfsdk.State, model *M) (found bool, diags diag.Diagnostics, err error) {
	m := P(model)
	workload, others, err := r.live(ctx, model)
	if err != nil {
		return false, nil, err
	}
	before := *m.Drifted()
	if workload == nil && before.IsNull() || others {
		return false, nil, nil
	}
	m.Complete()
	if workload != nil {
		m.Kept().UIDs, m.Kept().Stamp = lifecycle.UIDsOf(workload), workload.GetLabels()[contract.OwnerLabel]
		r.NoteOwner(model, m.Kept().Stamp)
		if before.IsNull() { // imported
			diags.Append(r.SayImported(model, m.Kept().Stamp)...)
			diags.Append(written.Restore(ctx, of, workload.GetAnnotations()[contract.SettingsAnnotation], m)...)
		}
		m.Refresh(workload)
	}
	objs, more := r.objects(ctx, of, m)
	if diags.Append(more...); diags.HasError() {
		return false, diags, nil
	}
	drifted, more := r.Manager.Drift(ctx, objs)
	if diags.Append(more...); drifted == nil {
		return false, diags, nil
	}
	if m.Kept().Unfinished {
		unfinished, more := r.Manager.Unfinished(ctx, objs)
		diags.Append(more...)
		m.Kept().Unfinished = len(unfinished) > 0
		drifted = append(drifted, unfinished...)
	}
	list, more := types.ListValueFrom(ctx, types.StringType, drifted)
	diags.Append(more...)
	*m.Drifted() = list
	return true, diags, nil
}

// change applies other options, and what drifted.
func (r *Resource[M, P]) change(ctx context.Context, of tfsdk.State, was, model *M) (changed bool, diags diag.Diagnostics) {
	m, before := P(model), P(was)
	objs, diags := r.objects(ctx, of, m)
	old, more := r.Manager.describe(before.Objects())
	if diags.Append(more...); diags.HasError() {
		return false, diags
	}
	workload, others, err := r.live(ctx, was)
	if others {
		err = fmt.Errorf("%s is another one since the plan was made: plan again", title(workload))
	}
	if err == nil {
		theirs := r.theirs(before, workload)
		strangers := func(labels map[string]string) bool { return labels[contract.ManagedByLabel] != contract.ManagedByValue }
		diags.Append(r.Manager.CheckObjects(ctx, without(objs, old), strangers)...)
		if theirs != nil {
			diags.Append(r.Manager.CheckObjects(ctx, objs, theirs)...)
		}
		if diags.HasError() {
			return false, diags
		}
		more, err = r.Manager.Remove(ctx, without(old, objs), theirs)
		diags.Append(more...)
	}
	if err != nil {
		diags.AddError(r.Title+" was not changed", session.Sentence(err))
		return false, diags
	}
	failed := r.apply(ctx, m, objs)
	return true, append(diags, r.noteUnfinished(ctx, failed, model, objs)...)
}

// theirs says which objects are another configuration's, by their labels. With the workload all are ours, and it is nil; without
// one those are not that carry another owner than this configuration's and than the workload had when it was seen last, as
// an install that broke off leaves them.
func (r *Resource[M, P]) theirs(m P, workload *unstructured.Unstructured) func(labels map[string]string) bool {
	last := m.Kept().Stamp
	if workload != nil || last == "" {
		return nil
	}
	return func(labels map[string]string) bool {
		stamp := labels[contract.OwnerLabel]
		return stamp != last && r.Session.Theirs(stamp)
	}
}

// without are the objects that are not among others.
func without(objs, others []*unstructured.Unstructured) (rest []*unstructured.Unstructured) {
	for _, obj := range objs {
		if !slices.ContainsFunc(others, func(o *unstructured.Unstructured) bool { return title(o) == title(obj) }) {
			rest = append(rest, obj)
		}
	}
	return rest
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

// remove deletes exactly what add installed, and what the program published.
func (r *Resource[M, P]) remove(ctx context.Context, m *M) (diags diag.Diagnostics, err error) {
	workload, others, err := r.live(ctx, m)
	if others || err != nil {
		return nil, err
	}
	objs, diags := r.Manager.describe(P(m).Objects())
	if diags.HasError() {
		return diags, nil
	}
	more, err := r.Manager.Remove(ctx, objs, r.theirs(P(m), workload))
	if diags.Append(more...); err != nil || r.Published == nil {
		return diags, err
	}
	client, err := r.Session.Kube()
	if err != nil {
		return diags, err
	}
	return diags, r.Published(ctx, client)
}
