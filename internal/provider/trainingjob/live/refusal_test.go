package live_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// What a cluster would say to the creation of a job it also says when one that exists is resumed or changed.
func TestRefusalsOfAJobThatExists(t *testing.T) {
	client := acctest.OnPlatform(t)
	const namespace = "refusing"
	namespaces := client.Typed.CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	cli := acctest.StartCLI(t)
	write := func(more string) {
		cli.Write(t, fmt.Sprintf(`resource "gpuplan_training_job" "j" {
  name            = "j"
  namespace       = %q
  framework       = "pytorch"
  image           = "x"
  placement_check = "error"
  host_network    = true
  roles           = { worker = { gpus = 1 } }
  %s
}
`, namespace, more))
	}
	write("suspend = true")
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { assert.NoError(t, namespaces.Delete(context.Background(), namespace, metav1.DeleteOptions{})) })
	refused := func(says string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { // the server takes up what admits in its own time
			said, err := cli.Run("plan")
			assert.Error(c, err)
			assert.Contains(c, acctest.Unwrapped(said), says)
		}, time.Minute, 100*time.Millisecond)
	}

	jobs := client.Dynamic.Resource(schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: "v1", Resource: contract.PyTorchJobResource}).Namespace(namespace)
	_, err = jobs.Patch(t.Context(), "j", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"a"}}}`), metav1.PatchOptions{FieldManager: "ops"})
	require.NoError(t, err)
	write("suspend = true\n  labels = { tier = \"b\" }")
	refused(`.metadata.labels.tier is owned by "ops"`)
	write("suspend = true\n  labels = { tier = \"a\" }")
	cli.Must(t, "apply", "-auto-approve")
	cli.Unchanged(t)

	policies, bindings := client.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicies(), client.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err = policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "teams"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{contract.KubeflowGroup}, APIVersions: []string{"*"}, Resources: []string{contract.PyTorchJobResource}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "!has(object.metadata.labels) || !('team' in object.metadata.labels)", Message: "no teams"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, policies.Delete(context.Background(), "teams", metav1.DeleteOptions{})) })
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "teams"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "teams", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, bindings.Delete(context.Background(), "teams", metav1.DeleteOptions{})) })
	write("suspend = true\n  labels = { team = \"a\" }")
	refused("The cluster would not change PyTorchJob refusing/j: ")

	_, err = namespaces.Patch(t.Context(), namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	write("")
	refused("The cluster would not create the pods of role worker: pods \"j-worker-0\" is forbidden: violates PodSecurity")
	write("suspend = true")
	cli.Must(t, "destroy", "-auto-approve")
}
