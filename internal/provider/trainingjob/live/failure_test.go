package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// failing configures a job whose members fail after a second.
func failing(framework, timeout, more string) string {
	return setting{size: 1, more: fmt.Sprintf(`
resource "gpuplan_training_job" "a" {
  name        = "a"
  framework   = %q
  image       = "train:1"
  command     = ["torchrun", "train.py"]
  annotations = { "local.gpuplan.dev/fail-after" = "1s" }
  wait_for    = "succeeded"
  pools       = [gpuplan_node_pool.v100.capacity]
  roles       = { worker = { replicas = 2, gpus = 4 } }
  timeouts    = { create = %q }
  depends_on  = [gpuplan_scheduler.this, gpuplan_node_agent.this]
  %s
}
`, framework, timeout, more)}.config()
}

// A job that fails says why in the words of its program, which no state has.
func TestLogOfAJobThatFails(t *testing.T) {
	acctest.OnPlatform(t)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, failing("pytorch", "10m", `restart_policy = "Never"`))
	t.Cleanup(func() { terraform.Must(t, "destroy", "-auto-approve") })
	said, err := terraform.Run("apply", "-auto-approve")
	require.Error(t, err)
	said = acctest.Unwrapped(said)
	assert.Contains(t, said, "the job has failed: ")
	assert.Contains(t, said, "failed first, with exit code 1 (Error). The end of its log, which is stored nowhere: ")
	assert.Contains(t, said, "It would run: torchrun train.py")
	assert.Contains(t, said, "All of it: `kubectl -n default logs a-worker-")

	state, err := os.ReadFile(filepath.Join(terraform.Dir, "terraform.tfstate"))
	require.NoError(t, err)
	assert.NotContains(t, string(state), "It would run")

	// Whoever asks for it gets the end of each log. One member has failed; the
	// other may still run by then, or the job operator has deleted it.
	logs := acctest.StartCLI(t)
	logs.Write(t, `
data "gpuplan_job_logs" "a" {
  id    = "default/a"
  lines = 1
}
data "gpuplan_job_logs" "none" {
  id = "default/none"
}
locals {
  failed = [for r in data.gpuplan_job_logs.a.replicas : r if r.phase == "Failed"]
}
output "logs" {
  value = [for r in local.failed : join(" ", [r.replica, r.pod, r.phase, length(split("\n", nonsensitive(r.log)))])]
}
output "text" {
  value = nonsensitive(local.failed[0].log)
}
output "none" {
  value = length(data.gpuplan_job_logs.none.replicas)
}
`)
	plan := logs.Must(t, "plan")
	assert.Regexp(t, `"worker-([01]) a-worker-([01]) Failed 1"`, plan)
	assert.Regexp(t, `\+ text += ".+"`, plan)
	assert.Regexp(t, `\+ none += 0`, plan)
}

// A JobSet of which a role fails starts again with all its roles, as often as it may, and then says why it failed.
func TestJobSetThatFails(t *testing.T) {
	client := acctest.OnPlatform(t)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, failing("jobset", "90s", "backoff_limit = 1"))
	t.Cleanup(func() { terraform.Must(t, "destroy", "-auto-approve") })
	said, err := terraform.Run("apply", "-auto-approve")
	require.Error(t, err)
	said = acctest.Unwrapped(said)
	assert.Contains(t, said, "the job has failed: jobset failed due to reaching max number of restarts")
	assert.Contains(t, said, "failed first, with exit code 1 (Error). The end of its log, which is stored nowhere: ")
	assert.Contains(t, said, "It would run: torchrun train.py")
	obj, err := client.Get(t.Context(), job.JobSet.GVK(), "default", "a")
	require.NoError(t, err)
	restarts, _, _ := unstructured.NestedInt64(obj.Object, "status", "restarts")
	assert.EqualValues(t, 1, restarts)
}
