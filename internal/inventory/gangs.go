package inventory

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// PlanKey returns the key of the gang that a pod is planned with: the gang's
// "namespace/name", or "pod/namespace/name" for a pod on its own that asks for
// GPUs. ok is false for pods that the planner does not place as a rule; those that it
// has adopted are told by [Cache.PlanKey].
func PlanKey(p *corev1.Pod) (key string, ok bool) {
	if key, ok := GangKey(p); ok {
		return key, true
	}
	return "pod/" + p.Namespace + "/" + p.Name, AsksForGPUs(p)
}

// PlanKey is the function of this name; ok is true for an adopted pod, too.
func (c *Cache) PlanKey(p *corev1.Pod) (key string, ok bool) {
	if key, ok = PlanKey(p); ok {
		return key, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	state, known := c.pods[p.UID]
	return key, known && state.managed
}

// Planned reports whether the planner places a pod: whether it belongs to a gang, and
// is not late in it, or asks for GPUs, or is adopted.
func (c *Cache) Planned(p *corev1.Pod) bool {
	key, planned := c.PlanKey(p)
	return planned && !c.GangStatus(key, p.UID).Late
}

// GangStatus says how far a gang is, from one pod's point of view.
type GangStatus struct {
	// Known means that the cache has seen the pod.
	Known bool
	// MissingText says what must still appear before the gang can start, or that the quota tree
	// must be valid, "" when nothing must.
	MissingText string
	// Present counts the members that are there. Expected is how many more the gang says it
	// has in all, beyond those that it needs, while none of them runs; 0 when it does not say.
	Present, Expected int
	// Runs means that as many members run, or are about to, as the gang needs.
	Runs bool
	// Partial means that some members run, but not as many as the gang needs.
	Partial bool
	// Late means that the pod is no member of its gang, and starts once that runs.
	Late bool
}

// GangStatus looks at the gang of a pod.
func (c *Cache) GangStatus(key string, uid types.UID) GangStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.counts(key)
	state, known := c.gangs[key][uid]
	status := found.status(key)
	status.MissingText = cmp.Or(heldBack(c.bar, current(c.members(key)), found, c.tree), status.MissingText)
	status.Known = known
	status.Late = known && found.isLate(&state.member)
	return status
}

// status is the part of the gang's Standing that is not about one pod.
func (c memberCounts) status(key string) GangStatus {
	return GangStatus{
		MissingText: c.missingText(key),
		Present:     c.present,
		Expected:    c.expected,
		Runs:        c.runs(),
		Partial:     c.running > 0 && !c.runs(),
	}
}

// Leaf returns the quota leaf of a pod, "" for none.
func (c *Cache) Leaf(p *corev1.Pod) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return leafOf(p, c.tree)
}

// OtherLeaf reports whether a pod belongs to another leaf of the quota tree than the
// given one; without a tree none does.
func (c *Cache) OtherLeaf(p *corev1.Pod, leaf string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tree != nil && leafOf(p, c.tree) != leaf
}

// OverQuota says which limit of the quota tree a pod without GPUs would exceed, that the
// tree lacks the leaf which it names, or what is wrong with the tree, "" when it may start.
func (c *Cache) OverQuota(p *corev1.Pod) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.barred(p); why != "" {
		return why
	}
	consumer := ConsumerOf(p, c.tree)
	if c.tree == nil || consumer.Leaf == "" {
		return ""
	}
	if why := c.tree.Missing(consumer.Leaf); why != "" {
		return why
	}
	return c.view.OverQuota(consumer.Leaf, consumer.Charge, consumer.Preemptible)
}

// countsWhilePlanning is counts for whoever holds planning only.
func (c *Cache) countsWhilePlanning(key string) memberCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts(key)
}

// counts counts a gang, once after each change; mu must be held.
func (c *Cache) counts(key string) memberCounts {
	found, ok := c.counted[key]
	if !ok {
		found, _ = count(c.members(key), c.podGroups[key])
		c.counted[key] = found
	}
	return found
}

