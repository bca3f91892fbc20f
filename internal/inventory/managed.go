package inventory

import corev1 "k8s.io/api/core/v1"

// Manage has the planner place a pod without GPUs until it is bound, because
// kube-scheduler's own way has found no place for it: by the rules of the quota tree it
// may take one from others. ok is false for a pod that is not charged to a leaf of the
// tree, or that belongs to its node; key is "" when the cache has not seen the pod yet
// ([Cache.Unseen]).
func (c *Cache) Manage(p *corev1.Pod) (key string, ok bool) {
	c.lock()
	defer c.unlock()
	if !c.adoptable(p) {
		return "", false
	}
	state, known := c.pods[p.UID]
	if !known {
		return "", true
	}
	if state.charged() {
		return "", false
	}
	state.managed = true
	c.update(state)
	return state.key, true
}

// recognize adopts a pod that a scheduler before this one had adopted and nominated for
// the place that it took from others, and reports whether it is one.
func (c *Cache) recognize(state *podState) bool {
	p := state.now()
	if state.managed || p.Spec.NodeName != "" || p.Status.NominatedNodeName == "" || gone(p) || !c.adoptable(p) {
		return false
	}
	state.managed = true
	return true
}

func (c *Cache) adoptable(p *corev1.Pod) bool {
	_, planned := PlanKey(p)
	return !planned && !pinned(p) && c.governed(p)
}

// governed reports whether a pod is charged to a leaf of the quota tree.
func (c *Cache) governed(p *corev1.Pod) bool {
	return c.tree != nil && c.tree.HasLeaf(leafOf(p, c.tree))
}

// Unseen reports whether a pod that is charged to the quota tree is one that the cache has
// not seen yet, so that it cannot charge it.
func (c *Cache) Unseen(p *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.pods[p.UID]
	return !known && c.governed(p)
}
