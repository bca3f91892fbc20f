package setting

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// object is a setting that is an object; T is its model. read returns nil where the service has none.
// before is what was known, nil for nothing.
func object[T any](name, description string, attributes map[string]schema.Attribute, place func(*Values) *types.Object,
	read func(ctx context.Context, spec acs.NodePoolSpec, before *T) (*T, diag.Diagnostics), write func(ctx context.Context, value T, spec *acs.NodePoolSpec) diag.Diagnostics) setting {
	kinds := typesOf(attributes)
	return of(name, schema.SingleNestedAttribute{
		MarkdownDescription: description, Optional: true, Computed: true, Attributes: attributes,
		PlanModifiers: []planmodifier.Object{keepLeftOut{}},
	}, place,
		func(ctx context.Context, spec acs.NodePoolSpec, before types.Object) (types.Object, diag.Diagnostics) {
			var was *T
			if known.Set(before) {
				was = new(T)
				if diags := before.As(ctx, was, basetypes.ObjectAsOptions{}); diags.HasError() {
					return before, diags
				}
			}
			has, diags := read(ctx, spec, was)
			if has == nil || diags.HasError() {
				return types.ObjectNull(kinds), diags
			}
			value, more := types.ObjectValueFrom(ctx, kinds, *has)
			return unsaid(value, before), append(diags, more...)
		},
		func(ctx context.Context, value types.Object, spec *acs.NodePoolSpec) diag.Diagnostics {
			var model T
			diags := value.As(ctx, &model, basetypes.ObjectAsOptions{})
			if diags.HasError() {
				return diags
			}
			return append(diags, write(ctx, model, spec)...)
		})
}

// list is a setting that is a list of objects, of which an empty one says that there are none. same
// reports whether the service has what one of them says already.
func list[T any](name, description string, most int, attributes map[string]schema.Attribute, place func(*Values) *types.List,
	read func(spec acs.NodePoolSpec, before []T) []T, write func(value []T, same func(int) bool, spec *acs.NodePoolSpec)) setting {
	kind := types.ObjectType{AttrTypes: typesOf(attributes)}
	return of(name, schema.ListNestedAttribute{
		MarkdownDescription: description, Optional: true, Computed: true,
		NestedObject:  schema.NestedAttributeObject{Attributes: attributes},
		PlanModifiers: []planmodifier.List{keepLeftOut{}},
		Validators:    []validator.List{listvalidator.SizeAtMost(most)},
	}, place,
		func(ctx context.Context, spec acs.NodePoolSpec, before types.List) (types.List, diag.Diagnostics) {
			var was []T
			if known.Set(before) {
				if diags := before.ElementsAs(ctx, &was, false); diags.HasError() {
					return before, diags
				}
			}
			value, diags := types.ListValueFrom(ctx, kind, append([]T{}, read(spec, was)...))
			elements, said := value.Elements(), before.Elements()
			for i := range min(len(elements), len(said)) {
				if e, ok := elements[i].(types.Object); ok {
					b, _ := said[i].(types.Object)
					elements[i] = unsaid(e, b)
				}
			}
			if diags.HasError() {
				return value, diags
			}
			return types.ListValue(kind, elements)
		},
		func(ctx context.Context, value types.List, spec *acs.NodePoolSpec) diag.Diagnostics {
			models := []T{}
			diags := value.ElementsAs(ctx, &models, false)
			has, more := types.ListValueFrom(ctx, kind, append([]T{}, read(*spec, nil)...))
			if diags.Append(more...); diags.HasError() {
				return diags
			}
			elements, there := value.Elements(), has.Elements()
			same := func(i int) bool {
				if i >= len(there) {
					return false
				}
				element, ok := elements[i].(types.Object)
				t, _ := there[i].(types.Object)
				return ok && says(element, t)
			}
			write(models, same, spec)
			return diags
		})
}

// unsaid leaves out of what the service has what an earlier value leaves out.
func unsaid(value, before types.Object) types.Object {
	if !known.Set(before) {
		return value
	}
	attributes := value.Attributes()
	for name, said := range before.Attributes() {
		if said.IsNull() {
			attributes[name] = said
		}
	}
	return types.ObjectValueMust(value.AttributeTypes(context.Background()), attributes)
}

func typesOf(attributes map[string]schema.Attribute) map[string]attr.Type {
	kinds := map[string]attr.Type{}
	for name, a := range attributes {
		kinds[name] = a.GetType()
	}
	return kinds
}

// The attributes of objects. What is left out is the service's to decide.
func partText(description string, validators ...validator.String) schema.Attribute {
	return schema.StringAttribute{MarkdownDescription: description, Optional: true, Computed: true, Validators: validators}
}

func partNumber(description string, validators ...validator.Int64) schema.Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Optional: true, Computed: true, Validators: validators}
}

func partFlag(description string) schema.Attribute {
	return schema.BoolAttribute{MarkdownDescription: description, Optional: true, Computed: true}
}
