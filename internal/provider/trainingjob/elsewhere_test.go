package trainingjob_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A plan with the kubeconfig of another cluster says that a job counts as gone because of that, and a deletion does not forget it. A
// cluster that was made again is another one, and the next apply goes on there.
func TestJobOfAnotherCluster(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	be := func(uid types.UID) {
		cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Namespace"), "", metav1.NamespaceSystem)
		cloud.Put(t, &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid},
		})
	}
	be("first")
	cli := acctest.StartCLI(t)
	cli.Write(t, lone("pytorch", "{ replicas = 1, gpus = 1 }", ""))
	cli.Must(t, "apply", "-auto-approve")
	const elsewhere = "it was in another cluster than the one that answers now (the UIDs of their namespaces kube-system are first and second)"
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
