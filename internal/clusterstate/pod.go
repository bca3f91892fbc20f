package clusterstate

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

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
	// refused says why a plugin of the scheduler refuses the pod whatever the node ([State.Refuse]), "" while none does.
	refused string
	// overdue means that the pod is being deleted, and not waited for any more ([State.Overdue]).
	overdue bool
	// undeletable means that the API server refuses to delete the pod ([State.SetUndeletable]), refusals
	// counts how often it has.
	undeletable bool
	refusals    int
	// altered says what someone has done to the record that the pod was bound with, which
	// counts all the same; "" while nobody has.
	altered string
	// key is that of the pod's gang, "" while the planner does not place it, id the gang's ID
	// in the view, and member what the gang needs to know of it.
	key    string
	id     string
	member inventory.Member
	// on is the node whose pods this one is counted among, "" for none.
	on string
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
	pod, known := s.pods[p.UID]
	if !known {
		pod = &Pod{}
		s.pods[p.UID] = pod
	}
	before, held, was := pod.observed, pod.Charged(), pod.key
	p, altered := pod.keepRecord(p)
	expected := !pod.unverified && pod.assumed != nil && pod.assumed.Spec.NodeName == p.Spec.NodeName
	if p.Spec.NodeName != "" || inventory.Gone(p) { // one that is deleted before it was bound never is
		pod.assumed, pod.decided, pod.unverified, pod.managed, pod.refused = nil, nil, false, false, ""
	}
	pod.observed = p
	pod.overdue = pod.overdue && p.DeletionTimestamp != nil
	relents := pod.undeletable && (p.DeletionTimestamp != nil || !maps.Equal(before.Labels, p.Labels) || !maps.Equal(before.Annotations, p.Annotations))
	pod.undeletable = pod.undeletable && !relents
	s.recognize(pod)
	lifted := s.update(pod)
	key := cmp.Or(pod.key, was)
	leaves := p.DeletionTimestamp != nil && before != nil && before.DeletionTimestamp == nil
	// An API server copies labels of the node to the pod that it binds.
	relabelled := before != nil && before.Spec.NodeName == p.Spec.NodeName && !maps.Equal(before.Labels, p.Labels)
	change := Change{Freed: held && (!pod.Charged() || leaves || relents || relabelled && recharged(before, p) || shrunk(before, p)), Departed: held && (leaves || !pod.Charged()) && !preempted(p), RolledBack: lifted}
	if change.Departed {
		change.Departs = key
	}
	if was != key {
		change.Left = was
	}
	if altered {
		change.Altered = p
	}
	moved := before != nil && before.Spec.NodeName != p.Spec.NodeName && !expected
	if before == nil || moved || inventory.Gone(before) != inventory.Gone(p) || relabelled || was != key || respecified(before, p) || leaves && preempted(p) {
		change.Gang = key
	} else if before.Spec.NodeName == "" && p.Spec.NodeName != "" {
		change.Bound = key
	}
	change.Placed = pod.Charged() && p.Spec.NodeName != "" && (before == nil || before.Spec.NodeName == "" || relabelled)
	if node := pod.Now().Spec.NodeName; pod.Charged() && s.nodes[node].node == nil {
		change.Node = node
	}
	return change
}

// shrunk reports whether a pod that is bound takes less of something than before: it was resized in place, or
// its node refused to let it grow.
func shrunk(before, p *corev1.Pod) bool {
	if before == nil || before.Spec.NodeName == "" || !resized(before, p) {
		return false
	}
	now := inventory.ConsumerOf(p, nil).Charge
	for name, amount := range inventory.ConsumerOf(before, nil).Charge {
		if now[name] < amount {
			return true
		}
	}
	return false
}

// resized reports whether anything has changed that says what a bound pod takes. It is asked of every update
// of such a pod; most change its conditions, or the state of a container.
func resized(before, p *corev1.Pod) bool {
	return !equality.Semantic.DeepEqual(before.Spec.Resources, p.Spec.Resources) ||
		!equality.Semantic.DeepEqual(before.Status.Resources, p.Status.Resources) ||
		!equality.Semantic.DeepEqual(before.Status.AllocatedResources, p.Status.AllocatedResources) ||
		resource.IsPodResizeInfeasible(before) != resource.IsPodResizeInfeasible(p) ||
		!slices.EqualFunc(before.Spec.Containers, p.Spec.Containers, sameRequests) ||
		!slices.EqualFunc(before.Spec.InitContainers, p.Spec.InitContainers, sameRequests) ||
		!slices.EqualFunc(before.Status.ContainerStatuses, p.Status.ContainerStatuses, sameGrants) ||
		!slices.EqualFunc(before.Status.InitContainerStatuses, p.Status.InitContainerStatuses, sameGrants)
}

