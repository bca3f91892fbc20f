package trainingjob_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job that another apply creates at the same time is not changed; one of this configuration, as an apply
// that was killed may leave it, goes on.
func TestJobThatAppearsMeanwhile(t *testing.T) {
	const config = `
resource "gpuplan_training_job" "a" {
  name            = "a"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  suspend         = true
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 1 } }
}
`
	for name, test := range map[string]struct{ owner, image, says string }{
		"another configuration's": {"b", "train:2", `PyTorchJob default/a exists already, and another Terraform configuration manages it, with the owner "b" (this one is "a")`},
		"the same job":            {"a", "train:1", "Job was there already"},
		"an older job":            {"a", "train:0", "1 added"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			cloud.Meanwhile(t, "pytorchjobs", func() {
				spec := job.Spec{
					Namespace: "default", Name: "a", Framework: job.PyTorch, Mode: job.Topology, Gang: true, SchedulerName: contract.SchedulerName,
					Suspend: true, Owner: test.owner, Roles: map[string]job.Role{"worker": {Replicas: 1, Image: test.image, GPUs: 1}},
				}
				obj, err := spec.Render()
				require.NoError(t, err)
				_, err = cloud.Kube.Create(t.Context(), obj)
				require.NoError(t, err)
			})
			cli := acctest.StartCLI(t)
			cli.Write(t, acctest.Owner("a")+config)
			said, err := cli.Run("apply", "-auto-approve")
			ours := test.owner == "a"
			assert.Equal(t, ours, err == nil, said)
			assert.Contains(t, acctest.Unwrapped(said), test.says)

			live, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "a")
			require.NoError(t, err)
			now, err := job.Parse(live)
			require.NoError(t, err)
			assert.Equal(t, test.owner, live.GetLabels()[contract.OwnerLabel])
			want := "train:1"
			if !ours {
				want = test.image
			}
			assert.Equal(t, want, now.Roles["worker"].Image)
		})
	}
}
