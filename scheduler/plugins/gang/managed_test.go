package gang

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// A pod without GPUs for which kube-scheduler's plugins find no place is planned from then
// on, once the view has seen it.
func TestPodIsManaged(t *testing.T) {
	b := newBench(t, "a")
	b.setLeaves(map[string]any{"name": "team", "namespaces": []any{"ns"}, "max": map[string]any{"cpu": "2"}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "plain", UID: "plain"}}
	refuse := func() string {
		_, status := b.plugin.PostFilter(t.Context(), framework.NewCycleState(), pod, framework.NewDefaultNodeToStatus())
		b.work()
		return status.Message()
	}
	assert.Contains(t, refuse(), "the scheduler has not taken the pod into its view yet")
	b.plugin.work.add(b.cache.SetPod(pod))
	assert.Contains(t, refuse(), "rules of the quota tree")
	assert.Equal(t, []string{"plain"}, b.handle.takeActivated())
	node, status := b.cycle(pod)
	require.True(t, status.IsSuccess(), status.Message())
	assert.Equal(t, "a", node)
}
