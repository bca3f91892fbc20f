package trainingjob_test

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// What the job says of its pods they have, made by the operator, and an import reads it back.
func TestPodsOnTheLocalPlatform(t *testing.T) {
	client := acctest.OnPlatform(t)
	const address = "gpuplan_training_job.a"
	const config = `
resource "gpuplan_training_job" "a" {
  name              = "a"
  framework         = "pytorch"
  mode              = "shared"
  image             = "train:1"
  image_pull_policy = "Never"
  nproc_per_node    = "4"
  env               = { PET_NPROC_PER_NODE = "1" }
  roles             = { master = { memory_gib = 4 }, worker = { memory_gib = 4 } }
  wait_for          = "none"
  placement_check   = "off"
  scheduler_name    = "default-scheduler"
}
`
	create := resource.TestStep{Config: config, ConfigStateChecks: []statecheck.StateCheck{
		value(address, "image_pull_policy", knownvalue.StringExact("Never")),
		value(address, "nproc_per_node", knownvalue.StringExact("4")),
	}}
	create.Check = func(*terraform.State) error {
		var pod *corev1.Pod
		require.Eventually(t, func() (made bool) {
			var err error
			pod, err = client.Typed.CoreV1().Pods("default").Get(t.Context(), "a-worker-0", metav1.GetOptions{})
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		env := map[string]string{}
		for _, v := range pod.Spec.Containers[0].Env {
			env[v.Name] = v.Value // of two the last one counts
		}
		assert.Equal(t, corev1.PullNever, pod.Spec.Containers[0].ImagePullPolicy)
		assert.Equal(t, "4", env["PET_NPROC_PER_NODE"])
		assert.Equal(t, "8", env["WORLD_SIZE"])
		return nil
	}
	again := resource.TestStep{Config: config, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}}
	imported := resource.TestStep{ResourceName: address, ImportState: true, ImportStateVerify: true, ImportStateVerifyIgnore: []string{"timeouts", "roles", "status"}}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{create, again, imported}})
}
