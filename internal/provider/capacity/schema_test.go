package capacity_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

// The types that the schema is given are those of its attributes.
func TestTypesAreThoseOfTheAttributes(t *testing.T) {
	var check func(at string, declared, attributes any)
	plain := func(list map[string]schema.Attribute) map[string]any {
		out := map[string]any{}
		for name, a := range list {
			out[name] = a.GetType()
		}
		return out
	}
	check = func(at string, declared, attributes any) {
		object, ok := declared.(types.ObjectType)
		require.True(t, ok, at)
		list, ok := attributes.(map[string]schema.Attribute)
		require.True(t, ok, at)
		want := map[string]any{}
		for name, of := range object.AttrTypes {
			want[name] = of
		}
		assert.Equal(t, want, plain(list), at)
		for name, a := range list {
			if nested, ok := a.(schema.ListNestedAttribute); ok {
				check(at+"."+name, nested.NestedObject.CustomType, nested.NestedObject.Attributes)
			}
		}
	}
	whole := capacity.Attribute()
	check("capacity", whole.CustomType, whole.Attributes)
}
