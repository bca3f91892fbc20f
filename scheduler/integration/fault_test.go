package integration

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func sortSteps(steps []step) {
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
}

// fault draws one thing to break. Whom it hits is drawn too, and picked among those
// that are there when it happens. Errors of the API server are no concern of faults.
func (c *chaos) fault() func(*testing.T) {
	target, back := c.IntN(1<<20), c.when()/2
	if c.stale {
		back += 2 * staleAfter // times of creation have whole seconds
	}
	first := 0
	if c.records == altered {
		first = 7
	}
	switch first + c.IntN(22-first) {
	case 0, 1, 2, 3, 4:
		return func(t *testing.T) { c.killScheduler(t, target, syscall.SIGKILL) }
	case 5, 6:
		return func(t *testing.T) { c.killScheduler(t, target, syscall.SIGTERM) }
	case 7:
		return func(t *testing.T) { c.restart(t, syscall.SIGKILL) }
	case 8, 9, 10:
		return func(t *testing.T) { c.loseNode(t, target, back) }
	case 20, 21:
		return func(t *testing.T) { c.closeNode(t, target, back) }
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

// setClosed closes a node for new pods, or opens it again.
func (c *chaos) setClosed(t *testing.T, node string, closed bool) {
	if closed {
		c.audit.lost(node)
	}
	c.audit.did("node %s is closed: %t", node, closed)
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, closed)
	for t.Context().Err() == nil {
		if _, err := api().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil || apierrors.IsNotFound(err) {
			return
		}
		time.Sleep(again)
	}
}

// closeNode closes a node for a while, on which a pod is deleted meanwhile.
func (c *chaos) closeNode(t *testing.T, target int, back time.Duration) {
	node := c.nodes[target%len(c.nodes)].object.Name
	c.setClosed(t, node, true)
	c.deletePodOf(t, target, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	select {
	case <-time.After(back):
	case <-t.Context().Done():
	}
	c.setClosed(t, node, false)
}

// loseMember closes all nodes for a while, and takes a member from a gang that has as many as it needs: there is no place
// for its successor.
func (c *chaos) loseMember(t *testing.T, target int, back time.Duration) {
	var gangs []string
	for begin := time.Now(); len(gangs) == 0; gangs = c.audit.inNeed() {
		if time.Since(begin) > actsLate || t.Context().Err() != nil {
			return // there is none
		}
		time.Sleep(again)
	}
	for _, n := range c.nodes {
		c.setClosed(t, n.object.Name, true)
	}
	c.deletePodOf(t, 0, metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + gangs[target%len(gangs)]})
	select {
	case <-time.After(back):
	case <-t.Context().Done():
	}
	for _, n := range c.nodes {
		c.setClosed(t, n.object.Name, false)
	}
}

func (c *chaos) deletePod(t *testing.T, target int) {
	c.deletePodOf(t, target, metav1.ListOptions{})
}

// deletePodOf deletes one of the listed pods.
func (c *chaos) deletePodOf(t *testing.T, target int, list metav1.ListOptions) {
	pods, err := api().CoreV1().Pods(c.namespace).List(t.Context(), list)
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
	c.writeTree(t)
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
