package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// A gang that has lost a member is evicted when there has been no place for its successor
// for too long, if that is asked for, and not before; nor when it runs with what it needs.
func TestRetire(t *testing.T) {
	for name, test := range map[string]struct {
		after   time.Duration
		age     time.Duration
		arrange func(b *bench, pods []*corev1.Pod)
		evicted bool
		looks   bool
	}{
		"off":        {after: 0, age: time.Hour},
		"not yet":    {after: time.Hour, age: time.Minute, looks: true},
		"stale":      {after: time.Minute, age: time.Hour, evicted: true},
		"it fits":    {after: time.Minute, age: time.Hour, arrange: func(b *bench, _ []*corev1.Pod) { b.addNode("b") }},
		"not needed": {after: time.Minute, age: time.Hour, arrange: func(_ *bench, pods []*corev1.Pod) { elastic(pods, 2) }},
		"one beyond the minimum waits for longer": {after: time.Minute, age: time.Second, looks: true, arrange: func(b *bench, pods []*corev1.Pod) {
			elastic(pods, 0)
			for _, pod := range pods {
				pod.Labels[contract.LightGangMinLabel] = "2"
			}
			surplus := pods[1].DeepCopy()
			surplus.Name, surplus.UID, surplus.CreationTimestamp = "job-2", "job-2", pods[0].CreationTimestamp
			b.plugin.work.add(b.cache.SetPod(surplus))
		}},
		"no successor": {after: time.Minute, age: time.Hour, arrange: func(_ *bench, pods []*corev1.Pod) { pods[1].Status.Phase = corev1.PodFailed }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "a")
			b.plugin.staleAfter, b.plugin.reserveAfter = test.after, -1
			pods := b.gangPods("job", 2, 8)
			bound := metav1.NewTime(time.Now().Add(-2 * time.Hour).Truncate(time.Second))
			pods[0].Spec.NodeName, pods[0].CreationTimestamp = "a", bound
			pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: bound}}
			pods[1].CreationTimestamp = metav1.NewTime(time.Now().Add(-test.age).Truncate(time.Second))
			if test.arrange != nil {
				test.arrange(b, pods)
			}
			b.submit(pods)
			_, status := b.cycle(pods[1])
			b.failed(pods[1], status)
			_, err := b.handle.client.CoreV1().Pods("ns").Get(t.Context(), "job-0", metav1.GetOptions{})
			assert.Equal(t, test.evicted, apierrors.IsNotFound(err))
			assert.Equal(t, test.evicted, b.marked("job-0"), "the standard condition of pods that are evicted")
			if test.evicted {
				assert.EqualValues(t, 1, b.evicted(metrics.Stale))
				_, err := b.handle.client.CoreV1().Pods("ns").Get(t.Context(), "job-1", metav1.GetOptions{})
				require.NoError(t, err, "who waits goes on waiting")
			}
			assert.Equal(t, test.looks, len(b.timers) > 0)
			b.plugin.work.add(b.cache.RemoveNode("nowhere"))
			b.work()
			if test.looks {
				assert.Len(t, b.timers, 1, "one look is enough")
			}
		})
	}
}
