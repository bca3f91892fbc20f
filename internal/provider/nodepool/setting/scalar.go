package setting

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// text is a setting that is one string, of which the service knows no empty one.
func text(name, description string, place func(*Values) *types.String, at func(*acs.NodePoolSpec) *string, validators ...validator.String) setting {
	s := of(name, schema.StringAttribute{
		MarkdownDescription: description, Optional: true, Computed: true, Validators: validators,
		PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), emptyIsUnset{}},
	}, place,
		func(_ context.Context, spec acs.NodePoolSpec, _ types.String) (types.String, diag.Diagnostics) {
			return types.StringValue(*at(&spec)), nil
		},
		func(_ context.Context, value types.String, spec *acs.NodePoolSpec) diag.Diagnostics {
			*at(spec) = value.ValueString()
			return nil
		})
	s.emptyIsUnset = true
	return s
}

// shown is a setting that is taken over from the service when it is left out.
func shown(s setting) setting {
	s.shown = true
	return s
}

// clearable is a text of which an empty one says that there is none.
func clearable(s setting) setting {
	if attribute, ok := s.attribute.(schema.StringAttribute); ok {
		attribute.MarkdownDescription += " Empty: none."
		attribute.PlanModifiers = []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
		s.attribute = attribute
	}
	s.emptyIsUnset = false
	return s
}

// choice is a text out of several.
func choice(name, description string, place func(*Values) *types.String, at func(*acs.NodePoolSpec) *string, values ...string) setting {
	return text(name, description, place, at, stringvalidator.OneOf(append([]string{""}, values...)...))
}

// fixed is a setting that the service does not change on a pool that exists. It has to be shown, or a value
// that the pool has already would replace it.
func fixed(s setting) setting {
	if attribute, ok := s.attribute.(schema.StringAttribute); ok {
		attribute.PlanModifiers = append(attribute.PlanModifiers, stringplanmodifier.RequiresReplaceIf(
			func(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
				resp.RequiresReplace = req.ConfigValue.IsUnknown() || req.ConfigValue.ValueString() != ""
			}, "A pool that exists cannot get another one.", "A pool that exists cannot get another one."))
		s.attribute = attribute
	}
	s.replaces = true
	return s
}

// number is a setting that is one number.
func number(name, description string, place func(*Values) *types.Int64, at func(*acs.NodePoolSpec) **int64, validators ...validator.Int64) setting {
	return of(name, schema.Int64Attribute{
		MarkdownDescription: description, Optional: true, Computed: true, Validators: validators,
		PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
	}, place,
		func(_ context.Context, spec acs.NodePoolSpec, before types.Int64) (types.Int64, diag.Diagnostics) {
			return count(*at(&spec), before), nil
		},
		func(_ context.Context, value types.Int64, spec *acs.NodePoolSpec) diag.Diagnostics {
			*at(spec) = value.ValueInt64Pointer()
			return nil
		})
}

// among is a validator for a number out of several.
func among(values ...int64) validator.Int64 { return int64validator.OneOf(values...) }

// flag is a setting that is on or off.
func flag(name, description string, place func(*Values) *types.Bool, at func(*acs.NodePoolSpec) **bool) setting {
	return of(name, schema.BoolAttribute{
		MarkdownDescription: description, Optional: true, Computed: true,
		PlanModifiers: []planmodifier.Bool{boolplanmodifier.UseStateForUnknown()},
	}, place,
		func(_ context.Context, spec acs.NodePoolSpec, before types.Bool) (types.Bool, diag.Diagnostics) {
			return onOff(*at(&spec), before), nil
		},
		func(_ context.Context, value types.Bool, spec *acs.NodePoolSpec) diag.Diagnostics {
			*at(spec) = value.ValueBoolPointer()
			return nil
		})
}

// names is a setting that is a set of strings, of which the service knows no empty one.
func names(name, description string, place func(*Values) *types.Set, at func(*acs.NodePoolSpec) *[]string) setting {
	s := of(name, schema.SetAttribute{
		MarkdownDescription: description, Optional: true, Computed: true, ElementType: types.StringType,
		PlanModifiers: []planmodifier.Set{setplanmodifier.UseStateForUnknown(), emptyIsUnset{}},
		Validators:    []validator.Set{setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
	}, place,
		func(ctx context.Context, spec acs.NodePoolSpec, _ types.Set) (types.Set, diag.Diagnostics) {
			return types.SetValueFrom(ctx, types.StringType, append([]string{}, *at(&spec)...))
		},
		func(ctx context.Context, value types.Set, spec *acs.NodePoolSpec) diag.Diagnostics {
			*at(spec) = nil
			return value.ElementsAs(ctx, at(spec), false)
		})
	s.emptyIsUnset = true
	return s
}

// onOff is what the service answers. Off may be missing from the answer.
func onOff(answer *bool, before types.Bool) types.Bool {
	if answer == nil && known.Set(before) && !before.ValueBool() {
		return before
	}
	return types.BoolPointerValue(answer)
}

// count is what the service answers. 0 may be missing from the answer.
func count(answer *int64, before types.Int64) types.Int64 {
	if answer == nil && known.Set(before) && before.ValueInt64() == 0 {
		return before
	}
	return types.Int64PointerValue(answer)
}

// word is what the service answers, null for nothing.
func word(answer string) types.String {
	if answer == "" {
		return types.StringNull()
	}
	return types.StringValue(answer)
}
