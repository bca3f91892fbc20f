package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// message is what a pod says about its scheduling at the API server.
func (b *bench) message(pod *corev1.Pod) string {
	b.Helper()
	for _, c := range b.live(pod).Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// What waiting gangs are told follows the cluster, be it room that is taken or a node that
// goes, and be the gang without hope; and nothing is done while nothing changes.
func TestTextsFollowTheCluster(t *testing.T) {
	b := newBench(t, "a", "b")
	b.plugin.reserveAfter = -1
	hopeless, patient := b.gangPods("hopeless", 3, 8), b.gangPods("patient", 2, 8)
	b.submit(hopeless)
	_, status := b.cycle(hopeless[0])
	require.Contains(t, status.Message(), "2 of 3")
	b.runs("one", "a", 1, 4, 0)
	b.submit(patient)
	_, status = b.cycle(patient[0])
	require.Contains(t, status.Message(), "1 of 2")
	require.Empty(t, b.timers, "nothing has changed since")
	require.True(t, b.cache.Hopeless("ns/hopeless"))

	b.runs("two", "b", 1, 4, 0)
	b.plugin.work.observe(inventory.Change{Bound: "ns/one"})
	b.plugin.work.observe(inventory.Change{Bound: "ns/two"})
	b.work()
	assert.Equal(t, []time.Duration{refreshAfter}, b.elapse(), "once for all changes")
	for _, pod := range hopeless {
		assert.Contains(t, b.message(pod), "0 of 3")
	}
	for _, pod := range patient {
		assert.Contains(t, b.message(pod), "0 of 2")
	}
	assert.Empty(t, b.timers)

	b.plugin.work.observe(b.cache.RemoveNode("b"))
	b.work()
	b.elapse()
	assert.Contains(t, b.message(patient[0]), "1 node ", "not two any more")
	b.plugin.work.observe(inventory.Change{})
	b.work()
	assert.Empty(t, b.timers, "a change of nothing")
}
