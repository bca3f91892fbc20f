package trainingjob_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

const platform = `
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  labels        = { team = "research" }
  taints        = [{ key = "team", value = "research", effect = "NoSchedule" }]
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_scheduler" "this" {
  image         = "scheduler:1"
  reserve_after = "10m"
}

resource "gpuplan_quota_tree" "main" {
  total = { "aliyun.com/gpu" = "16" }
  quotas = {
    research          = { min = { "aliyun.com/gpu" = "8" } }
    "research/vision" = { max = { "aliyun.com/gpu" = "8" }, max_jobs = 2, namespaces = ["vision"] }
  }
  depends_on = [gpuplan_scheduler.this]
}
`

// A job of another state than its pool, its leaf and its scheduler is planned and applied as one of the same.
func TestJobOfAnotherState(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	serveJobs(cloud)
	owner := acctest.StartCLI(t)
	owner.Write(t, acctest.Owner("platform")+platform)
	owner.Must(t, "apply", "-auto-approve")

	// The owner's own plan of the job, which is not applied.
	job := func(from, name, workers string) string {
		return `
resource "gpuplan_training_job" "job" {
  name           = "` + name + `"
  framework      = "mpi"
  image          = "train:1"
  pools          = [` + from + `gpuplan_node_pool.v100.capacity]
  quota          = ` + from + `gpuplan_quota_tree.main.leaves["vision"]
  scheduler_name = ` + from + `gpuplan_scheduler.this.scheduler_name
  tolerations    = [{ key = "team", operator = "Exists" }]
  roles          = { worker = { replicas = ` + workers + `, gpus = 1 } }
  wait_for       = "none"
}
output "placement" {
  value = gpuplan_training_job.job.planned_placement
}
`
	}
	owner.Write(t, acctest.Owner("platform")+platform+job("", "job", "8"))
	same := owner.Must(t, "plan")

	const data = `
data "gpuplan_node_pool" "v100" {
  name = "v100"
}
data "gpuplan_quota_tree" "main" {}
data "gpuplan_scheduler" "this" {}
output "pool" {
  value = data.gpuplan_node_pool.v100
}
output "tree" {
  value = data.gpuplan_quota_tree.main
}
output "scheduler" {
  value = data.gpuplan_scheduler.this
}
`
	other := acctest.StartCLI(t)
	before := cloud.API.Lists()
	other.Write(t, acctest.Owner("team")+data+job("data.", "job", "8"))
	plan := other.Must(t, "plan", "-out=saved")
	after := cloud.API.Lists()
	assert.Equal(t, after["nodes"]-before["nodes"], after["pods"]-before["pods"])
	const placed = `"worker-0..7 GPU 0-7: `
	require.Contains(t, same, placed)
	assert.Contains(t, plan, placed)
	other.Must(t, "apply", "saved")
	other.Must(t, "plan", "-detailed-exitcode")
	outputs := other.Must(t, "output")
	for _, line := range []string{
		`"mode" = "topology"`, `"team" = "research"`, `"size" = 2`, `"state" = "active"`, `"instance_type" = "ecs.gn6v-c10g1.20xlarge"`,
		`"scheduler_name" = "gpuplan-scheduler"`, `"running" = true`, `"reserve_after" = "10m0s"`, `"route_pods" = true`,
		`"vision" = "vision"`, `"max_jobs" = 2`, `"aliyun.com/gpu" = "16"`,
	} {
		assert.Contains(t, outputs, line)
	}

	// The same rules hold: the leaf, and the room of the pool.
	unlimited := strings.NewReplacer("quota          = data.gpuplan_quota_tree.main.leaves[\"vision\"]\n", "")
	for text, config := range map[string]string{
		"can never run within its quota": job("data.", "big", "9"),
		"16 of 17 members fit":           unlimited.Replace(job("data.", "big", "17")),
	} {
		other.Write(t, acctest.Owner("team")+data+config)
		output, err := other.Run("plan")
		require.Error(t, err, output)
		assert.Contains(t, acctest.Unwrapped(output), text)
	}
}

// What a data source is to read has to be there.
func TestOtherStateHasNothing(t *testing.T) {
	cloud := acctest.StartCloud(t)
	terraform := acctest.StartCLI(t)
	says := func(config, text string) {
		t.Helper()
		terraform.Write(t, config)
		output, err := terraform.Run("plan")
		require.Error(t, err, output)
		assert.Contains(t, acctest.Unwrapped(output), text)
	}
	says(`data "gpuplan_node_pool" "x" { name = "v100" }`, "No such node pool: cluster c-acctest has no node pool named \"v100\"; it has none. Where a gpuplan_node_pool of the same configuration makes it, use what that resource offers")
	says(`data "gpuplan_quota_tree" "x" {}`, "There is no ElasticQuotaTree. A gpuplan_quota_tree creates one")
	says(`data "gpuplan_scheduler" "x" {}`, "There is no Deployment gpuplan-system/gpuplan-scheduler. A gpuplan_scheduler installs it")
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	require.NoError(t, cloud.Kube.ApplyAll(t.Context(), objs, nil))
	terraform.Write(t, "data \"gpuplan_scheduler\" \"x\" {}\noutput \"running\" {\n  value = data.gpuplan_scheduler.x.running\n}\n")
	assert.Contains(t, terraform.Must(t, "plan"), "+ running = false")
}

// A job of another state than its pool is planned on the nodes as they are labelled: no apply of this state labels them again.
func TestNodesOfAnotherStateAreAsLabelled(t *testing.T) {
	const whole = `roles = { worker = { replicas = 2, gpus = 8 } }`
	for name, test := range map[string]struct{ key, value, job, says string }{
		"the mode of the pool":  {contract.NodeModeLabel, `"topology"`, whole, ""},
		"another mode":          {contract.NodeModeLabel, `"default"`, whole, "1 of 2 members fit: 1 node has no free GPU left; 1 node is in mode default"},
		"no mode":               {contract.NodeModeLabel, "null", whole, "1 node is in mode default"},
		"another pool":          {contract.NodePoolNameLabel, `"other"`, whole, "1 of 2 members fit"},
		"a label that it lacks": {"team", "null", whole, ""},
		"one that is selected":  {"team", "null", whole + "\n  node_selector = { team = \"research\" }", "1 node does not match the node selector team=research"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cloud.RunWorkloads(t)
			serveJobs(cloud)
			owner, other := acctest.StartCLI(t), acctest.StartCLI(t)
			owner.Write(t, acctest.Owner("platform")+platform)
			owner.Must(t, "apply", "-auto-approve")
			_, err := cloud.Kube.Typed.CoreV1().Nodes().Patch(t.Context(), cloud.NodeNames(t)[1], types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, test.key, test.value), metav1.PatchOptions{FieldManager: "kubectl"})
			require.NoError(t, err)

			other.Write(t, acctest.Owner("team")+`
data "gpuplan_node_pool" "v100" { name = "v100" }
resource "gpuplan_training_job" "job" {
  name        = "job"
  framework   = "mpi"
  image       = "train:1"
  pools       = [data.gpuplan_node_pool.v100.capacity]
  tolerations = [{ key = "team", operator = "Exists" }]
  `+test.job+`
}
`)
			said, err := other.Run("plan")
			assert.Equal(t, test.says == "", err == nil, said)
			assert.Contains(t, acctest.Unwrapped(said), test.says)
		})
	}
}
