package preflight

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Which pods a ResourceQuota counts is what Kubernetes says it is.
func TestScopesAreThoseOfKubernetes(t *testing.T) {
	oracle := core.NewPodEvaluator(nil, clock.RealClock{})
	asks := func(name corev1.ResourceName) []corev1.Container {
		return []corev1.Container{{Name: "c"}, {Name: "d", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{name: quantity.MustParse("1")}}}}
	}
	bare := []corev1.Container{{Name: "c"}}
	pods := map[string]corev1.PodSpec{
		"bare":             {Containers: bare},
		"CPU":              {Containers: asks(corev1.ResourceCPU)},
		"memory":           {Containers: asks(corev1.ResourceMemory)},
		"GPU":              {Containers: asks("aliyun.com/gpu")},
		"CPU to start":     {Containers: bare, InitContainers: asks(corev1.ResourceCPU)},
		"a deadline":       {Containers: bare, ActiveDeadlineSeconds: ptr.To[int64](60)},
		"a class":          {Containers: bare, PriorityClassName: "high"},
		"another, and CPU": {Containers: asks(corev1.ResourceCPU), PriorityClassName: "low"},
	}
	var scopes []corev1.ResourceQuotaSpec
	for _, scope := range []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
	} {
		scopes = append(scopes, corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{scope}},
			corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating, scope}})
	}
	for operator, values := range map[corev1.ScopeSelectorOperator][]string{
		corev1.ScopeSelectorOpIn: {"high", "higher"}, corev1.ScopeSelectorOpNotIn: {"high"}, corev1.ScopeSelectorOpExists: nil, corev1.ScopeSelectorOpDoesNotExist: nil,
	} {
		of := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: values}
		scopes = append(scopes, corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{of}}},
			corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}, ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{of}}})
	}
	scopes = append(scopes, corev1.ResourceQuotaSpec{})
	for name, spec := range pods {
		pod := &corev1.Pod{Spec: spec}
		for _, scope := range scopes {
			quota := &corev1.ResourceQuota{Spec: scope, Status: corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{corev1.ResourcePods: quantity.MustParse("1")}}}
			want, err := oracle.Matches(quota, pod)
			require.NoError(t, err)
			assert.Equal(t, want, inScope(quota, pod), fmt.Sprintf("%s in %+v", name, scope))
		}
	}
}
