package placementdata

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// shaped reads a value of any type as one of the wanted type, as Terraform does with the values of
// attributes: attributes that an object lacks are null, and an object may stand for a map. A function
// cannot declare attributes that may be missing. The error names the place in the value.
func shaped(ctx context.Context, at path.Path, v attr.Value, wanted attr.Type) (attr.Value, error) {
	value, err := v.ToTerraformValue(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	value, err = reshape(at, value, wanted.TerraformType(ctx))
	if err != nil {
		return nil, err
	}
	read, err := wanted.ValueFromTerraform(ctx, value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return read, nil
}

func reshape(at path.Path, v tftypes.Value, wanted tftypes.Type) (tftypes.Value, error) {
	if v.IsNull() {
		return tftypes.NewValue(wanted, nil), nil
	}
	switch wanted := wanted.(type) {
	case tftypes.Object:
		var have map[string]tftypes.Value
		if v.As(&have) != nil {
			return v, fmt.Errorf("%s: write an object with the attributes %s", at, listed(maps.Keys(wanted.AttributeTypes)))
		}
		return reshapeObject(at, have, wanted)
	case tftypes.Map:
		var have map[string]tftypes.Value
		if v.As(&have) != nil {
			return v, fmt.Errorf("%s: write a map", at)
		}
		for _, key := range slices.Sorted(maps.Keys(have)) {
			element, err := reshapeElement(at.AtMapKey(key), have[key], wanted.ElementType)
			if err != nil {
				return v, err
			}
			have[key] = element
		}
		return tftypes.NewValue(wanted, have), nil
	case tftypes.List:
		var have []tftypes.Value
		if v.As(&have) != nil {
			return v, fmt.Errorf("%s: write a list", at)
		}
		for i := range have {
			element, err := reshapeElement(at.AtListIndex(i), have[i], wanted.ElementType)
			if err != nil {
				return v, err
			}
			have[i] = element
		}
		return tftypes.NewValue(wanted, have), nil
	}
	return reshapePrimitive(at, v, wanted)
}

// reshapeElement reads an element of a collection, none of which may be null.
func reshapeElement(at path.Path, v tftypes.Value, wanted tftypes.Type) (tftypes.Value, error) {
	if v.IsNull() {
		return v, fmt.Errorf("%s is null: leave it out", at)
	}
	return reshape(at, v, wanted)
}

func reshapeObject(at path.Path, have map[string]tftypes.Value, wanted tftypes.Object) (tftypes.Value, error) {
	all := map[string]tftypes.Value{}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		of, ok := wanted.AttributeTypes[name]
		if !ok {
			return tftypes.Value{}, fmt.Errorf("%s: there is no attribute %q; the attributes are %s", at, name, listed(maps.Keys(wanted.AttributeTypes)))
		}
		element, err := reshape(at.AtName(name), have[name], of)
		if err == nil {
			err = bounded(at.AtName(name), element, math.MaxInt32) // attributes count something; the amounts in maps may be bytes
		}
		if err != nil {
			return tftypes.Value{}, err
		}
		all[name] = element
	}
	for name, of := range wanted.AttributeTypes {
		if _, ok := all[name]; !ok {
			all[name] = tftypes.NewValue(of, nil)
		}
	}
	return tftypes.NewValue(wanted, all), nil
}

// reshapePrimitive reads numbers and texts for each other, as Terraform does. All numbers are integers here.
func reshapePrimitive(at path.Path, v tftypes.Value, wanted tftypes.Type) (tftypes.Value, error) {
	var number big.Float
	var text string
	switch {
	case v.Type().Is(wanted) && wanted.Is(tftypes.Number) && v.As(&number) == nil && !number.IsInt():
		return v, fmt.Errorf("%s: %s is not an integer", at, number.Text('g', 10))
	case v.Type().Is(wanted):
		return v, bounded(at, v, math.MaxInt64)
	case wanted.Is(tftypes.String) && v.As(&number) == nil:
		return tftypes.NewValue(wanted, number.Text('f', -1)), nil
	case wanted.Is(tftypes.Number) && v.As(&text) == nil:
		if n, _, err := big.ParseFloat(text, 10, 512, big.ToNearestEven); err == nil {
			return reshapePrimitive(at, tftypes.NewValue(wanted, n), wanted)
		}
	}
	names := map[bool]string{wanted.Is(tftypes.String): "a text", wanted.Is(tftypes.Number): "a number", wanted.Is(tftypes.Bool): "true or false"}
	return v, fmt.Errorf("%s: write %s", at, names[true])
}

// bounded refuses a number beyond what is read into an integer, of which the framework would not say the place.
func bounded(at path.Path, v tftypes.Value, most int64) error {
	var number big.Float
	if !v.Type().Is(tftypes.Number) || v.IsNull() || !v.IsKnown() {
		return nil
	}
	if err := v.As(&number); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if n, exact := number.Int64(); exact != big.Exact || n < -most || n > most {
		return fmt.Errorf("%s is %s: no number of that size can be meant", at, number.Text('g', 10))
	}
	return nil
}

// listed writes names one after the other.
func listed(names func(yield func(string) bool)) string {
	return strings.Join(slices.Sorted(names), ", ")
}
