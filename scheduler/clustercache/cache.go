package clustercache

import (
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Cache follows a cluster and keeps the state of it up to date, one object at a time. It is
// safe for concurrent use.
//
// It has two locks, because a decision may take long and kube-scheduler asks for the
// status of gangs under its queue's lock. Whoever uses the view holds planning, for as long
// as that takes; mu is held for moments. What the cluster has is changed with both held
// ([Cache.lock]), so that it may be read with either. Planning comes before mu.
type Cache struct {
	planning sync.Mutex
	mu       sync.Mutex

	state *clusterstate.State
	// held are the view's reservations for who holds mu alone: those of the view change under planning.
	held []*snapshot.Reserved
	// counted is what was counted of each gang since it last changed. It is used with mu held.
	counted map[string]counted
	// queued are the places of gangs in the queue, since they last changed. It is used with mu held.
	queued map[string]clusterstate.QueuedGang
	// feasibility tell of gangs that did not fit whether they could on the empty cluster. It
	// is used with mu held.
	feasibility map[string]feasibility
	// changed are called after each change ([Cache.Subscribe]). It is used with mu held.
	changed []func(clusterstate.Change)
}

// feasibility is whether there is any for a gang, as of a version of the view.
type feasibility struct {
	feasible bool
	version  uint64
}

// counted is how many members a gang has, and how far it is.
type counted struct {
	inventory.MemberCounts
	status inventory.GangStatus
}

// New returns the cache of an empty cluster.
func New() *Cache {
	c := &Cache{counted: map[string]counted{}, queued: map[string]clusterstate.QueuedGang{}, feasibility: map[string]feasibility{}}
	c.state = clusterstate.New(c.recount)
	return c
}

// recount forgets what was found out about a gang that changes.
func (c *Cache) recount(key string) {
	delete(c.counted, key)
	delete(c.queued, key)
	delete(c.feasibility, key)
}

// lock waits for the right to change what the cluster has: for decisions, then for status.
func (c *Cache) lock() {
	c.planning.Lock()
	c.mu.Lock()
}

func (c *Cache) unlock() {
	c.held = c.state.View.Held()
	c.mu.Unlock()
	c.planning.Unlock()
}

// endPlanning ends what was done with planning held alone, and may have changed reservations.
func (c *Cache) endPlanning() {
	c.mu.Lock()
	c.unlock()
}

// Subscribe has a function called after each change that [Cache.Follow] takes in and
// after each roll-back, from now on. The function must not block. kube-scheduler makes plugins in the order of a map: one may
// subscribe when another has begun to follow.
func (c *Cache) Subscribe(changed func(clusterstate.Change)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = append(slices.Clip(c.changed), changed)
}

func (c *Cache) notify(change clusterstate.Change) {
	c.mu.Lock()
	subscribers := c.changed
	c.mu.Unlock()
	for _, changed := range subscribers {
		changed(change)
	}
}

// SetNode takes in a node. The error says why its hardware cannot be used.
func (c *Cache) SetNode(n *corev1.Node) (clusterstate.Change, error) {
	c.lock()
	defer c.unlock()
	return c.state.SetNode(n)
}

// RemoveNode takes a node out.
func (c *Cache) RemoveNode(name string) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.RemoveNode(name)
}

// SetGPUNode takes in the hardware of a node. The error says why it cannot be used.
func (c *Cache) SetGPUNode(hardware *contract.GPUNode) (clusterstate.Change, error) {
	c.lock()
	defer c.unlock()
	return c.state.SetGPUNode(hardware)
}

// HeartbeatDue looks again at a node whose agent should have been heard of by now.
func (c *Cache) HeartbeatDue(name string) (clusterstate.Change, error) {
	c.lock()
	defer c.unlock()
	return c.state.HeartbeatDue(name)
}

// RemoveGPUNode forgets the published hardware of a node.
func (c *Cache) RemoveGPUNode(name string) (clusterstate.Change, error) {
	c.lock()
	defer c.unlock()
	return c.state.RemoveGPUNode(name)
}

// SetPod takes in a pod as the API server shows it.
func (c *Cache) SetPod(p *corev1.Pod) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.SetPod(p)
}

// Overdue says that a pod that is being deleted should have gone long ago.
func (c *Cache) Overdue(uid types.UID) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.Overdue(uid)
}

// SetUndeletable notes that the API server refuses to delete a pod, as [clusterstate.State.SetUndeletable]
// does, and returns how often it has; 0 for a pod that is leaving or has gone.
func (c *Cache) SetUndeletable(uid types.UID) (refusals int) {
	refusals, fresh := c.setUndeletable(uid)
	if fresh {
		c.notify(clusterstate.Change{RolledBack: true}) // who counts on its end loses a place
	}
	return refusals
}

func (c *Cache) setUndeletable(uid types.UID) (refusals int, fresh bool) {
	c.lock()
	defer c.unlock()
	return c.state.SetUndeletable(uid)
}

// SetDeletable takes back what SetUndeletable noted.
func (c *Cache) SetDeletable(uid types.UID) {
	if c.setDeletable(uid) {
		c.notify(clusterstate.Change{Freed: true})
	}
}

func (c *Cache) setDeletable(uid types.UID) bool {
	c.lock()
	defer c.unlock()
	return c.state.SetDeletable(uid)
}

// Undeletable is how often the API server has refused to delete a pod that it is known to refuse now, else 0.
func (c *Cache) Undeletable(uid types.UID) (refusals int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pod, ok := c.state.Pod(uid); ok {
		return pod.Undeletable()
	}
	return 0
}

// Refusals is how often the API server has refused to delete a pod, also of one that it may delete by now.
func (c *Cache) Refusals(uid types.UID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pod, ok := c.state.Pod(uid); ok {
		return pod.Refusals()
	}
	return 0
}

