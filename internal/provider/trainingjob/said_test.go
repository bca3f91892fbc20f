package trainingjob_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// warnings are the headlines of Terraform's output that are the provider's.
func warnings(output string) (all []string) {
	for _, found := range regexp.MustCompile(`Warning: (.*)`).FindAllStringSubmatch(output, -1) {
		if found[1] != "Provider development overrides are in effect" {
			all = append(all, found[1])
		}
	}
	return all
}

// An apply of a saved plan, in whatever order it visits the resources, repeats nothing of
// what the plan has said.
func TestWhatThePlanHasSaidIsNotSaidAgain(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	terraform := acctest.NewCLI(t, provider)
	terraform.Write(t, oneJob("pytorch", "", `
resource "gpuplan_training_job" "too_big" {
  name            = "too-big"
  framework       = "pytorch"
  image           = "train:1"
  wait_for        = "none"
  placement_check = "warn"
  roles           = { worker = { replicas = 9, gpus = 1 } }
  pools           = [gpuplan_node_pool.v100.capacity]
  after           = [gpuplan_training_job.j.placed]
}
`))
	terraform.Must(t, "apply", "-auto-approve", "-target=gpuplan_node_pool.v100")
	planned := warnings(terraform.Must(t, "plan", "-out=saved"))
	assert.Subset(t, planned, []string{"No scheduler runs that places the job", "Namespace does not exist", "Gang does not fit"})
	again := warnings(terraform.Must(t, "apply", "-parallelism=1", "saved"))
	assert.Empty(t, slices.DeleteFunc(again, func(w string) bool { return !slices.Contains(planned, w) }))
}
