package clusterstate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// keepRecord returns the pod with the allocation record that it had when it was first seen
// bound, whatever its annotation has become since: the pod runs on those GPUs. altered
// means that someone has just changed it, for the first time or again.
func (s *Pod) keepRecord(p *corev1.Pod) (kept *corev1.Pod, altered bool) {
	if s.observed == nil || s.observed.Spec.NodeName == "" {
		return p, false
	}
	first, had := s.observed.Annotations[contract.AllocationAnnotation]
	now, has := p.Annotations[contract.AllocationAnnotation]
	if now == first && has == had {
		s.altered = ""
		return p, false
	}
	text := "set to " + now
	if !has {
		text = "removed"
	}
	altered, s.altered = s.altered != text, text
	pod := *p
	pod.Annotations = map[string]string{}
	maps.Copy(pod.Annotations, p.Annotations)
	delete(pod.Annotations, contract.AllocationAnnotation)
	if had {
		pod.Annotations[contract.AllocationAnnotation] = first
	}
	return &pod, altered
}
