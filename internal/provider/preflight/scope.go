package preflight

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// inScope reports whether a ResourceQuota counts a pod of a job (Kubernetes: "Resource Quotas",
// quota scopes).
func inScope(quota *corev1.ResourceQuota, pod *corev1.Pod) bool {
	for _, scope := range quota.Spec.Scopes {
		if !selects(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, pod) {
			return false
		}
	}
	if quota.Spec.ScopeSelector == nil {
		return true
	}
	return !slices.ContainsFunc(quota.Spec.ScopeSelector.MatchExpressions, func(r corev1.ScopedResourceSelectorRequirement) bool { return !selects(r, pod) })
}

// selects reports whether a pod is in one scope; of those that it does not know, pods of jobs are in none.
func selects(scope corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		switch scope.Operator {
		case corev1.ScopeSelectorOpIn:
			return class != "" && slices.Contains(scope.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return class == "" || !slices.Contains(scope.Values, class)
		case corev1.ScopeSelectorOpExists:
			return class != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		}
	}
	return false
}

// bestEffort reports whether no container of a pod says anything of CPU or memory.
func bestEffort(pod *corev1.Pod) bool {
	says := func(c corev1.Container) bool {
		for _, amounts := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			if !amounts.Cpu().IsZero() || !amounts.Memory().IsZero() {
				return true
			}
		}
		return false
	}
	return !slices.ContainsFunc(pod.Spec.Containers, says) && !slices.ContainsFunc(pod.Spec.InitContainers, says)
}
