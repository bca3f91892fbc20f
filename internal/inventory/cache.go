package inventory

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Cache follows a cluster and keeps the planner's view of it up to date, one object
// at a time. It also knows the pods of every gang, and the pods that the scheduler
// has placed but that the API server has not confirmed yet. It is safe for
// concurrent use.
//
// It has two locks, because a decision may take long and kube-scheduler asks for the
// status of gangs under its queue's lock. Whoever uses the view holds planning, for as long
// as that takes; mu is held for moments. What the cluster has is changed with both held
// ([Cache.lock]), so that it may be read with either. Planning comes before mu.
type Cache struct {
	planning sync.Mutex
	mu       sync.Mutex

	view *placement.View
	// trees are the quota trees by name; tree is the valid one that was in force last, and
	// bar is set while that in force is not valid.
	trees     map[string]*unstructured.Unstructured
	tree      *quota.Tree
	treeSpec  quota.Spec
	bar       *Bar
	tables    tables
	nodes     map[string]*nodeState
	pods      map[types.UID]*podState
	gangs     map[string]map[types.UID]*podState
	podGroups map[string]*unstructured.Unstructured
	// succeeded are the pods that have succeeded, by gang.
	succeeded map[string]map[types.UID]*metav1.PartialObjectMetadata
	// budgets are the disruption budgets by namespace and name.
	budgets map[string]map[string]budget
	// counted is the member counts of each gang since it last changed. It is used with mu held.
	counted map[string]memberCounts
	// restless are the gangs that have changed since the view was told what they need. They
	// are forgotten with planning held.
	restless map[string]bool
	// feasibility tell of gangs that did not fit whether they could on the empty cluster. It
	// is used with mu held.
	feasibility map[string]feasibility
	// volumes are what claims of pods are bound to, nil when nobody knows.
	volumes *volumes
	// changed are called after each change ([Cache.Subscribe]).
	changed []func(Change)
}

type nodeState struct {
	node     *corev1.Node
	hardware *contract.GPUNode
	// shown is what the view was told, nil while the Node object is unknown.
	shown *placement.Node
	pods  map[types.UID]*podState
}

// feasibility is whether there is any for a gang, as of a version of the view.
type feasibility struct {
	feasible bool
	version  uint64
}

type podState struct {
	// observed is the pod as the API server shows it.
	observed *corev1.Pod
	// assumed is the pod as it will be once it is bound, nil unless that is under way.
	assumed *corev1.Pod
	// decided is the assumed pod's allocation record, nil when only its annotations tell.
	decided *contract.Allocation
	// unverified means that the binding of the assumed pod failed, as far as is known.
	unverified bool
	// managed means that the planner places the pod, though it is in no gang and asks for
	// no GPUs ([Cache.Manage]). It ends when the pod is bound.
	managed bool
	// lost means that the pod is about to be failed ([Cache.Lose]).
	lost bool
	// altered says what someone has done to the record that the pod was bound with, which
	// counts all the same; "" while nobody has.
	altered string
	member  member
	key     string
}

// now returns the pod as planning must see it.
func (s *podState) now() *corev1.Pod {
	if s.assumed != nil {
		return s.assumed
	}
	return s.observed
}

// Change tells what an update may mean to gangs that wait.
type Change struct {
	// Gang is the key of the gang whose pods or PodGroup changed, "" for none.
	Gang string
	// Freed means that there may be room in the cluster, now or once pods that are being
	// deleted have gone, where there was none.
	Freed bool
	// Departed means that a pod that holds room has ended, or that someone deletes it, and not to
	// make room.
	Departed bool
	// Bound is the key of the gang of a pod that is bound now, as was expected, "" for none.
	Bound string
	// RolledBack means that a pod that was about to be bound is not ([Cache.Forget]), or
	// that a place is not held any more.
	RolledBack bool
	// Node is a node whose taints or hardware changed, that came or went, or that a pod
	// is bound to though it does not exist; "" for none.
	Node string
	// Rules means that another quota tree is in force, or that the one in force has become
	// valid or invalid.
	Rules bool
	// Altered is a bound pod of which someone has changed the allocation record, nil for none.
	Altered *corev1.Pod
}

