package preflight_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

// Policies and webhooks refuse pods by many codes, and a webhook that does not answer is no consent: a plan hears all of them.
func TestRefusalsOfAdmission(t *testing.T) {
	client, err := kube.New(localtest.Start(t).Config(t))
	require.NoError(t, err)
	denying := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if !assert.NoError(t, json.NewDecoder(r.Body).Decode(&review)) {
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "no"}} // without a code, as Kyverno
		assert.NoError(t, json.NewEncoder(w).Encode(review))
	}))
	t.Cleanup(denying.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: denying.Certificate().Raw})
	pods := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	none := admissionregistrationv1.SideEffectClassNone
	webhook := func(url string) func(string, *metav1.LabelSelector) error {
		return func(name string, in *metav1.LabelSelector) error {
			_, err := client.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: name + ".example.com", Rules: pods, NamespaceSelector: in, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
					ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
				}},
			}, metav1.CreateOptions{})
			return err
		}
	}
	policy := func(reason metav1.StatusReason) func(string, *metav1.LabelSelector) error {
		return func(name string, in *metav1.LabelSelector) error {
			matching := &admissionregistrationv1.MatchResources{NamespaceSelector: in, ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: pods[0]}}}
			_, err := client.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
					MatchConstraints: matching, Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no", Reason: &reason}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = client.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				},
			}, metav1.CreateOptions{})
			return err
		}
	}
	const (
		refused  = "roles: The cluster refuses the job: The cluster would not create the pods of role worker: "
		notAsked = "warning roles: Admission is not checked: Whether the cluster would create the pods of role worker, and what it would add, the plan could not ask: "
	)
	for name, test := range map[string]struct {
		admission func(name string, in *metav1.LabelSelector) error
		want      string
	}{
		"forbids":   {policy(metav1.StatusReasonForbidden), refused},
		"invalid":   {policy(metav1.StatusReasonInvalid), refused},
		"too-large": {policy(metav1.StatusReasonRequestEntityTooLarge), refused},
		"denies":    {webhook(denying.URL), refused},
		"dead":      {webhook("https://127.0.0.1:1"), notAsked},
	} {
		t.Run(name, func(t *testing.T) {
			in := "refused-" + name
			_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}, metav1.CreateOptions{})
			require.NoError(t, err)
			require.NoError(t, test.admission(in, &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: in}}))
			spec := plain()
			spec.Namespace = in
			require.EventuallyWithT(t, func(c *assert.CollectT) { // the server takes up what admits in its own time
				got := said(preflight.Job(t.Context(), client, spec.Complete(), "", nil).Findings(2))
				if assert.Len(c, got, 1, "%s", got) {
					assert.Contains(c, got[0], test.want)
				}
			}, time.Minute, 200*time.Millisecond)
		})
	}
}

// Who may only read, or whose cluster freezes changes, learns what has not changed all the same, and nothing of that keeps
// a program's removal from being planned.
func TestProgramThatMayNotBeChanged(t *testing.T) {
	client := acctest.OnPlatform(t)
	readers(t, client)
	admin := os.Getenv("KUBECONFIG")
	cli := acctest.StartCLI(t)
	cli.Write(t, "resource \"gpuplan_node_agent\" \"this\" {\n  image = \"local/node-agent:test\"\n}\n")
	cli.Must(t, "apply", "-auto-approve")
	const says = "Node agent is not compared with what was applied"

	t.Setenv("KUBECONFIG", asViewer(t, localtest.Start(t)))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan", "-detailed-exitcode")), says)

	t.Setenv("KUBECONFIG", admin)
	thaw := freeze(t, client, admissionregistrationv1.Update, "apps", "daemonsets")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the server takes up what admits in its own time
		assert.Contains(c, acctest.Unwrapped(cli.Must(t, "plan")), says)
	}, time.Minute, 200*time.Millisecond)
	cli.Must(t, "plan", "-destroy")

	thaw()
	require.EventuallyWithT(t, func(c *assert.CollectT) { // Kubernetes' garbage collector has to update what it deletes
		assert.NotContains(c, acctest.Unwrapped(cli.Must(t, "plan")), says)
	}, time.Minute, 200*time.Millisecond)
	cli.Must(t, "destroy", "-auto-approve")
}

// freeze has a policy refuse what is done to the objects of a resource until thaw is called.
func freeze(t *testing.T, client *kube.Client, deed admissionregistrationv1.OperationType, group, resource string) (thaw func()) {
	t.Helper()
	name := "freeze-" + resource
	policies, bindings := client.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicies(), client.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{deed},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no changes now"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return func() {
		require.NoError(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
		require.NoError(t, policies.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

// A plan hears that the cluster lets nobody write the quota tree, as the apply would.
func TestQuotaTreeThatMayNotBeWritten(t *testing.T) {
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	tree := func(gpus string) string {
		return "resource \"gpuplan_scheduler\" \"this\" { image = \"local/scheduler:test\" }\n" +
			"resource \"gpuplan_quota_tree\" \"this\" {\n  total = { \"aliyun.com/gpu\" = \"" + gpus + "\" }\n  quotas = { a = {} }\n  depends_on = [gpuplan_scheduler.this]\n}\n"
	}
	refuses := func(deed string) {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // the server takes up what admits in its own time
			text, err := cli.Run("plan")
			assert.Error(c, err)
			assert.Contains(c, acctest.Unwrapped(text), "The cluster would not "+deed+" ElasticQuotaTree kube-system/elasticquotatree: ")
			assert.Contains(c, acctest.Unwrapped(text), "no changes now")
		}, time.Minute, 200*time.Millisecond)
	}
	cli.Write(t, tree("8"))
	cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_scheduler.this")
	thaw := freeze(t, client, admissionregistrationv1.Create, contract.QuotaTreeGroup, contract.QuotaTreeResource)
	refuses("create")
	thaw()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := cli.Run("plan")
		assert.NoError(c, err)
	}, time.Minute, 200*time.Millisecond)
	cli.Must(t, "apply", "-auto-approve")

	thaw = freeze(t, client, admissionregistrationv1.Update, contract.QuotaTreeGroup, contract.QuotaTreeResource)
	defer thaw()
	cli.Write(t, tree("16"))
	refuses("change")
	cli.Write(t, tree("8"))
	assert.Contains(t, cli.Must(t, "plan"), "No changes")
}
