// Package written keeps what an object cannot tell of a resource: settings that only
// concern the provider, and how the user spelled the others. It is written down on the
// object, so that an import gives the resource as it was.
package written

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Blank sets a model to a resource of which nothing is known. Only the schema counts of
// the state, here and below.
func Blank(ctx context.Context, of tfsdk.State, model any) diag.Diagnostics {
	object, _ := of.Schema.Type().TerraformType(ctx).(tftypes.Object)
	nulls := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		nulls[name] = tftypes.NewValue(kind, nil)
	}
	of.Raw = tftypes.NewValue(object, nulls)
	return of.Get(ctx, model)
}

// Text is what the user wrote, the model wrote, and derived, which is made of the object
// alone, lacks; "" when it lacks nothing.
func Text(ctx context.Context, of tfsdk.State, wrote, derived any) (string, error) {
	want, err := attributes(ctx, of, wrote)
	if err != nil {
		return "", err
	}
	have, err := attributes(ctx, of, derived)
	if err != nil {
		return "", err
	}
	missing := map[string]any{}
	for name, a := range of.Schema.GetAttributes() {
		if !a.IsOptional() && !a.IsRequired() || a.IsWriteOnly() || a.IsSensitive() || !want[name].IsFullyKnown() || want[name].Equal(have[name]) {
			continue
		}
		if missing[name], err = plain(want[name]); err != nil {
			return "", fmt.Errorf("write down %s: %w", name, err)
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	text, err := json.Marshal(missing)
	return string(text), err
}

// Note writes down on an object what it cannot tell, see [Text].
func Note(ctx context.Context, of tfsdk.State, obj *unstructured.Unstructured, wrote, derived any) (diags diag.Diagnostics) {
	text, err := Text(ctx, of, wrote, derived)
	if err != nil {
		diags.AddError("Settings cannot be written down", fmt.Sprintf("%s %s: %s.", obj.GetKind(), obj.GetName(), err))
		return diags
	}
	if text == "" {
		return nil
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[contract.SettingsAnnotation] = text
	obj.SetAnnotations(annotations)
	return nil
}

// Restore sets the attributes of a [Text] in a model. What the schema does not know any
// more is left out.
func Restore(ctx context.Context, of tfsdk.State, text string, model any) (diags diag.Diagnostics) {
	var missing map[string]json.RawMessage
	if text == "" {
		return nil
	}
	values, err := attributes(ctx, of, model)
	if err == nil {
		err = json.Unmarshal([]byte(text), &missing)
	}
	if err != nil {
		diags.AddWarning("Some settings are lost", fmt.Sprintf("What the object says of the settings of this provider cannot be read: %s.", err))
		return diags
	}
	for name, raw := range missing {
		if a, ok := of.Schema.GetAttributes()[name]; ok {
			if value, err := tftypes.ValueFromJSON(raw, a.GetType().TerraformType(ctx)); err == nil { //nolint:staticcheck // nothing else reads a value of a known type
				values[name] = value
			}
		}
	}
	of.Raw = tftypes.NewValue(of.Schema.Type().TerraformType(ctx), values)
	return of.Get(ctx, model)
}

func attributes(ctx context.Context, of tfsdk.State, model any) (map[string]tftypes.Value, error) {
	of.Raw = tftypes.NewValue(of.Schema.Type().TerraformType(ctx), nil)
	if diags := of.Set(ctx, model); diags.HasError() {
		return nil, fmt.Errorf("%s: %s", diags[0].Summary(), diags[0].Detail())
	}
	values := map[string]tftypes.Value{}
	return values, of.Raw.As(&values)
}

// plain is a value as JSON has it.
func plain(v tftypes.Value) (any, error) {
	if v.IsNull() {
		return nil, nil
	}
	kind := v.Type()
	switch {
	case kind.Is(tftypes.String):
		var text string
		return &text, v.As(&text)
	case kind.Is(tftypes.Bool):
		var yes bool
		return &yes, v.As(&yes)
	case kind.Is(tftypes.Number):
		var number *big.Float
		err := v.As(&number)
		if err != nil {
			return nil, err
		}
		return json.Number(number.Text('f', -1)), nil
	case kind.Is(tftypes.List{}) || kind.Is(tftypes.Set{}) || kind.Is(tftypes.Tuple{}):
		var elements []tftypes.Value
		if err := v.As(&elements); err != nil {
			return nil, err
		}
		list := make([]any, len(elements))
		for i, e := range elements {
			var err error
			if list[i], err = plain(e); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	var elements map[string]tftypes.Value
	if err := v.As(&elements); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for name, e := range elements {
		var err error
		if out[name], err = plain(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}
