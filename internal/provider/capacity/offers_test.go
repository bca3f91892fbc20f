package capacity_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

// encoded is a value as Terraform sends it.
func encoded(t *testing.T, value tftypes.Value) []byte {
	t.Helper()
	d, err := tfprotov6.NewDynamicValue(capacity.Type.TerraformType(t.Context()), value)
	require.NoError(t, err)
	return d.MsgPack
}

// What a pool offers is the same value, and the same nodes for the planner, whether it was
// read once or with each job; what a job gives back is not in what others see.
func TestOffersAreReadOnce(t *testing.T) {
	job := "default/j"
	c, err := pool("topology").Planned(capacity.Capacity{}, 2)
	require.NoError(t, err)
	gpus := "0-3"
	c.Nodes[0].Held = []capacity.Held{{Job: &job, GPUs: &gpus}}
	object, diags := c.Value(t.Context())
	require.Empty(t, diags)
	value, err := object.ToTerraformValue(t.Context())
	require.NoError(t, err)
	plain, diags := capacity.From(t.Context(), object)
	require.Empty(t, diags)
	wantNodes, wantPods, err := plain.Planner()
	require.NoError(t, err)

	var offers capacity.Offers
	bytes := encoded(t, value)
	for range 2 {
		read, ok := offers.Read(t.Context(), bytes)
		require.True(t, ok)
		assert.Equal(t, plain.Nodes, read.Nodes)
		assert.Equal(t, plain.FreeGPUs, read.FreeGPUs)
		nodes, pods, err := read.Planner()
		require.NoError(t, err)
		again, _, err := read.Planner()
		require.NoError(t, err)
		assert.Same(t, &nodes[0], &again[0], "made once")
		assert.Equal(t, wantNodes, nodes)
		assert.Equal(t, wantPods, pods)

		without := read.Without(job)
		assert.Equal(t, int64(16), without.FreeGPUs)
		_, pods, err = without.Planner()
		require.NoError(t, err)
		assert.Empty(t, pods, "the job has given back what it held")
	}

	list, known, diags := capacity.List(capacity.Carry(t.Context(), []capacity.Capacity{plain}), types.ListUnknown(capacity.Type))
	require.Empty(t, diags)
	assert.True(t, known, "what the context carries is known")
	assert.Equal(t, []capacity.Capacity{plain}, list)
}

func TestWhatIsNoOffer(t *testing.T) {
	var offers capacity.Offers
	kind := capacity.Type.TerraformType(t.Context())
	for name, bytes := range map[string][]byte{
		"null":    encoded(t, tftypes.NewValue(kind, nil)),
		"unknown": encoded(t, tftypes.NewValue(kind, tftypes.UnknownValue)),
		"text":    []byte("\xa1a"),
		"nothing": nil,
	} {
		_, ok := offers.Read(t.Context(), bytes)
		assert.False(t, ok, name)
	}
}
