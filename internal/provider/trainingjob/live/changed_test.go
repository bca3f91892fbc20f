package live_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A job that admission would store as another one is refused at plan: it would not run where it is planned, and every plan after
// the apply would replace it.
func TestJobThatAdmissionChanges(t *testing.T) {
	client := acctest.OnPlatform(t)
	const namespace = "changing"
	namespaces := client.Typed.CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, namespaces.Delete(context.Background(), namespace, metav1.DeleteOptions{})) })
	cli := acctest.StartCLI(t)
	const kept = "suspend = true"
	write := func(framework, more string) {
		cli.Write(t, fmt.Sprintf(`resource "gpuplan_training_job" "j" {
  name      = "j"
  namespace = %q
  framework = %q
  image     = "x"
  roles     = { worker = { gpus = 1 } }
  %s
}
`, namespace, framework, more))
	}
	policies, bindings := client.Typed.AdmissionregistrationV1().MutatingAdmissionPolicies(), client.Typed.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	change := func(t *testing.T, resource, template string) {
		t.Helper()
		name := "changing-" + resource
		_, err := policies.Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}},
					}}},
				},
				ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType: admissionregistrationv1.PatchTypeJSONPatch,
					JSONPatch: &admissionregistrationv1.JSONPatch{Expression: fmt.Sprintf(
						`[JSONPatch{op: "add", path: "/metadata/labels/team", value: "a"}, JSONPatch{op: "add", path: "%s/spec/nodeSelector", value: {"team": "a"}}]`, template)},
				}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, policies.Delete(context.Background(), name, metav1.DeleteOptions{})) })
		_, err = bindings.Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, bindings.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	}
	for framework, test := range map[string]struct{ kind, template string }{
		"mpi":     {"MPIJob", "/spec/mpiReplicaSpecs/Worker/template"},
		"pytorch": {"PyTorchJob", "/spec/pytorchReplicaSpecs/Worker/template"},
		"batch":   {"Job", "/spec/template"},
		"jobset":  {"JobSet", "/spec/replicatedJobs/0/template/spec/template"},
	} {
		t.Run(framework, func(t *testing.T) {
			write(framework, kept)
			cli.Must(t, "apply", "-auto-approve")
			cli.Unchanged(t)
			t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve", "-refresh=false") })
			change(t, strings.ToLower(test.kind)+"s", test.template)
			write(framework, kept+"\n  service_account = \"default\"") // a job takes the place of another
			says := func(args ...string) {
				t.Helper()
				require.EventuallyWithT(t, func(c *assert.CollectT) { // the server takes up what admits in its own time
					said, err := cli.Run(args...)
					assert.Error(c, err)
					assert.Contains(c, acctest.Unwrapped(said), "changes node_selector of "+test.kind+" changing/j as soon as it is created")
				}, time.Minute, 100*time.Millisecond)
			}
			says("plan")
			cli.Must(t, "destroy", "-auto-approve", "-refresh=false")
			says("plan")
			write(framework, kept+"\n  node_selector = { team = \"a\" }")
			cli.Must(t, "plan")
		})
	}
}
