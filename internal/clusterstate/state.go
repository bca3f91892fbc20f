package clusterstate

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// State is what is known of a cluster: the planner's view, kept up to date one object at a
// time, and the pods of every gang, those included that a scheduler has placed but that the API
// server has not confirmed yet. Its methods that change nothing may be called at the same time,
// and no others.
type State struct {
	// View is the planner's view. Nodes, pods, budgets and minimums are put into it here.
	View *placement.View

	// trees are the quota trees by name; tree is the valid one that was in force last, and
	// bar is set while that in force is not valid.
	trees     map[string]*unstructured.Unstructured
	tree      *quota.Tree
	treeSpec  quota.Spec
	bar       *inventory.Bar
	tables    inventory.Tables
	nodes     map[string]*nodeState
	pods      map[types.UID]*Pod
	gangs     map[string]map[types.UID]*Pod
	podGroups map[string]*unstructured.Unstructured
	// succeeded are the pods that have succeeded, by gang.
	succeeded map[string]map[types.UID]*metav1.PartialObjectMetadata
	// budgets are the disruption budgets by namespace and name.
	budgets map[string]map[string]Budget
	// restless are the gangs that have changed since the view was told what they need.
	restless map[string]bool
	// gangChanged is told the key of each gang that changes, nil for nobody.
	gangChanged func(key string)
	// volumeOf finds what claims of pods are bound to, nil when nobody knows.
	volumeOf func(namespace, claim string) *corev1.PersistentVolume
}

type nodeState struct {
	node     *corev1.Node
	hardware *contract.GPUNode
	// shown is what the view was told, nil while the Node object is unknown.
	shown *placement.Node
	pods  map[types.UID]*Pod
}

// Pod is a pod of the cluster.
type Pod struct {
	// observed is the pod as the API server shows it.
	observed *corev1.Pod
	// assumed is the pod as it will be once it is bound, nil unless that is under way.
	assumed *corev1.Pod
	// decided is the assumed pod's allocation record, nil when only its annotations tell.
	decided *contract.Allocation
	// unverified means that the binding of the assumed pod failed, as far as is known.
	unverified bool
	// managed means that the planner places the pod, though it is in no gang and asks for
	// no GPUs ([State.Manage]). It ends when the pod is bound.
	managed bool
	// lost means that the pod is about to be failed ([State.Lose]).
	lost bool
	// altered says what someone has done to the record that the pod was bound with, which
	// counts all the same; "" while nobody has.
	altered string
	// key is that of the pod's gang, "" while the planner does not place it, and member
	// what the gang needs to know of it.
	key    string
	member inventory.Member
}

// Now returns the pod as planning must see it.
func (s *Pod) Now() *corev1.Pod {
	if s.assumed != nil {
		return s.assumed
	}
	return s.observed
}

// Bound reports whether the API server shows the pod bound.
func (s *Pod) Bound() bool { return s.observed.Spec.NodeName != "" }

// Managed reports whether the planner places the pod though it is in no gang and asks for no
// GPUs ([State.Manage]).
func (s *Pod) Managed() bool { return s.managed }

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
	// RolledBack means that a pod that was about to be bound is not ([State.Forget]), or
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

// New returns the state of an empty cluster. gangChanged is told the key of each gang that
// changes; nil tells nobody.
func New(gangChanged func(key string)) *State {
	return &State{
		View:        placement.NewView(),
		trees:       map[string]*unstructured.Unstructured{},
		nodes:       map[string]*nodeState{},
		pods:        map[types.UID]*Pod{},
		gangs:       map[string]map[types.UID]*Pod{},
		podGroups:   map[string]*unstructured.Unstructured{},
		succeeded:   map[string]map[types.UID]*metav1.PartialObjectMetadata{},
		budgets:     map[string]map[string]Budget{},
		restless:    map[string]bool{},
		gangChanged: gangChanged,
	}
}

// SetNode takes in a node. The error says why its hardware cannot be used.
func (s *State) SetNode(n *corev1.Node) (Change, error) {
	state := s.node(n.Name)
	before := state.node
	state.node = n
	change, err := s.show(state)
	if before == nil || !reflect.DeepEqual(before.Spec.Taints, n.Spec.Taints) {
		change.Node = n.Name
	}
	return change, err
}

// RemoveNode takes a node out.
func (s *State) RemoveNode(name string) Change {
	state := s.node(name)
	state.node, state.shown = nil, nil
	s.View.RemoveNode(name)
	s.dropUnused(name)
	return Change{Node: name}
}

