package trainingjob_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

// Only a reference makes Terraform visit a job first; what is not one is refused, in
// every plan.
func TestAfterTakesReferencesOnly(t *testing.T) {
	disconnected(t)
	terraform := acctest.StartCLI(t)
	cases := map[string]struct{ after, says string }{
		"a literal ID":    {`["default/first"]`, `after names a job by "default/first", which does not say where that job is placed`},
		"the ID":          {`[gpuplan_training_job.first.id]`, "Use .placed instead of .id, or of a name in quotes: after = [gpuplan_training_job.NAME.placed]"},
		"nothing":         {`[""]`, "An entry of after names no job"},
		"itself":          {`["default/second#unplanned"]`, "after of job default/second names the job itself: leave it out. Where a job of the same name in another cluster is meant: after orders the jobs of one cluster."},
		"a job elsewhere": {`["other/gone#0123abcd"]`, `after holds "other/gone#0123abcd", which is no job's placed in this plan of the cluster; after orders the jobs of one cluster`},
		"a stale place":   {`["${gpuplan_training_job.first.id}#0123abcd"]`, "which is no job's placed in this plan"},
		"one of for_each": {`[for other in ["default/first"] : other]`, "make two resources of them"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			terraform.Write(t, strings.Replace(twoJobs, "[gpuplan_training_job.first.placed]", c.after, 1))
			for range 3 {
				output, err := terraform.Run("plan", "-parallelism=1")
				require.Error(t, err)
				assert.Contains(t, acctest.Unwrapped(output), c.says)
			}
		})
	}
}

// Chains of references are planned the same way in every plan, each around those before it.
func TestAfterByReferenceIsStable(t *testing.T) {
	disconnected(t)
	terraform := acctest.StartCLI(t)
	var config strings.Builder
	config.WriteString(twoJobs[:strings.Index(twoJobs, `resource "gpuplan_training_job"`)])
	for i := range 4 {
		var refs []string
		for j := max(0, i-2); j < i; j++ {
			refs = append(refs, fmt.Sprintf("gpuplan_training_job.job%d.placed", j))
		}
		fmt.Fprintf(&config, `
resource "gpuplan_training_job" "job%[1]d" {
  name      = "job%[1]d"
  framework = "pytorch"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  after     = [%[2]s]
  roles     = { worker = { replicas = 4, gpus = 1 } }
}
`, i, strings.Join(refs, ", "))
	}
	terraform.Write(t, config.String())
	places := regexp.MustCompile(`"(v100\[\d\])" = "worker-0..3 GPU ([^:"]+)`)
	var first []string
	for range 6 {
		plan := terraform.Must(t, "plan")
		assert.NotContains(t, plan, "Two jobs are planned on the same GPUs")
		var all []string
		taken := map[string]bool{}
		for _, found := range places.FindAllStringSubmatch(plan, -1) {
			gpus, err := assignment.FromRanges(found[2])
			require.NoError(t, err)
			for _, gpu := range gpus {
				place := fmt.Sprint(found[1], gpu)
				assert.False(t, taken[place], "two members at %s", place)
				taken[place] = true
				all = append(all, place)
			}
		}
		require.Len(t, all, 16)
		if first == nil {
			first = all
		}
		assert.Equal(t, first, all)
	}
}

// What is applied is what was planned, also when the first of two jobs exists already.
func TestAfterAJobThatExists(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	terraform := acctest.StartCLI(t)
	one := twoJobs[:strings.Index(twoJobs, `resource "gpuplan_training_job" "second"`)]
	terraform.Write(t, one)
	terraform.Must(t, "apply", "-auto-approve")
	terraform.Write(t, twoJobs)
	output, err := terraform.Run("plan", "-refresh=false")
	require.Error(t, err, "nobody has looked what the first job holds")
	assert.Contains(t, acctest.Unwrapped(output), "Plan without -refresh=false.")
	terraform.Must(t, "plan", "-out=saved")
	terraform.Must(t, "apply", "saved")
	terraform.Must(t, "plan", "-detailed-exitcode")
	// Both are replaced in one plan: the token of the first changes on the way.
	terraform.Write(t, strings.ReplaceAll(twoJobs, "train:1", "train:2"))
	terraform.Must(t, "apply", "-auto-approve")
	terraform.Must(t, "plan", "-detailed-exitcode")
}
