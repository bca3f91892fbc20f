package setting

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// emptyIsUnset makes "" and [] mean what leaving the attribute out means: what the cloud has stays.
type emptyIsUnset struct{}

var (
	_ planmodifier.String = emptyIsUnset{}
	_ planmodifier.Set    = emptyIsUnset{}
)

func (emptyIsUnset) Description(context.Context) string {
	return "Empty is the same as left out."
}

func (m emptyIsUnset) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (emptyIsUnset) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if known.Set(req.ConfigValue) && req.ConfigValue.ValueString() == "" && known.Set(req.StateValue) {
		resp.PlanValue = req.StateValue
	}
}

func (emptyIsUnset) PlanModifySet(_ context.Context, req planmodifier.SetRequest, resp *planmodifier.SetResponse) {
	if known.Set(req.ConfigValue) && len(req.ConfigValue.Elements()) == 0 && known.Set(req.StateValue) {
		resp.PlanValue = req.StateValue
	}
}

// quiet plans nothing of a setting of a new pool that is left out: otherwise the plan would show each of
// them as known after apply.
type quiet struct{}

var (
	_ planmodifier.String = quiet{}
	_ planmodifier.Int64  = quiet{}
	_ planmodifier.Bool   = quiet{}
	_ planmodifier.Map    = quiet{}
	_ planmodifier.List   = quiet{}
)

func (quiet) Description(context.Context) string               { return "Nothing is planned of what is left out." }
func (m quiet) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (quiet) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.State.Raw.IsNull() && req.ConfigValue.IsNull() {
		resp.PlanValue = req.ConfigValue
	}
}

func (quiet) PlanModifyInt64(_ context.Context, req planmodifier.Int64Request, resp *planmodifier.Int64Response) {
	if req.State.Raw.IsNull() && req.ConfigValue.IsNull() {
		resp.PlanValue = req.ConfigValue
	}
}

func (quiet) PlanModifyBool(_ context.Context, req planmodifier.BoolRequest, resp *planmodifier.BoolResponse) {
	if req.State.Raw.IsNull() && req.ConfigValue.IsNull() {
		resp.PlanValue = req.ConfigValue
	}
}

func (quiet) PlanModifyMap(_ context.Context, req planmodifier.MapRequest, resp *planmodifier.MapResponse) {
	if req.State.Raw.IsNull() && req.ConfigValue.IsNull() {
		resp.PlanValue = req.ConfigValue
	}
}

func (quiet) PlanModifyList(_ context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse) {
	if req.State.Raw.IsNull() && req.ConfigValue.IsNull() {
		resp.PlanValue = req.ConfigValue
	}
}

// quietly adds [quiet] to an attribute. Objects have it from [keepLeftOut].
func quietly(attribute schema.Attribute) schema.Attribute {
	switch a := attribute.(type) {
	case schema.StringAttribute:
		a.PlanModifiers = append(a.PlanModifiers, quiet{})
		return a
	case schema.Int64Attribute:
		a.PlanModifiers = append(a.PlanModifiers, quiet{})
		return a
	case schema.BoolAttribute:
		a.PlanModifiers = append(a.PlanModifiers, quiet{})
		return a
	case schema.MapAttribute:
		a.PlanModifiers = append(a.PlanModifiers, quiet{})
		return a
	case schema.ListAttribute:
		a.PlanModifiers = append(a.PlanModifiers, quiet{})
		return a
	}
	return attribute
}

// keepLeftOut keeps what an object leaves out as it is. Of a list it does so for the objects that
// say what is there at their place already; another object is not what was there.
type keepLeftOut struct{}

var (
	_ planmodifier.Object = keepLeftOut{}
	_ planmodifier.List   = keepLeftOut{}
)

func (keepLeftOut) Description(context.Context) string { return "What is left out stays." }

func (m keepLeftOut) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (keepLeftOut) PlanModifyObject(_ context.Context, req planmodifier.ObjectRequest, resp *planmodifier.ObjectResponse) {
	switch {
	case req.ConfigValue.IsUnknown():
	case req.ConfigValue.IsNull():
		resp.PlanValue = req.StateValue
	default:
		resp.PlanValue = kept(req.ConfigValue, req.PlanValue, req.StateValue)
	}
}

func (keepLeftOut) PlanModifyList(ctx context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse) {
	if req.ConfigValue.IsUnknown() {
		return
	}
	if req.ConfigValue.IsNull() {
		resp.PlanValue = req.StateValue
		return
	}
	config, plan, state := req.ConfigValue.Elements(), req.PlanValue.Elements(), req.StateValue.Elements()
	plan = slices.Clone(plan)
	for i := range min(len(config), len(plan)) {
		c, isObject := config[i].(types.Object)
		p, _ := plan[i].(types.Object)
		if !isObject || !known.Set(c) || !known.Set(p) {
			continue
		}
		there := types.ObjectNull(c.AttributeTypes(ctx))
		if i < len(state) {
			if s, ok := state[i].(types.Object); ok && says(c, s) {
				there = s
			}
		}
		plan[i] = kept(c, p, there)
	}
	value, diags := types.ListValue(req.PlanValue.ElementType(ctx), plan)
	if resp.Diagnostics.Append(diags...); !diags.HasError() {
		resp.PlanValue = value
	}
}

// says reports whether everything that a configuration says is so.
func says(config, state types.Object) bool {
	has := state.Attributes()
	for name, value := range config.Attributes() {
		if !value.IsNull() && !value.Equal(has[name]) {
			return false
		}
	}
	return true
}

// kept is a planned object with what the state has of what the configuration leaves out, null for nothing.
func kept(config, plan, state types.Object) types.Object {
	attributes, has := map[string]attr.Value{}, state.Attributes()
	written := config.Attributes()
	for name, value := range plan.Attributes() {
		attributes[name] = value
		if value.IsUnknown() && written[name].IsNull() {
			attributes[name] = written[name]
			if there, ok := has[name]; ok {
				attributes[name] = there
			}
		}
	}
	value, diags := types.ObjectValue(plan.AttributeTypes(context.Background()), attributes)
	if diags.HasError() {
		return plan
	}
	return value
}

// unlessOther plans none of an object that is left out where another attribute is written, which takes
// its place.
type unlessOther struct{ name string }

var _ planmodifier.Object = unlessOther{}

func (m unlessOther) Description(context.Context) string {
	return "None beside " + m.name + "."
}

func (m unlessOther) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (m unlessOther) PlanModifyObject(ctx context.Context, req planmodifier.ObjectRequest, resp *planmodifier.ObjectResponse) {
	var other types.Object
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(m.name), &other)...)
	if req.ConfigValue.IsNull() && !other.IsNull() {
		resp.PlanValue = types.ObjectNull(req.PlanValue.AttributeTypes(ctx))
	}
}

// excludedBy is an object that another attribute takes the place of.
func excludedBy(name string, s setting) setting {
	if attribute, ok := s.attribute.(schema.SingleNestedAttribute); ok {
		attribute.PlanModifiers = append(attribute.PlanModifiers, unlessOther{name})
		attribute.Validators = append(attribute.Validators, objectvalidator.ConflictsWith(path.MatchRoot(name)))
		s.attribute = attribute
	}
	return s
}
