package trainingjob_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// hold suspends a job, or lets it run, as another field manager.
func hold(t *testing.T, client *kube.Client, kind schema.GroupVersionKind, plural, manager string, held bool) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"runPolicy":{"suspend":%t}}}`, held)
	if kind.Version == contract.MPIAlphaVersion {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{%q:"%t"}}}`, contract.SuspendAnnotation, held)
	}
	_, err := client.Dynamic.Resource(kind.GroupVersion().WithResource(plural)).Namespace("default").
		Patch(t.Context(), "j", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	require.NoError(t, err)
}

// What the configuration says of suspend holds, whoever has suspended the job or let it run, and the plan
// says what it undoes. A queue that holds jobs is left alone.
func TestJobThatOthersSuspend(t *testing.T) {
	alpha := schema.GroupVersionKind{Group: contract.KubeflowGroup, Version: contract.MPIAlphaVersion, Kind: contract.MPIJobKind}
	for name, test := range map[string]struct {
		framework      job.Framework
		kind           schema.GroupVersionKind
		plural, before string
		steps          []bool // of the others
		after          string
		held           bool
	}{
		"suspended":                  {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, "", []bool{true}, "", false},
		"suspended, v1alpha1":        {job.MPI, alpha, contract.MPIJobResource, "", []bool{true}, "", false},
		"suspended, among others":    {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, "", []bool{true}, "backoff_limit = 2", false},
		"suspended, as it is to be":  {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, "", []bool{true}, "suspend = true", true},
		"and resumed, then not":      {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, "", []bool{true, false}, "suspend = true", true},
		"resumed":                    {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, "suspend = true", []bool{false}, "suspend = true", true},
		"resumed, v1alpha1":          {job.MPI, alpha, contract.MPIJobResource, "suspend = true", []bool{false}, "suspend = true", true},
		"by Kueue":                   {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, kueue, []bool{true}, kueue, true},
		"by Kueue, another change":   {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, kueue, []bool{true}, kueue + "\n  backoff_limit = 2", true},
		"by Kueue, v1alpha1":         {job.MPI, alpha, contract.MPIJobResource, kueue, []bool{true}, kueue + "\n  backoff_limit = 2", true},
		"resumed by Kueue, a change": {job.PyTorch, job.PyTorch.GVK(), contract.PyTorchJobResource, kueue, []bool{true, false}, kueue + "\n  backoff_limit = 2", false},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serve(cloud, test.framework, test.kind.Version)
			terraform := acctest.StartCLI(t)
			write := func(more string) {
				terraform.Write(t, fmt.Sprintf("resource \"gpuplan_training_job\" \"j\" {\n  name = \"j\"\n  framework = %q\n  image = \"train:1\"\n  command = [\"train\"]\n"+
					"  roles = { worker = { replicas = 1, gpus = 1 } }\n  placement_check = \"off\"\n  wait_for = \"none\"\n  %s\n}\n", test.framework, more))
			}
			write(test.before)
			terraform.Must(t, "apply", "-auto-approve")
			for _, held := range test.steps {
				hold(t, cloud.Kube, test.kind, test.plural, "other", held)
			}
			write(test.after)
			terraform.Must(t, "apply", "-auto-approve")
			obj, err := cloud.Kube.Get(t.Context(), test.kind, "default", "j")
			require.NoError(t, err)
			assert.Equal(t, test.held, job.Held(obj))
			terraform.Must(t, "plan", "-detailed-exitcode")
		})
	}
}

const kueue = `labels = { "kueue.x-k8s.io/queue-name" = "research" }`
