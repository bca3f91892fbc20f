package trainingjob_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Jobs with names of their own may lead to one object all the same: one of them would wait for ever.
func TestJobsThatNeedOneObject(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	queued := false
	jobs := func(all ...[3]string) (config string) {
		for i, j := range all {
			config += fmt.Sprintf(`resource "gpuplan_training_job" "j%d" {
  framework       = "%s"
  name            = "%s"
  image           = "train:1"
  placement_check = "off"
  queue           = %t
  roles           = { %s }
}
`, i, j[0], j[1], queued, j[2])
		}
		return config
	}
	const worker = "worker = { replicas = 2, gpus = 1 }"
	for name, test := range map[string]struct{ config, says string }{
		"roles of two JobSets":         {jobs([3]string{"jobset", "a", "b-c = { gpus = 1 }"}, [3]string{"jobset", "a-b", "c = { gpus = 1 }"}), "Jobs default/a and default/a-b each need a Job default/a-b-c-0"},
		"a role and a Job":             {jobs([3]string{"jobset", "a", worker}, [3]string{"batch", "a-worker-0", worker}), "Jobs default/a and default/a-worker-0 each need a Job default/a-worker-0"},
		"a replica and a JobSet's own": {jobs([3]string{"pytorch", "a", worker}, [3]string{"jobset", "a-worker-1", worker}), "Jobs default/a and default/a-worker-1 each need a Service default/a-worker-1"},
	} {
		t.Run(name, func(t *testing.T) { cli.Refuses(t, test.config, acctest.Saying(test.says)) })
	}
	cli.Write(t, jobs([3]string{"jobset", "a", "b-c = { gpus = 1 }"}, [3]string{"jobset", "a-b", "d = { gpus = 1 }"}, [3]string{"batch", "a-worker-0", worker}, [3]string{"mpi", "a-worker", "launcher = {}, " + worker}))
	_, err := cli.Run("plan")
	require.NoError(t, err)
	units := [][3]string{{"pytorch", "a", worker}, {"batch", "a-py-qu", worker}}
	cli.Write(t, jobs(units...))
	_, err = cli.Run("plan")
	require.NoError(t, err)
	queued = true
	cli.Refuses(t, jobs(units...), acctest.Saying("Jobs default/a and default/a-py-qu each need a QueueUnit default/a-py-qu"))
}
