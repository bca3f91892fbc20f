package propagationpolicy_test

import (
	"fmt"
	"testing"
	"time"

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
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const main = "gpuplan_propagation_policy.main"

var (
	acks     = schema.GroupVersionKind{Group: contract.ACKPolicyGroup, Version: "v1alpha1", Kind: contract.PropagationPolicyKind}
	karmadas = schema.GroupVersionKind{Group: contract.KarmadaPolicyGroup, Version: "v1alpha1", Kind: contract.PropagationPolicyKind}
	jobs     = schema.GroupVersionKind{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Kind: contract.PyTorchJobKind}
	clusters = schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Kind: contract.KarmadaClusterKind}
)

// serve has the API server serve kinds.
func serve(t *testing.T, cloud *acctest.Cloud, kinds ...schema.GroupVersionKind) {
	t.Helper()
	plurals := map[schema.GroupVersionKind]string{acks: contract.PropagationPolicyResource, karmadas: contract.PropagationPolicyResource, jobs: contract.PyTorchJobResource, clusters: "clusters"}
	for _, kind := range kinds {
		scope := "Namespaced"
		if kind == clusters {
			scope = "Cluster"
		}
		crd := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec: {group: %[2]s, scope: %[3]s, names: {kind: %[4]s, plural: %[1]s}, versions: [{name: %[5]s, served: true, storage: true}]}
`, plurals[kind], kind.Group, scope, kind.Kind, kind.Version), &crd.Object))
		cloud.API.Put(crd)
	}
}

// hub starts an API server that serves policies, jobs and clusters.
func hub(t *testing.T, policies ...schema.GroupVersionKind) *acctest.Cloud {
	t.Helper()
	cloud := acctest.StartCloud(t)
	serve(t, cloud, append(policies, jobs, clusters)...)
	return cloud
}

func live(t *testing.T, client *kube.Client, kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := client.Get(t.Context(), kind, "default", name)
	require.NoError(t, err)
	return obj
}

func patch(t *testing.T, client *kube.Client, kind schema.GroupVersionKind, text string) {
	t.Helper()
	_, err := client.Dynamic.Resource(kind.GroupVersion().WithResource(contract.PropagationPolicyResource)).Namespace("default").
		Patch(t.Context(), "example-policy", types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
}

func policyOf(attributes string) string {
	return "resource \"gpuplan_propagation_policy\" \"main\" {\n  name = \"example-policy\"\n" + attributes + "\n}\n"
}

const selector = "  resource_selectors = [{ api_version = \"kubeflow.org/v1\", kind = \"PyTorchJob\" }]\n"

// documented is the policy of ACK's document on gangs in a fleet, with the queue.
const documented = selector + `
  propagate_deps = true
  suspension     = { scheduling = true }
  failover = {
    application = {
      decision_conditions = { toleration_seconds = 30 }
      purge_mode          = "Immediately"
    }
  }
  placement = {
    replica_scheduling = {
      replica_scheduling_type = "Divided"
      custom_scheduling_type  = "Gang"
    }
  }`

const documentedYAML = `
suspension: {scheduling: true}
propagateDeps: true
failover:
  application:
    decisionConditions: {tolerationSeconds: 30}
    purgeMode: Immediately
placement:
  replicaScheduling: {replicaSchedulingType: Divided, customSchedulingType: Gang}
resourceSelectors:
- {apiVersion: kubeflow.org/v1, kind: PyTorchJob, namespace: default}
`

// everything writes each field.
const everything = `
  resource_selectors = [
    { api_version = "kubeflow.org/v1", kind = "PyTorchJob", name = "train" },
    { api_version = "v1", kind = "ConfigMap", namespace = "default", label_selector = { match_labels = { team = "vision" }, match_expressions = [{ key = "tier", operator = "In", values = ["a", "b"] }] } },
  ]
  propagate_deps                 = true
  priority                       = 5
  preemption                     = "Never"
  conflict_resolution            = "Overwrite"
  preserve_resources_on_deletion = true
  scheduler_name                 = "mine"
  failover = { application = { decision_conditions = {}, purge_mode = "Gracefully", grace_period_seconds = 60 } }
  placement = {
    cluster_affinities = [
      { affinity_name = "near", cluster_names = ["a", "b"], exclude = ["c"], label_selector = { match_labels = { gpu = "yes" } } },
      { affinity_name = "far", field_selector = { match_expressions = [{ key = "region", operator = "NotIn", values = ["cn-beijing"] }] } },
    ]
    cluster_tolerations = [{ key = "maintenance", operator = "Exists", effect = "NoExecute", toleration_seconds = 60 }, { key = "gpu", value = "yes" }]
    spread_constraints  = [{ spread_by_field = "cluster", min_groups = 1, max_groups = 2 }, { spread_by_label = "rack", max_groups = 1 }]
    replica_scheduling = {
      replica_scheduling_type     = "Divided"
      replica_division_preference = "Weighted"
      weight_preference           = { static_weight_list = [{ target_cluster = { cluster_names = ["a"] }, weight = 2 }, { target_cluster = { exclude = ["a"] }, weight = 1 }] }
    }
  }
  suspension = { dispatching = false, dispatching_on_clusters = { cluster_names = ["b"] } }
  timeouts   = { create = "1m" }
`

const everythingYAML = `
resourceSelectors:
- {apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: train, namespace: default}
- apiVersion: v1
  kind: ConfigMap
  namespace: default
  labelSelector: {matchLabels: {team: vision}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}
propagateDeps: true
priority: 5
preemption: Never
conflictResolution: Overwrite
preserveResourcesOnDeletion: true
schedulerName: mine
failover: {application: {decisionConditions: {tolerationSeconds: 300}, purgeMode: Gracefully, gracePeriodSeconds: 60}}
placement:
  clusterAffinities:
  - {affinityName: near, clusterNames: [a, b], exclude: [c], labelSelector: {matchLabels: {gpu: "yes"}}}
  - {affinityName: far, fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [cn-beijing]}]}}
  clusterTolerations: [{key: maintenance, operator: Exists, effect: NoExecute, tolerationSeconds: 60}, {key: gpu, value: "yes"}]
  spreadConstraints: [{spreadByField: cluster, minGroups: 1, maxGroups: 2}, {spreadByLabel: rack, maxGroups: 1}]
  replicaScheduling:
    replicaSchedulingType: Divided
    replicaDivisionPreference: Weighted
    weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: 2}, {targetCluster: {exclude: [a]}, weight: 1}]}
