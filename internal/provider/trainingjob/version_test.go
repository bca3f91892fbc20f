package trainingjob_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// spaces are what Terraform wraps words with.
var spaces = regexp.MustCompile(`[\s│╷╵]+`)

// Which version of MPIJob is written depends on what the cluster serves and on whether arena
// is to know the job; what is written is read back without a difference, and deleted.
func TestVersionOfMPIJobs(t *testing.T) {
	const v1, alpha, operator = contract.KubeflowVersion, contract.MPIAlphaVersion, contract.MPIOperatorVersion
	const silent = `roles = { worker = { replicas = 4, gpus = 1, command = ["sshd"] } }`
	const plain = `roles = { worker = { replicas = 4, gpus = 1 } }`
	for name, test := range map[string]struct {
		served []string
		body   string
		// version is what is written, "" for nothing; says is what the plan says.
		version, says string
	}{
		"v1 alone":                      {[]string{v1}, plain, v1, ""},
		"v1 alone, arena":               {[]string{v1}, plain + "\narena_compatible = true", v1, ""},
		"v1alpha1 alone":                {[]string{alpha}, plain, alpha, ""},
		"v1alpha1 alone, arena":         {[]string{alpha}, plain + "\narena_compatible = true", alpha, ""},
		"v1alpha1 alone, suspended":     {[]string{alpha}, plain + "\nsuspend = true", alpha, ""},
		"both":                          {[]string{v1, alpha}, plain, v1, ""},
		"both, arena":                   {[]string{v1, alpha}, plain + "\narena_compatible = true", alpha, ""},
		"v1alpha1 cannot say it":        {[]string{alpha}, silent, "", "An MPIJob v1alpha1 cannot say all of job default/j: the workers wait for the launcher, and run nothing else. The cluster serves that version, and none that goes before it: change the job, or use a cluster with the Kubeflow training operator 1.9."},
		"only v2beta1 can say it":       {[]string{alpha}, plain + "\nhost_network = false\nmpi_implementation = \"Intel\"", "", "and none that goes before it: change the job, or use a cluster with the MPI operator."},
		"no version can say it":         {[]string{v1}, plain + "\nhost_network = false\nmpi_implementation = \"Intel\"\nttl_seconds_after_finished = 60", "", "which goes before others: change the job."},
		"v1alpha1 cannot say it, arena": {[]string{v1, alpha}, silent + "\narena_compatible = true", v1, "arena will list the job as PENDING"},
		"v2beta1 alone":                 {[]string{operator}, plain + "\nhost_network = false", operator, ""},
		"v2beta1 alone, arena":          {[]string{operator}, plain + "\nhost_network = false\narena_compatible = true", operator, ""},
		"v2beta1 alone, suspended":      {[]string{operator}, plain + "\nhost_network = false\nsuspend = true", operator, ""},
		"v2beta1 alone, its settings":   {[]string{operator}, plain + "\nhost_network = false\nmpi_implementation = \"Intel\"\nssh_auth_mount_path = \"/home/mpi/.ssh\"", operator, ""},
		"v2beta1 and v1":                {[]string{operator, v1}, plain, v1, ""},
		"v2beta1 and v1alpha1":          {[]string{alpha, operator}, plain + "\nhost_network = false", operator, ""},
		"v2beta1 and v1alpha1, arena":   {[]string{operator, alpha}, plain + "\narena_compatible = true", alpha, ""},
		"v2beta1 cannot say it":         {[]string{operator}, plain, "", "An MPIJob v2beta1 cannot say all of job default/j: its workers run sshd on port 22, which is the node's own on the host's network: set host_network = false"},
		"v2beta1 and v1alpha1, host":    {[]string{operator, alpha}, plain, "", "The cluster serves that version, and none that goes before it: change the job, or use a cluster with the Kubeflow training operator 1.9."},
		"v1 cannot say it":              {[]string{v1}, plain + "\nmpi_implementation = \"Intel\"", "", "An MPIJob v1 cannot say all of job default/j: its operator knows OpenMPI alone. The cluster serves that version, which goes before others"},
		"none":                          {nil, plain, "", "The cluster serves no MPIJob now."},
		"none, only v2beta1 can say it": {nil, plain + "\nhost_network = false\nmpi_implementation = \"Intel\"", "", "The cluster serves no MPIJob now."},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serve(cloud, job.MPI, test.served...)
			terraform := acctest.StartCLI(t)
			terraform.Write(t, fmt.Sprintf("resource \"gpuplan_training_job\" \"j\" {\n  name = \"j\"\n  framework = \"mpi\"\n  image = \"train:1\"\n"+
				"  command = [\"train\"]\n  placement_check = \"warn\"\n  wait_for = \"none\"\n  %s\n}\n", test.body))
			planned, err := terraform.Run("plan")
			assert.Contains(t, spaces.ReplaceAllString(planned, " "), test.says)
			if strings.Contains(test.says, "PENDING") || test.says == "" {
				require.NoError(t, err, planned)
			}
			if test.version == "" {
				out, err := terraform.Run("apply", "-auto-approve")
				require.Error(t, err, out)
				return
			}
			terraform.Must(t, "apply", "-auto-approve")
			kind := schema.GroupVersionKind{Group: contract.KubeflowGroup, Version: test.served[0], Kind: contract.MPIJobKind}
			obj, err := cloud.Kube.Get(t.Context(), kind, "default", "j")
			require.NoError(t, err)
			assert.Equal(t, test.version == alpha, job.Alpha(obj))
			assert.Equal(t, test.version, obj.GroupVersionKind().Version, "as it was written")
			assert.Equal(t, strings.Contains(test.body, "suspend"), job.Held(obj))
			terraform.Must(t, "plan", "-detailed-exitcode")
			terraform.Must(t, "state", "rm", "gpuplan_training_job.j")
			terraform.Must(t, "import", "gpuplan_training_job.j", "default/j")
			terraform.Must(t, "destroy", "-auto-approve")
			_, err = cloud.Kube.Get(t.Context(), kind, "default", "j")
			require.Error(t, err)
		})
	}
}

// A change in place that the version of a job cannot say is refused at plan, not half-way.
func TestChangeThatTheVersionCannotSay(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serve(cloud, job.MPI, contract.MPIAlphaVersion)
	terraform := acctest.StartCLI(t)
	write := func(more string) {
		terraform.Write(t, "resource \"gpuplan_training_job\" \"j\" {\n  name = \"j\"\n  framework = \"mpi\"\n  image = \"train:1\"\n  command = [\"train\"]\n"+
			"  roles = { worker = { replicas = 4, gpus = 1 } }\n  wait_for = \"none\"\n  suspend = true\n  "+more+"\n}\n")
	}
	write("")
	terraform.Must(t, "apply", "-auto-approve")
	write("backoff_limit = 2")
	terraform.Must(t, "apply", "-auto-approve")
	write("backoff_limit = 2\n  ttl_seconds_after_finished = 60")
	planned, err := terraform.Run("plan")
	require.Error(t, err, planned)
	assert.Contains(t, spaces.ReplaceAllString(planned, " "), "An MPIJob v1alpha1 cannot say all of job default/j: nothing cleans up after it. The job exists in that version")
}
