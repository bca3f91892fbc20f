package clusterstate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Manage has the planner place a pod without GPUs until it is bound, because
// kube-scheduler's own way has found no place for it: by the rules of the quota tree it
// may take one from others. ok is false for a pod that is not charged to a leaf of the
// tree, or that belongs to its node; key is "" when the pod has not been taken in yet
// ([State.Unseen]).
func (s *State) Manage(p *corev1.Pod) (key string, ok bool) {
	if !s.manageable(p) {
		return "", false
	}
	pod, known := s.pods[p.UID]
	if !known {
		return "", true
	}
	if pod.Charged() {
		return "", false
	}
	pod.managed = true
	s.update(pod)
	return pod.key, true
}

// recognize manages a pod that a scheduler before this one had managed and nominated for
// the place that it took from others, and reports whether it is one.
func (s *State) recognize(pod *Pod) bool {
	p := pod.Now()
	if pod.managed || p.Spec.NodeName != "" || p.Status.NominatedNodeName == "" || inventory.Gone(p) || !s.manageable(p) {
		return false
	}
	pod.managed = true
	return true
}

func (s *State) manageable(p *corev1.Pod) bool {
	_, planned := inventory.PlanKey(p)
	return !planned && !inventory.Pinned(p) && s.governed(p)
}

// governed reports whether a pod is charged to a leaf of the quota tree.
func (s *State) governed(p *corev1.Pod) bool {
	return s.tree != nil && s.tree.HasLeaf(inventory.LeafOf(p, s.tree))
}

// Unseen reports whether a pod that is charged to the quota tree is one that has
// not been taken in yet, so that it is not charged.
func (s *State) Unseen(p *corev1.Pod) bool {
	_, known := s.pods[p.UID]
	return !known && s.governed(p)
}
