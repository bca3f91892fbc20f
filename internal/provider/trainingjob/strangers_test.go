package trainingjob_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// What a configuration has is not of its tests, which delete what they have made when they end.
func TestTestsAreStrangers(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	binary, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	cli := acctest.NewCLI(t, binary)
	cli.Write(t, `
resource "gpuplan_training_job" "a" {
  name            = "a"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  suspend         = true
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 1 } }
}
`)
	test := filepath.Join(cli.Dir, "a.tftest.hcl")
	require.NoError(t, os.WriteFile(test, []byte("run \"a\" {\n  command = apply\n}\n"), 0o600))
	cli.Must(t, "test")
	_, err = cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "a")
	require.True(t, kube.IsNotFound(err), "the test has deleted what it made")

	for name, env := range map[string]string{"the stamp of the state": "", "an owner": "GPUPLAN_OWNER=team-a"} {
		t.Run(name, func(t *testing.T) {
			cli.Env = append(cli.Env, env)
			cli.Must(t, "apply", "-auto-approve")
			before, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "a")
			require.NoError(t, err)
			said, err := cli.Run("test")
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), "another Terraform configuration manages it")
			after, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "a")
			require.NoError(t, err)
			assert.Equal(t, before.GetUID(), after.GetUID())
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
}
