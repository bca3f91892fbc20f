package gang

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// newQueue makes a node that is full, and three gangs that wait for it. It returns the
// pod that fills the node.
func newQueue(t *testing.T) (b *bench, running *corev1.Pod, waiting []*corev1.Pod) {
	t.Helper()
	b = newBench(t, "a")
	running = b.runs("running", "a", 1, 8, 0)[0]
	for _, name := range []string{"first", "second", "third"} {
		pods := b.gangPods(name, 1, 8)
		b.submit(pods)
		_, status := b.cycle(pods[0])
		require.False(t, status.IsSuccess())
		waiting = append(waiting, pods[0])
	}
	b.handle.takeActivated()
	return b, running, waiting
}

func TestOneIsActivatedForOnePlace(t *testing.T) {
	b, running, waiting := newQueue(t)
	b.end(running)
	assert.Equal(t, []string{"first-0"}, b.handle.takeActivated())
	_, status := b.cycle(waiting[0])
	require.True(t, status.IsSuccess(), status.Message())
	assert.Empty(t, b.handle.takeActivated())
	b.end(waiting[0])
	assert.Equal(t, []string{"second-0"}, b.handle.takeActivated())
}

// The next one is activated when the one that was activated does not take the place.
func TestRoomThatIsNotTaken(t *testing.T) {
	b, running, waiting := newQueue(t)
	b.end(running)
	require.Equal(t, []string{"first-0"}, b.handle.takeActivated())
	b.plugin.PostFilter(t.Context(), framework.NewCycleState(), waiting[0], framework.NewDefaultNodeToStatus()) // a plugin before ours refuses it
	b.work()
	assert.Equal(t, []string{"second-0"}, b.handle.takeActivated())
	b.end(waiting[1])
	assert.Equal(t, []string{"third-0"}, b.handle.takeActivated())
	b.plugin.work.add(b.cache.RemovePod(waiting[0].UID))
	_, status := b.cycle(waiting[2])
	assert.True(t, status.IsSuccess(), status.Message())
}
