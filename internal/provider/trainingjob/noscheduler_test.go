package trainingjob_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A plan says when neither the cluster nor what comes before the job has what lets it start.
func TestWhatWouldNeverStart(t *testing.T) {
	lease := func(age time.Duration) *unstructured.Unstructured { // now: a scheduler that was not heard of for a minute is dead
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": map[string]any{"namespace": contract.SystemNamespace, "name": contract.SchedulerName},
			"spec": map[string]any{
				"holderIdentity": "host", "renewTime": time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
			},
		}}
	}
	const (
		noScheduler = "No scheduler named gpuplan-scheduler runs in the cluster, so the pods of job default/j wait for one."
		unknown     = "Job default/j leaves its pods to a scheduler named volcano, which has placed no pod that is in the cluster now."
		noTree      = "the cluster has none: the job never starts"
		scheduler   = "resource \"gpuplan_scheduler\" \"this\" { image = \"local/scheduler:test\" }\n"
		tree        = "resource \"gpuplan_quota_tree\" \"this\" {\n  total = { \"aliyun.com/gpu\" = \"8\" }\n  quotas = { a = { namespaces = [\"default\"] } }\n}\n"
	)
	for name, test := range map[string]struct {
		heard                     time.Duration // how long ago a scheduler was heard of, 0 for never
		body, more                string
		scheduler, queue, unknown bool // whether the plan says that one is absent
	}{
		"nothing":            {0, "", "", true, false, false},
		"another scheduler":  {0, `scheduler_name = "volcano"`, "", false, false, true},
		"Kubernetes' own":    {0, `scheduler_name = "default-scheduler"`, "", false, false, false},
		"not checked":        {0, `placement_check = "off"`, "", false, false, false},
		"one comes":          {0, "depends_on = [gpuplan_scheduler.this]", scheduler, false, false, false},
		"one runs":           {time.Second, "", "", false, false, false},
		"one ran":            {time.Hour, "", "", true, false, false},
		"queue, no tree":     {time.Second, "queue = true", "", false, true, false},
		"queue, a tree":      {time.Second, "queue = true\n  depends_on = [gpuplan_quota_tree.this]", tree, false, false, false},
		"queue, not checked": {time.Second, "queue = true\n  placement_check = \"off\"", "", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serve(cloud, job.PyTorch, contract.KubeflowVersion)
			if test.heard > 0 {
				cloud.API.Put(lease(test.heard))
			}
			terraform := acctest.StartCLI(t)
			terraform.Write(t, test.more+`resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "j" {
  name  = "j"
  framework = "pytorch"
  image = "train:1"
  roles = { worker = { replicas = 4, gpus = 1 } }
  pools = [gpuplan_node_pool.v100.capacity]
  `+test.body+`
}
`)
			planned, err := terraform.Run("plan")
			text := spaces.ReplaceAllString(planned, " ")
			if test.more != tree { // its kind is not installed in this cluster
				require.NoError(t, err, planned)
			}
			assert.Equal(t, test.scheduler, strings.Contains(text, noScheduler), planned)
			assert.Equal(t, test.queue, strings.Contains(text, noTree), planned)
			assert.Equal(t, test.unknown, strings.Contains(text, unknown), planned)
		})
	}
}
