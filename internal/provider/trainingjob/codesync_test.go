package trainingjob_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job that fetches its code is imported with it, and replaced for other code. What is secret stays in its Secret.
func TestCodeOfAJob(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	write := func(revision string) {
		cli.Write(t, oneJob("pytorch", `code_sync = { source = "git", url = "https://github.com/kubeflow/arena.git", branch = "main", revision = "`+revision+`", secret = "git" }
  working_dir = "/root"
  placement_check = "off"`, ""))
	}
	write("v1")
	cli.Apply(t, 2, 0, 0)
	cli.Unchanged(t)
	obj, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	pods, err := job.Pods(obj)
	require.NoError(t, err)
	fetch, program := pods[0].Spec.InitContainers[0], pods[0].Spec.Containers[0]
	assert.Equal(t, "git", fetch.EnvFrom[0].SecretRef.Name)
	assert.Empty(t, program.EnvFrom, "the program is told no secret")
	assert.Equal(t, "/root/code", program.VolumeMounts[0].MountPath)

	cli.Must(t, "state", "rm", "gpuplan_training_job.j")
	cli.Must(t, "import", "gpuplan_training_job.j", "default/j")
	cli.Unchanged(t)
	write("v2")
	cli.Apply(t, 1, 0, 1)
	cli.Unchanged(t)
}

// Code that cannot be fetched is refused in a plan, at its attribute.
func TestCodeThatIsRefused(t *testing.T) {
	for sync, says := range map[string]string{
		`source = "hdfs", url = "x"`:                                  `source is "hdfs": it is "git" or "rsync"`,
		`source = "git", url = "https://me:secret@example.com/a"`:     "the URL has a password, which everyone could read who may read the job",
		`source = "rsync", url = "a::b", branch = "main"`:             "rsync knows neither branches nor revisions",
		`source = "git", url = "https://example.com/a", secret = "-"`: `"-" cannot be a secret`,
	} {
		acctest.StartCloud(t)
		acctest.StartCLI(t).Refuses(t, oneJob("batch", "code_sync = { "+sync+" }", ""), acctest.SayingAt("code_sync", says))
	}
}
