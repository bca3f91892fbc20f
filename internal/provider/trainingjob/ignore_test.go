package trainingjob_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Terraform hands a provider no write-only value that lifecycle.ignore_changes names, as if nobody had
// written it. A job keeps to its pools, whoever has taken them out, until it is replaced for another reason.
func TestPoolsThatAreLeftOut(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	write := func(pools, image, more string) {
		cli.Write(t, fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  %s
  image           = %q
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 8 } }
  %s
}
`, pools, image, more))
	}
	const both = "pools = [gpuplan_node_pool.v100.capacity]"
	write(both, "train:1", "")
	cli.Must(t, "apply", "-auto-approve")
	uid := func() string {
		obj, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
		require.NoError(t, err)
		return string(obj.GetUID())
	}
	first := uid()
	for _, ignored := range []string{"all", "[pools]", "[image, pools]"} {
		write(both, "train:1", "lifecycle { ignore_changes = "+ignored+" }")
		assert.Contains(t, cli.Must(t, "plan"), "No changes", ignored)
	}
	write("", "train:1", "")
	assert.Contains(t, cli.Must(t, "plan"), "No changes", "it need not leave its pools")
	write(both, "train:2", "lifecycle { ignore_changes = [pools] }")
	cli.Must(t, "apply", "-auto-approve")
	assert.NotEqual(t, first, uid(), "another image is another job")
	assert.Contains(t, cli.Must(t, "state", "show", "gpuplan_training_job.j"), `"v100"`)
	write("", "train:3", "")
	cli.Must(t, "apply", "-auto-approve")
	assert.NotContains(t, cli.Must(t, "state", "show", "gpuplan_training_job.j"), "pool_names")
	assert.Contains(t, cli.Must(t, "plan"), "No changes")
}
