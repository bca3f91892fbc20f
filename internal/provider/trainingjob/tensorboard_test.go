package trainingjob_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const logs = `
  volumes = { logs = { claim = "logs", mount_path = "/logs" } }
`

func board(attributes string) string {
	return logs + "  placement_check = \"off\"\n  tensorboard = { log_dir = \"/logs/run\"" + attributes + " }\n"
}

// shown are the Deployment and the Service of the TensorBoard of job j, nil where there is none.
func shown(t *testing.T, cloud *acctest.Cloud) (deployment *appsv1.Deployment, service *corev1.Service) {
	t.Helper()
	deployments, err := cloud.Kube.Typed.AppsV1().Deployments("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	services, err := cloud.Kube.Typed.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, len(deployments.Items), len(services.Items))
	if len(deployments.Items) == 0 {
		return nil, nil
	}
	return &deployments.Items[0], &services.Items[0]
}

// A TensorBoard comes, changes and goes while its job runs, is made again where someone has deleted it, imported, and goes
// with its job.
func TestTensorBoardOfAJob(t *testing.T) {
	for _, framework := range []job.Framework{job.PyTorch, job.Batch} {
		t.Run(string(framework), func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			cli := acctest.StartCLI(t)
			write := func(body string) { cli.Write(t, oneJob(string(framework), body, "")) }
			write(board(""))
			cli.Apply(t, 2, 0, 0)
			made, err := cloud.Kube.Get(t.Context(), framework.GVK(), "default", "j")
			require.NoError(t, err)
			deployment, service := shown(t, cloud)
			for _, owners := range [][]metav1.OwnerReference{deployment.OwnerReferences, service.OwnerReferences} {
				require.Len(t, owners, 1)
				assert.Equal(t, made.GetUID(), owners[0].UID)
				assert.Equal(t, framework.GVK().Kind, owners[0].Kind)
			}
			assert.Equal(t, corev1.ServiceTypeNodePort, service.Spec.Type)
			cli.Unchanged(t)

			write(board(`, image = "tensorboard:2", service_type = "ClusterIP"`))
			cli.Apply(t, 0, 1, 0)
			deployment, service = shown(t, cloud)
			assert.Equal(t, "tensorboard:2", deployment.Spec.Template.Spec.Containers[0].Image)
			assert.Equal(t, corev1.ServiceTypeClusterIP, service.Spec.Type)
			cli.Unchanged(t)

			cloud.API.Remove(appsv1.SchemeGroupVersion.WithKind("Deployment"), "default", "j-tensorboard")
			cli.Apply(t, 0, 1, 0)
			deployment, _ = shown(t, cloud)
			assert.NotNil(t, deployment, "someone had deleted it")
			cli.Unchanged(t)

			cli.Must(t, "state", "rm", "gpuplan_training_job.j")
			cli.Must(t, "import", "gpuplan_training_job.j", "default/j")
			cli.Unchanged(t)

			write(logs + "  placement_check = \"off\"\n")
			cli.Apply(t, 0, 1, 0)
			deployment, _ = shown(t, cloud)
			assert.Nil(t, deployment)
			cli.Unchanged(t)

			write(board(""))
			cli.Apply(t, 0, 1, 0)
			now, err := cloud.Kube.Get(t.Context(), framework.GVK(), "default", "j")
			require.NoError(t, err)
			assert.Equal(t, made.GetUID(), now.GetUID(), "the job has run all the time")
			cli.Must(t, "destroy", "-auto-approve")
			deployment, _ = shown(t, cloud)
			assert.Nil(t, deployment)
		})
	}
}

// arena knows the TensorBoard of a job that it knows.
func TestTensorBoardIsKnownToArena(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	for _, arena := range []bool{false, true, false} {
		cli.Write(t, oneJob("pytorch", board("")+fmt.Sprintf("  arena_compatible = %t\n", arena), ""))
		cli.Must(t, "apply", "-auto-approve")
		_, service := shown(t, cloud)
		assert.Equal(t, "j", service.Labels["release"])
		assert.Equal(t, "tensorboard", service.Labels["role"])
		assert.Equal(t, arena, service.Labels["app"] == "pytorchjob")
		cli.Unchanged(t)
	}
}

// What is someone else's of that name stays, and the plan says so.
func TestTensorBoardThatIsTaken(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cloud.Put(t, &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "j-tensorboard", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "u"}},
	}})
	refused := acctest.SayingAt("tensorboard", "The TensorBoard of job default/j is a Service j-tensorboard, and there is one of that name that is not the job's but of the Deployment web")
	cli := acctest.StartCLI(t)
	config := func(body string) string { return oneJob("pytorch", body, "") }
	const body = logs + "  tensorboard = { log_dir = \"/logs/run\" }\n"
	cli.Refuses(t, config(body), refused)
	cli.Write(t, config(logs))
	cli.Must(t, "apply", "-auto-approve")
	cli.Refuses(t, config(body), refused)
	cli.Write(t, config(body+"  placement_check = \"off\"\n"))
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "Service default/j-tensorboard is not the job's but of the Deployment web, and stays as it is")
	service, err := cloud.Kube.Typed.CoreV1().Services("default").Get(t.Context(), "j-tensorboard", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, service.Spec.Ports)
}

// Where the job logs, and from where its code comes, may be known after the plan alone.
func TestTensorBoardAndCodeKnownAfterApply(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	cli.Write(t, oneJob("pytorch", logs+`
  tensorboard = { log_dir = terraform_data.late.output.log_dir }
  code_sync   = { source = "git", url = terraform_data.late.output.url }
`, `
resource "terraform_data" "late" { input = { log_dir = "/logs/run", url = "https://example.com/train.git" } }
`))
	cli.Apply(t, 3, 0, 0)
	cli.Unchanged(t)
	deployment, _ := shown(t, cloud)
	assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Command, "/logs/run")
}
