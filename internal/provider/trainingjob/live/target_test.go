package live_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// What Terraform leaves alone, and what it replaces by its own decision, is announced like
// everything else, although Terraform tells of neither when it asks for the plan of a job.
func TestTargetAndReplaceAreAnnounced(t *testing.T) {
	client := acctest.OnPlatform(t)
	localtest.CreatePriorityClass(t, client.Typed, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	terraform := acctest.NewCLI(t, provider)
	with := func(all gangs) { terraform.Write(t, setting{size: 2, gangs: all}.config()) }
	refused := func(words string, options ...string) {
		t.Helper()
		output, err := terraform.Run(slices.Concat([]string{"plan"}, options)...)
		assert.Error(t, err)
		assert.Contains(t, acctest.Unwrapped(output), words)
	}
	const urgent, agreed = "priority_class = \"urgent\"\n", "allow_preemption = true\n"
	const evicts = "Job default/high has no free place, and the scheduler would evict for it: default/low (13 pods, priority 0)."
	target, replace := "-target="+address("high"), "-replace="+address("low")

	with(gangs{"low": {12, ""}})
	terraform.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { terraform.Must(t, "destroy", "-auto-approve") })
	assert.Contains(t, terraform.Must(t, "plan", replace), "1 to add, 0 to change, 1 to destroy")
	with(gangs{"low": {12, ""}, "high": {8, urgent}})
	refused(evicts, target)
	with(gangs{"low": {12, ""}, "high": {8, urgent + agreed}})
	assert.Contains(t, acctest.Unwrapped(terraform.Must(t, "plan", target)), evicts)
	refused("Job default/low fits on its own, but not at the same time as default/high", replace)
	refused("Terraform shows no warning about a job that is replaced by -replace or replace_triggered_by, so that the plan fails instead", replace)
	with(gangs{"low": {12, "triggers = { again = 1 }\n"}, "high": {8, urgent + agreed}})
	assert.Contains(t, acctest.Unwrapped(terraform.Must(t, "plan")), "Job default/low fits on its own, but not at the same time as default/high")
}

// A plan with -target gives a name to one resource which another still has in the state. The plan says so, and
// the other never takes the new job for its own.
func TestNamesChangedWithTarget(t *testing.T) {
	client := acctest.OnPlatform(t)
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	cli := acctest.NewCLI(t, provider)
	named := func(a, b string) string {
		one := func(address, name string, gpus int) string {
			return fmt.Sprintf(`
resource "gpuplan_training_job" %q {
  name       = %q
  framework  = "pytorch"
  image      = "train:1"
  wait_for   = "none"
  pools      = [gpuplan_node_pool.v100.capacity]
  roles      = { worker = { replicas = %d, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
`, address, name, gpus)
		}
		return setting{size: 2, more: one("a", a, 2) + one("b", b, 3)}.config()
	}
	cli.Write(t, named("one", "two"))
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })

	cli.Write(t, named("two", "one"))
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), "Job exists already")
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve", "-target="+address("a")))
	assert.Contains(t, said, "PyTorchJob default/two of this configuration exists, and this plan is about a part of the configuration (-target)")
	said, err = cli.Run("plan", "-refresh=false")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "Terraform's state has one object at two addresses, gpuplan_training_job default/two")
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "1 added, 0 changed, 0 destroyed")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")

	written, err := client.Get(t.Context(), job.PyTorch.GVK(), "default", "two")
	require.NoError(t, err)
	require.NoError(t, client.Delete(t.Context(), job.PyTorch.GVK(), "default", "two"))
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(written.Object, "metadata", field)
	}
	_, err = client.Apply(t.Context(), written)
	require.NoError(t, err)
	assert.Contains(t, cli.Must(t, "plan"), "No changes.", "the same job, written again")

	for _, both := range []string{"one", "two"} {
		cli.Write(t, named(both, both))
		said, err = cli.Run("plan")
		require.Error(t, err)
		assert.Contains(t, acctest.Unwrapped(said), "Two resources of this configuration are one object, gpuplan_training_job default/"+both)
	}
}
