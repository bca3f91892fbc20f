package trainingjob_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// openPool is a pool of which a plan does not know the size, and jobs on it.
const openPool = `
variable "size" { default = 1 }
resource "terraform_data" "size" {
  input = var.size
}
resource "gpuplan_node_pool" "p" {
  name          = "p"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = terraform_data.size.output
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`

// openJob is a job on that pool.
func openJob(name string, workers int, more string) string {
	return fmt.Sprintf(`
resource "gpuplan_training_job" %[1]q {
  name      = %[1]q
  framework = "batch"
  image     = "train:1"
  pools     = [gpuplan_node_pool.p.capacity]
  roles     = { worker = { replicas = %[2]d, gpus = 1 } }
  wait_for  = "none"
  timeouts  = { create = "4s" }
  %[3]s
}
`, name, workers, more)
}

// A job whose pools are unknown at plan is held against them by the apply, as a plan that knew them would have done.
func TestPoolsThatAreUnknownAtPlan(t *testing.T) {
	const misfit = "Job default/j does not fit: 8 of 16 members fit"
	for name, test := range map[string]struct {
		workers   int
		more      string
		says, not string
		fails     bool
	}{
		"too small":            {workers: 16, says: misfit, fails: true},
		"too small, warned":    {workers: 16, more: `placement_check = "warn"`, says: "Job default/j does not fit now. 8 of 16 members fit"},
		"too small, unchecked": {workers: 16, more: `placement_check = "off"`, not: "fit"},
		"too small, no gang":   {workers: 1, more: `node_selector = { "kubernetes.io/hostname" = "none" }` + "\n  gang = { enabled = false }\n  mode = \"default\"", says: "Job default/j does not fit", fails: true},
		"too small, other":     {workers: 16, more: `scheduler_name = "default-scheduler"`, says: misfit, fails: true},
		"too small, suspended": {workers: 16, more: `suspend = true`, not: "does not fit"},
		"large enough":         {workers: 8, not: "does not fit"},
		"too small for all":    {workers: 16, more: "gang = { minimum = 8 }", not: "does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, openPool+openJob("j", test.workers, test.more))
			cli.Must(t, "plan", "-out=saved")
			said, err := cli.Run("apply", "saved")
			said = acctest.Unwrapped(said)
			require.Equal(t, test.fails, err != nil, said)
			assert.Contains(t, said, test.says)
			if test.not != "" {
				assert.NotContains(t, said, test.not)
			}
			_, err = cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
			assert.Equal(t, test.fails, kube.IsNotFound(err), "%v", err)
			if name == "too small" {
				assert.Contains(t, said, "Error: Gang does not fit")
				said, err = cli.Run("apply", "-auto-approve", "-var=size=2")
				require.NoError(t, err, said)
				_, err = cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
				assert.NoError(t, err, "the pool has grown")
			}
		})
	}
}

// What others hold of such pools counts as in a plan; a job of this configuration may be about to leave.
func TestPoolsThatAreUnknownAtPlanAndTaken(t *testing.T) {
	for name, test := range map[string]struct {
		owner, more, says string
		fails             bool
	}{
		"by others":                      {"b", "", "Error: Gang does not fit", true},
		"by others, warned":              {"b", `placement_check = "warn"`, "Warning: Job will wait", false},
		"by others, without pools":       {"b", "", "Warning: Job will wait", false},
		"by a job of this configuration": {"a", "", "Warning: Job will wait", false},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			there := acctest.Owner("a") + strings.NewReplacer(`"p"`, `"there"`, "terraform_data.size.output", "1").Replace(openPool[strings.Index(openPool, `resource "gpuplan_node_pool"`):])
			cli.Write(t, there)
			cli.Must(t, "apply", "-auto-approve")
			busy := acctest.GangPod("busy", "busy-worker-0", cloud.NodeNames(t)[0], 0)
			maps.Copy(busy.Labels, map[string]string{contract.ManagedByLabel: contract.ManagedByValue, contract.OwnerLabel: test.owner, contract.JobNameLabel: "busy"})
			cloud.Put(t, busy)

			pools := "[gpuplan_node_pool.there.capacity, gpuplan_node_pool.p.capacity]"
			if strings.Contains(name, "without pools") {
				pools = "null\n  depends_on = [gpuplan_node_pool.p]\n  node_selector = { size = terraform_data.size.output }"
			}
			cli.Write(t, there+openPool+strings.Replace(openJob("j", 16, test.more), "[gpuplan_node_pool.p.capacity]", pools, 1))
			cli.Must(t, "plan", "-out=saved")
			said, err := cli.Run("apply", "saved")
			said = acctest.Unwrapped(said)
			require.Equal(t, test.fails, err != nil, said)
			assert.Contains(t, said, test.says)
			assert.Contains(t, said, "of 16 members fit")
		})
	}
}

// Nor is a job resumed that cannot fit, and one that is replaced is refused like a new one.
func TestPoolsThatAreUnknownWhenAJobChanges(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	fails := func(says string, args ...string) {
		t.Helper()
		said, err := cli.Run(append([]string{"apply", "-auto-approve"}, args...)...)
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), "Error: Gang does not fit")
		assert.Contains(t, acctest.Unwrapped(said), says)
	}
	held := func() bool {
		live, err := cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
		require.NoError(t, err)
		return job.Held(live)
	}
	cli.Write(t, openPool+openJob("j", 24, "suspend = true"))
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, openPool+openJob("j", 24, ""))
	fails("16 of 24 members fit", "-var=size=2")
	assert.True(t, held())
	cli.Must(t, "apply", "-auto-approve", "-var=size=3")
	assert.False(t, held())

	cli.Write(t, openPool+openJob("j", 40, ""))
	fails("32 of 40 members fit", "-var=size=4")
	_, err := cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
	assert.True(t, kube.IsNotFound(err), "%v", err)
	cli.Must(t, "apply", "-auto-approve", "-var=size=5")
	assert.False(t, held())
}
