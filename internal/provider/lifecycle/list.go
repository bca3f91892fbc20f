package lifecycle

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	listschema "github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Lister is the list of what there is of a type of resource, whoever made it.
type Lister[M any] struct {
	*Resource[M]
	// Schema is that of list blocks.
	Schema listschema.Schema
	// All finds what a list block asks for.
	All func(ctx context.Context, block tfsdk.Config) (all []Listed, diags diag.Diagnostics, err error)
}

// Listed is an object, by the ID that an import takes, and how people call it.
type Listed struct{ ID, Name string }

// ListResourceConfigSchema is that of list blocks.
func (l *Lister[M]) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = l.Schema
}

// List finds the objects, and reads them as an import does where Terraform wants their attributes.
func (l *Lister[M]) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	all, diags, err := l.All(ctx, req.Config)
	if err != nil {
		diags.AddError(l.Title+" cannot be listed", session.Sentence(err))
	}
	if diags.HasError() {
		stream.Results = list.ListResultsStreamDiagnostics(diags)
		return
	}
	if limit := int(req.Limit); limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	stream.Results = func(push func(list.ListResult) bool) {
		for _, listed := range all {
			result := req.NewListResult(ctx)
			result.DisplayName = listed.Name
			result.Diagnostics.Append(l.Identity.write(ctx, result.Identity, listed.ID)...)
			if req.IncludeResource && !l.read(ctx, listed, &result) {
				continue // it has gone meanwhile
			}
			if !push(result) {
				return
			}
		}
	}
}

// read fills in the attributes of an object; found is false for what is gone.
func (l *Lister[M]) read(ctx context.Context, listed Listed, result *list.ListResult) (found bool) {
	imported := resource.ImportStateResponse{State: tfsdk.State{Schema: result.Resource.Schema, Raw: result.Resource.Raw}}
	l.Import(ctx, listed.ID, &imported)
	if result.Diagnostics.Append(imported.Diagnostics...); result.Diagnostics.HasError() {
		return true
	}
	var m M
	if result.Diagnostics.Append(imported.State.Get(ctx, &m)...); result.Diagnostics.HasError() {
		return true
	}
	found, diags, err := l.Look(ctx, imported.State, &m)
	result.Diagnostics.Append(diags...)
	switch {
	case err != nil:
		result.Diagnostics.AddError(l.Title+" cannot be read", session.Sentence(err))
	case found && !result.Diagnostics.HasError():
		result.Diagnostics.Append(result.Resource.Set(ctx, m)...)
	}
	return found || result.Diagnostics.HasError()
}
