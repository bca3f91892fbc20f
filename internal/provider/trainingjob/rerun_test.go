package trainingjob_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// rerun is the action for the job default/j, with more arguments.
func rerun(more string) string {
	return `
action "gpuplan_rerun_training_job" "j" {
  config {
    id = "default/j"
    ` + more + `
  }
}
`
}

func needActions(t *testing.T) {
	t.Helper()
	if !acctest.Since(t, 14) {
		t.Skip("actions are HashiCorp's, and came with Terraform 1.14")
	}
}

// A job that has succeeded is deleted and created with all that it says, and the configuration has it.
func TestActionRunsAJobAgain(t *testing.T) {
	needActions(t)
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	cli.Write(t, oneJob("pytorch", `arena_compatible = true
  triggers = { run = "1" }
  labels   = { team = "vision" }
  timeouts = { create = "5m" }`, rerun(`wait_for = "none"`)))
	cli.Apply(t, 2, 0, 0)
	before, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	succeed(t, cloud)

	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve", "-invoke=action.gpuplan_rerun_training_job.j"))
	assert.Contains(t, said, "Deleting PyTorchJob default/j, which has finished, and its pods.")
	assert.Contains(t, said, "PyTorchJob default/j is Pending.")
	after, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	assert.NotEqual(t, before.GetUID(), after.GetUID())
	assert.Equal(t, before.Object["spec"], after.Object["spec"])
	assert.Equal(t, before.GetLabels(), after.GetLabels())
	assert.Equal(t, before.GetAnnotations(), after.GetAnnotations(), "also what the plan has promised, and what an import needs")
	config, err := cloud.Kube.Typed.CoreV1().ConfigMaps("default").Get(t.Context(), "j-pytorchjob", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, after.GetUID(), config.OwnerReferences[0].UID)
	cli.Unchanged(t)
	cli.Apply(t, 0, 0, 0)
	cli.Must(t, "destroy", "-auto-approve")
	_, err = cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	assert.Error(t, err, "the state has the new job")
}

// A job that still runs, is someone else's, or is gone is refused and stays as it is. A plan warns of it.
func TestActionRefusesAJob(t *testing.T) {
	needActions(t)
	for name, test := range map[string]struct {
		prepare func(*testing.T, *acctest.Cloud)
		says    string
		plan    bool
	}{
		"that runs":           {func(t *testing.T, cloud *acctest.Cloud) { cloud.API.Put(liveJob(t, job.PyTorch, "b")) }, "PyTorchJob default/j has not finished (it is Pending), and only one that has is run again", true},
		"of others":           {others("c"), `PyTorchJob default/j is not this configuration's, and stays: another Terraform configuration manages it, with the owner "c" (this one is "b")`, true},
		"of nobody":           {others(""), "PyTorchJob default/j is not this configuration's, and stays: it carries no stamp of this provider", true},
		"that is gone":        {func(*testing.T, *acctest.Cloud) {}, "The cluster has no job default/j: its time to live may have removed it; change triggers of its resource", false},
		"that is being ended": {ended, "PyTorchJob default/j is being deleted: apply, which creates it again", true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			test.prepare(t, cloud)
			writes := cloud.API.Writes()
			cli := acctest.StartCLI(t)
			cli.Write(t, acctest.Owner("b")+rerun(""))
			said, err := cli.Run("apply", "-auto-approve", "-invoke=action.gpuplan_rerun_training_job.j")
			require.Error(t, err)
			_, failed, _ := strings.Cut(acctest.Unwrapped(said), "Error: Error when invoking action")
			assert.Contains(t, failed, test.says)
			assert.Equal(t, test.plan, strings.Contains(said, "Warning: Job cannot be run again now"), said)
			assert.Equal(t, writes, cloud.API.Writes())
		})
	}
}

// others makes a job that has succeeded, with the owner of another configuration.
func others(owner string) func(*testing.T, *acctest.Cloud) {
	return func(t *testing.T, cloud *acctest.Cloud) {
		cloud.API.Put(liveJob(t, job.PyTorch, owner))
		succeed(t, cloud)
	}
}

func ended(t *testing.T, cloud *acctest.Cloud) {
	live := liveJob(t, job.PyTorch, "b")
	now := metav1.Now()
	live.SetDeletionTimestamp(&now)
	live.SetFinalizers([]string{"test/stays"})
	cloud.API.Put(live)
}

// On the platform a job is run again to its end, and placed as before.
func TestActionOnTheLocalPlatform(t *testing.T) {
	needActions(t)
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, `
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }
resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }
resource "gpuplan_training_job" "j" {
  name        = "j"
  framework   = "batch"
  image       = "train:1"
  pools       = [gpuplan_node_pool.v100.capacity]
  annotations = { "local.gpuplan.dev/run-for" = "1s" }
  wait_for    = "succeeded"
  roles       = { worker = { replicas = 2, gpus = 4 } }
  depends_on  = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
output "as_planned" { value = gpuplan_training_job.j.placement_as_planned }
`+rerun(`wait_for = "succeeded"`))
	cli.Apply(t, 4, 0, 0)
	before, err := client.Get(t.Context(), job.Batch.GVK(), "default", "j")
	require.NoError(t, err)
	said := cli.Must(t, "apply", "-auto-approve", "-invoke=action.gpuplan_rerun_training_job.j")
	assert.Contains(t, acctest.Unwrapped(said), "Job default/j is Succeeded.")
	after, err := client.Get(t.Context(), job.Batch.GVK(), "default", "j")
	require.NoError(t, err)
	assert.NotEqual(t, before.GetUID(), after.GetUID())
	cli.Unchanged(t)
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve", "-refresh-only"), "as_planned = true")
	cli.Must(t, "destroy", "-auto-approve")
}
