package live_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Nodes get eRDMA devices from an add-on that is there before them: a plan says when none will
// be, and a job of nodes that came too early is refused.
func TestERDMANeedsItsController(t *testing.T) {
	client := acctest.OnPlatform(t)
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	terraform := acctest.NewCLI(t, provider)
	pool := func(name, more string) string {
		return fmt.Sprintf(`
resource "gpuplan_node_pool" %q {
  name          = %[1]q
  instance_type = "ecs.gn8v-8x.16xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
  %s
}
`, name, more)
	}
	train := func(name, pool string) string {
		return fmt.Sprintf(`
resource "gpuplan_training_job" %q {
  name       = %[1]q
  framework  = "pytorch"
  image      = "train:1"
  pools      = [gpuplan_node_pool.%s.capacity]
  env        = { NCCL_DEBUG = "WARN" }
  roles      = { worker = { replicas = 2, gpus = 2, rdma = true } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
`, name, pool)
	}
	const controller = "resource \"gpuplan_erdma_controller\" \"erdma\" {\n  allocate_all_devices = true\n}\n"
	with := func(more string) { terraform.Write(t, setting{size: 0, more: more}.config()) }
	const missing = "Replicas of job default/one ask for an eRDMA device and are planned on node fast[0], which does not exist yet. " +
		"Cluster c-gpuplan-local lacks the add-on ack-erdma-controller"

	with(pool("early", ""))
	terraform.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { terraform.Must(t, "destroy", "-auto-approve") })
	with(pool("early", "") + pool("fast", "") + train("one", "fast"))
	assert.Contains(t, acctest.Unwrapped(terraform.Must(t, "plan")), missing)

	with(controller + pool("early", "") + pool("fast", "depends_on = [gpuplan_erdma_controller.erdma]") + train("one", "fast"))
	output := acctest.Unwrapped(terraform.Must(t, "plan"))
	assert.NotContains(t, output, "eRDMA devices will be missing")
	assert.Contains(t, output, "3 to add")
	terraform.Must(t, "apply", "-auto-approve")
	assert.Contains(t, terraform.Must(t, "plan"), "No changes.")
	pod, err := client.Typed.CoreV1().Pods("default").Get(t.Context(), "one-worker-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.Capability{"IPC_LOCK"}, pod.Spec.Containers[0].SecurityContext.Capabilities.Add)
	assert.Subset(t, pod.Spec.Containers[0].Env, []corev1.EnvVar{{Name: "NCCL_DEBUG", Value: "WARN"}, {Name: "NCCL_NET_GDR_LEVEL", Value: "1"}})

	with(controller + pool("early", "") + pool("fast", "depends_on = [gpuplan_erdma_controller.erdma]") + train("one", "fast") + train("two", "early"))
	refused, err := terraform.Run("plan")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(refused), "1 node has too little aliyun/erdma left (0 of the 1 that it asks for)")
}
