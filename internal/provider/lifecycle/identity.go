package lifecycle

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Identity are the values that tell what a resource manages from all else: Terraform keeps them beside the
// state, and imports by them. With "/" between them they are an import ID.
type Identity []Part

// Part is a value of an identity.
type Part struct {
	Name, Description string
	// Default is what an import takes that leaves the value out; nil where it has to be there.
	Default func() string
	// List means a list of values, which may change in place; in an import ID it has commas.
	List bool
}

const between, listed = "/", ","

func (i Identity) schema() identityschema.Schema {
	attributes := map[string]identityschema.Attribute{}
	for _, p := range i {
		optional := p.Default != nil
		if p.List {
			attributes[p.Name] = identityschema.ListAttribute{
				ElementType: types.StringType, Description: p.Description, OptionalForImport: optional, RequiredForImport: !optional,
			}
		} else {
			attributes[p.Name] = identityschema.StringAttribute{Description: p.Description, OptionalForImport: optional, RequiredForImport: !optional}
		}
	}
	return identityschema.Schema{Attributes: attributes}
}

// mutable reports whether an object may get another identity without being replaced.
func (i Identity) mutable() bool {
	for _, p := range i {
		if p.List {
			return true
		}
	}
	return false
}

// write makes an import ID the values of an identity.
func (i Identity) write(ctx context.Context, to *tfsdk.ResourceIdentity, id string) (diags diag.Diagnostics) {
	if id == "" {
		return nil
	}
	for n, value := range strings.SplitN(id, between, len(i)) {
		if at := path.Root(i[n].Name); i[n].List {
			diags.Append(to.SetAttribute(ctx, at, strings.Split(value, listed))...)
		} else {
			diags.Append(to.SetAttribute(ctx, at, value)...)
		}
	}
	return diags
}

// read makes the values of an identity an import ID.
func (i Identity) read(ctx context.Context, from *tfsdk.ResourceIdentity) (id string, diags diag.Diagnostics) {
	var values []string
	for _, p := range i {
		value, at := types.StringNull(), path.Root(p.Name)
		if p.List {
			var elements []string
			diags.Append(from.GetAttribute(ctx, at, &elements)...)
			if elements != nil {
				value = types.StringValue(strings.Join(elements, listed))
			}
		} else {
			diags.Append(from.GetAttribute(ctx, at, &value)...)
		}
		if value.IsNull() && p.Default != nil {
			value = types.StringValue(p.Default())
		}
		values = append(values, value.ValueString())
	}
	return strings.TrimSuffix(strings.Join(values, between), between), diags
}

// IdentitySchema describes the identity.
func (r *Resource[M]) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = r.Identity.schema()
}

// identify writes down which object it is.
func (r *Resource[M]) identify(ctx context.Context, to *tfsdk.ResourceIdentity, m *M) diag.Diagnostics {
	return r.Identity.write(ctx, to, r.ID(m))
}

// ImportState imports by an ID or by an identity.
func (r *Resource[M]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	id := req.ID
	if !req.Identity.Raw.IsNull() {
		var diags diag.Diagnostics
		if id, diags = r.Identity.read(ctx, req.Identity); diags.HasError() {
			resp.Diagnostics.Append(diags...)
			return
		}
	}
	r.Import(ctx, id, resp)
}
