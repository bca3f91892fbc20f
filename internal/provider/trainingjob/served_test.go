package trainingjob_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job waits until its kind is served whose CRD the same apply has created, as long as its creation may take, and not
// for one of which there is no CRD.
func TestKindThatIsNotServedYet(t *testing.T) {
	cloud := acctest.StartCloud(t)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, oneJob("pytorch", "", ""))
	said, err := terraform.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "The cluster serves no PyTorchJob: install the Kubeflow training operator 1.9")

	serve(cloud, job.PyTorch, "v1")
	crds := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	defined, err := cloud.Kube.Get(t.Context(), crds, "", "pytorchjobs.kubeflow.org")
	require.NoError(t, err)
	cloud.API.Remove(crds, "", defined.GetName())
	early := defined.DeepCopy()
	unstructured.RemoveNestedField(early.Object, "spec", "versions")
	cloud.API.Put(early)
	terraform.Write(t, oneJob("pytorch", `timeouts = { create = "2s" }`, ""))
	said, err = terraform.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "The cluster has the CRD pytorchjobs.kubeflow.org, and does not serve what that defines")

	terraform.Write(t, oneJob("pytorch", "", ""))
	cmd := terraform.Command("apply", "-auto-approve")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	asked := cloud.API.Discoveries()
	require.Eventually(t, func() bool { return cloud.API.Discoveries() > asked+20 }, time.Minute, 10*time.Millisecond)
	cloud.API.Put(defined)
	assert.NoError(t, cmd.Wait(), output.String())
}