// Refuse notes why a plugin refuses a pod whatever the node, as [clusterstate.State.Refuse] does.
func (c *Cache) Refuse(uid types.UID, why string) (fresh bool) {
	c.lock()
	defer c.unlock()
	return c.state.Refuse(uid, why)
}

// Allow takes back what Refuse noted.
func (c *Cache) Allow(uid types.UID) {
	c.lock()
	defer c.unlock()
	c.state.Allow(uid)
}

// RemovePod takes out a pod that was deleted.
func (c *Cache) RemovePod(uid types.UID) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.RemovePod(uid)
}

// SetSucceeded takes in a pod that has succeeded, by its metadata.
func (c *Cache) SetSucceeded(pod *metav1.PartialObjectMetadata) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.SetSucceeded(pod)
}

// RemoveSucceeded takes out a pod that had succeeded and was deleted.
func (c *Cache) RemoveSucceeded(uid types.UID) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.RemoveSucceeded(uid)
}

// SetJob takes in what a Job says of its pods that have ended for good.
func (c *Cache) SetJob(j *batchv1.Job) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.SetJob(j)
}

// RemoveJob takes out a Job that was deleted.
func (c *Cache) RemoveJob(uid types.UID) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.RemoveJob(uid)
}

// SetPodGroup takes in a PodGroup object.
func (c *Cache) SetPodGroup(object *unstructured.Unstructured) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.SetPodGroup(object)
}

// RemovePodGroup takes out a PodGroup object.
func (c *Cache) RemovePodGroup(namespace, name string) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.RemovePodGroup(namespace, name)
}

// SetQuotaTree takes in a quota tree; nil removes all. The error says why the tree in force
// cannot be used.
func (c *Cache) SetQuotaTree(object *unstructured.Unstructured) (clusterstate.Change, error) {
	c.lock()
	defer c.unlock()
	return c.state.SetQuotaTree(object)
}

// RemoveQuotaTree takes out a quota tree.
func (c *Cache) RemoveQuotaTree(name string) (clusterstate.Change, error) {
	c.lock()
	defer c.unlock()
	return c.state.RemoveQuotaTree(name)
}

// SetBudget takes in a disruption budget. The error says why its selector cannot be used.
func (c *Cache) SetBudget(pdb *policyv1.PodDisruptionBudget) (clusterstate.Change, error) {
	c.lock()
	defer c.unlock()
	return c.state.SetBudget(pdb)
}

// RemoveBudget takes out a disruption budget.
func (c *Cache) RemoveBudget(namespace, name string) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.RemoveBudget(namespace, name)
}

// SetDeviceClass takes in a class of devices.
func (c *Cache) SetDeviceClass(class *resourcev1.DeviceClass) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.SetDeviceClass(class)
}

// RemoveDeviceClass takes out a class of devices.
func (c *Cache) RemoveDeviceClass(name string) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.RemoveDeviceClass(name)
}

// SetWorkload makes the choice of nodes and GPUs follow the requests that arrive; nil makes
// it the tightest fit.
func (c *Cache) SetWorkload(w placement.Workload) {
	c.lock()
	defer c.unlock()
	c.state.SetWorkload(w)
}

// Assume charges a pod that is about to be bound, as [clusterstate.State.Assume] does.
func (c *Cache) Assume(p *corev1.Pod) {
	c.lock()
	defer c.unlock()
	c.state.Assume(p, nil)
}

// SetUnverified notes that the binding of an assumed pod has failed, as far as the caller
// knows: an answer may have been lost on its way. Planning does not look at it.
func (c *Cache) SetUnverified(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.SetUnverified(uid)
}

// Unverified reports whether the binding of an assumed pod has failed, as far as is known.
func (c *Cache) Unverified(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.state.Pod(uid)
	return ok && pod.Unverified()
}

// Relabelled reports whether an assumed pod belongs to another gang by now, or is charged otherwise, than when it
// was planned.
func (c *Cache) Relabelled(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.state.Pod(uid)
	return ok && pod.Relabelled()
}

// Assumed reports whether a pod is charged as one that is about to be bound.
func (c *Cache) Assumed(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, ok := c.state.Pod(uid)
	return ok && pod.Assumed()
}

// Forget takes back what Assume charged; it does nothing for a pod that is bound.
func (c *Cache) Forget(uid types.UID) {
	if change := c.forget(uid); change != (clusterstate.Change{}) {
		c.notify(change)
	}
}

func (c *Cache) forget(uid types.UID) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.Forget(uid)
}

// Lose notes that pods are about to be failed, because their node is lost.
func (c *Cache) Lose(pods []*corev1.Pod) {
	c.lock()
	defer c.unlock()
	c.state.Lose(pods)
}

// Regain takes back what Lose noted. Who waits for the gangs that have their members back is told.
func (c *Cache) Regain(pods []*corev1.Pod) {
	for _, gang := range c.regain(pods) {
		c.notify(clusterstate.Change{Gang: gang})
	}
}

func (c *Cache) regain(pods []*corev1.Pod) (gangs []string) {
	c.lock()
	defer c.unlock()
	return c.state.Regain(pods)
}

// Manage has the planner place a pod without GPUs until it is bound, as
// [clusterstate.State.Manage] does.
func (c *Cache) Manage(p *corev1.Pod) (key string, ok bool) {
	c.lock()
	defer c.unlock()
	return c.state.Manage(p)
}

// Snapshot returns the cluster as the cache knows it now. Decisions wait for the
// time of a copy; whatever is computed from the snapshot needs no lock.
func (c *Cache) Snapshot() *clusterstate.Snapshot {
	c.planning.Lock()
	defer c.planning.Unlock()
	return c.state.Snapshot()
}
