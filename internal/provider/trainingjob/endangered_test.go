package trainingjob_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A gang that waits may start where a job leaves before the pool gives these nodes up, also where the plan does not know
// where that job will be, or the job is suspended.
func TestWaiterOnNodesThatAJobLeaves(t *testing.T) {
	for name, becomes := range map[string]string{
		"replaced, placed at apply":   "image = \"train:2\"\n  after = [terraform_data.later.output]",
		"replaced by a suspended one": "image = \"train:2\"\n  suspend = true",
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serve(cloud, job.PyTorch, contract.KubeflowVersion)
			cli := acctest.StartCLI(t)
			later := "resource \"terraform_data\" \"later\" { input = \"x\" }\n"
			config := func(size int, more string) string {
				return acctest.Owner("a") + `resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = ` + strconv.Itoa(size) + `
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "j" {
  name      = "j"
  framework = "pytorch"
  roles     = { worker = { replicas = ` + strconv.Itoa(size) + `, gpus = 8 } }
  pools     = [gpuplan_node_pool.v100.capacity]
  wait_for  = "none"
  ` + more + "\n}\n"
			}
			cli.Write(t, config(2, `image = "train:1"`))
			cli.Must(t, "apply", "-auto-approve")
			for i, node := range cloud.NodeNames(t) {
				own := holding(t, cloud, "j", job.PyTorch, "a")
				own.Name, own.Spec.NodeName = fmt.Sprintf("j-worker-%d", i), node
				own.OwnerReferences = []metav1.OwnerReference{{APIVersion: job.PyTorch.GVK().GroupVersion().String(), Kind: job.PyTorch.GVK().Kind, Name: "j", UID: "j"}}
				cloud.Put(t, own)
			}
			waiter := acctest.GangPod("waiter", "waiter-0", "", 0)
			waiter.Annotations = nil
			waiter.Spec.SchedulerName, waiter.Status.Phase = contract.SchedulerName, corev1.PodPending
			cloud.Put(t, waiter)
			cli.Write(t, later+config(1, becomes))
			assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "Jobs that wait may start on its nodes before that: default/waiter.")
		})
	}
}