suspension: {dispatchingOnClusters: {clusterNames: [b]}}
`

// In each of the two groups the policy of the document, and one with every field: written as it is meant, left alone, repaired,
// imported by ID and identity, and destroyed.
func TestPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		kind         schema.GroupVersionKind
		config, spec string
	}{
		"documented": {acks, policyOf(documented), documentedYAML},
		"everything": {karmadas, policyOf(everything), everythingYAML},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := hub(t, test.kind)
			var want any
			require.NoError(t, yaml.Unmarshal([]byte(test.spec), &want))
			isWritten := func(*terraform.State) error {
				obj := live(t, cloud.Kube, test.kind, "example-policy")
				text, err := yaml.Marshal(obj.Object["spec"])
				require.NoError(t, err)
				expected, err := yaml.Marshal(want)
				require.NoError(t, err)
				assert.YAMLEq(t, string(expected), string(text))
				assert.NotEmpty(t, obj.GetLabels()[contract.OwnerLabel])
				return nil
			}
			step := func(before func(), checks ...plancheck.PlanCheck) resource.TestStep {
				return resource.TestStep{PreConfig: before, Config: test.config, Check: isWritten, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: checks}}
			}
			drift := func(text string) resource.TestStep {
				return step(func() { patch(t, cloud.Kube, test.kind, text) }, plancheck.ExpectResourceAction(main, plancheck.ResourceActionUpdate))
			}
			steps := []resource.TestStep{
				step(nil, plancheck.ExpectKnownValue(main, tfjsonpath.New("api_version"), knownvalue.StringExact(test.kind.GroupVersion().String())),
					plancheck.ExpectKnownValue(main, tfjsonpath.New("id"), knownvalue.StringExact("default/example-policy"))),
				step(nil, plancheck.ExpectEmptyPlan()),
				drift(`{"spec":{"propagateDeps":null}}`),
				drift(`{"spec":{"failover":{"application":{"decisionConditions":{"tolerationSeconds":7}}}}}`),
				drift(`{"spec":{"placement":{"clusterAffinity":{"clusterNames":["theirs"]}}}}`),
				drift(`{"spec":{"suspension":{"dispatching":true}}}`),
				step(func() { cloud.API.Remove(test.kind, "default", "example-policy") }, plancheck.ExpectResourceAction(main, plancheck.ResourceActionCreate)),
				{ResourceName: main, ImportState: true, ImportStateVerify: true, Config: test.config},
				{ResourceName: main, ImportState: true, ImportStateId: "x", ExpectError: acctest.Saying("does not name a propagation policy")},
			}
			if acctest.Since(t, 12) {
				steps = append(steps, resource.TestStep{Config: test.config, ResourceName: main, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity})
			}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(), Steps: steps,
				CheckDestroy: func(*terraform.State) error {
					_, err := cloud.Kube.Get(t.Context(), test.kind, "default", "example-policy")
					assert.True(t, kube.IsNotFound(err), "%v", err)
					return nil
				},
			})
		})
	}
}

// What the hub fills in, and fields that the resource does not know, are neither drift nor taken out.
func TestWhatTheHubFillsIn(t *testing.T) {
	cloud := hub(t, karmadas)
	cli := acctest.StartCLI(t)
	cli.Write(t, policyOf(documented))
	cli.Apply(t, 1, 0, 0)
	patch(t, cloud.Kube, karmadas, `{"metadata":{"labels":{"propagationpolicy.karmada.io/permanent-id":"x"}},"spec":{"priority":0,"preemption":"Never","conflictResolution":"Abort",
		"schedulerName":"gpuplan-fleet-scheduler","placement":{"replicaScheduling":{"replicaDivisionPreference":"Weighted"}},"activationPreference":"Lazy"}}`)
	cli.Unchanged(t)
	cli.Write(t, policyOf(documented+"\n  priority = 3"))
	cli.Apply(t, 0, 1, 0)
	spec := live(t, cloud.Kube, karmadas, "example-policy").Object["spec"].(map[string]any)
	assert.EqualValues(t, 3, spec["priority"])
	assert.Equal(t, "Lazy", spec["activationPreference"])
	assert.Equal(t, "gpuplan-fleet-scheduler", spec["schedulerName"])
	assert.Equal(t, "x", live(t, cloud.Kube, karmadas, "example-policy").GetLabels()["propagationpolicy.karmada.io/permanent-id"])
	cli.Unchanged(t)
	patch(t, cloud.Kube, karmadas, `{"spec":{"schedulerName":"other"}}`)
	assert.Regexp(t, `- scheduler_name += "other" -> null`, cli.Must(t, "plan"))
	cli.Apply(t, 0, 1, 0)
	cli.Unchanged(t)
}

// A policy that someone made with kubectl is imported as it is.
func TestImportOfAPolicyOfOthers(t *testing.T) {
	cloud := hub(t, acks)
	theirs := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("metadata: {name: example-policy, namespace: default}\nspec:\n  priority: 0\n"+
		"  resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]\n  suspension: {scheduling: true}\n  propagateDeps: true\n"+
		"  failover: {application: {decisionConditions: {tolerationSeconds: 30}, purgeMode: Immediately}}\n"+
		"  placement: {replicaScheduling: {replicaSchedulingType: Divided, customSchedulingType: Gang}}\n"), &theirs.Object))
	theirs.SetGroupVersionKind(acks)
	cloud.API.Put(theirs)
	cli := acctest.StartCLI(t)
	cli.Write(t, policyOf(documented))
	cli.Must(t, "import", main, "default/example-policy")
	cli.Unchanged(t)
}

// Name and namespace make another policy.
func TestReplacement(t *testing.T) {
	cloud := hub(t, karmadas)
	cli := acctest.StartCLI(t)
	cli.Write(t, policyOf(selector))
	cli.Apply(t, 1, 0, 0)
	cli.Write(t, policyOf(selector+"  namespace = \"other\""))
	cli.Apply(t, 1, 0, 1)
	_, err := cloud.Kube.Get(t.Context(), karmadas, "other", "example-policy")
	require.NoError(t, err)
	_, err = cloud.Kube.Get(t.Context(), karmadas, "default", "example-policy")
	assert.True(t, kube.IsNotFound(err), "%v", err)
	cli.Unchanged(t)
}

// A policy in its own group stays there where the hub begins to serve the other one; new ones get the Fleet's.
func TestHubWithBothGroups(t *testing.T) {
	cloud := hub(t, karmadas)
	cli := acctest.StartCLI(t)
	cli.Write(t, policyOf(selector))
	cli.Apply(t, 1, 0, 0)
	serve(t, cloud, acks)
	theirs := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"priority": int64(9)}}}
	theirs.SetGroupVersionKind(acks)
	theirs.SetNamespace("default")
	theirs.SetName("example-policy")
	cloud.API.Put(theirs)
	cli.Unchanged(t)
	cli.Write(t, policyOf(selector+"  priority = 1")+`
