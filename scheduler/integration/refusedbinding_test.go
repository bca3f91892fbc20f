package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestGangOfWhichAPolicyDeniesABinding has a policy deny one binding of a gang for good: the others do not keep their GPUs, and all
// start when it is gone.
func TestGangOfWhichAPolicyDeniesABinding(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	gang := topologyGang("denied", 4, 2)
	s.submit(gang)
	allow := s.denyBinding("denied-worker-3")
	startScheduler(t)
	s.await("the members that were bound to be evicted", func(ctx context.Context) (bool, string) {
		left := s.list(ctx, "denied")
		return len(left) == 1, fmt.Sprintf("%d pods, %d bound", len(left), bound(left))
	})
	for _, pod := range s.pods(gang) { // its job makes them again
		if _, err := api().CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil {
			s.create(pod)
		}
	}
	s.awaitReason("denied", "the API server refuses to bind pod "+s.namespace+"/denied-worker-3")
	s.submit(topologyGang("next", 1, 8))
	s.awaitBound("next")
	assert.Zero(t, bound(s.list(t.Context(), "denied")))
	allow()
	now := int64(0)
	require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), "next-worker-0", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	s.awaitBound("denied")
}

// denyBinding makes a policy that denies the binding of a pod which is there, and returns what takes it back.
func (s *testCluster) denyBinding(pod string) (allow func()) {
	s.t.Helper()
	ctx, policies := s.t.Context(), api().AdmissionregistrationV1()
	named := metav1.ObjectMeta{Name: s.namespace + "-" + pod}
	_, err := policies.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: named,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("request.name != %q", pod), Message: "not this one"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: named,
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: named.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	allow = func() {
		ctx := context.Background()
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(ctx, named.Name, metav1.DeleteOptions{})
		_ = policies.ValidatingAdmissionPolicies().Delete(ctx, named.Name, metav1.DeleteOptions{})
	}
	s.t.Cleanup(allow)
	s.await("the policy to be in force", func(ctx context.Context) (bool, string) {
		err := api().CoreV1().Pods(s.namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod},
			Target:     corev1.ObjectReference{Kind: "Node", Name: s.nodes[0]},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil, fmt.Sprint(err)
	})
	return allow
}
