package clusterstate

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

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

// Charged reports whether the pod holds resources of a node.
func (s *Pod) Charged() bool {
	p := s.Now()
	return p != nil && p.Spec.NodeName != "" && !inventory.Finished(p)
}

// Managed reports whether the planner places the pod though it is in no gang and asks for no
// GPUs ([State.Manage]).
func (s *Pod) Managed() bool { return s.managed }

// Pod returns a pod; ok is false when nobody has seen it.
func (s *State) Pod(uid types.UID) (pod *Pod, ok bool) {
	pod, ok = s.pods[uid]
	return pod, ok
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