// setMinimums tells the view how many of their members gangs need, where it may have
// changed; planning must be held.
func (c *Cache) setMinimums() {
	for key := range c.restless {
		minimum := 0
		var pods []string
		var parts []placement.Part
		if found := c.countsWhilePlanning(key); found.minimum > 0 && found.minimum < found.running {
			minimum = found.minimum
			state, _ := c.gang(key, c.countsWhilePlanning)
			pods, parts = state.memberIDs(nil), nil
			for _, s := range state.Gang.Subgroups {
				parts = append(parts, placement.Part{Minimum: s.Minimum, Pods: state.memberIDs(s.Roles)})
			}
		}
		c.view.SetMinimum(key, minimum, pods, parts...)
	}
	clear(c.restless)
}

// memberIDs returns the IDs of the gang's members in the view, in the gang's order: those of
// some roles, nil for all.
func (s *GangState) memberIDs(roles []string) []string {
	var pods []string
	for _, role := range s.Gang.Roles {
		if role.Late || roles != nil && !slices.Contains(roles, role.Name) {
			continue
		}
		for _, name := range role.Members {
			pods = append(pods, podID(s.Pods[name]))
		}
	}
	return pods
}

// Partial lists the gangs of which some, but not enough, members run, by key.
func (c *Cache) Partial() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for key := range c.gangs {
		if found := c.counts(key); found.running > 0 && !found.runs() {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// GangState is a gang as the cache knows it.
type GangState struct {
	Gang     placement.Gang
	Problems []Problem
	// Pods are the pods of the gang's members by member name.
	Pods map[string]*corev1.Pod
	// Missing is how many members must still appear, and Lacks says in words what must:
	// members, or their PodGroup, or a valid quota tree; "" when the gang can start.
	Missing     int
	MissingText string
	// Barred is the part of Lacks that is about the quota tree.
	Barred string
	// Running counts the members that run; those that start late are none.
	Running int
	// PodGroup is the gang's PodGroup object, nil when it has none.
	PodGroup *unstructured.Unstructured
}

// bar notes why the quota tree holds the gang back, "" when it does not.
func (s *GangState) bar(why string) {
	s.Barred, s.MissingText = why, cmp.Or(why, s.MissingText)
}

// Gang returns a gang by its key ([PlanKey]); ok is false when it has no pods.
func (c *Cache) Gang(key string) (state GangState, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gang(key, c.counts)
}

// gang is Gang with a lock held: counts is the function that goes with that lock.
func (c *Cache) gang(key string, counts func(string) memberCounts) (GangState, bool) {
	members := c.members(key)
	if len(members) == 0 {
		return GangState{}, false
	}
	c.volumes.restrict(members)
	state := stateOf(members, c.podGroups[key], c.tree, c.gpusOf)
	state.bar(heldBack(c.bar, current(members), counts(key), c.tree))
	return state, true
}

// members lists the pods of a gang, in no particular order; none when all have gone.
func (c *Cache) members(key string) []member {
	members := c.done(key)
	for _, state := range c.gangs[key] {
		members = append(members, state.member)
	}
	return members
}

// Plan plans the members of a gang that do not run yet, next to those that do, and
// without the excluded nodes. ok is false when the gang has no pods.
func (c *Cache) Plan(key string, exclude map[string]bool) (state GangState, result placement.Result, ok bool) {
	c.planning.Lock()
	defer c.planning.Unlock()
	state, ok = c.gang(key, c.countsWhilePlanning)
	if !ok {
		return GangState{}, placement.Result{}, false
	}
	state.Gang.ExcludeNodes = exclude
	return state, c.view.Plan(state.Gang), true
}

// record makes the allocation record of a planned member.
func (c *Cache) record(gangID string, a placement.Assignment) contract.Allocation {
	gpus := c.gpusOf(a.Node)
	record := contract.Allocation{
		Gang:        gangID,
		Node:        a.Node,
		GPUs:        Indexes(a.Own, gpus),
		Visible:     Indexes(a.Visible, gpus),
		RingGBps:    a.Ring.GBps,
		NVLinkRings: a.Ring.NVLinkRings,
	}
	for _, share := range a.Shares {
		record.Shares = append(record.Shares, contract.GPUShare{
			GPU:         Indexes(gpu.SetOf(share.GPU), gpus)[0],
			MemoryGiB:   share.MemoryGiB,
			CorePercent: share.CorePercent,
		})
	}
	return record
}
