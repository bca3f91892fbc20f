// Package setting is what a node pool says of how its instances are bought and set up. What the
// user leaves out is the service's to decide: it is taken over from there and sent back as it is.
//
// Each attribute is one entry of a table: its schema, its place in the model and in the service's
// terms. Reading, writing and comparing are made of it.
package setting

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// setting is one attribute.
type setting struct {
	name      string
	attribute schema.Attribute
	// replaces means that the service does not change it on a pool that exists.
	replaces bool
	// shown means that the service's value is taken over where the user leaves the setting out. Of
	// others nothing is said then, so that plans and states have what someone wrote.
	shown bool
	// emptyIsUnset means that an empty value says nothing, as a missing one.
	emptyIsUnset bool

	get func(Values) attr.Value
	set func(*Values, attr.Value)
	// read takes over what the service has. before is what was known of the setting: a value
	// that the service leaves out of its answer is taken for what it means there.
	read func(ctx context.Context, spec acs.NodePoolSpec, before attr.Value) (attr.Value, diag.Diagnostics)
	// write puts a value that is known into what the service is asked for.
	write func(ctx context.Context, value attr.Value, spec *acs.NodePoolSpec) diag.Diagnostics
}

// of makes a setting of its place in the model and of what is done with values of its type.
func of[T attr.Value](name string, attribute schema.Attribute, place func(*Values) *T,
	read func(context.Context, acs.NodePoolSpec, T) (T, diag.Diagnostics), write func(context.Context, T, *acs.NodePoolSpec) diag.Diagnostics) setting {
	typed := func(value attr.Value) T {
		t, ok := value.(T)
		if !ok {
			panic("setting " + name + " has a value of another type")
		}
		return t
	}
	return setting{
		name: name, attribute: attribute,
		get: func(v Values) attr.Value { return *place(&v) },
		set: func(v *Values, value attr.Value) { *place(v) = typed(value) },
		read: func(ctx context.Context, spec acs.NodePoolSpec, before attr.Value) (attr.Value, diag.Diagnostics) {
			return read(ctx, spec, typed(before))
		},
		write: func(ctx context.Context, value attr.Value, spec *acs.NodePoolSpec) diag.Diagnostics {
			return write(ctx, typed(value), spec)
		},
	}
}

// Attributes are the schemas of all settings by name.
func Attributes() map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{}
	for _, s := range table() {
		attributes[s.name] = s.attribute
	}
	return attributes
}

// Read takes over what the service has of the settings that are said, or all of it.
func (v *Values) Read(ctx context.Context, spec acs.NodePoolSpec, all bool) (diags diag.Diagnostics) {
	for _, s := range table() {
		if !all && !s.shown && s.get(*v).IsNull() {
			continue
		}
		value, more := s.read(ctx, spec, s.get(*v))
		if diags.Append(more...); !more.HasError() {
			s.set(v, value)
		}
	}
	return diags
}

// Write lays the settings over those of a pool as the service has it, or over nothing for a new
// one. What is not said stays, and so does what is said already.
func (v Values) Write(ctx context.Context, spec *acs.NodePoolSpec) (diags diag.Diagnostics) {
	for _, s := range table() {
		value := s.get(v)
		if s.silent(value) {
			continue
		}
		has, more := s.read(ctx, *spec, s.get(Values{}))
		if diags.Append(more...); !more.HasError() && !value.Equal(has) {
			diags.Append(s.write(ctx, value, spec)...)
		}
	}
	return diags
}

// Settle gives a value to everything that is unknown: what another one has there, null for nothing.
func (v *Values) Settle(from Values) {
	for _, s := range table() {
		s.set(v, settled(s.get(*v), s.get(from)))
	}
}

// Equal reports whether all settings are the same.
func (v Values) Equal(other Values) bool {
	return !slices.ContainsFunc(table(), func(s setting) bool { return !s.get(v).Equal(s.get(other)) })
}

// Differ names the settings that v says and in which other is not as it says, as far as that is known.
func (v Values) Differ(other Values) (names []string) {
	for _, s := range table() {
		if s.differs(v, other) {
			names = append(names, s.name)
		}
	}
	return names
}

// Replaces names the settings by which a pool with the settings of other has to be replaced to get
// those of v.
func (v Values) Replaces(other Values) (names []string) {
	for _, s := range table() {
		if s.replaces && s.differs(v, other) {
			names = append(names, s.name)
		}
	}
	return names
}

func (s setting) differs(v, other Values) bool {
	value, has := s.get(v), s.get(other)
	return !s.silent(value) && !settled(value, has).Equal(has)
}

// silent reports whether a value says nothing.
func (s setting) silent(value attr.Value) bool {
	return value.IsNull() || value.IsUnknown() || s.emptyIsUnset && empty(value)
}

func empty(value attr.Value) bool {
	switch value := value.(type) {
	case types.String:
		return value.ValueString() == ""
	case types.Set:
		return len(value.Elements()) == 0
	}
	return false
}

// settled is a value in which what is unknown is what another one has there, null where that has nothing.
func settled[T attr.Value](value, from T) T {
	ctx := context.Background() // the framework asks for one, and nothing waits
	tf, err := value.ToTerraformValue(ctx)
	if err != nil || tf.IsFullyKnown() {
		return value
	}
	other := tftypes.NewValue(tf.Type(), nil)
	if !from.IsNull() {
		if other, err = from.ToTerraformValue(ctx); err != nil {
			return value
		}
	}
	tf, err = tftypes.Transform(tf, func(at *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		if there, _, err := tftypes.WalkAttributePath(other, at); err == nil {
			if found, ok := there.(tftypes.Value); ok && found.IsFullyKnown() {
				return found, nil
			}
		}
		return tftypes.NewValue(v.Type(), nil), nil
	})
	if err != nil {
		return value
	}
	out, err := value.Type(ctx).ValueFromTerraform(ctx, tf)
	typed, ok := out.(T)
	if err != nil || !ok {
		return value
	}
	return typed
}