resource "gpuplan_propagation_policy" "new" {
  name = "new"
`+selector+"}\n")
	cli.Apply(t, 1, 1, 0)
	assert.Equal(t, map[string]any{"priority": int64(1), "resourceSelectors": []any{map[string]any{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "default"}}},
		live(t, cloud.Kube, karmadas, "example-policy").Object["spec"])
	live(t, cloud.Kube, acks, "new")
	cli.Unchanged(t)
	cli.Must(t, "destroy", "-auto-approve")
	_, err := cloud.Kube.Get(t.Context(), acks, "default", "new")
	assert.True(t, kube.IsNotFound(err), "%v", err)
	_, err = cloud.Kube.Get(t.Context(), karmadas, "default", "example-policy")
	assert.True(t, kube.IsNotFound(err), "%v", err)
	assert.EqualValues(t, 9, live(t, cloud.Kube, acks, "example-policy").Object["spec"].(map[string]any)["priority"], "what others have in the other group stays")
}

// A cluster that serves neither group is no hub: a plan says so, and an apply fails. What the state has of one is gone.
func TestClusterThatIsNoHub(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	const says = "The cluster is no hub of a fleet: it serves propagation policies neither as policy.one.alibabacloud.com, as the Fleet of ACK One does, nor as policy.karmada.io, as Karmada does"
	cli.Write(t, policyOf(selector))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), says)
	output, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(output), "Error: The cluster is no hub")
	serve(t, cloud, karmadas)
	cli.Apply(t, 1, 0, 0)
	crds := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	cloud.API.Remove(crds, "", contract.PropagationPolicyResource+"."+contract.KarmadaPolicyGroup)
	output = acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, output, says)
	assert.Contains(t, output, "1 to add")
	cli.Must(t, "destroy", "-auto-approve")
}

// What a policy of others has is not changed; what an apply made that was killed is gone on with.
func TestPolicyThatIsThere(t *testing.T) {
	cloud := hub(t, acks)
	theirs := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	theirs.SetGroupVersionKind(acks)
	theirs.SetNamespace("default")
	theirs.SetName("example-policy")
	cloud.API.Put(theirs)
	cli := acctest.StartCLI(t)
	cli.Refuses(t, policyOf(selector), acctest.Saying("There is a policy default/example-policy: it carries no stamp of this provider. Choose another name, or delete it first, or take it over with `terraform import gpuplan_propagation_policy.NAME default/example-policy`"))
	cloud.API.Remove(acks, "default", "example-policy")

	first := types.UID("")
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: acctest.Owner("a") + policyOf(selector), Check: func(*terraform.State) error {
				first = live(t, cloud.Kube, acks, "example-policy").GetUID()
				return nil
			}},
			{Config: acctest.Forgotten(main)},
			{Config: acctest.Owner("b") + policyOf(selector), PlanOnly: true,
				ExpectError: acctest.Saying(`another Terraform configuration manages it, with the owner "a" (this one is "b"). Change it there, or choose another name here`)},
			{Config: acctest.Owner("a") + policyOf(selector+"  priority = 2"), Check: func(*terraform.State) error {
				obj := live(t, cloud.Kube, acks, "example-policy")
				assert.Equal(t, first, obj.GetUID())
				assert.EqualValues(t, 2, obj.Object["spec"].(map[string]any)["priority"])
				return nil
			}},
			{Config: acctest.Owner("a") + policyOf(selector+"  priority = 2"), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}},
		},
	})
}

// A policy that another apply creates at the same time is not changed.
func TestPolicyThatAppearsMeanwhile(t *testing.T) {
	for owner, says := range map[string]string{"b": `another Terraform configuration manages it, with the owner "b" (this one is "a")`, "a": "1 added"} {
		t.Run(owner, func(t *testing.T) {
			cloud := hub(t, karmadas)
			cloud.Meanwhile(t, contract.PropagationPolicyResource, func() {
				theirs := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"priority": int64(9)}}}
				theirs.SetGroupVersionKind(karmadas)
				theirs.SetNamespace("default")
				theirs.SetName("example-policy")
				theirs.SetLabels(map[string]string{contract.OwnerLabel: owner})
				_, err := cloud.Kube.Create(t.Context(), theirs)
				require.NoError(t, err)
			})
			cli := acctest.StartCLI(t)
			cli.Write(t, acctest.Owner("a")+policyOf(selector+"  priority = 1"))
			said, err := cli.Run("apply", "-auto-approve")
			assert.Equal(t, owner == "a", err == nil, said)
			assert.Contains(t, acctest.Unwrapped(said), says)
			assert.EqualValues(t, map[string]int{"a": 1, "b": 9}[owner], live(t, cloud.Kube, karmadas, "example-policy").Object["spec"].(map[string]any)["priority"])
		})
	}
}

// A policy whose deletion goes on is not gone: a destroy ends when the deletion does, and an apply makes a new one after it.
func TestPolicyThatIsBeingDeleted(t *testing.T) {
	cloud := hub(t, karmadas)
	policies := cloud.Kube.Dynamic.Resource(karmadas.GroupVersion().WithResource(contract.PropagationPolicyResource)).Namespace("default")
	cli := acctest.StartCLI(t)
	cli.Write(t, policyOf(selector))
	cli.Apply(t, 1, 0, 0)
	for _, test := range []struct{ command, says string }{{"apply", "1 added, 0 changed, 1 destroyed"}, {"destroy", "1 destroyed"}} {
		patch(t, cloud.Kube, karmadas, `{"metadata":{"finalizers":["karmada.io/propagation-policy-controller"]}}`)
		require.NoError(t, policies.Delete(t.Context(), "example-policy", metav1.DeleteOptions{}))
		assert.Contains(t, cli.Must(t, "plan"), "must be replaced")
		done := make(chan string, 1)
		go func() {
			said, err := cli.Run(test.command, "-auto-approve")
			done <- fmt.Sprint(said, err)
		}()
		select {
		case said := <-done:
			assert.Fail(t, "it did not wait", said)
		case <-time.After(4 * time.Second):
		}
		patch(t, cloud.Kube, karmadas, `{"metadata":{"finalizers":null}}`)
		assert.Contains(t, <-done, test.says)
	}
}

// A plan warns of what the policy names and the hub does not have, unless nothing changes.
func TestWhatThePolicyNames(t *testing.T) {
	cloud := hub(t, karmadas)
	for _, name := range []string{"a", "b"} {
		cluster := &unstructured.Unstructured{}
		cluster.SetGroupVersionKind(clusters)
		cluster.SetName(name)
		cloud.API.Put(cluster)
	}
	cli := acctest.StartCLI(t)
	const config = `
  resource_selectors = [
    { api_version = "kubeflow.org/v1", kind = "PyTorchJob" },
    { api_version = "kubeflow.org/v1", kind = "PyTorchJob", name = "train" },
    { api_version = "v1", kind = "ConfigMap", label_selector = { match_labels = { team = "vision" } } },
    { api_version = "v1", kind = "Thing" },
  ]
  placement = { cluster_affinity = { cluster_names = ["a", "typo"], exclude = ["gone"] } }`
	cli.Write(t, policyOf(config))
	said := acctest.Unwrapped(cli.Must(t, "plan"))
	for _, says := range []string{
		`resource_selectors[1]: the namespace default of the hub has no PyTorchJob called "train" yet`,
		"resource_selectors[2]: the namespace default of the hub has no ConfigMap with these labels yet",
		"resource_selectors[3]: the hub serves no v1 Thing",
		`placement.cluster_affinity.cluster_names[1]: the hub has no cluster "typo".`,
		`placement.cluster_affinity.exclude[0]: the hub has no cluster "gone". Its clusters: a, b.`,
	} {
		assert.Contains(t, said, says)
	}
	assert.NotContains(t, said, `no cluster "a"`)
	assert.NotContains(t, said, "resource_selectors[0]", "all of a kind may be none yet")
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(jobs)
	job.SetNamespace("default")
	job.SetName("train")
	cloud.API.Put(job)
	said = acctest.Unwrapped(cli.Must(t, "plan"))
	assert.NotContains(t, said, "has no PyTorchJob")
	cli.Apply(t, 1, 0, 0)
	assert.NotContains(t, cli.Must(t, "plan"), "Warning")
}

// An apply that cannot reach the hub, or may not, says so; a plan without access plans.
func TestPlanWithoutAccess(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	cli := acctest.StartCLI(t)
	cli.Write(t, policyOf(documented))
	output := acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, output, "1 to add")
	assert.Contains(t, output, "Live state is not checked")
	output, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(output), "set kubeconfig or kubeconfig_content in the provider block")
}

// Whatever is unknown of a policy until apply, the plan has not said what the apply does otherwise.
func TestUnknownName(t *testing.T) {
	cloud := hub(t, karmadas)
	cli := acctest.StartCLI(t)
	cli.Write(t, `resource "terraform_data" "later" {
  input = "example-policy"
}
resource "gpuplan_propagation_policy" "main" {
  name = terraform_data.later.output
`+selector+"}\n")
	cli.Apply(t, 2, 0, 0)
	live(t, cloud.Kube, karmadas, "example-policy")
	cli.Unchanged(t)
}
