package acctest_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/setting"
	agent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

const (
	pool      = "gpuplan_node_pool.v100"
	program   = "gpuplan_scheduler.this"
	nodeAgent = "gpuplan_node_agent.this"
	tree      = "gpuplan_quota_tree.main"
)

var treeKind = schema.GroupVersionKind{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Kind: contract.QuotaTreeKind}

// A cluster on the real API server, with our real programs: created, left alone,
// changed behind Terraform's back, repaired, imported and destroyed.
func TestClusterOnTheLocalPlatform(t *testing.T) {
	acctest.ClearEnv(t)
	platform := localtest.Start(t)
	for name, value := range platform.Env {
		t.Setenv(name, value)
	}
	client, err := kube.New(platform.Config(t))
	require.NoError(t, err)
	patch := func(resource schema.GroupVersionResource, namespace, name string, kind types.PatchType, text string) {
		var err error
		if namespace == "" {
			_, err = client.Dynamic.Resource(resource).Patch(t.Context(), name, kind, []byte(text), metav1.PatchOptions{FieldManager: "kubectl-edit"})
		} else {
			_, err = client.Dynamic.Resource(resource).Namespace(namespace).Patch(t.Context(), name, kind, []byte(text), metav1.PatchOptions{FieldManager: "kubectl-edit"})
		}
		require.NoError(t, err)
	}
	poolNodes := func() []string {
		list, err := client.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodePoolNameLabel + "=acctest"})
		require.NoError(t, err)
		var names []string
		for _, n := range list.Items {
			names = append(names, n.Name)
		}
		return names
	}
	step := func(checks ...plancheck.PlanCheck) resource.TestStep {
		return resource.TestStep{
			ConfigFile:       config.StaticFile("testdata/platform/main.tf"),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: checks},
		}
	}

	create := step(
		plancheck.ExpectKnownValue(pool, tfjsonpath.New("capacity").AtMapKey("free_gpus"), knownvalue.Int64Exact(16)),
		plancheck.ExpectKnownValue(tree, tfjsonpath.New("leaves"), knownvalue.MapExact(map[string]knownvalue.Check{"vision": knownvalue.StringExact("vision")})),
	)
	again := step(plancheck.ExpectEmptyPlan())

	relabelled := step(plancheck.ExpectResourceAction(pool, plancheck.ResourceActionUpdate), plancheck.ExpectResourceAction(program, plancheck.ResourceActionNoop))
	relabelled.PreConfig = func() {
		nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
		patch(nodes, "", poolNodes()[1], types.MergePatchType, `{"metadata":{"labels":{"ack.node.gpu.schedule":"default"}}}`)
	}
	relabelled.Check = func(*terraform.State) error {
		for _, name := range poolNodes() {
			n, err := client.Typed.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "topology", n.Labels[contract.NodeModeLabel], name)
		}
		return nil
	}

	edited := step(
		plancheck.ExpectResourceAction(program, plancheck.ResourceActionUpdate),
		plancheck.ExpectResourceAction(nodeAgent, plancheck.ResourceActionUpdate),
		plancheck.ExpectResourceAction(tree, plancheck.ResourceActionUpdate),
	)
	edited.PreConfig = func() {
		apps := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
		patch(apps, contract.SystemNamespace, contract.SchedulerName, types.StrategicMergePatchType, `{"spec":{"replicas":3}}`)
		require.NoError(t, client.Typed.CoreV1().ConfigMaps(contract.SystemNamespace).Delete(t.Context(), contract.SchedulerName, metav1.DeleteOptions{}))
		require.NoError(t, client.Typed.RbacV1().ClusterRoles().Delete(t.Context(), contract.NodeAgentName, metav1.DeleteOptions{}))
		patch(treeKind.GroupVersion().WithResource(contract.QuotaTreeResource), contract.QuotaTreeNamespace, contract.QuotaTreeName, types.JSONPatchType,
			`[{"op":"replace","path":"/spec/root/children/0/children/0/max/aliyun.com~1gpu","value":"4"}]`)
	}
	edited.Check = func(*terraform.State) error {
		d, err := client.Typed.AppsV1().Deployments(contract.SystemNamespace).Get(t.Context(), contract.SchedulerName, metav1.GetOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 2, *d.Spec.Replicas)
		assert.EqualValues(t, 2, d.Status.AvailableReplicas)
		_, err = client.Typed.CoreV1().ConfigMaps(contract.SystemNamespace).Get(t.Context(), contract.SchedulerName, metav1.GetOptions{})
		assert.NoError(t, err)
		live, err := client.Get(t.Context(), treeKind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
		require.NoError(t, err)
		children, _, _ := unstructured.NestedSlice(live.Object, "spec", "root", "children")
		vision := children[0].(map[string]any)["children"].([]any)[0].(map[string]any)
		assert.Equal(t, map[string]any{"aliyun.com/gpu": "12"}, vision["max"])
		return nil
	}

	imported := func(address string) resource.TestStep {
		return resource.TestStep{ConfigFile: config.StaticFile("testdata/platform/main.tf"), ResourceName: address, ImportState: true, ImportStateVerify: true}
	}
	importedPool := imported(pool)
	importedPool.ImportStateVerifyIgnore = slices.Collect(maps.Keys(setting.Attributes())) // those that nobody wrote are known then
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			create, again, relabelled, again, edited, again,
			importedPool, imported(program), imported(nodeAgent), imported(tree),
		},
		CheckDestroy: func(*terraform.State) error {
			assert.Empty(t, poolNodes())
			ours, err := scheduler.Objects(scheduler.Options{Image: "x"})
			require.NoError(t, err)
			more, err := agent.Objects(agent.Options{Image: "x"})
			require.NoError(t, err)
			for _, obj := range append(ours, more...) {
				_, err := client.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
				assert.True(t, kube.IsNotFound(err), "%s %s is left: %v", obj.GetKind(), obj.GetName(), err)
			}
			return nil
		},
	})
}
