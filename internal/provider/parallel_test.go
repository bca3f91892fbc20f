package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Terraform does ten things at a time: resources of every kind are created, changed and destroyed at once, each once, and nothing is
// left to do after it. `make race` runs it with the race detector.
func TestTenAtOnce(t *testing.T) {
	const pools = 6
	cloud := acctest.StartCloud(t)
	serve(t, cloud)
	cli := acctest.StartCLI(t)
	config := func(label, command string, replicas int) string {
		var all strings.Builder
		for i := range pools {
			fmt.Fprintf(&all, `
resource "gpuplan_node_pool" "p%[1]d" {
  name          = "p%[1]d"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
  labels        = { team = %[2]q }
}
resource "gpuplan_training_job" "j%[1]d" {
  name      = "j%[1]d"
  framework = "pytorch"
  image     = "train:1"
  command   = [%[3]q]
  pools     = [gpuplan_node_pool.p%[1]d.capacity]
  roles     = { worker = { replicas = %[4]d, gpus = 2 } }
  wait_for  = "none"
}
`, i, label, command, replicas)
		}
		fmt.Fprintf(&all, `
resource "gpuplan_quota_tree" "x" {
  total  = { cpu = "1000" }
  quotas = { a = { max = { cpu = "100" }, namespaces = [%[1]q] } }
}
resource "gpuplan_addon" "x" {
  name    = "ack-ai-installer"
  config  = jsonencode({ x = %[2]d })
}
resource "gpuplan_scheduler_config" "x" {
  enable_reservation = true
  extra_config       = jsonencode({ x = %[2]d })
}
resource "gpuplan_propagation_policy" "x" {
  name               = "p"
  priority           = %[2]d
  resource_selectors = [{ api_version = "v1", kind = "ConfigMap" }]
}
`, label, replicas)
		return all.String()
	}
	const all = 2*pools + 4
	cli.Write(t, config("vision", "a", 2))
	cli.Apply(t, all, 0, 0)
	cli.Unchanged(t)
	cli.Write(t, config("speech", "a", 3))
	cli.Must(t, "apply", "-auto-approve", "-parallelism=10")
	cli.Unchanged(t)
	cli.Must(t, "destroy", "-auto-approve", "-parallelism=10")
	output := cli.Must(t, "state", "list")
	assert.Empty(t, strings.TrimSpace(output))
}
