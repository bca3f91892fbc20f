package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/api/resource"
)

// kind is how attributes of one type say fields of one type.
type kind[V attr.Value, T any] struct {
	// zero is the attribute where the field is zero: null, mostly.
	zero  V
	value func(field T) V
	field func(r *reader, at path.Path, value V) T
	// unknown stands for the field while the attribute is unknown until apply.
	unknown T
}

func texts[T ~string]() kind[types.String, T] {
	return kind[types.String, T]{
		zero:  types.StringNull(),
		value: func(field T) types.String { return types.StringValue(string(field)) },
		field: func(_ *reader, _ path.Path, value types.String) T { return T(value.ValueString()) },
	}
}

// textOr is a text for which another one stands while it is unknown.
func textOr(unknown string) kind[types.String, string] {
	k := texts[string]()
	k.unknown = unknown
	return k
}

var lists = kind[types.List, []string]{zero: types.ListNull(types.StringType), value: listValue, field: (*reader).list}

var dictionaries = kind[types.Map, map[string]string]{zero: types.MapNull(types.StringType), value: mapValue, field: (*reader).dictionary}

var quantities = kind[types.String, resource.Quantity]{
	zero:  types.StringNull(),
	value: func(field resource.Quantity) types.String { return types.StringValue(field.String()) },
	field: (*reader).quantity,
}

var flags = kind[types.Bool, bool]{
	zero:  types.BoolNull(),
	value: types.BoolValue,
	field: func(_ *reader, _ path.Path, value types.Bool) bool { return value.ValueBool() },
}

// refusals are flags that are on unless they are written otherwise.
var refusals = kind[types.Bool, bool]{
	zero:    types.BoolNull(),
	value:   func(field bool) types.Bool { return types.BoolValue(!field) },
	field:   func(_ *reader, _ path.Path, value types.Bool) bool { return !value.ValueBool() },
	unknown: true,
}

var counts = kind[types.Int64, int64]{
	zero:  types.Int64Null(),
	value: types.Int64Value,
	field: func(_ *reader, _ path.Path, value types.Int64) int64 { return value.ValueInt64() },
}

var smallCounts = kind[types.Int32, int32]{
	zero:  types.Int32Null(),
	value: types.Int32Value,
	field: func(_ *reader, _ path.Path, value types.Int32) int32 { return value.ValueInt32() },
}

// replicaCounts are written even when they are 0; there is one replica where nothing is known.
var replicaCounts = kind[types.Int32, int32]{
	zero: types.Int32Value(0), value: smallCounts.value, field: smallCounts.field, unknown: 1,
}

// bounds are numbers of which 0 is not the same as none.
var bounds = kind[types.Int32, *int32]{
	zero:  types.Int32Null(),
	value: types.Int32PointerValue,
	field: func(_ *reader, _ path.Path, value types.Int32) *int32 { return value.ValueInt32Pointer() },
}

// deadlines are bounds in seconds.
var deadlines = kind[types.Int64, *int64]{
	zero:  types.Int64Null(),
	value: types.Int64PointerValue,
	field: func(_ *reader, _ path.Path, value types.Int64) *int64 { return value.ValueInt64Pointer() },
}
