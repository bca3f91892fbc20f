package addon

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// typed is what the types have whose settings are attributes: beside those the settings that have none.
type typed struct {
	common

	ExtraConfig jsontypes.Normalized `tfsdk:"extra_config"`
}

// extraConfig is the attribute of the settings that have none of these.
func extraConfig(example string, attributes []field) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: "Settings of the add-on that have no attribute here, as a JSON object, `jsonencode(" + example + ")`. The plan checks them against the add-on's own schema. " + needsValue,
		CustomType:          jsontypes.NormalizedType{},
		Optional:            true,
		Validators:          []validator.String{object{example}, apart(attributes)},
	}
}

// field is an attribute that is a setting of the add-on.
type field struct {
	attribute string
	// setting is the path of the setting.
	setting []string
	// get is what the attribute says as JSON has it, nil for nothing; known is false before apply.
	get func() (value any, known bool)
	// set takes over what JSON says, nil for nothing.
	set func(value any)
}

func boolean(attribute string, at *types.Bool, setting ...string) field {
	return field{attribute, setting, wholly(at, func() any { return at.ValueBool() }), func(value any) {
		if *at = types.BoolNull(); value != nil {
			if is, ok := value.(bool); ok {
				*at = types.BoolValue(is)
			}
		}
	}}
}

func number(attribute string, at *types.Int64, setting ...string) field {
	return field{attribute, setting, wholly(at, func() any { return json.Number(strconv.FormatInt(at.ValueInt64(), 10)) }), func(value any) {
		*at = types.Int64PointerValue(whole(value))
	}}
}

func word(attribute string, at *types.String, setting ...string) field {
	return field{attribute, setting, wholly(at, func() any { return at.ValueString() }), func(value any) {
		if *at = types.StringNull(); value != nil {
			*at = types.StringValue(fmt.Sprint(value))
		}
	}}
}

// switches is an object of settings that are on or off.
func switches(attribute string, at *types.Map, setting ...string) field {
	return field{attribute, setting, wholly(at, func() any { return fromMap[types.Bool](*at, func(v types.Bool) any { return v.ValueBool() }) }), func(value any) {
		elements := map[string]attr.Value{}
		is, _ := value.(config)
		for name, on := range is {
			if on, ok := on.(bool); ok {
				elements[name] = types.BoolValue(on)
			}
		}
		*at = mapOf(types.BoolType, elements)
	}}
}

// Keys of the weight of a resource.
const (
	weightName  = "resourceName"
	weightValue = "resourceWeight"
)

// weights is a list with the weight of each resource.
func weights(attribute string, at *types.Map, setting ...string) field {
	return field{attribute, setting, wholly(at, func() any {
		byName := fromMap[types.Int64](*at, func(v types.Int64) any { return json.Number(strconv.FormatInt(v.ValueInt64(), 10)) })
		list := []any{}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			list = append(list, config{weightName: name, weightValue: byName[name]})
		}
		return list
	}), func(value any) {
		elements := map[string]attr.Value{}
		list, _ := value.([]any)
		for _, entry := range list {
			weight, _ := entry.(config)
			name, _ := weight[weightName].(string)
			if count := whole(weight[weightValue]); count != nil {
				elements[name] = types.Int64Value(*count)
			}
		}
		*at = mapOf(types.Int64Type, elements)
	}}
}

// wholly is what a field gets of a value that is known as a whole.
func wholly(at attr.Value, get func() any) func() (any, bool) {
	return func() (any, bool) {
		if at.IsNull() {
			return nil, true
		}
		if !known.Wholly(context.Background(), at) {
			return nil, false
		}
		return get(), true
	}
}

// whole reads a whole number, nil for anything else.
func whole(value any) *int64 {
	if count, ok := value.(json.Number); ok {
		if n, err := strconv.ParseInt(count.String(), 10, 64); err == nil {
			return &n
		}
	}
	return nil
}

func fromMap[T attr.Value](m types.Map, as func(T) any) config {
	out := config{}
	for name, value := range m.Elements() {
		if v, ok := value.(T); ok && !v.IsNull() {
			out[name] = as(v)
		}
	}
	return out
}

func mapOf(element attr.Type, elements map[string]attr.Value) types.Map {
	if len(elements) == 0 {
		return types.MapNull(element)
	}
	return types.MapValueMust(element, elements)
}

// settingsOf is the JSON object of attributes and what stands beside them.
func settingsOf(attributes []field, beside jsontypes.Normalized) jsontypes.Normalized {
	if beside.IsUnknown() {
		return jsontypes.NewNormalizedUnknown()
	}
	c, err := parse(beside.ValueString())
	if err != nil {
		c = config{} // said by the validator
	}
	for _, f := range attributes {
		value, known := f.get()
		if !known {
			return jsontypes.NewNormalizedUnknown()
		}
		for _, key := range slices.Backward(f.setting) {
			value = config{key: value}
		}
		if given := value.(config); at(given, f.setting) != nil { //nolint:forcetypeassert // a setting has a key
			c = merged(c, given)
		}
	}
	return settingsText(c)
}

// readAll sets attributes, and what stands beside them, to all settings that there are.
func readAll(attributes []field, beside *jsontypes.Normalized, is config) {
	for _, f := range attributes {
		f.set(at(is, f.setting))
		is = without(is, f.setting)
	}
	*beside = settingsText(is)
}

// takeOver sets attributes, and what stands beside them, to what the settings are.
func takeOver(attributes []field, beside *jsontypes.Normalized, is config) {
	for _, f := range attributes {
		if value, known := f.get(); known && value != nil {
			f.set(at(is, f.setting))
		}
	}
	owned, err := parse(beside.ValueString())
	if err != nil || beside.IsNull() {
		return
	}
	if is = only(is, owned); !same(is, owned) {
		*beside = jsontypes.NewNormalizedValue(text(is))
	}
}

// at is the value of a setting, nil for none.
func at(c config, setting []string) (value any) {
	value = c
	for _, key := range setting {
		inner, _ := value.(config)
		value = inner[key]
	}
	return value
}

// placeIn is the attribute of a setting, or else extra_config.
func placeIn(attributes []field, setting []string) (path.Path, string) {
	for _, f := range attributes {
		if len(setting) >= len(f.setting) && slices.Equal(setting[:len(f.setting)], f.setting) {
			return path.Root(f.attribute), strings.Join(append([]string{f.attribute}, setting[len(f.setting):]...), ".")
		}
	}
	return inObject(path.Root("extra_config"))(setting)
}

// apart refuses settings that attributes are for.
type apart []field

func (apart) Description(context.Context) string {
	return "must not have settings that have attributes"
}
func (v apart) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (v apart) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if known.Set(req.ConfigValue) {
		resp.Diagnostics.Append(v.check(req.ConfigValue.ValueString())...)
	}
}

func (v apart) check(beside string) (diags diag.Diagnostics) {
	c, err := parse(beside)
	if err != nil {
		return nil // another validator says so
	}
	for _, f := range v {
		if at(c, f.setting) != nil {
			diags.AddAttributeError(path.Root("extra_config"), "Setting has an attribute", fmt.Sprintf(
				"extra_config.%s is what the attribute %s is for: write it there.", strings.Join(f.setting, "."), f.attribute))
		}
	}
	return diags
}
