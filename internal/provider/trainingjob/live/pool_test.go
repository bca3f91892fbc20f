package live_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A pool goes in the same apply as a job on its nodes that nothing orders before it, also where Terraform deletes one after the
// other, the pool first: what waits for the job's end is deleted before the job, and is ready at once like the pool. Without the
// job it stays.
func TestPoolGoesWithAJobThatDoesNotNameIt(t *testing.T) {
	acctest.OnPlatform(t)
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	const unnamed, last = "# it names no pools", "resource \"terraform_data\" \"last\" { depends_on = [gpuplan_training_job.a] }\n"
	for _, parallelism := range []string{"-parallelism=1", "-parallelism=10"} {
		t.Run(parallelism, func(t *testing.T) {
			cli := acctest.NewCLI(t, provider)
			with := setting{size: 1, gangs: gangs{"a": {2, unnamed}}, more: last}.config()
			destroy := func() string { return acctest.Unwrapped(cli.Must(t, "destroy", "-auto-approve", parallelism)) }
			create := func() {
				cli.Write(t, setting{size: 1}.config())
				cli.Must(t, "apply", "-auto-approve")
				cli.Write(t, with)
				cli.Must(t, "apply", "-auto-approve")
			}
			create()
			t.Cleanup(func() { destroy() })
			said, err := cli.Run("destroy", "-auto-approve", parallelism, "-target=gpuplan_node_pool.v100")
			require.Error(t, err)
			said = acctest.Unwrapped(said)
			assert.Contains(t, said, "Of this configuration are default/a, which this apply has not deleted so far.")
			assert.Contains(t, said, "where it names the pool in pools or depends_on")
			assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "No changes.")

			assert.NotContains(t, destroy(), "would lose their nodes")
			create()
			cli.Write(t, with[strings.Index(with, "resource \"gpuplan_node_agent\""):strings.Index(with, "resource \"gpuplan_training_job\"")])
			assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve", parallelism)), "0 added, 0 changed, 3 destroyed.")
		})
	}
}

// Terraform shows no warning of a pool that it replaces on request, so the jobs on it are warned of.
func TestPoolReplacedUnderItsJobs(t *testing.T) {
	acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, setting{size: 1, gangs: gangs{"a": {2, ""}}}.config())
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })

	const warning = "Unless the plan replaces the job, too, the apply refuses to."
	said := acctest.Unwrapped(cli.Must(t, "plan", "-replace=gpuplan_node_pool.v100"))
	assert.Contains(t, said, "The plan replaces node pool v100, on which job default/a runs. "+warning)
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), warning)
	cli.Must(t, "apply", "-auto-approve", "-replace=gpuplan_node_pool.v100", "-replace=gpuplan_training_job.a")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}

// Jobs that are planned on the nodes of a pool's next instance type are not held against those that go.
func TestPoolReplacedByOneOfAnotherType(t *testing.T) {
	acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	eight := setting{size: 1, gangs: gangs{"a": {8, ""}}}.config()
	cli.Write(t, strings.Replace(setting{size: 1}.config(), "ecs.gn6v-c10g1.20xlarge", "ecs.gn8v.6xlarge", 1))
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })

	cli.Write(t, eight)
	cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}

// What a pool has left whose nodes go is known after the apply. Of the jobs that stay nothing changes.
func TestJobsOfAPoolThatShrinks(t *testing.T) {
	acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	config := func(size int, more gangs) string {
		all := gangs{"a": {5, ""}}
		maps.Copy(all, more)
		return strings.Replace(setting{size: size, gangs: all}.config(), "vswitch_ids   = [\"vsw-1\"]", "vswitch_ids   = [\"vsw-1\"]\n  allow_disruption = true", 1)
	}
	cli.Write(t, config(2, nil))
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })

	cli.Write(t, config(1, nil))
	said, err := cli.Run("plan", "-replace=gpuplan_training_job.a")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "Whether the job fits is not checked: pools is unknown until apply. Terraform shows no warning about a job that is replaced by -replace")
	said = acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, said, "Plan: 0 to add, 1 to change, 0 to destroy.")
	assert.Contains(t, said, "Jobs run there, of which those that stay may lose their nodes: default/a")
	cli.Write(t, config(1, gangs{"b": {2, "wait_for = \"none\""}}))
	said = acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, said, "Plan: 1 to add, 1 to change, 0 to destroy.")
	assert.Contains(t, said, "Whether the job fits is not checked: pools is unknown until apply.")
	assert.Contains(t, said, `+ pool_names = [ + "v100", ]`)
	cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}
