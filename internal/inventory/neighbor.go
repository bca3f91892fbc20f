package inventory

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// neighbors translates a pod's required affinity to other pods. Terms that select
// namespaces by labels other than their names are left to the scheduler's own filter, which
// knows them.
func neighbors(p *corev1.Pod) []placement.Neighbor {
	var out []placement.Neighbor
	add := func(terms []corev1.PodAffinityTerm, antiAffinity bool) {
		for _, term := range terms {
			if pods, ok := selectorOf(p, term); ok {
				out = append(out, placement.Neighbor{Label: term.TopologyKey, Pods: pods, Apart: antiAffinity})
			}
		}
	}
	if affinity := p.Spec.Affinity; affinity != nil {
		if affinity.PodAffinity != nil {
			add(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, false)
		}
		if affinity.PodAntiAffinity != nil {
			add(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, true)
		}
	}
	return out
}

// selectorOf translates the pods that a term of a pod's affinity selects; ok is false when
// only the cluster's namespaces tell.
func selectorOf(p *corev1.Pod, term corev1.PodAffinityTerm) (s placement.Selector, ok bool) {
	s.Requirements = requirements(term.LabelSelector)
	for _, key := range term.MatchLabelKeys {
		s.Requirements = appendOwn(s.Requirements, p, key, "In")
	}
	for _, key := range term.MismatchLabelKeys {
		s.Requirements = appendOwn(s.Requirements, p, key, "NotIn")
	}
	switch by := term.NamespaceSelector; {
	case by == nil && len(term.Namespaces) == 0:
		s.Namespaces = []string{p.Namespace}
	case by == nil:
		s.Namespaces = term.Namespaces
	case len(by.MatchLabels) == 0 && len(by.MatchExpressions) == 0: // all
	default:
		name, named := by.MatchLabels[corev1.LabelMetadataName]
		s.Namespaces = append(slices.Clone(term.Namespaces), name)
		return s, named && len(by.MatchLabels) == 1 && len(by.MatchExpressions) == 0
	}
	return s, true
}

// spreads translates a pod's topology spread constraints.
func spreads(p *corev1.Pod) []placement.TopologySpread {
	var out []placement.TopologySpread
	for _, c := range p.Spec.TopologySpreadConstraints {
		s := placement.TopologySpread{
			Label: c.TopologyKey, MaxSkew: int(c.MaxSkew), Soft: c.WhenUnsatisfiable == corev1.ScheduleAnyway,
			Pods:        placement.Selector{Namespaces: []string{p.Namespace}, Requirements: requirements(c.LabelSelector)},
			AnyAffinity: c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore,
			HonorTaints: c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
		}
		if c.MinDomains != nil {
			s.MinDomains = int(*c.MinDomains)
		}
		for _, key := range c.MatchLabelKeys {
			s.Pods.Requirements = appendOwn(s.Pods.Requirements, p, key, "In")
		}
		out = append(out, s)
	}
	return out
}

// preferences translates a pod's preferred node affinity.
func preferences(p *corev1.Pod) []placement.Preference {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	var out []placement.Preference
	for _, term := range p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		out = append(out, placement.Preference{Weight: int64(term.Weight), Requirements: expressions(term.Preference)})
	}
	return out
}

// expressions translates a term by labels and by the only field that nodes have there, their name.
func expressions(term corev1.NodeSelectorTerm) []placement.Requirement {
	out := make([]placement.Requirement, 0, len(term.MatchExpressions)+len(term.MatchFields))
	for _, e := range term.MatchExpressions {
		out = append(out, placement.Requirement{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
	}
	for _, e := range term.MatchFields {
		out = append(out, placement.Requirement{Key: placement.FieldName, Operator: string(e.Operator), Values: e.Values})
	}
	return out
}

// requirements translates a label selector. One that is missing selects nothing.
func requirements(selector *metav1.LabelSelector) []placement.Requirement {
	if selector == nil {
		return []placement.Requirement{{Operator: "In"}}
	}
	var out []placement.Requirement
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		out = append(out, placement.Requirement{Key: key, Operator: "In", Values: []string{selector.MatchLabels[key]}})
	}
	for _, e := range selector.MatchExpressions {
		out = append(out, placement.Requirement{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
	}
	return out
}

// appendOwn requires of other pods what a pod has of a label.
func appendOwn(list []placement.Requirement, p *corev1.Pod, key, operator string) []placement.Requirement {
	value, ok := p.Labels[key]
	if !ok {
		return list
	}
	return append(list, placement.Requirement{Key: key, Operator: operator, Values: []string{value}})
}

// selectedBy returns the keys of the labels by which the members' rules find pods.
func selectedBy(members []Member) map[string]bool {
	keys := map[string]bool{}
	add := func(s placement.Selector) {
		for _, r := range s.Requirements {
			keys[r.Key] = true
		}
	}
	for _, m := range members {
		for _, term := range m.Role.Neighbors {
			add(term.Pods)
		}
		for _, spread := range m.Role.Spreads {
			add(spread.Pods)
		}
	}
	return keys
}

// labelsOf returns those of a pod's labels that rules look at, nil for none.
func labelsOf(p *corev1.Pod, keys map[string]bool) map[string]string {
	var out map[string]string
	for key := range keys {
		if value, ok := p.Labels[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}
