package acctest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// AssertPredicted compares the gang of the pods that the operator made of a job in the namespace default with that of
// the pods that the plan expected.
func AssertPredicted(t *testing.T, client *kube.Client, kind schema.GroupVersionKind, name string) {
	t.Helper()
	obj, err := client.Get(t.Context(), kind, "default", name)
	require.NoError(t, err)
	predicted, err := job.Pods(obj)
	require.NoError(t, err)
	list, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name})
	require.NoError(t, err)
	var made []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		pod.Spec.NodeName = ""     // not bound yet
		pod.Spec.Tolerations = nil // those for lost nodes are admission's
		pod.Status = corev1.PodStatus{}
		made = append(made, pod)
	}
	want, problems := inventory.Gang(predicted, nil, nil)
	assert.Empty(t, problems)
	got, problems := inventory.Gang(made, nil, nil)
	assert.Empty(t, problems)
	for _, gang := range []placement.Gang{want, got} {
		for i := range gang.Roles {
			if gang.Roles[i].Late {
				gang.Roles[i].Members = nil // the name of a launcher's pod may have a random end
			}
		}
	}
	assert.Equal(t, want, got)
}