func sameRequests(a, b corev1.Container) bool {
	return equality.Semantic.DeepEqual(a.Resources.Requests, b.Resources.Requests)
}

func sameGrants(a, b corev1.ContainerStatus) bool {
	return a.Name == b.Name && equality.Semantic.DeepEqual(a.Resources, b.Resources) && equality.Semantic.DeepEqual(a.AllocatedResources, b.AllocatedResources)
}

// respecified reports whether what is asked for a pod that is not bound has changed: a scheduling gate was taken away,
// say. It is asked of every update of such a pod, most of which are of its status.
func respecified(before, p *corev1.Pod) bool {
	return before.Spec.NodeName == "" && p.Spec.NodeName == "" && !equality.Semantic.DeepEqual(before.Spec, p.Spec)
}

// Overdue says that a pod is being deleted and should have gone long ago: whoever waits for its end
// may find a place elsewhere.
func (s *State) Overdue(uid types.UID) Change {
	pod, ok := s.pods[uid]
	if !ok || !pod.Charged() || pod.Now().DeletionTimestamp == nil || pod.overdue {
		return Change{}
	}
	pod.overdue = true
	s.update(pod)
	return Change{Freed: true}
}

// SetUndeletable notes that the API server refuses to delete a pod: nobody counts on its end until
// [State.SetDeletable], or until its labels or annotations change, or someone deletes it all the same. It returns how often
// the API server has refused, 0 for a pod that is leaving or has gone, and whether that is new.
func (s *State) SetUndeletable(uid types.UID) (refusals int, fresh bool) {
	pod, ok := s.pods[uid]
	if !ok || !pod.Charged() || pod.Now().DeletionTimestamp != nil {
		return 0, false
	}
	fresh = !pod.undeletable
	pod.undeletable = true
	pod.refusals++
	if fresh {
		s.update(pod)
	}
	return pod.refusals, fresh
}

// SetDeletable takes back what SetUndeletable noted, and reports whether there was anything. How often the API server has refused
// stays known.
func (s *State) SetDeletable(uid types.UID) bool {
	pod, ok := s.pods[uid]
	if !ok || !pod.undeletable {
		return false
	}
	pod.undeletable = false
	s.update(pod)
	return true
}

// Undeletable is how often the API server has refused to delete the pod, 0 for one that it is not known to refuse now.
func (s *Pod) Undeletable() int {
	if !s.undeletable {
		return 0
	}
	return s.refusals
}

// Refusals is how often the API server has refused to delete the pod.
func (s *Pod) Refusals() int { return s.refusals }

// Refuse notes why a plugin of the scheduler refuses a pod whatever the node, and reports whether none did before. Its gang
// counts without it ([inventory.MarkGated]) until [State.Allow], or until the pod is bound all the same.
func (s *State) Refuse(uid types.UID, why string) (fresh bool) {
	pod, ok := s.pods[uid]
	if !ok || pod.Bound() || pod.refused == why {
		return false
	}
	fresh = pod.refused == ""
	pod.refused = why
	s.update(pod)
	return fresh
}

// Allow takes back what Refuse noted.
func (s *State) Allow(uid types.UID) {
	if pod, ok := s.pods[uid]; ok && pod.refused != "" {
		pod.refused = ""
		s.update(pod)
	}
}

// RemovePod takes out a pod that was deleted.
func (s *State) RemovePod(uid types.UID) Change {
	pod, ok := s.pods[uid]
	if !ok {
		return Change{}
	}
	held, before := pod.Charged(), pod.observed
	lifted := s.remove(pod)
	change := Change{Gang: pod.key, Freed: held, Departed: held && before.DeletionTimestamp == nil && !preempted(before), RolledBack: lifted}
	if change.Departed {
		change.Departs = pod.key
	}
	return change
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
	pod, ok := s.pods[p.UID]
	if !ok {
		return // deleted meanwhile
	}
	if pod.Bound() || inventory.Gone(pod.observed) {
		return // the API server was faster
	}
	pod.assumed, pod.decided, pod.unverified = p, decided, false
	s.update(pod)
}

// Assumed reports whether the pod is charged as one that is about to be bound.
func (s *Pod) Assumed() bool { return s.assumed != nil }

// Relabelled reports whether labels of the assumed pod have changed since it was planned by which it belongs
// to its gang, or is charged to quota.
func (s *Pod) Relabelled() bool {
	if s.assumed == nil {
		return false
	}
	then, _ := inventory.GangKey(s.assumed)
	now, _ := inventory.GangKey(s.observed)
	return then != now || recharged(s.assumed, s.observed)
}

