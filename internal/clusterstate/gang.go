package clusterstate

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Gangs lists the keys of the gangs that have pods ([inventory.PlanKey]), in no particular order.
func (s *State) Gangs() iter.Seq[string] { return maps.Keys(s.gangs) }

// PodsOf lists the pods of a gang, in no particular order.
func (s *State) PodsOf(key string) iter.Seq[*Pod] { return maps.Values(s.gangs[key]) }

// HasPods reports whether a gang has pods.
func (s *State) HasPods(key string) bool { return len(s.gangs[key]) > 0 }

// Gang returns a gang by its key, as it can be placed now ([inventory.MarkGated]); ok is false when
// it has no pods.
func (s *State) Gang(key string) (state inventory.GangState, ok bool) {
	members := s.restricted(key)
	inventory.MarkGated(members)
	state, ok = inventory.StateOf(members, s.podGroups[key], s.tree, s.bar, s.gpusOf)
	return s.fences.of(key, state, ok)
}

// expected is the gang of members that are still to come, as it could be placed were they there; ok is false when there are none.
func (s *State) expected(key string, members []inventory.Member) (state inventory.GangState, ok bool) {
	members = slices.Clone(members)
	s.restrict(members)
	inventory.MarkGated(members)
	state, ok = inventory.StateOf(members, s.podGroups[key], s.tree, s.bar, s.gpusOf)
	return s.fences.of(key, state, ok)
}

// Count counts the members of a gang that can be placed now.
func (s *State) Count(key string) inventory.MemberCounts {
	members := s.members(key)
	inventory.MarkGated(members)
	return inventory.CountMembers(members, s.podGroups[key])
}

// Status counts a gang and says how far it is, of no pod in particular ([State.Within]). It
// looks at all members, and holds until the gang changes.
func (s *State) Status(key string) (inventory.GangStatus, inventory.MemberCounts) {
	members := s.members(key)
	inventory.MarkGated(members)
	found := inventory.CountMembers(members, s.podGroups[key])
	return s.fences.status(key, inventory.StatusOf(key, members, found, s.tree, s.bar), found), found
}

// Within is the status of a gang from the point of view of one pod. One to which the planner has given a place is not late: members
// that it is late for may have come after that.
func (s *State) Within(key string, uid types.UID, status inventory.GangStatus, found inventory.MemberCounts) inventory.GangStatus {
	if pod, ok := s.gangs[key][uid]; ok {
		status.Known, status.Late = true, found.IsLate(&pod.member) && pod.decided == nil
		status.Refused = pod.refused != ""
	}
	return status
}

// PodGroup returns a gang's PodGroup object, nil when it has none.
func (s *State) PodGroup(key string) *unstructured.Unstructured { return s.podGroups[key] }

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

// SetMinimums tells the view how many of their members gangs need, where it may have changed.
// Who asks the view who may be evicted has to call it first.
func (s *State) SetMinimums() {
	for key := range s.restless {
		minimum := 0
		var pods []string
		var parts []snapshot.Part
		if found := s.Count(key); found.Minimum > 0 && found.Minimum < found.Running {
			minimum = found.Minimum
			state, _ := s.Gang(key)
			pods = state.MemberIDs(nil)
			for _, g := range state.Gang.Subgroups {
				parts = append(parts, snapshot.Part{Minimum: g.Minimum, Pods: state.MemberIDs(g.Roles)})
			}
		}
		s.View.SetMinimum(key, minimum, pods, parts...)
	}
	clear(s.restless)
}

// RunsWithout reports whether as many members of a gang run as it needs when some of its pods have gone.
func (s *State) RunsWithout(key string, gone map[types.UID]bool) bool {
	return inventory.RunsWithout(s.members(key), s.podGroups[key], func(p *corev1.Pod) bool { return gone[p.UID] })
}

// Incomplete reports whether a gang has fewer members, bound or not, than it needs.
func (s *State) Incomplete(key string) bool {
	return inventory.CountMembers(s.members(key), s.podGroups[key]).Incomplete()
}

// members lists the members of a gang, in no particular order; none when all have gone.
func (s *State) members(key string) []inventory.Member {
	members := make([]inventory.Member, 0, len(s.gangs[key])+len(s.succeeded.gangs[key]))
	for _, pod := range s.gangs[key] {
		members = append(members, pod.member)
	}
	var done []*metav1.PartialObjectMetadata
	for uid, pod := range s.succeeded.gangs[key] {
		if s.gangs[key][uid] == nil {
			done = append(done, pod)
		}
	}
	jobs := slices.Collect(maps.Values(s.ended.gangs[key]))
	return append(members, inventory.Succeeded(done, jobs, members)...)
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
func (s *State) leave(pod *Pod) (lifted bool) {
	s.touch(pod.key)
	delete(s.gangs[pod.key], pod.Now().UID)
	if len(s.gangs[pod.key]) > 0 {
		return false
	}
	delete(s.gangs, pod.key)
	delete(s.restless, pod.key)
	s.View.SetMinimum(pod.key, 0, nil)
	return s.View.Release(pod.id)
}
