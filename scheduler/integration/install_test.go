package integration

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// The scheduler works with the rights that its manifests give it, and with leader election.
func TestInstalled(t *testing.T) {
	s := newScene(t, machine{count: 1, mode: "topology"})
	objects, err := deploy.Objects(deploy.Options{Image: "test", LogLevel: 2})
	require.NoError(t, err)
	require.NoError(t, cluster.client.ApplyAll(t.Context(), objects, nil))
	t.Cleanup(func() {
		ours := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
		assert.NoError(t, cluster.client.DeleteAll(context.Background(), ours, nil))
	})
	s.setQuota(map[string]any{contract.ResourceTopologyCard: "8"})
	s.createPodGroup("job", 3)
	gang := job{name: "job", workers: 3, cards: 2, resource: contract.ResourceTopologyCard, labels: map[string]string{contract.PodGroupLabel: "job"}}
	s.submit(gang)
	s.awaitBound("job")
	s.submit(topologyGang("big", 2, 8))
	s.awaitReason("big", "of 2")

	// A new admission policy is in force a little later.
	refused := func(pod *corev1.Pod, why string) {
		require.Eventually(t, func() bool {
			_, err := api().CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), why)
		}, settled, 200*time.Millisecond, why)
	}
	for why, pod := range map[string]*corev1.Pod{
		"multiple of 5":            s.pods(sharedJob("odd", 1, 2, 7))[0],
		"needs aliyun.com/gpu-mem": s.pods(job{name: "bare", workers: 1, cards: 5, resource: contract.ResourceCorePercent})[0],
		"asks for several": s.pods(job{name: "many", workers: 1, labels: map[string]string{contract.ResourceCardCount: "2"},
			change: sharedJob("", 0, 4, 10).change})[0],
	} {
		refused(pod, why)
	}

	log, err := os.ReadFile(filepath.Join(localtest.Start(t).Dir, "log", contract.SchedulerName+".log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "Successfully bound pod to node")
	assert.NotContains(t, string(log), "orbidden")
}