// recharged reports whether labels of a pod have changed by which it is charged to quota.
func recharged(before, p *corev1.Pod) bool {
	return inventory.LeafOf(before, nil) != inventory.LeafOf(p, nil) || inventory.Preemptible(before) != inventory.Preemptible(p)
}

// Unverified reports whether the binding of the assumed pod has failed, as far as is known.
func (s *Pod) Unverified() bool { return s.unverified }

// SetUnverified notes that the binding of an assumed pod has failed, as far as the caller
// knows: an answer may have been lost on its way. When the API server shows the pod
// bound all the same, that is a change of its gang. Planning does not look at it.
func (s *State) SetUnverified(uid types.UID) {
	if pod, ok := s.pods[uid]; ok && pod.assumed != nil {
		pod.unverified = true
	}
}

// Forget takes back what Assume charged; it changes nothing when there is nothing, and a pod that is
// bound cannot be forgotten. One that has another gang by its labels of now belongs to that from then on.
func (s *State) Forget(uid types.UID) Change {
	pod, ok := s.pods[uid]
	if !ok || pod.assumed == nil {
		return Change{}
	}
	was := pod.key
	s.discharge(pod)
	pod.assumed, pod.decided, pod.unverified = nil, nil, false
	s.update(pod)
	change := Change{RolledBack: true}
	if pod.key != was {
		change.Gang, change.Left = pod.key, was
	}
	return change
}

// Lose notes that pods are about to be failed, because their node is lost: they are no
// members of their gangs any more, and nobody is planned beside them. They hold what they
// have until the API server shows them failed.
func (s *State) Lose(pods []*corev1.Pod) {
	s.setLost(pods, true)
}

// Regain takes back [State.Lose]: the node of the pods is there again, and they have not been failed.
// It returns the keys of the gangs that have members back.
func (s *State) Regain(pods []*corev1.Pod) (gangs []string) {
	return s.setLost(pods, false)
}

// setLost returns the keys of the gangs of the pods for which that is new.
func (s *State) setLost(pods []*corev1.Pod, lost bool) (gangs []string) {
	for _, p := range pods {
		pod, ok := s.pods[p.UID]
		if !ok || pod.lost == lost {
			continue
		}
		pod.lost = lost
		s.update(pod)
		if pod.key != "" && !slices.Contains(gangs, pod.key) {
			gangs = append(gangs, pod.key)
		}
	}
	return gangs
}

// update brings view and indexes in line with a pod, and reports whether that lifted the reservation
// of a gang that the pod has left.
func (s *State) update(pod *Pod) (lifted bool) {
	p := pod.Now()
	key, planned := inventory.PlanKey(p)
	planned = planned || pod.managed
	if pod.key != "" && (!planned || key != pod.key) {
		lifted = s.leave(pod)
	}
	pod.key, pod.id = "", ""
	if planned {
		pod.key, pod.id = key, inventory.GangID(p)
		s.touch(key)
		pod.member = inventory.MemberOf(p)
		pod.member.Lost, pod.member.Refused = pod.lost, pod.refused
		if s.gangs[key] == nil {
			s.gangs[key] = map[types.UID]*Pod{}
		}
		s.gangs[key][p.UID] = pod
	}
	if !pod.Charged() || pod.on != "" && pod.on != p.Spec.NodeName {
		s.discharge(pod)
	}
	if pod.Charged() {
		pod.on = p.Spec.NodeName
		s.node(pod.on).pods[p.UID] = pod
		s.charge(pod)
	}
	return lifted
}

func (s *State) remove(pod *Pod) (lifted bool) {
	s.discharge(pod)
	lifted = s.leave(pod)
	delete(s.pods, pod.Now().UID)
	return lifted
}

// charge tells the view about a pod that holds resources.
func (s *State) charge(pod *Pod) {
	p := pod.Now()
	var request *placement.Request
	if pod.key != "" { // it is planned
		request = &pod.member.Role.Request
	}
	consumer := inventory.PodOn(p, request, pod.decided, s.gpusOf(p.Spec.NodeName), s.tree)
	consumer.Overdue, consumer.Undeletable = pod.overdue, pod.undeletable
	consumer.Budgets = s.budgetsOf(p)
	s.View.AddPod(consumer)
}

func (s *State) discharge(pod *Pod) {
	p := pod.Now()
	s.View.RemovePod(inventory.PodID(p))
	if node, ok := s.nodes[pod.on]; ok {
		delete(node.pods, p.UID)
		s.dropUnused(pod.on)
	}
	pod.on = ""
}
