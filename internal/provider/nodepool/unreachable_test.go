package nodepool_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A pool needs Kubernetes for nothing but a look at who runs on it, so that consent deletes it without, when that is gone.
func TestPoolIsDeletedWithoutKubernetes(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Apply(t, 1, 0, 0)
	acctest.WriteKubeconfig(t, cloud.Kubeconfig, "http://127.0.0.1:1")
	said, err := cli.Run("destroy", "-auto-approve", "-refresh=false")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "Whether jobs run on node pool v100 is not known, so it stays.")
	assert.Contains(t, acctest.Unwrapped(said), "Where the cluster is gone for good, set allow_disruption = true, `terraform apply -refresh=false`, and destroy then")
	cli.Write(t, poolWith("allow_disruption = true"))
	cli.Must(t, "apply", "-auto-approve", "-refresh=false")
	assert.Contains(t, cli.Must(t, "destroy", "-auto-approve", "-refresh=false"), "Resources: 1 destroyed.")
	assert.Empty(t, cloud.ACS.State().Pools)
}
