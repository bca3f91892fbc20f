package clustercache

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// Nobody waits for ever for a pod that does not go, and whoever waits is told. How long it is waited for
// does not depend on the API server's clock.
func TestPodsAreOverdue(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"clocks agree": 0, "the server's is behind": -2 * time.Hour, "the server's is ahead": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) { podsAreOverdue(t, ahead) })
	}
}

func podsAreOverdue(t *testing.T, ahead time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, "n1")
		var changes []clusterstate.Change
		var mu sync.Mutex // two timers may end at once
		c.Subscribe(func(change clusterstate.Change) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, change)
		})
		// news returns what has been reported since it was asked last.
		news := func() []clusterstate.Change {
			mu.Lock()
			defer mu.Unlock()
			defer func() { changes = nil }()
			return changes
		}
		f := &follower{cache: c}
		overdue := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			pod, ok := c.state.View.Pod("stuck")
			require.True(t, ok)
			return pod.Overdue
		}
		stands := podtest.New("stuck")
		stands.UID, stands.Spec.NodeName = "stuck", "n1"
		f.setPod(nil, stands)
		assert.False(t, overdue())

		leaves := stands.DeepCopy()
		grace := int64(30)
		leaves.DeletionTimestamp, leaves.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(ahead + 30*time.Second)}, &grace
		f.setPod(stands, leaves)
		news()
		time.Sleep(inventory.OverdueAfter(leaves) - time.Second)
		f.setPod(leaves, leaves.DeepCopy())
		synctest.Wait()
		assert.False(t, overdue(), "its volumes and finalizers have their time")
		assert.Empty(t, news())

		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.True(t, overdue())
		assert.Equal(t, []clusterstate.Change{{Freed: true}}, news(), "once")

		f.setPod(leaves, leaves.DeepCopy())
		assert.True(t, overdue(), "and stays it")
		once, _ := inventory.Pod(leaves)
		assert.Equal(t, ahead <= 0, once.Overdue, "for who looks once the timestamp tells")

		f.removePod(leaves)
		news()
		f.setPod(nil, leaves)
		f.removePod(leaves)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []clusterstate.Change{{Placed: true}, {Freed: true}}, news(), "what is gone is not looked at")
	})
}
