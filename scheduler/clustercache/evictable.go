package clustercache

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Evictable returns the pods of a gang, by its key, that hold resources and are not being
// deleted yet, in the order of their names. ok means that all of them may be evicted
// together, as far as the pods, their disruption budgets and what the API server has refused say.
func (c *Cache) Evictable(key string) (pods []*corev1.Pod, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	undeletable := false
	for pod := range c.state.PodsOf(key) {
		if p := pod.Now(); pod.Charged() && p.DeletionTimestamp == nil {
			pods = append(pods, p)
			undeletable = undeletable || pod.Undeletable() > 0
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if len(pods) == 0 {
		return nil, true
	}
	if undeletable || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !inventory.Preemptible(p) || inventory.Pinned(p) }) {
		return pods, false
	}
	for b := range c.state.Budgets(pods[0].Namespace) { // a gang is in one namespace
		covered := 0
		for _, p := range pods {
			if b.Selector.Matches(labels.Set(p.Labels)) {
				covered++
			}
		}
		if covered > max(b.Allowed, 0) {
			return pods, false
		}
	}
	return pods, true
}

// EvictedInPart returns what is left of a gang, by its key, that cannot run without those of its pods that were evicted, and
// the mark of an eviction on one of its pods, as mark finds it with when it was made; none when it runs without them, or none
// is left. Evicted are pods that have a mark and are being deleted. A mark on pods that stay says that others were, where
// members are missing that nobody has made again. Pods that were made after the first mark are none of those that are left:
// they are of the next run. Sure means that pods with a mark are being deleted: those that are missing may have gone for another
// reason, and be made again in a moment.
func (c *Cache) EvictedInPart(key string, mark func(*corev1.Pod) (why string, made time.Time)) (left []*corev1.Pod, found string, sure bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	leaving := map[types.UID]bool{}
	var first time.Time
	for pod := range c.state.PodsOf(key) {
		p := pod.Now()
		why, made := mark(p)
		if why == "" {
			continue
		}
		found = max(found, why)
		if first.IsZero() || made.Before(first) {
			first = made
		}
		if p.DeletionTimestamp != nil {
			leaving[p.UID] = true
		}
	}
	if found == "" || len(leaving) == 0 && !c.state.Incomplete(key) {
		return nil, "", false
	}
	for pod := range c.state.PodsOf(key) {
		if p := pod.Now(); pod.Bound() && pod.Charged() && p.DeletionTimestamp == nil && p.CreationTimestamp.Time.Before(first) {
			left = append(left, p)
		}
	}
	if len(left) == 0 || c.state.RunsWithout(key, leaving) {
		return nil, "", false
	}
	slices.SortFunc(left, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return left, found, len(leaving) > 0
}

// EvictedFor returns the gang for which another, by its key, is being evicted by a reservation, "" for none.
func (c *Cache) EvictedFor(key string) string {
	c.planning.Lock()
	defer c.planning.Unlock()
	state, ok := c.state.Gang(key)
	if !ok {
		return ""
	}
	return c.state.View.EvictedFor(state.Gang.ID)
}