// SetGPUNode takes in the hardware of a node. The error says why it cannot be used.
func (s *State) SetGPUNode(hardware *contract.GPUNode) (Change, error) {
	state := s.node(hardware.Name)
	state.hardware = hardware
	change, err := s.show(state)
	change.Node = hardware.Name
	return change, err
}

// HeartbeatDue looks again at a node whose agent should have been heard of by now: a node
// with a silent agent offers no GPUs.
func (s *State) HeartbeatDue(name string) (Change, error) {
	state, ok := s.nodes[name]
	if !ok {
		return Change{}, nil
	}
	return s.show(state)
}

// RemoveGPUNode forgets the published hardware of a node.
func (s *State) RemoveGPUNode(name string) (Change, error) {
	state := s.node(name)
	state.hardware = nil
	defer s.dropUnused(name)
	change, err := s.show(state)
	change.Node = name
	return change, err
}

func (s *State) node(name string) *nodeState {
	state, ok := s.nodes[name]
	if !ok {
		state = &nodeState{pods: map[types.UID]*Pod{}}
		s.nodes[name] = state
	}
	return state
}

func (s *State) dropUnused(name string) {
	if state := s.nodes[name]; state.node == nil && state.hardware == nil && len(state.pods) == 0 {
		delete(s.nodes, name)
	}
}

// show tells the view about a node, unless nothing changed that it cares for.
func (s *State) show(state *nodeState) (Change, error) {
	if state.node == nil {
		return Change{}, nil
	}
	node, err := s.tables.Node(state.node, state.hardware)
	if state.shown != nil && reflect.DeepEqual(*state.shown, node) {
		return Change{}, err
	}
	renumbered := state.shown == nil || state.shown.GPUs != node.GPUs
	state.shown = &node
	s.View.SetNode(node)
	if renumbered {
		for _, pod := range state.pods {
			s.charge(pod)
		}
	}
	return Change{Freed: true}, err
}

// SetPod takes in a pod as the API server shows it.
func (s *State) SetPod(p *corev1.Pod) Change {
	state, known := s.pods[p.UID]
	if !known {
		state = &Pod{}
		s.pods[p.UID] = state
	}
	before, held, was := state.observed, state.Charged(), state.key
	p, altered := state.keepRecord(p)
	expected := !state.unverified && state.assumed != nil && state.assumed.Spec.NodeName == p.Spec.NodeName
	if p.Spec.NodeName != "" || inventory.Finished(p) {
		state.assumed, state.decided, state.unverified, state.managed = nil, nil, false, false
	}
	state.observed = p
	s.recognize(state)
	s.update(state)
	key := cmp.Or(state.key, was)
	leaves := p.DeletionTimestamp != nil && before != nil && before.DeletionTimestamp == nil
	change := Change{Freed: held && (!state.Charged() || leaves), Departed: held && (leaves || !state.Charged()) && !preempted(p)}
	if altered {
		change.Altered = p
	}
	moved := before != nil && before.Spec.NodeName != p.Spec.NodeName && !expected
	if before == nil || moved || inventory.Gone(before) != inventory.Gone(p) || !maps.Equal(before.Labels, p.Labels) {
		change.Gang = key
	} else if before.Spec.NodeName == "" && p.Spec.NodeName != "" {
		change.Bound = key
	}
	if node := state.Now().Spec.NodeName; state.Charged() && s.nodes[node].node == nil {
		change.Node = node
	}
	return change
}

// Overdue looks again at a pod that is being deleted and is still there: whoever waits for
// its end may find a place elsewhere.
func (s *State) Overdue(uid types.UID) Change {
	state, ok := s.pods[uid]
	if !ok || !state.Charged() {
		return Change{}
	}
	s.update(state)
	return Change{Freed: true}
}

// RemovePod takes out a pod that was deleted.
func (s *State) RemovePod(uid types.UID) Change {
	state, ok := s.pods[uid]
	if !ok {
		return Change{}
	}
	held, before := state.Charged(), state.observed
	lifted := s.remove(state)
	return Change{Gang: state.key, Freed: held, Departed: held && before.DeletionTimestamp == nil && !preempted(before), RolledBack: lifted}
}

// preempted reports whether a scheduler evicts a pod to make room for another.
func preempted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// Assume charges a pod that is about to be bound: p is the pod as it will be, with
// its node and its allocation record, which its annotations hold; decided is that record, nil
// to read it from them. It stays charged until the API server shows the pod bound, finished or
// deleted, or until [State.Forget].
func (s *State) Assume(p *corev1.Pod, decided *contract.Allocation) {
	state, ok := s.pods[p.UID]
	if !ok {
		return // deleted meanwhile
	}
	if state.Bound() || inventory.Finished(state.observed) {
		return // the API server was faster
	}
	state.assumed, state.decided = p, decided
	s.update(state)
}

