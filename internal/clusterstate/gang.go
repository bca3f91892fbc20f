package clusterstate

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Pod returns a pod; ok is false when nobody has seen it.
func (s *State) Pod(uid types.UID) (pod *Pod, ok bool) {
	pod, ok = s.pods[uid]
	return pod, ok
}

// Gangs lists the keys of the gangs that have pods ([inventory.PlanKey]), in no particular order.
func (s *State) Gangs() iter.Seq[string] { return maps.Keys(s.gangs) }

// PodsOf lists the pods of a gang, in no particular order.
func (s *State) PodsOf(key string) iter.Seq[*Pod] { return maps.Values(s.gangs[key]) }

// Gang returns a gang by its key; ok is false when it has no pods.
func (s *State) Gang(key string) (state inventory.GangState, ok bool) {
	return inventory.StateOf(s.restricted(key), s.podGroups[key], s.tree, s.bar, s.gpusOf)
}

// Count counts the members of a gang.
func (s *State) Count(key string) inventory.MemberCounts {
	return inventory.CountMembers(s.members(key), s.podGroups[key])
}

// Status says how far a gang is, from the point of view of one pod, "" for none, and by what
// was counted of it ([State.Count]).
func (s *State) Status(key string, uid types.UID, found inventory.MemberCounts) inventory.GangStatus {
	status := inventory.StatusOf(key, s.members(key), found, s.tree, s.bar)
	if pod, ok := s.gangs[key][uid]; ok {
		status.Known, status.Late = true, found.IsLate(&pod.member)
	}
	return status
}

// SetMinimums tells the view how many of their members gangs need, where it may have changed.
// Who asks the view who may be evicted has to call it first.
func (s *State) SetMinimums() {
	for key := range s.restless {
		minimum := 0
		var pods []string
		var parts []placement.Part
		if found := s.Count(key); found.Minimum > 0 && found.Minimum < found.Running {
			minimum = found.Minimum
			state, _ := s.Gang(key)
			pods = state.MemberIDs(nil)
			for _, g := range state.Gang.Subgroups {
				parts = append(parts, placement.Part{Minimum: g.Minimum, Pods: state.MemberIDs(g.Roles)})
			}
		}
		s.View.SetMinimum(key, minimum, pods, parts...)
	}
	clear(s.restless)
}

// members lists the members of a gang, in no particular order; none when all have gone.
func (s *State) members(key string) []inventory.Member {
	var members []inventory.Member
	for _, pod := range s.gangs[key] {
		members = append(members, pod.member)
	}
	var done []*metav1.PartialObjectMetadata
	for uid, pod := range s.succeeded[key] {
		if s.gangs[key][uid] == nil {
			done = append(done, pod)
		}
	}
	return append(members, inventory.Succeeded(done, members)...)
}

// restricted lists the members of a gang with the nodes that reach their volumes.
func (s *State) restricted(key string) []inventory.Member {
	members := s.members(key)
	if s.volumeOf != nil {
		inventory.RestrictToVolumes(members, s.volumeOf)
	}
	return members
}

// FindVolumes tells how to find what claims are bound to; before that, nobody knows.
func (s *State) FindVolumes(of func(namespace, claim string) *corev1.PersistentVolume) {
	s.volumeOf = of
}

// SetWorkload makes the choice of nodes and GPUs follow the requests that arrive; nil makes
// it the tightest fit.
func (s *State) SetWorkload(w placement.Workload) {
	if !maps.Equal(s.View.Workload(), w) {
		s.View.SetWorkload(w)
	}
}

// PodGroup returns a gang's PodGroup object, nil when it has none.
func (s *State) PodGroup(key string) *unstructured.Unstructured { return s.podGroups[key] }

// Node returns a node's object, and the hardware that its agent has published, each nil when
// there is none.
func (s *State) Node(name string) (*corev1.Node, *contract.GPUNode) {
	if state, ok := s.nodes[name]; ok {
		return state.node, state.hardware
	}
	return nil, nil
}

// PodsOn lists the pods that hold resources of a node, in no particular order.
func (s *State) PodsOn(node string) iter.Seq[*Pod] {
	if state, ok := s.nodes[node]; ok {
		return maps.Values(state.pods)
	}
	return func(func(*Pod) bool) {}
}

// Keys lists the nodes on which pods hold resources, and the keys of all gangs that have
// pods or a PodGroup.
func (s *State) Keys() (nodes, gangs []string) {
	for name, state := range s.nodes {
		if len(state.pods) > 0 {
			nodes = append(nodes, name)
		}
	}
	gangs = slices.AppendSeq(slices.Collect(maps.Keys(s.gangs)), maps.Keys(s.podGroups))
	slices.Sort(nodes)
	slices.Sort(gangs)
	return nodes, slices.Compact(gangs)
}
