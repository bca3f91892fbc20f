package nodepool_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// failDeletion deletes the only pool as the console does without force, which fails since it has nodes.
func failDeletion(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	service, id := client(t, cloud), record(t, cloud).Info.ID
	started, err := service.DeleteNodePool(t.Context(), acctest.ClusterID, id, false)
	require.NoError(t, err)
	_, err = service.WaitTask(t.Context(), started.TaskID, nil)
	require.Error(t, err)
	require.Equal(t, acs.PoolDeleteFailed, record(t, cloud).Status.State)
}

// A pool whose deletion has failed has its nodes, and jobs run there: it is replaced no sooner than any other.
func TestPoolWhoseDeletionFailedUnderRunningJobs(t *testing.T) {
	const (
		node   = "cn-hangzhou.10.0.1.1"
		jobs   = ", and there are running jobs that would lose their nodes: default/trainer (on " + node + "). "
		advice = "Wait until they have finished, delete them first, or delete the node pool at the cloud, with force."
		later  = "resource \"terraform_data\" \"x\" {\n  input = 1\n}\n"
	)
	start := func(t *testing.T, config string) (*acctest.Cloud, *acctest.CLI, *corev1.Pod) {
		t.Helper()
		cloud := acctest.StartCloud(t)
		cli := acctest.StartCLI(t)
		cli.Write(t, config)
		cli.Apply(t, 1, 0, 0)
		failDeletion(t, cloud)
		return cloud, cli, acctest.GangPod("trainer", "trainer-0", node, 0, 1)
	}
	refuses := func(t *testing.T, cloud *acctest.Cloud, cli *acctest.CLI, says string, args ...string) {
		t.Helper()
		said, err := cli.Run(args...)
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), says+jobs+advice)
		assert.Equal(t, []string{node}, cloud.NodeNames(t))
	}
	for name, config := range map[string]string{
		"as it was":      poolWith(""),
		"changed":        poolWith("labels = { team = \"a\" }"),
		"partly unknown": later + poolWith("size = terraform_data.x.output"),
	} {
		t.Run(name, func(t *testing.T) {
			cloud, cli, pod := start(t, poolWith(""))
			cli.Write(t, config)
			cli.Must(t, "plan", "-out=saved")
			cloud.Put(t, pod)
			refuses(t, cloud, cli, "The plan replaces node pool v100, whose deletion has failed", "plan")
			refuses(t, cloud, cli, "The plan deletes node pool v100", "apply", "saved")
			cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Pod"), "default", pod.Name)
			cli.Must(t, "apply", "-auto-approve")
			cli.Unchanged(t)
		})
	}
	t.Run("given up", func(t *testing.T) {
		cloud, cli, pod := start(t, poolWith(""))
		cli.Write(t, "# nothing left")
		cli.Must(t, "plan", "-out=saved")
		cloud.Put(t, pod)
		refuses(t, cloud, cli, "The plan deletes node pool v100", "plan")
		refuses(t, cloud, cli, "The plan deletes node pool v100", "apply", "saved")
	})
	t.Run("lost by the state", func(t *testing.T) {
		cloud, cli, pod := start(t, poolWith(""))
		cli.Must(t, "state", "rm", pool)
		assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan", "-out=saved")), "Its deletion has failed, so the apply replaces it with its nodes.")
		cloud.Put(t, pod)
		refuses(t, cloud, cli, "The plan replaces node pool v100, whose deletion has failed", "plan")
		refuses(t, cloud, cli, "The plan replaces node pool v100, whose deletion has failed", "apply", "saved")
	})
	t.Run("with consent", func(t *testing.T) {
		cloud, cli, pod := start(t, poolWith("allow_disruption = true"))
		cloud.Put(t, pod)
		assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "whose deletion has failed, which allow_disruption permits. Jobs run there")
		cli.Unchanged(t)
	})
}
