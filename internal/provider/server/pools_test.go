package server_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
)

// A job is planned on pools that the framework is not shown. Their nodes may lack labels,
// which are null then: that is nothing that the user wrote.
func TestJobsArePlannedOnTheirPools(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	p := server.New(provider.New("test", provider.Command{})(), server.Command{})
	schemas, err := p.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	require.NoError(t, err)
	const job = "gpuplan_training_job"
	kind := schemas.ResourceSchemas[job].ValueType()

	offer, err := capacity.Pool{Name: "v100", InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: "topology"}.Planned(capacity.Capacity{}, 2)
	require.NoError(t, err)
	offer.LiveLabels = map[string]*string{"aliyun.accelerator/nvidia_name": nil}
	object, diags := offer.Value(t.Context())
	require.Empty(t, diags)
	known, err := object.ToTerraformValue(t.Context())
	require.NoError(t, err)

	for name, test := range map[string]struct {
		pools   []tftypes.Value
		planned bool
		says    string
	}{
		"known":       {[]tftypes.Value{known}, true, ""},
		"unknown":     {[]tftypes.Value{known, tftypes.NewValue(known.Type(), tftypes.UnknownValue)}, false, "pools is unknown until apply"},
		"no capacity": {[]tftypes.Value{}, false, "at least 1 elements"},
	} {
		t.Run(name, func(t *testing.T) {
			configure(t, p, schemas.Provider)
			config := withPools(t, kind, test.pools)
			text := ""
			valid, err := p.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{
				TypeName: job, Config: config,
				ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
			})
			require.NoError(t, err)
			for _, d := range valid.Diagnostics {
				text += d.Summary + ": " + d.Detail + "\n"
			}
			if text == "" {
				plan, err := p.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
					TypeName: job, PriorState: dynamic(t, kind, nil), ProposedNewState: config, Config: config,
				})
				require.NoError(t, err)
				for _, d := range plan.Diagnostics {
					text += d.Summary + ": " + d.Detail + "\n"
				}
				value, err := plan.PlannedState.Unmarshal(kind)
				require.NoError(t, err)
				var attributes map[string]tftypes.Value
				require.NoError(t, value.As(&attributes))
				assert.True(t, attributes["pools"].IsNull(), "write-only")
				assert.Equal(t, test.planned, attributes["planned_placement"].IsKnown(), text)
				assert.Equal(t, test.planned, attributes["pool_names"].IsFullyKnown())
			}
			assert.Contains(t, text, test.says)
			assert.NotContains(t, text, "Null in a collection")
		})
	}
}

// withPools is the configuration of a job of eight members on pools.
func withPools(t *testing.T, kind tftypes.Type, pools []tftypes.Value) *tfprotov6.DynamicValue {
	t.Helper()
	value := build(kind, map[string]any{
		"name": "j", "framework": "mpi", "image": "x", "roles": map[string]any{"worker": map[string]any{"replicas": 8, "gpus": 1}},
	})
	var attributes map[string]tftypes.Value
	require.NoError(t, value.As(&attributes))
	attributes["pools"] = tftypes.NewValue(attributes["pools"].Type(), pools)
	d, err := tfprotov6.NewDynamicValue(kind, tftypes.NewValue(kind, attributes))
	require.NoError(t, err)
	return &d
}
