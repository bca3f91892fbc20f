package fleet_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m, "--members", "2")) }

const config = "data \"gpuplan_fleet\" \"this\" {}\noutput \"clusters\" {\n  value = data.gpuplan_fleet.this.clusters\n}\n"

// serve has the API server serve clusters.
func serve(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	cloud.API.Put(object(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.%[1]s}
spec: {group: %[1]s, scope: Cluster, names: {kind: Cluster, plural: clusters}, versions: [{name: v1alpha1, served: true, storage: true}]}
`, contract.KarmadaClusterGroup)))
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &obj.Object))
	return obj
}

func TestFleet(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serve(t, cloud)
	cloud.API.Put(object(t, `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: near, labels: {gpu: "yes"}}
spec:
  syncMode: Push
  provider: alibaba
  region: cn-hangzhou
  zones: [cn-hangzhou-j, cn-hangzhou-b]
  taints: [{key: maintenance, effect: NoExecute}]
status:
  kubernetesVersion: v1.36.3
  conditions:
  - {type: Ready, status: "True", reason: ClusterReady, message: cluster is healthy and ready to accept workloads, lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: CompleteAPIEnablements, status: "False", reason: Partial, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
  nodeSummary: {totalNum: 3, readyNum: 2}
  resourceSummary:
    allocatable: {aliyun.com/gpu: "16", nvidia.com/gpu: 8, aliyun.com/gpu-mem: "32", cpu: "100"}
    allocating: {aliyun.com/gpu: "4"}
    allocated: {aliyun.com/gpu: "8", nvidia.com/gpu: "9"}
  apiEnablements:
  - {groupVersion: apps/v1, resources: [{name: deployments, kind: Deployment}]}
  - {groupVersion: kubeflow.org/v1, resources: [{name: pytorchjobs, kind: PyTorchJob}, {name: tfjobs, kind: TFJob}]}
  - {groupVersion: batch/v1, resources: [{name: cronjobs, kind: CronJob}, {name: jobs, kind: Job}]}
`))
	cloud.API.Put(object(t, `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: away}
spec: {syncMode: Push}
status: {conditions: [{type: Ready, status: "Unknown", reason: ClusterNotReachable, message: no answer, lastTransitionTime: "2026-01-01T00:00:00Z"}]}
`))
	cloud.API.Put(object(t, "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: new}\nspec: {syncMode: Push}\n"))
	text, number, null := knownvalue.StringExact, knownvalue.Int64Exact, knownvalue.Null()
	list, object := knownvalue.ListExact, knownvalue.ObjectExact
	type fields = map[string]knownvalue.Check
	amounts := func(allocatable, allocated, pending, free int64) knownvalue.Check {
		return object(fields{"allocatable": number(allocatable), "allocated": number(allocated), "pending": number(pending), "free": number(free)})
	}
	job := func(version, kind string) knownvalue.Check {
		return object(fields{"api_version": text(version), "kind": text(kind)})
	}
	bare := func(reason, message knownvalue.Check) knownvalue.Check {
		return object(fields{
			"ready": knownvalue.Bool(false), "reason": reason, "message": message, "kubernetes_version": null, "provider": null, "region": null, "zones": list(nil), "labels": knownvalue.MapExact(nil),
			"taints": list(nil), "nodes": null, "ready_nodes": null, "resources": null, "jobs": list(nil),
		})
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{{
		Config: config,
		ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{plancheck.ExpectKnownOutputValue("clusters", knownvalue.MapExact(fields{
			"near": object(fields{
				"ready": knownvalue.Bool(true), "reason": text("ClusterReady"), "message": text("cluster is healthy and ready to accept workloads"), "kubernetes_version": text("v1.36.3"),
				"provider": text("alibaba"), "region": text("cn-hangzhou"), "zones": list([]knownvalue.Check{text("cn-hangzhou-j"), text("cn-hangzhou-b")}),
				"labels": knownvalue.MapExact(fields{"gpu": text("yes")}),
				"taints": list([]knownvalue.Check{object(fields{"key": text("maintenance"), "value": text(""), "effect": text("NoExecute")})}),
				"nodes":  number(3), "ready_nodes": number(2),
				"resources": knownvalue.MapExact(fields{"aliyun.com/gpu": amounts(16, 8, 4, 4), "nvidia.com/gpu": amounts(8, 9, 0, 0), "aliyun.com/gpu-mem": amounts(32, 0, 0, 32)}),
				"jobs":      list([]knownvalue.Check{job("batch/v1", "Job"), job("kubeflow.org/v1", "PyTorchJob")}),
			}),
			"away": bare(text("ClusterNotReachable"), text("no answer")),
			"new":  bare(null, null),
		}))}},
	}}})
}

func TestFleetThatCannotBeRead(t *testing.T) {
	t.Run("no hub", func(t *testing.T) {
		acctest.StartCloud(t)
		acctest.StartCLI(t).Refuses(t, config, acctest.Saying("The cluster is no hub of Karmada: it does not serve the clusters of a fleet as cluster.karmada.io"))
	})
	t.Run("malformed", func(t *testing.T) {
		cloud := acctest.StartCloud(t)
		serve(t, cloud)
		cloud.API.Put(object(t, "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: odd}\nstatus: {nodeSummary: 3}\n"))
		acctest.StartCLI(t).Refuses(t, config, acctest.Saying("Cluster odd is not what its kind promises"))
	})
	t.Run("no access", func(t *testing.T) {
		acctest.ClearEnv(t)
		t.Setenv("HOME", t.TempDir())
		acctest.StartCLI(t).Refuses(t, config, acctest.Saying("set kubeconfig or kubeconfig_content in the provider block"))
	})
}

// On a hub with Karmada: the policy of ACK's document is accepted as it is, left alone, changed, imported and destroyed, an object
// that a policy selects comes to the member, and the data source tells the member.
func TestFleetOnTheLocalPlatform(t *testing.T) {
	if _, err := os.Stat("../../../bin/gpuplan-karmada"); err != nil {
		t.Skip("gpuplan-karmada is not built: run make fleet")
	}
	hub := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	policies := func(patience string) string {
		return config + `
resource "gpuplan_propagation_policy" "gangs" {
  name               = "gangs"
  resource_selectors = [{ api_version = "kubeflow.org/v1", kind = "PyTorchJob" }]
  propagate_deps     = true
  suspension         = { scheduling = true }
  failover           = { application = { decision_conditions = { toleration_seconds = ` + patience + ` }, purge_mode = "Immediately" } }
  placement          = { replica_scheduling = { replica_scheduling_type = "Divided", custom_scheduling_type = "Gang" } }
}
resource "gpuplan_propagation_policy" "settings" {
  name               = "settings"
  resource_selectors = [{ api_version = "v1", kind = "ConfigMap", name = "settings" }]
  placement          = { cluster_affinity = { cluster_names = ["member-1"] } }
}
resource "gpuplan_quota_tree" "hub" {
  total  = { "nvidia.com/gpu" = 10000 }
  quotas = { default = { namespaces = ["default"], max_jobs = 1 } }
}
`
	}
	cli.Write(t, policies("30"))
	cli.Apply(t, 3, 0, 0)
	cli.Unchanged(t)
	resources := hub.Dynamic.Resource(schema.GroupVersionResource{Group: contract.KarmadaPolicyGroup, Version: "v1alpha1", Resource: contract.PropagationPolicyResource}).Namespace("default")
	gangs, err := resources.Get(t.Context(), "gangs", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "gpuplan-fleet-scheduler", gangs.Object["spec"].(map[string]any)["schedulerName"], "the hub fills it in")
	cli.Write(t, policies("31"))
	cli.Apply(t, 0, 1, 0)
	_, err = resources.Patch(t.Context(), "gangs", types.MergePatchType, []byte(`{"spec":{"suspension":null}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
	cli.Apply(t, 0, 1, 0)
	for _, name := range []string{"gangs", "settings"} {
		cli.Must(t, "state", "rm", "gpuplan_propagation_policy."+name)
		cli.Must(t, "import", "gpuplan_propagation_policy."+name, "default/"+name)
	}
	cli.Unchanged(t)
	output := cli.Must(t, "apply", "-auto-approve", "-refresh-only")
	for _, says := range []string{`"member-1" = {`, `"ready" = true`, `"kind" = "PyTorchJob"`, `"reason" = "ClusterReady"`} {
		assert.Contains(t, strings.Join(strings.Fields(output), " "), says)
	}
	cli.Must(t, "destroy", "-auto-approve")
	_, err = resources.Get(t.Context(), "gangs", metav1.GetOptions{})
	assert.Error(t, err, "Karmada takes its finalizer away")
}