// NewCache returns the cache of an empty cluster.
func NewCache() *Cache {
	return &Cache{
		view:        placement.NewView(),
		nodes:       map[string]*nodeState{},
		pods:        map[types.UID]*podState{},
		gangs:       map[string]map[types.UID]*podState{},
		podGroups:   map[string]*unstructured.Unstructured{},
		trees:       map[string]*unstructured.Unstructured{},
		succeeded:   map[string]map[types.UID]*metav1.PartialObjectMetadata{},
		budgets:     map[string]map[string]budget{},
		counted:     map[string]memberCounts{},
		restless:    map[string]bool{},
		feasibility: map[string]feasibility{},
	}
}

// lock waits for the right to change what the cluster has: for decisions, then for status.
func (c *Cache) lock() {
	c.planning.Lock()
	c.mu.Lock()
}

func (c *Cache) unlock() {
	c.mu.Unlock()
	c.planning.Unlock()
}

// SetNode takes in a node. The error says why its hardware cannot be used.
func (c *Cache) SetNode(n *corev1.Node) (Change, error) {
	c.lock()
	defer c.unlock()
	state := c.node(n.Name)
	before := state.node
	state.node = n
	change, err := c.show(state)
	if before == nil || !reflect.DeepEqual(before.Spec.Taints, n.Spec.Taints) {
		change.Node = n.Name
	}
	return change, err
}

// RemoveNode takes a node out.
func (c *Cache) RemoveNode(name string) Change {
	c.lock()
	defer c.unlock()
	state := c.node(name)
	state.node, state.shown = nil, nil
	c.view.RemoveNode(name)
	c.dropUnused(name)
	return Change{Node: name}
}

// SetGPUNode takes in the hardware of a node. The error says why it cannot be used.
func (c *Cache) SetGPUNode(hardware *contract.GPUNode) (Change, error) {
	c.lock()
	defer c.unlock()
	state := c.node(hardware.Name)
	state.hardware = hardware
	change, err := c.show(state)
	change.Node = hardware.Name
	return change, err
}

// HeartbeatDue looks again at a node whose agent should have been heard of by now: a node
// with a silent agent offers no GPUs.
func (c *Cache) HeartbeatDue(name string) (Change, error) {
	c.lock()
	defer c.unlock()
	state, ok := c.nodes[name]
	if !ok {
		return Change{}, nil
	}
	return c.show(state)
}

// RemoveGPUNode forgets the published hardware of a node.
func (c *Cache) RemoveGPUNode(name string) (Change, error) {
	c.lock()
	defer c.unlock()
	state := c.node(name)
	state.hardware = nil
	defer c.dropUnused(name)
	change, err := c.show(state)
	change.Node = name
	return change, err
}

func (c *Cache) node(name string) *nodeState {
	state, ok := c.nodes[name]
	if !ok {
		state = &nodeState{pods: map[types.UID]*podState{}}
		c.nodes[name] = state
	}
	return state
}

func (c *Cache) dropUnused(name string) {
	if state := c.nodes[name]; state.node == nil && state.hardware == nil && len(state.pods) == 0 {
		delete(c.nodes, name)
	}
}

// show tells the view about a node, unless nothing changed that it cares for.
func (c *Cache) show(state *nodeState) (Change, error) {
	if state.node == nil {
		return Change{}, nil
	}
	node, err := c.tables.node(state.node, state.hardware)
	if state.shown != nil && reflect.DeepEqual(*state.shown, node) {
		return Change{}, err
	}
	renumbered := state.shown == nil || state.shown.GPUs != node.GPUs
	state.shown = &node
	c.view.SetNode(node)
	if renumbered {
		for _, pod := range state.pods {
			c.charge(pod)
		}
	}
	return Change{Freed: true}, err
}

