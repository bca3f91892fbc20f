package clustercache

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

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
