// Package lifecycle is what all resources have in common from create to delete, whatever
// they manage.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fields"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Resource is a type of resource. M is its model, a struct with a field for each attribute of
// the schema. Of the state that its functions get, only the schema counts.
type Resource[M any] struct {
	// Session is that of the walk, nil before the provider is configured.
	Session *session.Session
	// Type is the name of the type, Title what an error calls it.
	Type, Title string
	// Timeouts are the time limits that the user set, Default those that hold otherwise.
	Timeouts func(*M) timeouts.Value
	Default  Limits
	// Object is the ledger's name of what the resource manages, nil where it takes several objects by itself.
	Object func(*M) string
	// Identity says what tells it from all else, ID is that of a model, as an import takes it, and
	// Import puts into the state what [Resource.Look] needs to find it.
	Identity Identity
	ID       func(*M) string
	Import   func(ctx context.Context, id string, resp *resource.ImportStateResponse)
	// Succeeds is the type of the alicloud provider whose objects are the same; the zero value for none.
	Succeeds Successor

	// Add makes it. exists means that it is there, whatever the diagnostics say: Terraform must
	// know it.
	Add func(ctx context.Context, of tfsdk.State, m *M) (exists bool, diags diag.Diagnostics)
	// Look brings the model up to date; found is false for what is gone.
	Look func(ctx context.Context, of tfsdk.State, m *M) (found bool, diags diag.Diagnostics, err error)
	// Change makes it what the model says. changed means that it is no longer what it was
	// before, whatever the diagnostics say.
	Change func(ctx context.Context, of tfsdk.State, before, m *M) (changed bool, diags diag.Diagnostics)
	// Recollect tells the ledger what a plan has written down for the deletion; nil for nothing.
	Recollect func(ctx context.Context, from Private, m *M) diag.Diagnostics
	// Remove deletes it and waits until it is gone.
	Remove func(ctx context.Context, m *M) (diags diag.Diagnostics, err error)
	// Kept is where the model has what Terraform keeps beside its attributes; nil for nothing.
	Kept func(*M) *Kept
	// InCluster means that it is in Kubernetes, and nowhere else: in another cluster it is another one.
	InCluster bool
}

// Limits are how long changes may take.
type Limits struct{ Create, Update, Delete time.Duration }

// Metadata names the type.
func (r *Resource[M]) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = r.Type
	resp.ResourceBehavior.MutableIdentity = r.Identity.mutable()
}

// Configure takes the session of the walk.
func (r *Resource[M]) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.Session = session.Of(req.ProviderData, &resp.Diagnostics)
}

// Create makes what the plan says. It is the resource's from here on, also when that fails: who had it before
// does not delete it.
func (r *Resource[M]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.Session.Ledger.StartApplying()
	var m M
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout, diags := r.Timeouts(&m).Create(ctx, r.Default.Create)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	if r.Object != nil && !r.Session.Ledger.Take(r.Object(&m)) {
		resp.Diagnostics.AddError(r.Title+" was not created", session.Sentence(session.Taken(r.Object(&m))))
		return
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	exists, diags := r.Add(limited, resp.State, &m)
	if !exists && r.Object != nil {
		r.Session.Ledger.GiveUp(r.Object(&m))
	}
	if resp.Diagnostics.Append(diags...); exists {
		if r.Kept != nil {
			r.Kept(&m).Owner = r.Session.Owner
		}
		resp.Diagnostics.Append(resp.State.Set(context.WithoutCancel(ctx), m)...)
		resp.Diagnostics.Append(r.identify(ctx, resp.Identity, &m)...)
		resp.Diagnostics.Append(r.keep(ctx, resp.Private, &m)...)
	}
}

// Interrupted reports whether whoever runs Terraform has stopped it, a time limit aside. What a create lacks then is no
// error where the next plan sees it and the next apply goes on: for an error, Terraform would replace what there is.
func Interrupted(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), context.Canceled)
}

// Warnings are diagnostics of which none is an error.
func Warnings(diags diag.Diagnostics) (all diag.Diagnostics) {
	for _, d := range diags {
		if at, ok := d.(diag.DiagnosticWithPath); ok {
			all.AddAttributeWarning(at.Path(), d.Summary(), d.Detail())
		} else {
			all.AddWarning(d.Summary(), d.Detail())
		}
	}
	return all
}

