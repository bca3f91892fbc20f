package propagationpolicy_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// install installs the CRD of Karmada, in a group, with ACK's fields or without.
func install(t *testing.T, client *kube.Client, group string, ack bool) {
	t.Helper()
	text, err := os.ReadFile("testdata/propagationpolicies.yaml")
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), contract.KarmadaPolicyGroup, group)), &crd.Object))
	if ack {
		versions := crd.Object["spec"].(map[string]any)["versions"].([]any)
		within := func(names ...string) map[string]any {
			at := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)
			for _, name := range names {
				at = at[name].(map[string]any)["properties"].(map[string]any)
			}
			return at
		}
		within("spec", "suspension")["scheduling"] = map[string]any{"type": "boolean"}
		within("spec", "placement", "replicaScheduling")["customSchedulingType"] = map[string]any{"type": "string", "enum": []any{"Gang"}}
	}
	require.NoError(t, client.ApplyAll(t.Context(), []*unstructured.Unstructured{crd}, nil))
	t.Cleanup(func() {
		assert.NoError(t, client.Delete(context.Background(), crd.GroupVersionKind(), "", crd.GetName()))
	})
}

// On the real API server with the schema of Karmada: all fields are written, left alone, repaired and imported, in both groups;
// what the schema does not allow is refused by the plan.
func TestPolicyOnTheLocalPlatform(t *testing.T) {
	client := acctest.OnPlatform(t)
	install(t, client, contract.KarmadaPolicyGroup, false)
	cli := acctest.StartCLI(t)
	cli.Refuses(t, policyOf(documented), acctest.Saying("suspension.scheduling and custom_scheduling_type are fields of ACK One's Fleet, which the policies of Karmada alone lack"))
	managed := func(kind schema.GroupVersionKind, config string) {
		cli.Write(t, policyOf(config))
		cli.Apply(t, 1, 0, 0)
		cli.Unchanged(t)
		for _, drift := range []string{
			`{"spec":{"priority":7,"activationPreference":"Lazy"}}`,
			`{"spec":{"failover":null}}`,
			`{"spec":{"placement":{"clusterAffinity":{"exclude":["theirs"]}}}}`,
			`{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"Secret"}]}}`,
			`{"spec":{"suspension":{"dispatching":true}}}`,
		} {
			patch(t, client, kind, drift)
			cli.Apply(t, 0, 1, 0)
			cli.Unchanged(t)
		}
		spec := live(t, client, kind, "example-policy").Object["spec"].(map[string]any)
		assert.Equal(t, "Lazy", spec["activationPreference"])
		cli.Must(t, "state", "rm", main)
		cli.Must(t, "import", main, "default/example-policy")
		cli.Unchanged(t)
		cli.Write(t, policyOf(selector+"  priority = 1"))
		cli.Apply(t, 0, 1, 0)
		cli.Unchanged(t)
		spec = live(t, client, kind, "example-policy").Object["spec"].(map[string]any)
		for _, gone := range []string{"failover", "propagateDeps", "suspension", "preserveResourcesOnDeletion"} {
			assert.NotContains(t, spec, gone)
		}
		assert.Empty(t, spec["placement"])
		assert.Equal(t, "default-scheduler", spec["schedulerName"])
		cli.Must(t, "destroy", "-auto-approve")
		_, err := client.Get(t.Context(), kind, "default", "example-policy")
		assert.True(t, kube.IsNotFound(err), "%v", err)
	}
	managed(karmadas, everything)
	t.Run("a hub that changes what is written", func(t *testing.T) { changedByTheHub(t, client, cli) })
	install(t, client, contract.ACKPolicyGroup, true)
	managed(acks, documented)
}

// changedByTheHub requires that an apply says what admission has made of a policy, and that the plan after it shows that.
func changedByTheHub(t *testing.T, client *kube.Client, cli *acctest.CLI) {
	var objects []*unstructured.Unstructured
	for _, text := range []string{`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: gpuplan-test-priority}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [policy.karmada.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [propagationpolicies]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{priority: 9}}"}}]
`, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: gpuplan-test-priority}
spec: {policyName: gpuplan-test-priority}
`} {
		obj := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &obj.Object))
		objects = append(objects, obj)
		t.Cleanup(func() {
			assert.NoError(t, client.Delete(context.Background(), obj.GroupVersionKind(), "", obj.GetName()))
		})
	}
	require.NoError(t, client.ApplyAll(t.Context(), objects, nil))
	probe := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "Secret"}}}}}
	probe.SetGroupVersionKind(karmadas)
	probe.SetNamespace("default")
	probe.SetName("probe")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the server takes up what admits in its own time
		tried, err := client.TryCreate(t.Context(), probe)
		if assert.NoError(c, err) {
			priority, _, _ := unstructured.NestedInt64(tried.Object, "spec", "priority")
			assert.EqualValues(c, 9, priority)
		}
	}, time.Minute, 200*time.Millisecond)
	cli.Write(t, policyOf(selector+"  priority = 1"))
	output := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, output, "What was written to default/example-policy is not what the hub has made of it: priority.")
	assert.Regexp(t, `~ priority += 9 -> 1`, cli.Must(t, "plan"))
	cli.Must(t, "destroy", "-auto-approve")
}