// SetPod takes in a pod as the API server shows it.
func (c *Cache) SetPod(p *corev1.Pod) Change {
	c.lock()
	defer c.unlock()
	state, known := c.pods[p.UID]
	if !known {
		state = &podState{}
		c.pods[p.UID] = state
	}
	before, held, was := state.observed, state.charged(), state.key
	p, altered := state.keepRecord(p)
	expected := !state.unverified && state.assumed != nil && state.assumed.Spec.NodeName == p.Spec.NodeName
	if p.Spec.NodeName != "" || Finished(p) {
		state.assumed, state.decided, state.unverified, state.managed = nil, nil, false, false
	}
	state.observed = p
	c.recognize(state)
	c.update(state)
	key := cmp.Or(state.key, was)
	leaves := p.DeletionTimestamp != nil && before != nil && before.DeletionTimestamp == nil
	change := Change{Freed: held && (!state.charged() || leaves), Departed: held && (leaves || !state.charged()) && !preempted(p)}
	if altered {
		change.Altered = p
	}
	moved := before != nil && before.Spec.NodeName != p.Spec.NodeName && !expected
	if before == nil || moved || gone(before) != gone(p) || !maps.Equal(before.Labels, p.Labels) {
		change.Gang = key
	} else if before.Spec.NodeName == "" && p.Spec.NodeName != "" {
		change.Bound = key
	}
	if node := state.now().Spec.NodeName; state.charged() && c.nodes[node].node == nil {
		change.Node = node
	}
	return change
}

// Overdue looks again at a pod that is being deleted and is still there: whoever waits for
// its end may find a place elsewhere.
func (c *Cache) Overdue(uid types.UID) Change {
	c.lock()
	defer c.unlock()
	state, ok := c.pods[uid]
	if !ok || !state.charged() {
		return Change{}
	}
	c.update(state)
	return Change{Freed: true}
}

// RemovePod takes out a pod that was deleted.
func (c *Cache) RemovePod(uid types.UID) Change {
	c.lock()
	defer c.unlock()
	state, ok := c.pods[uid]
	if !ok {
		return Change{}
	}
	held, before := state.charged(), state.observed
	lifted := c.remove(state)
	return Change{Gang: state.key, Freed: held, Departed: held && before.DeletionTimestamp == nil && !preempted(before), RolledBack: lifted}
}

// preempted reports whether a scheduler evicts a pod to make room for another.
func preempted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// Assume charges a pod that is about to be bound: p is the pod as it will be, with
// its node and its allocation record. It stays charged until the API server shows
// the pod bound, finished or deleted, or until [Cache.Forget].
func (c *Cache) Assume(p *corev1.Pod) {
	c.lock()
	defer c.unlock()
	c.assume(p, nil)
}

// assume is Assume with the record that the pod's annotations hold, nil to read them.
func (c *Cache) assume(p *corev1.Pod, decided *contract.Allocation) {
	state, ok := c.pods[p.UID]
	if !ok {
		return // deleted meanwhile
	}
	if state.observed.Spec.NodeName != "" || Finished(state.observed) {
		return // the API server was faster
	}
	state.assumed, state.decided = p, decided
	c.update(state)
}

// Unverified notes that the binding of an assumed pod has failed, as far as the caller
// knows: an answer may have been lost on its way. When the API server shows the pod
// bound all the same, that is a change of its gang.
func (c *Cache) Unverified(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state, ok := c.pods[uid]; ok && state.assumed != nil {
		state.unverified = true
	}
}

// Bound reports whether the API server shows a pod bound.
func (c *Cache) Bound(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.pods[uid]
	return ok && state.observed.Spec.NodeName != ""
}

// Forget takes back what Assume charged; it does nothing for a pod that is bound.
func (c *Cache) Forget(uid types.UID) {
	if c.forget(uid) {
		c.notify(Change{RolledBack: true})
	}
}

