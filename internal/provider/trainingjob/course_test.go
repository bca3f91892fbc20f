package trainingjob_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// seen is a job with all that can be seen of it.
const seen = `
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = %q
  image           = "train:1"
  command         = ["train"]
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 2, gpus = 1 } }
}
data "gpuplan_training_job" "j" {
  id         = gpuplan_training_job.j.id
  depends_on = [gpuplan_training_job.j]
}
data "gpuplan_job_logs" "j" {
  id         = gpuplan_training_job.j.id
  depends_on = [gpuplan_training_job.j]
}
output "status" { value = data.gpuplan_training_job.j.status }
output "placement" { value = jsonencode(data.gpuplan_training_job.j.placement) }
output "confirmed" { value = jsonencode(data.gpuplan_training_job.j.confirmed) }
output "logs" { value = jsonencode([for r in data.gpuplan_job_logs.j.replicas : "${r.replica} ${r.pod}"]) }
`

// seenBatch applies a Job that is seen, and returns the pods that Kubernetes would make of it.
func seenBatch(t *testing.T) (*acctest.Cloud, *acctest.CLI, []*corev1.Pod) {
	t.Helper()
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, fmt.Sprintf(seen, "batch"))
	cli.Must(t, "apply", "-auto-approve")
	obj, err := cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
	require.NoError(t, err)
	pods, err := job.Pods(obj)
	require.NoError(t, err)
	for _, pod := range pods {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	}
	return cloud, cli, pods
}

// A pod that failed and was made again is one replica, where the new one is. What others have made is seen as well.
func TestPodsThatWereMadeAgain(t *testing.T) {
	for name, label := range map[string]func(*corev1.Pod){
		"of a job of ours": func(*corev1.Pod) {},
		"of kubectl's job": func(pod *corev1.Pod) {
			pod.Labels = map[string]string{batchv1.JobNameLabel: "j", batchv1.JobCompletionIndexAnnotation: pod.Labels[batchv1.JobCompletionIndexAnnotation]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cloud, cli, pods := seenBatch(t)
			put := func(of int, suffix, node string, phase corev1.PodPhase) {
				pod := pods[of].DeepCopy()
				pod.Name += suffix
				pod.Spec.NodeName, pod.Status.Phase = node, phase
				label(pod)
				cloud.Put(t, pod)
			}
			put(0, "-aaaaa", "node-1", corev1.PodFailed)
			put(0, "-bbbbb", "node-2", corev1.PodRunning)
			put(1, "-ccccc", "node-1", corev1.PodFailed)
			put(1, "-ddddd", "", corev1.PodPending)
			cli.Must(t, "apply", "-refresh-only", "-auto-approve")
			assert.JSONEq(t, `"{\"node-2\":\"worker-0\"}"`, cli.Must(t, "output", "-json", "placement"))
			assert.JSONEq(t, `"[\"worker-0 j-0-bbbbb\",\"worker-1 j-1-ddddd\"]"`, cli.Must(t, "output", "-json", "logs"))
		})
	}
}

