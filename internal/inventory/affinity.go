package inventory

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// nodeAlternatives translates the terms of a required node affinity.
func nodeAlternatives(p *corev1.Pod) [][]placement.Requirement {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return nil
	}
	return terms(required)
}

// terms translates the alternatives of a node selector.
func terms(selector *corev1.NodeSelector) [][]placement.Requirement {
	out := make([][]placement.Requirement, 0, len(selector.NodeSelectorTerms))
	for _, term := range selector.NodeSelectorTerms {
		out = append(out, expressions(term))
	}
	return out
}

// pools are the node pools to which a pod keeps by the label of their names, nil when it
// has no such label, or alternatives to it. The planner refuses nodes of other pools as such.
func pools(p *corev1.Pod) []string {
	alternatives := nodeAlternatives(p)
	if len(alternatives) != 1 {
		return nil
	}
	for _, r := range alternatives[0] {
		if r.Key == contract.NodePoolNameLabel && r.Operator == string(corev1.NodeSelectorOpIn) {
			return r.Values
		}
	}
	return nil
}

// antiAffinity is the selector by which a pod keeps pods like itself off its node, "" when it
// does not. Roles with the same selector keep off each other.
func antiAffinity(p *corev1.Pod) string {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return ""
	}
	for _, term := range p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey == corev1.LabelHostname && meansItself(p, term) {
			return metav1.FormatLabelSelector(term.LabelSelector)
		}
	}
	return ""
}

// domains are the network domains in which a pod wants to be with pods like itself,
// from the widest to the narrowest.
func domains(p *corev1.Pod) []placement.Domain {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	var out []placement.Domain
	add := func(term corev1.PodAffinityTerm, required bool) {
		known := slices.ContainsFunc(out, func(d placement.Domain) bool { return d.Label == term.TopologyKey })
		if !known && meansItself(p, term) {
			out = append(out, placement.Domain{Label: term.TopologyKey, Required: required})
		}
	}
	for _, term := range p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		add(term, true)
	}
	for _, term := range p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		add(term.PodAffinityTerm, false)
	}
	slices.SortStableFunc(out, func(a, b placement.Domain) int { return cmp.Compare(width(b.Label), width(a.Label)) })
	return out
}

// width ranks the well-known domains; domains of the cluster's own lie between zone and node.
func width(label string) int {
	switch label {
	case corev1.LabelTopologyRegion:
		return 3
	case corev1.LabelTopologyZone:
		return 2
	case corev1.LabelHostname:
		return 0
	}
	return 1
}

// meansItself reports whether a term of a pod's affinity selects the pod itself, and
// so the other members of its role.
func meansItself(p *corev1.Pod, term corev1.PodAffinityTerm) bool {
	if term.NamespaceSelector != nil || len(term.Namespaces) > 0 && !slices.Contains(term.Namespaces, p.Namespace) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	return err == nil && selector.Matches(labels.Set(p.Labels))
}
