package integration

import (
	"cmp"
	"slices"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func sortSteps(steps []step) {
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
}

// fault draws one thing to break. Whom it hits is drawn too, and picked among those
// that are there when it happens. Errors of the API server are no concern of faults.
func (c *chaos) fault() func(*testing.T) {
	target := c.IntN(1 << 20)
	switch c.IntN(20) {
	case 0, 1, 2, 3, 4:
		return func(t *testing.T) { c.killScheduler(t, target, syscall.SIGKILL) }
	case 5, 6:
		return func(t *testing.T) { c.killScheduler(t, target, syscall.SIGTERM) }
	case 7:
		return func(t *testing.T) { c.restart(t, syscall.SIGKILL) }
	case 8, 9, 10:
		back := c.when() / 2
		return func(t *testing.T) { c.loseNode(t, target, back) }
	case 11, 12, 13, 14:
		return func(t *testing.T) { c.deletePod(t, target) }
	case 15, 16, 17:
		gpus := int64(2 + c.IntN(14))
		return func(t *testing.T) { c.editQuota(t, target, gpus) }
	default:
		return func(t *testing.T) { c.deletePodGroup(t, target) }
	}
}

// killScheduler ends a scheduler and starts another.
func (c *chaos) killScheduler(t *testing.T, target int, signal syscall.Signal) {
	i := target % len(c.schedulers)
	victim := c.schedulers[i]
	c.audit.did("scheduler %d ends (%s)", victim.Command.Process.Pid, signal)
	c.audit.killed()
	victim.End(signal)
	c.schedulers = slices.Delete(c.schedulers, i, i+1)
	c.start(t)
}

// loseNode deletes a node, which comes back after a while with the same name.
func (c *chaos) loseNode(t *testing.T, target int, back time.Duration) {
	node := c.nodes[target%len(c.nodes)].object
	c.audit.did("node %s goes", node.Name)
	c.audit.lost(node.Name)
	_ = api().CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}) // it may be away already
	select {
	case <-time.After(back):
	case <-t.Context().Done():
	}
	c.audit.did("node %s comes back", node.Name)
	_ = createNode(t.Context(), node)
}

func (c *chaos) deletePod(t *testing.T, target int) {
	pods, err := api().CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		return
	}
	pod, now := pods.Items[target%len(pods.Items)], int64(0)
	c.audit.did("pod %s is deleted", pod.Name)
	c.audit.lost(pod.Labels[contract.JobNameLabel])
	_ = api().CoreV1().Pods(c.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// editQuota sets the maximum of one node of the quota tree.
func (c *chaos) editQuota(t *testing.T, target int, to int64) {
	if len(c.limits) == 0 {
		return
	}
	limit := c.limits[target%len(c.limits)]
	c.audit.did("quota %s has max %d from now on, not %d", limit.name, to, limit.max)
	if to < limit.max {
		c.audit.lost(limit.name)
	}
	c.audit.mu.Lock()
	limit.old, limit.max, limit.edited = limit.max, to, time.Now()
	c.audit.mu.Unlock()
	for c.applyTree(t.Context()) != nil && t.Context().Err() == nil {
		time.Sleep(again)
	}
}

// deletePodGroup deletes the PodGroup of a gang; its operator recreates it.
func (c *chaos) deletePodGroup(t *testing.T, target int) {
	groups, err := cluster.client.Dynamic.Resource(podGroups).Namespace(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(groups.Items) == 0 {
		return
	}
	name := groups.Items[target%len(groups.Items)].GetName()
	c.audit.did("PodGroup %s is deleted", name)
	c.audit.lost(name)
	_ = cluster.client.Dynamic.Resource(podGroups).Namespace(c.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
}
