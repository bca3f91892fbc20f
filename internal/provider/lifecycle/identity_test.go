package lifecycle_test

import (
	"context"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// identity is one of a thing, with nil for what is null; nothing at all is null as a whole.
func identity(t *testing.T, place, name any, tags []string) *tfsdk.ResourceIdentity {
	t.Helper()
	var of resource.IdentitySchemaResponse
	thing().IdentitySchema(t.Context(), resource.IdentitySchemaRequest{}, &of)
	kind, ok := of.IdentitySchema.Type().TerraformType(t.Context()).(tftypes.Object)
	require.True(t, ok)
	if place == nil && name == nil {
		return &tfsdk.ResourceIdentity{Schema: of.IdentitySchema, Raw: tftypes.NewValue(kind, nil)}
	}
	var elements any
	if tags != nil {
		values := []tftypes.Value{}
		for _, tag := range tags {
			values = append(values, tftypes.NewValue(tftypes.String, tag))
		}
		elements = values
	}
	return &tfsdk.ResourceIdentity{Schema: of.IdentitySchema, Raw: tftypes.NewValue(kind, map[string]tftypes.Value{
		"place": tftypes.NewValue(tftypes.String, place), "name": tftypes.NewValue(tftypes.String, name),
		"tags": tftypes.NewValue(kind.AttributeTypes["tags"], elements),
	})}
}

// An identity is the import ID in parts.
func TestImportByIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		id       string
		identity *tfsdk.ResourceIdentity
		want     string
	}{
		"ID":       {"a/b", identity(t, nil, nil, nil), "a/b"},
		"all":      {"", identity(t, "there", "a", []string{"x", "y"}), "there/a/x,y"},
		"defaults": {"", identity(t, nil, "a", nil), "here/a"},
		"empty":    {"", identity(t, "", "a", []string{}), "/a"},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			r := thing()
			r.Import = func(_ context.Context, id string, _ *resource.ImportStateResponse) { got = id }
			var resp resource.ImportStateResponse
			r.ImportState(t.Context(), resource.ImportStateRequest{ID: c.id, Identity: c.identity}, &resp)
			assert.Empty(t, resp.Diagnostics)
			assert.Equal(t, c.want, got)
		})
	}
}

// Only a list of values may become another one in place.
func TestMutableIdentity(t *testing.T) {
	r := thing()
	for _, mutable := range []bool{true, false} {
		var meta resource.MetadataResponse
		r.Metadata(t.Context(), resource.MetadataRequest{}, &meta)
		assert.Equal(t, mutable, meta.ResourceBehavior.MutableIdentity)
		r.Identity = r.Identity[:2]
	}
}
