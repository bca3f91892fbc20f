package propagationpolicy_test

import (
	"context"
	"os"
	"strings"
	"testing"

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
	install(t, client, contract.ACKPolicyGroup, true)
	managed(acks, documented)
}
