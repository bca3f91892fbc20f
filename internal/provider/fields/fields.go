// Package fields reads a resource into the struct of its attributes, and writes it back, as the plugin
// framework does, at a fraction of the cost: the framework compiles a regular expression for each field,
// and converts each value twice. Whatever is out of the ordinary is left to it.
package fields

import (
	"context"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Get reads a state, or a plan or configuration as one, into a struct.
func Get(ctx context.Context, from tfsdk.State, into any) diag.Diagnostics {
	if get(ctx, from, into) {
		return nil
	}
	return from.Get(ctx, into)
}

// Set makes a state, or a plan as one, what a struct says.
func Set(ctx context.Context, to *tfsdk.State, from any) diag.Diagnostics {
	if set(ctx, to, from) {
		return nil
	}
	return to.Set(ctx, from)
}

func get(ctx context.Context, from tfsdk.State, into any) bool {
	var values map[string]tftypes.Value
	if from.Raw.IsNull() || !from.Raw.IsKnown() || from.Raw.As(&values) != nil {
		return false
	}
	target := reflect.ValueOf(into).Elem()
	whole := reflect.New(target.Type()).Elem()
	types, all := typesOf(from), tagged(whole)
	if len(all) != len(types) {
		return false
	}
	for name, field := range all {
		of, ok := types[name]
		if !ok {
			return false
		}
		value, err := of.ValueFromTerraform(ctx, values[name])
		if err != nil || reflect.TypeOf(value) != field.Type() || !valid(ctx, name, value) {
			return false
		}
		field.Set(reflect.ValueOf(value))
	}
	target.Set(whole)
	return true
}

func set(ctx context.Context, to *tfsdk.State, from any) bool {
	types, all := typesOf(*to), tagged(reflect.Indirect(reflect.ValueOf(from)))
	if len(all) != len(types) {
		return false
	}
	values, of := map[string]tftypes.Value{}, tftypes.Object{AttributeTypes: map[string]tftypes.Type{}}
	for name, field := range all {
		value, ok := field.Interface().(attr.Value)
		if !ok || types[name] == nil {
			return false
		}
		kind := types[name].TerraformType(ctx)
		if !kind.Equal(value.Type(ctx).TerraformType(ctx)) || !valid(ctx, name, value) {
			return false
		}
		raw, err := value.ToTerraformValue(ctx)
		if err != nil {
			return false
		}
		values[name], of.AttributeTypes[name] = raw, kind
	}
	to.Raw = tftypes.NewValue(of, values)
	return true
}

// typesOf are the types of the attributes of a state.
func typesOf(s tfsdk.State) map[string]attr.Type {
	object, ok := s.Schema.Type().(attr.TypeWithAttributeTypes)
	if !ok {
		return nil
	}
	return object.AttributeTypes()
}

// tagged are the fields of a struct by the attributes that they stand for, those of embedded structs too.
func tagged(s reflect.Value) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for i := range s.NumField() {
		field := s.Type().Field(i)
		name, has := field.Tag.Lookup("tfsdk")
		switch {
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			for below, value := range tagged(s.Field(i)) {
				all[below] = value
			}
		case has && name != "-" && field.IsExported():
			all[name] = s.Field(i)
		}
	}
	return all
}

// valid reports whether a value is one of its type, where that has an opinion on it.
func valid(ctx context.Context, name string, value attr.Value) bool {
	checked, ok := value.(xattr.ValidateableAttribute)
	if !ok {
		return true
	}
	var resp xattr.ValidateAttributeResponse
	checked.ValidateAttribute(ctx, xattr.ValidateAttributeRequest{Path: path.Root(name)}, &resp)
	return len(resp.Diagnostics) == 0
}
