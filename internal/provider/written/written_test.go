package written_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

type model struct {
	Name   types.String `tfsdk:"name"`
	Count  types.Int64  `tfsdk:"count"`
	Force  types.Bool   `tfsdk:"force"`
	Labels types.Map    `tfsdk:"labels"`
	Zones  types.Set    `tfsdk:"zones"`
	Secret types.String `tfsdk:"secret"`
	ID     types.String `tfsdk:"id"`
}

func of() tfsdk.State {
	return tfsdk.State{Schema: schema.Schema{Attributes: map[string]schema.Attribute{
		"name":   schema.StringAttribute{Required: true},
		"count":  schema.Int64Attribute{Optional: true},
		"force":  schema.BoolAttribute{Optional: true},
		"labels": schema.MapAttribute{Optional: true, ElementType: types.StringType},
		"zones":  schema.SetAttribute{Optional: true, ElementType: types.StringType},
		"secret": schema.StringAttribute{Optional: true, Sensitive: true},
		"id":     schema.StringAttribute{Computed: true},
	}}}
}

func TestTextAndRestore(t *testing.T) {
	var blank model
	require.Empty(t, written.Blank(t.Context(), of(), &blank))
	derived := blank
	derived.Name = types.StringValue("a")
	text, err := written.Text(t.Context(), of(), derived, derived)
	require.NoError(t, err)
	assert.Empty(t, text, "the object tells everything")

	wrote := derived
	wrote.Count, wrote.Force = types.Int64Value(9007199254740993), types.BoolValue(false)
	wrote.Labels = types.MapValueMust(types.StringType, map[string]attr.Value{})
	wrote.Zones, _ = types.SetValueFrom(t.Context(), types.StringType, []string{"a\"b"})
	wrote.Secret, wrote.ID = types.StringValue("s"), types.StringValue("x")
	text, err = written.Text(t.Context(), of(), wrote, derived)
	require.NoError(t, err)
	assert.Equal(t, `{"count":9007199254740993,"force":false,"labels":{},"zones":["a\"b"]}`, text, "no secret, and nothing that is computed")

	restored := derived
	require.Empty(t, written.Restore(t.Context(), of(), text, &restored))
	wrote.Secret, wrote.ID = types.StringNull(), types.StringNull()
	assert.Equal(t, wrote, restored)

	require.Empty(t, written.Restore(t.Context(), of(), `{"gone":1,"count":"many","name":"b"}`, &restored))
	assert.Equal(t, "b", restored.Name.ValueString(), "what is of an older version is left out")
	assert.Equal(t, wrote.Count, restored.Count)
	assert.Equal(t, 1, written.Restore(t.Context(), of(), `{`, &restored).WarningsCount())
}
