package trainingjob_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// fleet is a configuration of pools of two nodes, each with jobs of eight members.
func fleet(pools, jobsPerPool int, label string) string {
	var config strings.Builder
	for p := range pools {
		fmt.Fprintf(&config, `
resource "gpuplan_node_pool" "p%[1]d" {
  name          = "p%[1]d"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`, p)
		for j := range jobsPerPool {
			after := ""
			if j > 0 {
				after = fmt.Sprintf("after = [gpuplan_training_job.j%d_%d.placed]", p, j-1)
			}
			fmt.Fprintf(&config, `
resource "gpuplan_training_job" "j%[1]d_%[2]d" {
  name      = "j%[1]d-%[2]d"
  framework = "mpi"
  image     = "train:1"
  command   = ["sh", "-c", "train"]
  pools     = [gpuplan_node_pool.p%[1]d.capacity]
  roles     = { worker = { replicas = 8, cards = 1 } }
  labels    = { team = %[4]q }
  wait_for  = "none"
  %[3]s
}
`, p, j, after, label)
		}
	}
	return config.String()
}

// What a plan prints of a job does not grow with the pools, and each kind is listed once
// however many resources there are.
func TestPlansAreShortAndListOnce(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, fleet(4, 2, "a"))
	plan := terraform.Must(t, "plan", "-out=saved")
	for p := range 4 {
		for j := range 2 {
			lines := acctest.Lines(plan, fmt.Sprintf("gpuplan_training_job.j%d_%d", p, j))
			require.NotZero(t, lines)
			assert.Less(t, lines, 70, plan)
		}
		lines := acctest.Lines(plan, fmt.Sprintf("gpuplan_node_pool.p%d", p))
		require.NotZero(t, lines)
		assert.Less(t, lines, 80, plan)
	}
	terraform.Must(t, "apply", "saved")

	before := cloud.API.Lists()
	terraform.Must(t, "plan", "-detailed-exitcode")
	for kind, count := range cloud.API.Lists() {
		assert.LessOrEqual(t, count-before[kind], 1, kind)
	}

	// A change of one word shows that word, and not what it cannot touch.
	terraform.Write(t, fleet(4, 2, "b"))
	plan = terraform.Must(t, "plan")
	assert.NotContains(t, plan, "(known after apply)")
	for p := range 4 {
		assert.Less(t, acctest.Lines(plan, fmt.Sprintf("gpuplan_training_job.j%d_0", p)), 15, plan)
	}
	terraform.Must(t, "apply", "-auto-approve")
	terraform.Must(t, "plan", "-detailed-exitcode")

	// Nor does a label of a pool.
	terraform.Write(t, strings.ReplaceAll(fleet(4, 2, "b"), `mode          = "topology"`, "mode = \"topology\"\n  labels = { rack = \"a\" }"))
	plan = terraform.Must(t, "plan", "-out=saved")
	assert.NotContains(t, plan, "(known after apply)")
	terraform.Must(t, "apply", "saved")
	terraform.Must(t, "plan", "-detailed-exitcode")
}