// Read refreshes the state. What cannot be asked before apply stays as it is. States that earlier
// versions wrote get their identity here.
func (r *Resource[M]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	r.Session.Ledger.Refreshed()
	var m M
	resp.Diagnostics.Append(fields.Get(ctx, req.State, &m)...)
	if resp.Diagnostics.Append(r.Recall(ctx, req.Private, &m)...); resp.Diagnostics.HasError() {
		return
	}
	found, diags, err := r.Look(ctx, resp.State, &m)
	resp.Diagnostics.Append(diags...)
	resp.Diagnostics.Append(r.identify(ctx, resp.Identity, &m)...)
	switch {
	case errors.Is(err, session.ErrUnknown):
	case err != nil:
		resp.Diagnostics.AddError(r.Title+" cannot be read", session.Sentence(err))
	case resp.Diagnostics.HasError():
	case !found:
		if where := r.elsewhere(ctx, &m); where != "" {
			resp.Diagnostics.AddWarning(r.Title+" is in another cluster", fmt.Sprintf(
				"%s %s counts as gone: %s. Where the kubeconfig or its context is the wrong one, do not apply: it would be made here as well, and what there is would be forgotten, and go on there.",
				r.Title, r.ID(&m), where))
		}
		resp.Diagnostics.Append(r.sayTakenOver(&m)...)
		resp.State.RemoveResource(ctx)
	default:
		resp.Diagnostics.Append(r.moved(ctx, &m)...)
		resp.Diagnostics.Append(fields.Set(ctx, &resp.State, m)...)
		resp.Diagnostics.Append(r.keep(ctx, resp.Private, &m)...)
	}
}

// Update makes what exists what the plan says.
func (r *Resource[M]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.Session.Ledger.StartApplying()
	var m, before M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &before)...)
	if resp.Diagnostics.Append(r.Recall(ctx, req.Private, &before)...); resp.Diagnostics.HasError() {
		return
	}
	if r.Kept != nil {
		*r.Kept(&m) = *r.Kept(&before)
	}
	timeout, diags := r.Timeouts(&m).Update(ctx, r.Default.Update)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changed, diags := r.Change(limited, resp.State, &before, &m)
	if resp.Diagnostics.Append(diags...); changed {
		resp.Diagnostics.Append(resp.State.Set(context.WithoutCancel(ctx), m)...)
	} else {
		m = before
	}
	resp.Diagnostics.Append(r.identify(ctx, resp.Identity, &m)...)
	resp.Diagnostics.Append(r.keep(ctx, resp.Private, &m)...)
}

// Delete deletes what the state says, unless another resource has it by now.
func (r *Resource[M]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.Session.Ledger.StartApplying()
	var m M
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.Append(r.Recall(ctx, req.Private, &m)...); resp.Diagnostics.HasError() {
		return
	}
	if r.Recollect != nil {
		if resp.Diagnostics.Append(r.Recollect(ctx, req.Private, &m)...); resp.Diagnostics.HasError() {
			return
		}
	}
	timeout, diags := r.Timeouts(&m).Delete(ctx, r.Default.Delete)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if r.Object != nil {
		defer r.Session.Ledger.Begin(r.Object(&m))()
		if r.Session.Ledger.GivenUp(r.Object(&m)) {
			resp.Diagnostics.AddError(r.Title+" was not deleted",
				"The resource that was to take it over, or to make another one of its name, has failed. Apply again, with or without that one.")
			return
		}
		if r.Session.Ledger.Taken(r.Object(&m)) {
			return
		}
	}
	if where := r.elsewhere(limited, &m); where != "" {
		resp.Diagnostics.AddError(r.Title+" was not deleted", fmt.Sprintf(
			"%s %s is not looked for: %s. Delete it with the kubeconfig of its own. Where that cluster is gone for good, refresh the state (`terraform apply -refresh-only`), or forget the resource with `terraform state rm`.",
			r.Title, r.ID(&m), where))
		return
	}
	diags, err := r.Remove(limited, &m)
	if resp.Diagnostics.Append(diags...); err != nil {
		detail := session.Sentence(err)
		if unreachable := (*kube.UnreachableError)(nil); errors.As(err, &unreachable) {
			detail += fmt.Sprintf(" This is %s %s: destroy once more when the cluster answers. Where it is gone for good, forget the resource with `terraform state rm`; "+
				"what needs no Kubernetes, and waits for it, is deleted by the next destroy then.", r.Type, r.ID(&m))
		}
		resp.Diagnostics.AddError(r.Title+" was not deleted", detail)
	}
}
