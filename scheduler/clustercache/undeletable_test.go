package clustercache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Nobody is evicted whom the API server refuses to delete, until it answers otherwise or the pod changes, and whoever
// waits is told.
func TestUndeletable(t *testing.T) {
	c := newCache(t, "a")
	var news []clusterstate.Change
	c.Subscribe(func(change clusterstate.Change) { news = append(news, change) })
	pods := []*corev1.Pod{
		placed(t, "job-0", "job", contract.Allocation{Node: "a", GPUs: []int{0}}), placed(t, "job-1", "job", contract.Allocation{Node: "a", GPUs: []int{1}}),
	}
	for _, pod := range pods {
		c.SetPod(pod)
	}
	evictable := func() bool {
		_, ok := c.Evictable("ns/job")
		return ok
	}
	undeletable := func() bool {
		pod, ok := c.state.View.Pod("job-1")
		require.True(t, ok)
		return pod.Undeletable
	}
	require.True(t, evictable())
	for refusals := range 3 {
		assert.Equal(t, refusals+1, c.SetUndeletable("job-1"))
		assert.Equal(t, refusals+1, c.Undeletable("job-1"))
	}
	assert.False(t, evictable())
	assert.True(t, undeletable())
	assert.Equal(t, []clusterstate.Change{{RolledBack: true}}, news)

	news = nil
	c.SetDeletable("job-1")
	c.SetDeletable("job-1")
	assert.Equal(t, []clusterstate.Change{{Freed: true}}, news)
	assert.True(t, evictable())
	assert.False(t, undeletable())
	assert.Zero(t, c.Undeletable("job-1"))
	assert.Equal(t, 3, c.Refusals("job-1"), "that stays known")
	assert.Zero(t, c.Refusals("nobody"))

	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		stays  bool
	}{
		"status":     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, true},
		"label":      {func(p *corev1.Pod) { p.Labels["example.com/protected"] = "false" }, false},
		"annotation": {func(p *corev1.Pod) { p.Annotations["example.com/protected"] = "false" }, false},
		"deleted":    {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.RemovePod("job-1")
			c.SetPod(pods[1])
			require.Equal(t, 1, c.SetUndeletable("job-1"))
			changed := pods[1].DeepCopy()
			test.change(changed)
			change := c.SetPod(changed)
			assert.Equal(t, test.stays, undeletable())
			assert.Equal(t, !test.stays, change.Freed)
		})
	}
	c.RemovePod("job-1")
	assert.Zero(t, c.SetUndeletable("job-1"), "it has gone")
}
