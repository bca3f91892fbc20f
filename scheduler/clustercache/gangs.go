package clustercache

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// PlanKey is [inventory.PlanKey]; ok is true for a managed pod, too ([Cache.Manage]).
func (c *Cache) PlanKey(p *corev1.Pod) (key string, ok bool) {
	if key, ok = inventory.PlanKey(p); ok {
		return key, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, known := c.state.Pod(p.UID)
	return key, known && pod.Managed()
}

// Planned reports whether the planner places a pod: whether it belongs to a gang, and
// is not late in it, or asks for GPUs, or is managed.
func (c *Cache) Planned(p *corev1.Pod) bool {
	key, planned := c.PlanKey(p)
	return planned && !c.GangStatus(key, p.UID).Late
}

// GangStatus looks at the gang of a pod.
func (c *Cache) GangStatus(key string, uid types.UID) inventory.GangStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.counts(key)
	return c.state.Within(key, uid, found.status, found.MemberCounts)
}

// Leaf returns the quota leaf of a pod, "" for none.
func (c *Cache) Leaf(p *corev1.Pod) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return inventory.LeafOf(p, c.state.Tree())
}

// OtherLeaf reports whether a pod belongs to another leaf of the quota tree than the
// given one; without a tree none does.
func (c *Cache) OtherLeaf(p *corev1.Pod, leaf string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Tree() != nil && inventory.LeafOf(p, c.state.Tree()) != leaf
}

// OverQuota says which limit of the quota tree a pod without GPUs would exceed, now or once those have
// their places for which they are held, that the tree lacks the leaf which it names, or what is wrong
// with the tree, "" when it may start.
func (c *Cache) OverQuota(p *corev1.Pod) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree, bar := c.state.Tree(), c.state.Bar()
	consumer := inventory.ConsumerOf(p, tree)
	switch {
	case bar.Holds(p.Namespace, consumer.Leaf):
		return bar.Why
	case tree == nil || consumer.Leaf == "":
		return ""
	}
	if why := tree.Missing(consumer.Leaf); why != "" {
		return why
	}
	var gang placement.Gang
	if len(c.held) > 0 {
		gang = c.asGang(p)
	}
	gang.Leaf, gang.Preemptible = consumer.Leaf, consumer.Preemptible
	return c.state.View.OverQuota(&gang, consumer.Charge, c.held)
}

// asGang is what a pod that is not planned is to reservations: a gang on its own, or what starts once its gang
// runs; mu must be held.
func (c *Cache) asGang(p *corev1.Pod) placement.Gang {
	if key, late := inventory.PlanKey(p); late {
		if state, ok := c.state.Gang(key); ok {
			return state.Gang.Late(state.Gang.Running)
		}
	}
	return placement.Gang{ID: inventory.GangID(p), Priority: corev1helpers.PodPriority(p)}
}

// counts counts a gang, once after each change; mu must be held. Of one without pods, which may never
// change again, nothing is kept.
func (c *Cache) counts(key string) counted {
	found, ok := c.counted[key]
	if !ok {
		found.status, found.MemberCounts = c.state.Status(key)
		if c.state.HasPods(key) {
			c.counted[key] = found
		}
	}
	return found
}

// Partial lists the gangs of which some, but not enough, members run, by key.
func (c *Cache) Partial() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for key := range c.state.Gangs() {
		if found := c.counts(key); found.Running > 0 && !found.Runs() {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// HasPods reports whether a gang, by its key, has pods.
func (c *Cache) HasPods(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.HasPods(key)
}

// Gang returns a gang by its key ([inventory.PlanKey]); ok is false when it has no pods.
func (c *Cache) Gang(key string) (state inventory.GangState, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Gang(key)
}

// InOrder brings gangs, by key, into the order of the queue. It looks at one after the other, since others wait for the lock.
func (c *Cache) InOrder(keys []string) []string {
	places := make([]clusterstate.QueuedGang, len(keys))
	for i, key := range keys {
		places[i] = c.place(key)
	}
	slices.SortFunc(places, clusterstate.QueuedGang.Compare)
	ordered := make([]string, len(places))
	for i, place := range places {
		ordered[i] = place.Key
	}
	return ordered
}

// place is that of a gang in the queue, found once after each change.
func (c *Cache) place(key string) clusterstate.QueuedGang {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, known := c.queued[key]
	if known {
		return place
	}
	state, ok := c.state.Gang(key)
	place = clusterstate.Queued(key, state)
	if ok {
		place.Partial = c.counts(key).status.Partial
		c.queued[key] = place
	}
	return place
}

// Pending lists the gangs that are complete and of which members are not bound, by key.
func (c *Cache) Pending() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for key := range c.state.Gangs() {
		if found := c.counts(key); found.Running < found.Present && found.status.MissingText == "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Names returns what users call gangs: "gang ns/name", "pod ns/name" for a pod on its own,
// and "2 members of gang ns/name" where the gang runs on without them.
func (c *Cache) Names(gangs []placement.Victim) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, g := range gangs {
		name := "gang " + g.Gang
		if pod, ok := c.state.Pod(types.UID(g.Gang)); ok {
			name = "pod " + pod.Now().Namespace + "/" + pod.Now().Name
		}
		if g.Surplus {
			name = inventory.Members(len(g.Pods)) + " of " + name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Nominated lists the gangs of which members that are not bound have a nominated node,
// by key: before a scheduler ended, it held their places.
func (c *Cache) Nominated() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for key := range c.state.Gangs() {
		for pod := range c.state.PodsOf(key) {
			p := pod.Now()
			if p.Spec.NodeName == "" && p.Status.NominatedNodeName != "" && !inventory.Gone(p) {
				keys = append(keys, key)
				break
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// Bound reports whether the API server shows a pod bound.
func (c *Cache) Bound(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.state.Pod(uid)
	return ok && pod.Bound()
}

// Unseen reports whether a pod that is charged to the quota tree is one that the cache has
// not seen yet, so that it cannot charge it.
func (c *Cache) Unseen(p *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Unseen(p)
}
