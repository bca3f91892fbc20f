package trainingjob_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// The documentation's own example is told that no scheduler runs, with pools and without.
func TestExampleWithoutScheduler(t *testing.T) {
	text, err := os.ReadFile("../../../examples/data-sources/gpuplan_training_job/data-source.tf")
	require.NoError(t, err)
	const pools = "  pools     = [gpuplan_node_pool.v100.capacity]\n"
	require.Contains(t, string(text), pools)
	for name, config := range map[string]string{"pools": string(text), "no pools": strings.Replace(string(text), pools, "  placement_check = \"warn\"\n", 1)} {
		for _, served := range []bool{true, false} {
			if !served {
				name += ", kind not served"
			}
			t.Run(name, func(t *testing.T) {
				cloud := acctest.StartCloud(t)
				if served {
					serve(cloud, job.MPI, contract.KubeflowVersion)
				}
				terraform := acctest.StartCLI(t)
				terraform.Write(t, config)
				planned, err := terraform.Run("plan")
				require.NoError(t, err, planned)
				assert.Contains(t, spaces.ReplaceAllString(planned, " "), "No scheduler named gpuplan-scheduler runs in the cluster, so the pods of job default/vgg16 wait for one.")
			})
		}
	}
}