// Unverified notes that the binding of an assumed pod has failed, as far as the caller
// knows: an answer may have been lost on its way. When the API server shows the pod
// bound all the same, that is a change of its gang. Nothing but [State.SetPod] looks at it.
func (s *State) Unverified(uid types.UID) {
	if state, ok := s.pods[uid]; ok && state.assumed != nil {
		state.unverified = true
	}
}

// Forget takes back what Assume charged, and reports whether there was anything; a pod that is
// bound cannot be forgotten.
func (s *State) Forget(uid types.UID) bool {
	state, ok := s.pods[uid]
	if !ok || state.assumed == nil {
		return false
	}
	s.discharge(state)
	state.assumed, state.decided = nil, nil
	s.update(state)
	return true
}

// Lose notes that pods are about to be failed, because their node is lost: they are no
// members of their gangs any more, and nobody is planned beside them. They hold what they
// have until the API server shows them failed.
func (s *State) Lose(pods []*corev1.Pod) {
	for _, p := range pods {
		if state, ok := s.pods[p.UID]; ok {
			state.lost = true
			s.update(state)
		}
	}
}

// Charged reports whether the pod holds resources of a node.
func (s *Pod) Charged() bool {
	p := s.Now()
	return p != nil && p.Spec.NodeName != "" && !inventory.Finished(p)
}

// update brings view and indexes in line with a pod.
func (s *State) update(state *Pod) {
	p := state.Now()
	key, planned := inventory.PlanKey(p)
	planned = planned || state.managed
	if state.key != "" && (!planned || key != state.key) {
		s.leave(state)
	}
	state.key = ""
	if planned {
		state.key = key
		s.touch(key)
		state.member = inventory.Describe(p)
		state.member.Lost = state.lost
		if s.gangs[key] == nil {
			s.gangs[key] = map[types.UID]*Pod{}
		}
		s.gangs[key][p.UID] = state
	}
	if !state.Charged() {
		s.discharge(state)
		return
	}
	s.node(p.Spec.NodeName).pods[p.UID] = state
	s.charge(state)
}

func (s *State) remove(state *Pod) (lifted bool) {
	s.discharge(state)
	lifted = s.leave(state)
	delete(s.pods, state.Now().UID)
	return lifted
}

// touch notes that a gang changes.
func (s *State) touch(key string) {
	if s.gangChanged != nil {
		s.gangChanged(key)
	}
	if len(s.gangs[key]) > 0 {
		s.restless[key] = true
	}
}

// leave takes a pod out of its gang, and reports whether that lifted the gang's reservation.
func (s *State) leave(state *Pod) (lifted bool) {
	s.touch(state.key)
	delete(s.gangs[state.key], state.Now().UID)
	if len(s.gangs[state.key]) > 0 {
		return false
	}
	delete(s.gangs, state.key)
	delete(s.restless, state.key)
	s.View.SetMinimum(state.key, 0, nil)
	return s.View.Release(inventory.GangID(state.Now()))
}

// charge tells the view about a pod that holds resources.
func (s *State) charge(state *Pod) {
	p := state.Now()
	var request *placement.Request
	if state.key != "" { // it is planned
		request = &state.member.Role.Request
	}
	pod := inventory.PodOn(p, request, state.decided, s.gpusOf(p.Spec.NodeName), s.tree)
	pod.Budgets = s.budgetsOf(p)
	s.View.AddPod(pod)
}

func (s *State) discharge(state *Pod) {
	p := state.Now()
	s.View.RemovePod(inventory.PodID(p))
	if node, ok := s.nodes[p.Spec.NodeName]; ok {
		delete(node.pods, p.UID)
		s.dropUnused(p.Spec.NodeName)
	}
}

func (s *State) gpusOf(node string) *gpu.Table {
	if state, ok := s.nodes[node]; ok && state.shown != nil {
		return state.shown.GPUs
	}
	return nil
}

// SetPodGroup takes in a PodGroup object.
func (s *State) SetPodGroup(object *unstructured.Unstructured) Change {
	key := object.GetNamespace() + "/" + object.GetName()
	s.podGroups[key] = object
	s.touch(key)
	return Change{Gang: key}
}

// RemovePodGroup takes out a PodGroup object.
func (s *State) RemovePodGroup(namespace, name string) Change {
	key := namespace + "/" + name
	delete(s.podGroups, key)
	s.touch(key)
	return Change{Gang: key}
}
