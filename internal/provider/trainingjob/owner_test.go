package trainingjob_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// v100 is a pool of nodes with 8 GPUs.
func v100(size int) string {
	return fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = %d
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`, size)
}

// holding is a pod of a job of low priority that holds all GPUs of a node, with the stamp of an owner.
func holding(t *testing.T, cloud *acctest.Cloud, name string, framework job.Framework, owner string) *corev1.Pod {
	t.Helper()
	pod := acctest.GangPod(name, name+"-worker-0", cloud.NodeNames(t)[0], 0, 1, 2, 3, 4, 5, 6, 7)
	pod.Spec.Priority = ptr.To[int32](-10)
	maps.Copy(pod.Labels, map[string]string{
		contract.ManagedByLabel: contract.ManagedByValue, contract.OwnerLabel: owner, contract.JobNameLabel: name,
		contract.JobOperatorNameLabel: framework.Operators()[0], batchv1.JobNameLabel: name,
	})
	return pod
}

// A job that one configuration has given up and another one imports is the other one's as soon as that is applied. The first
// one neither goes on with it nor evicts it without consent, whatever its pods say by then.
func TestImportedJobGetsItsOwner(t *testing.T) {
	for _, framework := range []job.Framework{job.PyTorch, job.Batch} {
		t.Run(string(framework), func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			llm := fmt.Sprintf(`
resource "gpuplan_training_job" "llm" {
  name            = "llm"
  framework       = %q
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 8 } }
}
`, framework)
			const urgent = `
resource "gpuplan_training_job" "urgent" {
  name      = "urgent"
  framework = "pytorch"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  wait_for  = "none"
  roles     = { worker = { replicas = 1, gpus = 8 } }
}
`
			first, second := acctest.StartCLI(t), acctest.StartCLI(t)
			first.Write(t, acctest.Owner("a")+v100(1)+llm)
			first.Apply(t, 2, 0, 0)
			before, err := cloud.Kube.Get(t.Context(), framework.GVK(), "default", "llm")
			require.NoError(t, err)
			pod := holding(t, cloud, "llm", framework, "a")
			cloud.Put(t, pod)
			first.Must(t, "state", "rm", "gpuplan_training_job.llm")

			second.Write(t, acctest.Owner("b")+llm)
			second.Must(t, "import", "gpuplan_training_job.llm", "default/llm")
			assert.Contains(t, acctest.Unwrapped(second.Must(t, "plan")), `Job default/llm was imported, and carries the owner "a" of another configuration. The apply writes "b" on it`)
			assert.Contains(t, acctest.Unwrapped(second.Must(t, "plan", "-destroy")), `Job default/llm was imported, and carries the owner "a" of another configuration (this one is "b"). The plan deletes it.`)
			second.Apply(t, 0, 1, 0)
			second.Unchanged(t)
			second.Must(t, "plan", "-detailed-exitcode", "-refresh=false")
			after, err := cloud.Kube.Get(t.Context(), framework.GVK(), "default", "llm")
			require.NoError(t, err)
			assert.Equal(t, before.GetUID(), after.GetUID())
			assert.Equal(t, "b", after.GetLabels()[contract.OwnerLabel])
			marked, err := cloud.Kube.Typed.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "b", marked.Labels[contract.OwnerLabel])

			refused := func(config, says string) {
				t.Helper()
				first.Write(t, acctest.Owner("a")+config)
				said, err := first.Run("plan")
				require.Error(t, err, said)
				assert.Contains(t, acctest.Unwrapped(said), says)
			}
			refused(v100(1)+llm, `another Terraform configuration manages it, with the owner "b"`)
			refused(v100(1)+urgent, "the scheduler would evict for it: default/llm")
			cloud.Put(t, pod) // as a Job makes it again, from the template that it was created with
			first.Must(t, "plan")
			said, err := first.Run("apply", "-auto-approve")
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), "The scheduler would evict for it: default/llm.")
		})
	}
}

// A job that another configuration has taken over is no longer that of the first one, whose state still has it: its plan says so, and
// its destroy leaves the job alone.
func TestJobThatAnotherConfigurationHasTakenOver(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	const llm = `
resource "gpuplan_training_job" "llm" {
  name            = "llm"
  framework       = "batch"
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 8 } }
}
`
	first, second := acctest.StartCLI(t), acctest.StartCLI(t)
	first.Write(t, acctest.Owner("a")+llm)
	first.Apply(t, 1, 0, 0)
	second.Write(t, acctest.Owner("b")+llm)
	second.Must(t, "import", "gpuplan_training_job.llm", "default/llm")
	first.Unchanged(t)
	second.Apply(t, 0, 1, 0)

	said, err := first.Run("plan")
	require.Error(t, err, said)
	said = acctest.Unwrapped(said)
	assert.Contains(t, said, `Job default/llm/batch counts as gone here, and is left as it is: another configuration has taken it over, and its owner is "b" by now (it was "a").`)
	assert.Contains(t, said, `another Terraform configuration manages it, with the owner "b"`)
	first.Must(t, "destroy", "-auto-approve", "-refresh=false")
	second.Unchanged(t)
}
