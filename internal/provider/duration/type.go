package duration

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Type is the type of Go durations, with one difference: that a text is one is [Between]'s to check, which names the bounds
// as well. The framework asks no validator about what [timetypes.GoDuration] refuses.
type Type struct{ timetypes.GoDurationType }

// Equal reports whether another type is this one.
func (Type) Equal(other attr.Type) bool {
	_, ok := other.(Type)
	return ok
}

// String is the name of the type.
func (Type) String() string { return "duration.Type" }

// ValueType is [Value].
func (Type) ValueType(context.Context) attr.Value { return Value{} }

// ValueFromString makes a duration of a text.
func (Type) ValueFromString(_ context.Context, text basetypes.StringValue) (basetypes.StringValuable, diag.Diagnostics) {
	return Value{timetypes.GoDuration{StringValue: text}}, nil
}

// ValueFromTerraform makes a duration of what Terraform has.
func (t Type) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	value, err := t.GoDurationType.ValueFromTerraform(ctx, in)
	text, _ := value.(timetypes.GoDuration)
	return Value{text}, err
}

// Value is a duration as it is written.
type Value struct{ timetypes.GoDuration }

// Live is a duration that was read back, null when there is none. What is the default without
// being written stays so. A written one of the same length keeps its spelling: an import
// has it from the settings on the object, and no state that the framework could compare with.
func Live(text string, written Value, byDefault time.Duration) Value {
	live, err := time.ParseDuration(text)
	if err != nil || written.IsNull() && live == byDefault {
		return Value{timetypes.NewGoDurationNull()}
	}
	if length, err := written.Length(); err == nil && length == live {
		return written
	}
	return Value{timetypes.NewGoDurationValue(live)}
}

// Length is how long it is, 0 for null.
func (v Value) Length() (time.Duration, error) {
	if v.ValueString() == "" {
		return 0, nil
	}
	return time.ParseDuration(v.ValueString())
}

// Type is [Type].
func (Value) Type(context.Context) attr.Type { return Type{} }

// Equal reports whether another value is spelled alike.
func (v Value) Equal(other attr.Value) bool {
	o, ok := other.(Value)
	return ok && v.GoDuration.Equal(o.GoDuration)
}

// StringSemanticEquals reports whether another duration is as long.
func (v Value) StringSemanticEquals(ctx context.Context, other basetypes.StringValuable) (bool, diag.Diagnostics) {
	if o, ok := other.(Value); ok {
		other = o.GoDuration
	}
	return v.GoDuration.StringSemanticEquals(ctx, other)
}

// ValidateAttribute leaves the check to [Between].
func (Value) ValidateAttribute(context.Context, xattr.ValidateAttributeRequest, *xattr.ValidateAttributeResponse) {
}
