package live_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// On a real control plane the plan names who has suspended the job.
func TestPlanSaysWhoSuspendedTheJob(t *testing.T) {
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	write := func(more string) {
		cli.Write(t, setting{size: 1, gangs: gangs{"j": {8, more}}}.config())
	}
	live := func() *unstructured.Unstructured {
		obj, err := client.Get(t.Context(), job.MPI.GVK(), "default", "j")
		require.NoError(t, err)
		return obj
	}
	hold := func(held bool) {
		jobs := client.Dynamic.Resource(job.MPI.GVK().GroupVersion().WithResource(contract.MPIJobResource)).Namespace("default")
		patch := fmt.Sprintf(`{"spec":{"runPolicy":{"suspend":%t}}}`, held)
		_, err := jobs.Patch(t.Context(), "j", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-patch"})
		require.NoError(t, err)
	}
	const suspended, resumed = "Job was suspended by someone else", "Job was resumed by someone else"
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })
	write("")
	cli.Must(t, "apply", "-auto-approve")

	hold(true)
	said := acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, said, suspended)
	assert.Contains(t, said, "Someone else has suspended job default/j (field manager kubectl-patch).")
	cli.Must(t, "apply", "-auto-approve")
	assert.False(t, job.Held(live()))
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")

	write("suspend = true")
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "someone else")
	hold(false)
	said = acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, resumed)
	assert.True(t, job.Held(live()))
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}