// A pod whose record nobody can read leaves its own place unknown, and stops no plan.
func TestRecordsThatCannotBeRead(t *testing.T) {
	for name, record := range map[string]string{"none": "oops", "of a newer scheduler": `{"version":2}`} {
		t.Run(name, func(t *testing.T) {
			cloud, cli, pods := seenBatch(t)
			for i, pod := range pods {
				pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodRunning
				if i == 1 {
					pod.Annotations = map[string]string{contract.AllocationAnnotation: record}
				}
				cloud.Put(t, pod)
			}
			said := acctest.Unwrapped(cli.Must(t, "apply", "-refresh-only", "-auto-approve"))
			assert.Contains(t, said, "What the scheduler has written on pod default/"+pods[1].Name+" of job default/j cannot be read")
			assert.JSONEq(t, `"{\"node-1\":\"worker-0\"}"`, cli.Must(t, "output", "-json", "placement"))
			cli.Unchanged(t)
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
}

// Where the agents of nodes say which GPUs containers were given, that is where the members run; until then the scheduler's record is.
func TestGPUsThatNodesConfirm(t *testing.T) {
	cloud, cli, pods := seenBatch(t)
	for i, pod := range pods {
		pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodRunning
		annotations, err := contract.Allocation{Node: "node-1", GPUs: []int{i}}.Annotations()
		require.NoError(t, err)
		pod.Annotations = annotations
		cloud.Put(t, pod)
	}
	says := func(placement, confirmed string) {
		t.Helper()
		cli.Must(t, "apply", "-refresh-only", "-auto-approve")
		assert.JSONEq(t, strconv.Quote(placement), cli.Must(t, "output", "-json", "placement"))
		assert.JSONEq(t, strconv.Quote(confirmed), cli.Must(t, "output", "-json", "confirmed"))
	}
	says(`{"node-1":"worker-0..1 GPU 0,1"}`, "null")
	give := func(of, index int) {
		t.Helper()
		confirmed, err := contract.Confirmation{Node: "node-1", Containers: map[string]contract.ConfirmedContainer{
			pods[of].Spec.Containers[0].Name: {Way: contract.WayNRI, GPUs: []string{"GPU-x"}, Indexes: []int{index}},
		}}.Annotation()
		require.NoError(t, err)
		pods[of].Annotations[contract.ConfirmedAnnotation] = confirmed
		cloud.Put(t, pods[of])
	}
	give(0, 0)
	says(`{"node-1":"worker-0..1 GPU 0,1"}`, "false")
	give(1, 1)
	says(`{"node-1":"worker-0..1 GPU 0,1"}`, "true")
	give(1, 5)
	says(`{"node-1":"worker-0..1 GPU 0,5"}`, "true")
	delete(pods[0].Annotations, contract.AllocationAnnotation)
	give(0, 7) // the node's device plugin chooses
	says(`{"node-1":"worker-0 GPU 7; worker-1 GPU 5"}`, "true")
}

// The data source finds a job in whichever version has it.
func TestCourseOfAJobOfArenasVersion(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serve(cloud, job.MPI, contract.MPIAlphaVersion)
	cli := acctest.StartCLI(t)
	cli.Write(t, fmt.Sprintf(seen, "mpi"))
	cli.Must(t, "apply", "-auto-approve")
	assert.JSONEq(t, `"Pending"`, cli.Must(t, "output", "-json", "status"))
}

// A destroy leaves the pods of another Job of the same name alone.
func TestPodsOfTheNextJobOfThatName(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, fmt.Sprintf(seen, "batch"))
	cli.Must(t, "apply", "-auto-approve")
	obj, err := cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
	require.NoError(t, err)
	for name, uid := range map[string]string{"ours": string(obj.GetUID()), "theirs": "another"} {
		cloud.Put(t, &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{batchv1.JobNameLabel: "j", batchv1.ControllerUidLabel: uid}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		})
	}
	cli.Must(t, "destroy", "-auto-approve")
	pods, err := cloud.Kube.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	assert.Equal(t, "theirs", pods.Items[0].Name)
}

// A destroy leaves another job of the same name alone, also when the API server does not answer at first.
func TestDestroyDoesNotTakeAnotherJobForOurs(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, fmt.Sprintf(seen, "batch"))
	cli.Must(t, "apply", "-auto-approve")
	obj, err := cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
	require.NoError(t, err)
	require.NoError(t, cloud.Kube.DeleteObject(t.Context(), obj))
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetManagedFields(nil)
	obj.SetLabels(map[string]string{contract.OwnerLabel: "b"})
	_, err = cloud.Kube.Create(t.Context(), obj)
	require.NoError(t, err)

	failed := false
	cloud.Intercept(t, func(w http.ResponseWriter, r *http.Request) bool {
		if failed || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/jobs/j") {
			return false
		}
		failed = true
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	output, err := cli.Run("destroy", "-auto-approve", "-refresh=false")
	assert.Error(t, err, output)
	assert.True(t, failed)
	cli.Must(t, "destroy", "-auto-approve", "-refresh=false")
	_, err = cloud.Kube.Get(t.Context(), job.Batch.GVK(), "default", "j")
	assert.NoError(t, err)
}

// Who may not look at jobs of another kind, which the cluster serves by now, sees theirs.
func TestCourseOfAJobWithoutRightsOnOtherKinds(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serve(cloud, job.JobSet, contract.JobSetVersion)
	kind := "/jobsets/"
	cloud.Intercept(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, kind) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "j", errors.New("no rights")).Status()
		refusal.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		assert.NoError(t, json.NewEncoder(w).Encode(refusal))
		return true
	})
	cli := acctest.StartCLI(t)
	cli.Write(t, fmt.Sprintf(seen, "batch"))
	cli.Must(t, "apply", "-auto-approve")
	assert.JSONEq(t, `"Pending"`, cli.Must(t, "output", "-json", "status"))
	cli.Must(t, "state", "rm", "gpuplan_training_job.j")
	cli.Must(t, "import", "gpuplan_training_job.j", "default/j")

	kind = "/jobs/"
	output, err := cli.Run("import", "gpuplan_training_job.j", "default/k")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(output), "forbidden")
}
