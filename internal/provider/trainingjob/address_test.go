package trainingjob_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job is not gone because something else answers at the API server's address.
func TestJobBehindAStaleAddress(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	cli.Write(t, `
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 1 } }
}
`)
	cli.Must(t, "apply", "-auto-approve")

	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "default backend - 404", http.StatusNotFound)
	}))
	t.Cleanup(backend.Close)
	acctest.WriteKubeconfig(t, cloud.Kubeconfig, backend.URL)
	for _, command := range [][]string{
		{"plan"}, {"apply", "-refresh-only", "-auto-approve"}, {"destroy", "-auto-approve"}, {"destroy", "-refresh=false", "-auto-approve"},
	} {
		said, err := cli.Run(command...)
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), backend.URL+`: something else answers there: 404, "default backend - 404"`)
	}

	acctest.WriteKubeconfig(t, cloud.Kubeconfig, cloud.API.Config().Host)
	cli.Unchanged(t)
	_, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
}
