package trainingjob_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job whose pods the cluster refuses says so at plan, and at apply when the plan did not look.
func TestPodsThatCannotBeCreated(t *testing.T) {
	client := acctest.OnPlatform(t)
	_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "refusing", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	job := func(check, as string) string {
		return `resource "gpuplan_training_job" "j" {
  name            = "refused"
  namespace       = "refusing"
  ` + as + `
  image           = "x"
  mode            = "default"
  scheduler_name  = "default-scheduler"
  host_network    = true
  placement_check = "` + check + `"
  roles           = { worker = { gpus = 1 } }
  timeouts        = { create = "20s" }
}`
	}
	const asPyTorch, asMPI = `framework = "pytorch"`, `framework = "mpi"
  arena_compatible = true
  command          = ["mpirun", "train"]`
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{Config: job("error", asPyTorch), PlanOnly: true, ExpectError: acctest.Saying(`violates PodSecurity "baseline:latest"`)},
		{Config: job("error", asPyTorch), PlanOnly: true, ExpectError: acctest.Saying("With host_ipc, host_network and host_pid set to false")},
		{Config: job("off", asPyTorch), ExpectError: acctest.Saying(`the job's operator says: Error creating: pods "refused-worker-0" is forbidden: violates PodSecurity`)},
		{Config: job("off", asMPI), ExpectError: acctest.Saying(`the job's operator says: Create Pod refused-worker-0 in StatefulSet refused-worker failed error: pods "refused-worker-0" is forbidden: violates PodSecurity`)},
	}})
}
