package trainingjob_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job whose pools are another cluster's, as with the wrong alias of the provider, would be planned on nodes that its own does not
// have, though it may have nodes of the same names.
func TestPoolsOfAnotherCluster(t *testing.T) {
	other := acctest.StartCloud(t, func(o *acsfake.Options) { o.ClusterID = "c-other" })
	serveJobs(other)
	serveJobs(acctest.StartCloud(t))
	binary, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	cli := acctest.NewCLI(t, binary)
	pools := fmt.Sprintf(`
provider "gpuplan" {
  alias      = "other"
  cluster_id = "c-other"
  endpoint   = %q
  kubeconfig = %q
}
resource "gpuplan_node_pool" "p" {
  name          = "p"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`, other.Endpoint, other.Kubeconfig)
	job := func(provider string) string {
		return pools + fmt.Sprintf(`
resource "gpuplan_training_job" "j" {
  provider  = %s
  name      = "j"
  framework = "pytorch"
  image     = "train:1"
  roles     = { worker = { replicas = 1, gpus = 1 } }
  pools     = [gpuplan_node_pool.p.capacity]
}
`, provider)
	}
	cli.Write(t, pools)
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, job("gpuplan.other"))
	said, err := cli.Run("plan")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "Job default/j can use no nodes of pool p: the cluster of the job's provider configuration has none of them.")
	cli.Write(t, job("gpuplan"))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "1 to add")
}

const elsewhere = "it was in another cluster than the one that answers now (the UIDs of their namespaces kube-system are first and second)"

// become makes the cluster another one with the same objects.
func become(t *testing.T, cloud *acctest.Cloud, uid types.UID) {
	t.Helper()
	cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Namespace"), "", metav1.NamespaceSystem)
	cloud.Put(t, &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid},
	})
}

// A plan with the kubeconfig of another cluster says that a job counts as gone because of that, and a deletion does not forget it. A
// cluster that was made again is another one, and the next apply goes on there.
func TestJobOfAnotherCluster(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	be := func(uid types.UID) { become(t, cloud, uid) }
	be("first")
	cli := acctest.StartCLI(t)
	cli.Write(t, lone("pytorch", "{ replicas = 1, gpus = 1 }", ""))
	cli.Must(t, "apply", "-auto-approve")
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), "another cluster")

	be("second")
	said, err := cli.Run("destroy", "-auto-approve", "-refresh=false")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "Job default/a/pytorch is not looked for: "+elsewhere)
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "state", "list")), "gpuplan_training_job.a")
	cloud.API.Remove(job.PyTorch.GVK(), "default", "a")
	said = acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, said, "Job default/a/pytorch counts as gone: "+elsewhere)
	assert.Contains(t, said, "1 to add")

	cli.Must(t, "apply", "-auto-approve")
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), "another cluster", "it is in this one now")
	cli.Must(t, "destroy", "-auto-approve")
}

// In another cluster a job of the same name and owner need not be the one of this state: nothing takes it for that, and nothing
// deletes it, before a refresh has taken it over, as after a backup.
func TestSameJobInAnotherCluster(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	become(t, cloud, "first")
	cli := startProgram(t)
	config := lone("pytorch", "{ replicas = 1, gpus = 1 }", "")
	cli.Write(t, config)
	cli.Must(t, "apply", "-auto-approve")
	again, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "a")
	require.NoError(t, err)
	cloud.API.Remove(job.PyTorch.GVK(), "default", "a")
	again.SetUID("")
	cloud.Put(t, again)
	become(t, cloud, "second")

	const found = "Job default/a/pytorch need not be what has its name here: " + elsewhere
	for _, command := range [][]string{{"plan"}, {"apply", "-auto-approve"}, {"plan"}} {
		said := acctest.Unwrapped(cli.Must(t, command...))
		assert.Contains(t, said, "No changes.")
		assert.Contains(t, said, found, "%s: the state does not go over to it without a word", command)
	}
	for name, config := range map[string]string{"destroy": config, "apply": ""} {
		cli.Write(t, config)
		said, err := cli.Run(name, "-auto-approve")
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), "Job default/a/pytorch is not looked for: "+elsewhere)
		_, err = cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "a")
		require.NoError(t, err)
	}
	cli.Write(t, config)
	become(t, cloud, "first")
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), "another cluster", "the kubeconfig of its own")

	become(t, cloud, "second")
	said := acctest.Unwrapped(cli.Must(t, "apply", "-refresh-only", "-auto-approve"))
	assert.Contains(t, said, "Job default/a/pytorch counts as the one of this cluster from now on: "+elsewhere)
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), "another cluster")
	cli.Must(t, "destroy", "-auto-approve")
	_, err = cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "a")
	assert.True(t, kube.IsNotFound(err), "%v", err)
}