func (c *Cache) forget(uid types.UID) bool {
	c.lock()
	defer c.unlock()
	state, ok := c.pods[uid]
	if !ok || state.assumed == nil {
		return false
	}
	c.discharge(state)
	state.assumed, state.decided = nil, nil
	c.update(state)
	return true
}

// Subscribe has a function called after each change that [Cache.Follow] takes in and
// after each roll-back. It must be called before Follow; the function must not block.
func (c *Cache) Subscribe(changed func(Change)) { c.changed = append(c.changed, changed) }

func (c *Cache) notify(change Change) {
	for _, changed := range c.changed {
		changed(change)
	}
}

// charged reports whether the pod holds resources of a node.
func (s *podState) charged() bool {
	p := s.now()
	return p != nil && p.Spec.NodeName != "" && !Finished(p)
}

// update brings view and indexes in line with a pod.
func (c *Cache) update(state *podState) {
	p := state.now()
	key, planned := PlanKey(p)
	planned = planned || state.managed
	if state.key != "" && (!planned || key != state.key) {
		c.leave(state)
	}
	state.key = ""
	if planned {
		state.key = key
		c.recount(key)
		state.member = describe(p)
		state.member.lost = state.lost
		if c.gangs[key] == nil {
			c.gangs[key] = map[types.UID]*podState{}
		}
		c.gangs[key][p.UID] = state
	}
	if !state.charged() {
		c.discharge(state)
		return
	}
	c.node(p.Spec.NodeName).pods[p.UID] = state
	c.charge(state)
}

func (c *Cache) remove(state *podState) (lifted bool) {
	c.discharge(state)
	lifted = c.leave(state)
	delete(c.pods, state.now().UID)
	return lifted
}

// recount forgets what was found out about a gang that changes.
func (c *Cache) recount(key string) {
	delete(c.counted, key)
	delete(c.feasibility, key)
	if len(c.gangs[key]) > 0 {
		c.restless[key] = true
	}
}

// leave takes a pod out of its gang, and reports whether that lifted the gang's reservation.
func (c *Cache) leave(state *podState) (lifted bool) {
	c.recount(state.key)
	delete(c.gangs[state.key], state.now().UID)
	if len(c.gangs[state.key]) > 0 {
		return false
	}
	delete(c.gangs, state.key)
	delete(c.restless, state.key)
	c.view.SetMinimum(state.key, 0, nil)
	return c.view.Release(gangID(state.now()))
}

// charge tells the view about a pod that holds resources.
func (c *Cache) charge(state *podState) {
	p, request := state.now(), state.member.role.Request
	if state.key == "" {
		request, _ = requestOf(p) // it is not planned
	}
	decided := state.decided
	if decided == nil {
		record := recordOf(p)
		decided = &record
	}
	pod := podOn(p, request, *decided, c.gpusOf(p.Spec.NodeName), c.tree)
	pod.Budgets = c.budgetsOf(p)
	c.view.AddPod(pod)
}

func (c *Cache) discharge(state *podState) {
	p := state.now()
	c.view.RemovePod(podID(p))
	if node, ok := c.nodes[p.Spec.NodeName]; ok {
		delete(node.pods, p.UID)
		c.dropUnused(p.Spec.NodeName)
	}
}

func (c *Cache) gpusOf(node string) *gpu.Table {
	if state, ok := c.nodes[node]; ok && state.shown != nil {
		return state.shown.GPUs
	}
	return nil
}

// SetPodGroup takes in a PodGroup object.
func (c *Cache) SetPodGroup(object *unstructured.Unstructured) Change {
	c.lock()
	defer c.unlock()
	key := object.GetNamespace() + "/" + object.GetName()
	c.podGroups[key] = object
	c.recount(key)
	return Change{Gang: key}
}

// RemovePodGroup takes out a PodGroup object.
func (c *Cache) RemovePodGroup(namespace, name string) Change {
	c.lock()
	defer c.unlock()
	key := namespace + "/" + name
	delete(c.podGroups, key)
	c.recount(key)
	return Change{Gang: key}
}
