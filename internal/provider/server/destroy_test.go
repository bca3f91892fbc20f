package server_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
)

// Before a destroy Terraform plans what the configuration has, and the deletion of what it has no more: neither stops it.
func TestDestroyIsNotStoppedByWhatTheConfigurationHasNoMore(t *testing.T) {
	for _, destroys := range []bool{false, true} {
		t.Run(fmt.Sprint(destroys), func(t *testing.T) {
			acctest.ClearEnv(t)
			t.Setenv("HOME", t.TempDir())
			p := server.New(provider.New("test", provider.Command{})(), server.Command{Destroys: destroys})
			schemas, err := p.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
			require.NoError(t, err)
			const job = "gpuplan_training_job"
			kind := schemas.ResourceSchemas[job].ValueType()
			configure(t, p, schemas.Provider)
			value, err := tfprotov6.NewDynamicValue(kind, build(kind, map[string]any{
				"namespace": "default", "name": "j", "framework": "mpi", "image": "x", "roles": map[string]any{"worker": map[string]any{"replicas": 8, "gpus": 1}},
			}))
			require.NoError(t, err)
			state, nothing := &value, dynamic(t, kind, nil)
			plan := func(proposed *tfprotov6.DynamicValue) (errors int) {
				resp, err := p.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
					TypeName: job, PriorState: state, ProposedNewState: proposed, Config: proposed,
				})
				require.NoError(t, err)
				for _, d := range resp.Diagnostics {
					if d.Summary == "One object at two addresses" && d.Severity == tfprotov6.DiagnosticSeverityError {
						errors++
					}
				}
				return errors
			}
			plan(state)
			assert.Equal(t, !destroys, plan(nothing) == 1, "the same job at another address, which the configuration has no more")
		})
	}
}
