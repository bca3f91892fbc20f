package propagationpolicy

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// field is the name in the policy of an attribute: replica_scheduling_type is replicaSchedulingType.
func field(attribute string) string {
	words := strings.Split(attribute, "_")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// encode is a value as a policy has it, nil for one that is null or unknown; what of it is null or unknown is left out.
func encode(value attr.Value) any {
	if value.IsNull() || value.IsUnknown() {
		return nil
	}
	switch value := value.(type) {
	case types.Object:
		out := map[string]any{}
		for name, a := range value.Attributes() {
			if part := encode(a); part != nil {
				out[field(name)] = part
			}
		}
		return out
	case types.Map:
		out := map[string]any{}
		for key, element := range value.Elements() {
			out[key] = encode(element)
		}
		return out
	case types.List:
		out := make([]any, len(value.Elements()))
		for i, element := range value.Elements() {
			out[i] = encode(element)
		}
		return out
	case types.Bool:
		return value.ValueBool()
	case types.Int64:
		return value.ValueInt64()
	case types.String:
		return value.ValueString()
	}
	return nil
}

// decode is the value of a type that a policy has, null where it has none.
func decode(of attr.Type, data any) attr.Value {
	switch of := of.(type) {
	case types.ObjectType:
		fields, ok := data.(map[string]any)
		if !ok {
			return types.ObjectNull(of.AttrTypes)
		}
		parts := map[string]attr.Value{}
		for name, kind := range of.AttrTypes {
			parts[name] = decode(kind, fields[field(name)])
		}
		return types.ObjectValueMust(of.AttrTypes, parts)
	case types.MapType:
		entries, ok := data.(map[string]any)
		if !ok {
			return types.MapNull(of.ElemType)
		}
		elements := map[string]attr.Value{}
		for key, entry := range entries {
			elements[key] = decode(of.ElemType, entry)
		}
		return types.MapValueMust(of.ElemType, elements)
	case types.ListType:
		items, ok := data.([]any)
		if !ok {
			return types.ListNull(of.ElemType)
		}
		elements := make([]attr.Value, len(items))
		for i, item := range items {
			elements[i] = decode(of.ElemType, item)
		}
		return types.ListValueMust(of.ElemType, elements)
	}
	switch data := data.(type) {
	case bool:
		return types.BoolValue(data)
	case int64:
		return types.Int64Value(data)
	case string:
		return types.StringValue(data)
	}
	switch {
	case of.Equal(types.BoolType):
		return types.BoolNull()
	case of.Equal(types.Int64Type):
		return types.Int64Null()
	}
	return types.StringNull()
}
