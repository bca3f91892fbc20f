package queue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Someone else's unit under the name of a job's own keeps the job from the queue. The job is told, and goes on
// once it is deleted.
func TestUnitOfSomeoneElse(t *testing.T) {
	s := newTestCluster(t)
	startController(t)
	s.tree(flatTree("kube-queue/max-jobs: 4"))
	s.awaitController()
	name := contract.QueueUnitName("Job", "a")
	units := s.client.Dynamic.Resource(unitGVR).Namespace(s.namespace)
	_, err := units.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": unitGVR.GroupVersion().String(), "kind": contract.QueueUnitKind,
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"consumerRef": map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": "other"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.submit(batch{name: "a"})
	s.await("the job to be told", func() (bool, string) {
		events, err := s.client.Typed.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=QueueUnitNameTaken"})
		require.NoError(t, err)
		return len(events.Items) == 1 && events.Items[0].InvolvedObject.Name == "a", fmt.Sprint(len(events.Items))
	})
	require.NoError(t, units.Delete(t.Context(), name, metav1.DeleteOptions{}))
	s.await("the job to be released", func() (bool, string) {
		job, err := s.client.Typed.BatchV1().Jobs(s.namespace).Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		return !*job.Spec.Suspend, "suspended"
	})
}
