package integration

import (
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// allocation reads a pod's allocation record.
func (s *testCluster) allocation(pod corev1.Pod) contract.Allocation {
	s.t.Helper()
	record, ok, err := contract.AllocationFrom(pod.Annotations)
	require.NoError(s.t, err)
	require.True(s.t, ok, "pod %s has no allocation record", pod.Name)
	require.Equal(s.t, pod.Spec.NodeName, record.Node)
	return record
}

// requireNoSharedGPUs checks that no GPU of a node is in two records.
func (s *testCluster) requireNoSharedGPUs() {
	s.t.Helper()
	list, err := api().CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	owner := map[string]string{}
	for _, pod := range list.Items {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		record, _, err := contract.AllocationFrom(pod.Annotations)
		require.NoError(s.t, err)
		for _, gpu := range record.GPUs {
			key := fmt.Sprintf("%s/%d", pod.Spec.NodeName, gpu)
			require.Empty(s.t, owner[key], "GPU %s belongs to %s and %s", key, owner[key], pod.Name)
			owner[key] = pod.Name
		}
	}
}

// finish ends a job: its pods succeed.
func (s *testCluster) finish(name string) {
	s.t.Helper()
	s.awaitRunning(name)
	for _, pod := range s.list(s.t.Context(), name) {
		pod.Status.Phase = corev1.PodSucceeded
		_, err := api().CoreV1().Pods(s.namespace).UpdateStatus(s.t.Context(), &pod, metav1.UpdateOptions{})
		require.NoError(s.t, err)
	}
}
