package fields_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fields"
)

type embedded struct {
	Count types.Int64 `tfsdk:"count"`
}

type whole struct {
	embedded
	Name   types.String         `tfsdk:"name"`
	Labels types.Map            `tfsdk:"labels"`
	Config jsontypes.Normalized `tfsdk:"config"`
	Disks  types.List           `tfsdk:"disks"`

	kept string
}

// short lacks the disks.
type short struct {
	embedded
	Name   types.String         `tfsdk:"name"`
	Labels types.Map            `tfsdk:"labels"`
	Config jsontypes.Normalized `tfsdk:"config"`
}

var (
	disk = types.ObjectType{AttrTypes: map[string]attr.Type{"size": types.Int64Type}}
	of   = schema.Schema{Attributes: map[string]schema.Attribute{
		"count":  schema.Int64Attribute{Optional: true},
		"name":   schema.StringAttribute{Optional: true},
		"labels": schema.MapAttribute{Optional: true, ElementType: types.StringType},
		"config": schema.StringAttribute{Optional: true, CustomType: jsontypes.NormalizedType{}},
		"disks": schema.ListNestedAttribute{Optional: true, NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{"size": schema.Int64Attribute{Optional: true}},
		}},
	}}
)

// Reading and writing gives what the framework gives, errors included.
func TestAsTheFramework(t *testing.T) {
	kind, _ := of.Type().TerraformType(t.Context()).(tftypes.Object)
	object := func(change map[string]tftypes.Value) tftypes.Value {
		values := map[string]tftypes.Value{
			"count": tftypes.NewValue(tftypes.Number, 3), "name": tftypes.NewValue(tftypes.String, "a"), "config": tftypes.NewValue(tftypes.String, "{}"),
			"labels": tftypes.NewValue(kind.AttributeTypes["labels"], map[string]tftypes.Value{"k": tftypes.NewValue(tftypes.String, tftypes.UnknownValue)}),
			"disks":  tftypes.NewValue(kind.AttributeTypes["disks"], nil),
		}
		for name, value := range change {
			values[name] = value
		}
		return tftypes.NewValue(kind, values)
	}
	for name, raw := range map[string]tftypes.Value{
		"as it is":     object(nil),
		"unknown":      object(map[string]tftypes.Value{"count": tftypes.NewValue(tftypes.Number, tftypes.UnknownValue), "disks": tftypes.NewValue(kind.AttributeTypes["disks"], tftypes.UnknownValue)}),
		"null":         object(map[string]tftypes.Value{"name": tftypes.NewValue(tftypes.String, nil), "config": tftypes.NewValue(tftypes.String, nil)}),
		"not whole":    object(map[string]tftypes.Value{"count": tftypes.NewValue(tftypes.Number, 1.5)}),
		"not valid":    object(map[string]tftypes.Value{"config": tftypes.NewValue(tftypes.String, "{")}),
		"nothing":      tftypes.NewValue(kind, nil),
		"all unknown":  tftypes.NewValue(kind, tftypes.UnknownValue),
		"other values": object(map[string]tftypes.Value{"config": tftypes.NewValue(tftypes.String, `{"a":1}`)}),
	} {
		t.Run(name, func(t *testing.T) {
			state := tfsdk.State{Raw: raw, Schema: of}
			want, got := whole{kept: "k"}, whole{kept: "k"}
			failures := state.Get(t.Context(), &want)
			require.Equal(t, failures, fields.Get(t.Context(), state, &got))
			if failures.HasError() {
				return
			}
			require.Equal(t, want, got)
			wanted, gotten := tfsdk.State{Raw: tftypes.NewValue(kind, nil), Schema: of}, tfsdk.State{Raw: tftypes.NewValue(kind, nil), Schema: of}
			require.Equal(t, wanted.Set(t.Context(), want), fields.Set(t.Context(), &gotten, got))
			assert.True(t, wanted.Raw.Equal(gotten.Raw))
			assert.True(t, raw.Equal(gotten.Raw))
		})
	}
}

// What does not fit is said as the framework says it.
func TestWhatDoesNotFit(t *testing.T) {
	kind := of.Type().TerraformType(t.Context())
	for name, from := range map[string]any{
		"too few fields":     short{Labels: types.MapNull(types.StringType)},
		"no type":            whole{Labels: types.MapNull(types.StringType)},
		"elements of others": whole{Labels: types.MapNull(types.Int64Type), Disks: types.ListNull(disk)},
		"not valid":          whole{Labels: types.MapNull(types.StringType), Disks: types.ListNull(disk), Config: jsontypes.NewNormalizedValue("{")},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, gotten := tfsdk.State{Raw: tftypes.NewValue(kind, nil), Schema: of}, tfsdk.State{Raw: tftypes.NewValue(kind, nil), Schema: of}
			want := wanted.Set(t.Context(), from)
			require.True(t, want.HasError())
			assert.Equal(t, want, fields.Set(t.Context(), &gotten, from))
		})
	}
}
