package trainingjob_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// lone is a pool and a job on it.
func lone(framework string, workers string, more string) string {
	return twoJobs[:strings.Index(twoJobs, `resource "gpuplan_training_job"`)] + `
resource "gpuplan_training_job" "a" {
  name      = "a"
  framework = "` + framework + `"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  roles     = { worker = ` + workers + ` }
  wait_for  = "none"
  ` + more + `
}
`
}

const ownHost = "host_ipc = false\nhost_network = false\nhost_pid = false"

func TestHostOfNewJobs(t *testing.T) {
	disconnected(t)
	const shares, warns = "+ host_ipc = true", "Warning: Members cannot use the NVLink between them"
	cases := map[string]struct {
		config        string
		shares, warns bool
	}{
		"MPI workers share it":                {lone("mpi", "{ replicas = 4, gpus = 1 }", ""), true, false},
		"unless they are not to":              {lone("mpi", "{ replicas = 4, gpus = 1 }", ownHost), false, true},
		"one part of it is not enough":        {lone("mpi", "{ replicas = 4, gpus = 1 }", "host_pid = false"), true, true},
		"a /dev/shm of each keeps them apart": {lone("mpi", "{ replicas = 4, gpus = 1 }", "shared_memory = \"1Gi\""), true, true},
		"nobody checks":                       {lone("mpi", "{ replicas = 4, gpus = 1 }", ownHost+"\nplacement_check = \"off\""), false, false},
		"one worker has nobody to talk to":    {lone("mpi", "{ gpus = 4 }", ""), false, false},
		"PyTorch workers cannot share a port": {lone("pytorch", "{ replicas = 4, gpus = 1 }", ""), false, true},
		"each has a node":                     {lone("pytorch", "{ replicas = 2, gpus = 8 }", ""), false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			terraform := acctest.StartCLI(t)
			terraform.Write(t, c.config)
			said := acctest.Unwrapped(terraform.Must(t, "plan"))
			assert.Equal(t, c.shares, strings.Contains(said, shares), said)
			assert.Equal(t, c.warns, strings.Contains(said, warns), said)
		})
	}
}

// What a new job has is no reason to replace one that was created when there was no such default.
func TestDefaultsOfAJobThatExists(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	terraform := acctest.StartCLI(t)
	const workers = "{ replicas = 4, gpus = 1, rdma = true }"
	withERDMA := func(config string) string {
		return strings.Replace(config, "ecs.gn6v-c10g1.20xlarge", "ecs.gn8v-8x.16xlarge", 1)
	}
	terraform.Write(t, withERDMA(lone("mpi", workers, ownHost+"\nrdma_defaults = false")))
	terraform.Must(t, "apply", "-auto-approve")
	file := filepath.Join(terraform.Dir, "terraform.tfstate")
	state, err := os.ReadFile(file)
	require.NoError(t, err)
	older := string(state)
	for _, attribute := range []string{"host_ipc", "host_network", "host_pid", "rdma_defaults"} {
		off := regexp.MustCompile(`"` + attribute + `": ?false`) // OpenTofu writes no space
		require.Regexp(t, off, older)
		older = off.ReplaceAllString(older, `"`+attribute+`": null`)
	}
	require.NoError(t, os.WriteFile(file, []byte(older), 0o600))

	config := withERDMA(lone("mpi", workers, ""))
	terraform.Write(t, config)
	assert.Contains(t, terraform.Must(t, "plan"), "No changes.")
	terraform.Write(t, strings.Replace(config, "wait_for  = \"none\"", "wait_for = \"none\"\nlabels = { team = \"a\" }", 1))
	assert.Contains(t, acctest.Unwrapped(terraform.Must(t, "apply", "-auto-approve")), "0 added, 1 changed, 0 destroyed")
	client, err := kube.New(cloud.API.Config())
	require.NoError(t, err)
	live, err := client.Get(t.Context(), job.MPI.GVK(), "default", "a")
	require.NoError(t, err)
	spec, err := job.Parse(live)
	require.NoError(t, err)
	assert.False(t, spec.HostIPC || spec.HostNetwork || spec.HostPID || spec.RDMADefaults)

	// Another job is a new one.
	terraform.Write(t, strings.Replace(config, "train:1", "train:2", 1))
	said := acctest.Unwrapped(terraform.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "+ host_ipc = true")
	assert.Contains(t, said, "+ host_network = true")
	assert.Contains(t, said, "+ rdma_defaults = true")
	assert.Contains(t, terraform.Must(t, "plan"), "No changes.")
}
