package quotatree_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

const main = "gpuplan_quota_tree.main"

var kind = schema.GroupVersionKind{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Kind: contract.QuotaTreeKind}

// installKind installs the CRD as the scheduler does.
func installKind(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	var crds []*unstructured.Unstructured
	for _, obj := range objs {
		if obj.GetKind() == "CustomResourceDefinition" {
			crds = append(crds, obj)
		}
	}
	require.NotEmpty(t, crds)
	require.NoError(t, cloud.Kube.ApplyAll(t.Context(), crds, nil))
}

func live(t *testing.T, cloud *acctest.Cloud) *unstructured.Unstructured {
	t.Helper()
	obj, err := cloud.Kube.Get(t.Context(), kind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
	require.NoError(t, err)
	return obj
}

func treeOf(total, quotas, more string) string {
	return fmt.Sprintf("resource \"gpuplan_quota_tree\" \"main\" {\n  total = %s\n  quotas = {\n%s\n  }\n%s\n}\n", total, quotas, more)
}

const (
	total  = `{ "aliyun.com/gpu" = "16", cpu = "160", memory = "600Gi" }`
	quotas = `    research = { min = { "aliyun.com/gpu" = "8" } }
    "research/vision" = { min = { "aliyun.com/gpu" = "4" }, max = { "aliyun.com/gpu" = "16", cpu = "80500m" }, max_jobs = 3, namespaces = ["vision", "default"], lend_limit = { "aliyun.com/gpu" = "2" } }
    "research/speech" = { max = { "aliyun.com/gpu" = "8" } }`
)

func TestQuotaTree(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	config := treeOf(total, quotas, "")

	create := resource.TestStep{Config: config}
	create.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(main, tfjsonpath.New("leaves"), knownvalue.MapExact(map[string]knownvalue.Check{
			"vision": knownvalue.StringExact("vision"), "speech": knownvalue.StringExact("speech")})),
	}
	create.Check = func(*terraform.State) error {
		root, _, _ := unstructured.NestedMap(live(t, cloud).Object, "spec", "root")
		assert.Equal(t, "root", root["name"])
		assert.Equal(t, root["max"], root["min"])
		research := root["children"].([]any)[0].(map[string]any)
		assert.Equal(t, "research", research["name"])
		speech := research["children"].([]any)[0].(map[string]any)
		vision := research["children"].([]any)[1].(map[string]any)
		assert.Equal(t, "speech", speech["name"])
		assert.Equal(t, map[string]any{"aliyun.com/gpu": "16", "cpu": "80500m", "kube-queue/max-jobs": "3"}, vision["max"])
		assert.Equal(t, []any{"default", "vision"}, vision["namespaces"])
		assert.Equal(t, map[string]any{"alibabacloud.com/lendlimit": `{"aliyun.com/gpu":"2"}`}, vision["attributes"])
		return nil
	}
	same := resource.TestStep{Config: config}
	same.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	spelling := resource.TestStep{Config: config, PreConfig: func() { // the same amounts, written otherwise
		patch(t, cloud, `{"spec":{"root":{"min":{"cpu":"160000m","memory":"614400Mi","aliyun.com/gpu":16},"max":{"cpu":"160000m","memory":"614400Mi","aliyun.com/gpu":16}}}}`)
	}}
	spelling.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	drifted := resource.TestStep{Config: config, PreConfig: func() {
		patch(t, cloud, `{"spec":{"root":{"max":{"cpu":"10"}}}}`)
	}}
	drifted.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(main, plancheck.ResourceActionUpdate)}
	drifted.Check = func(*terraform.State) error {
		cpu, _, _ := unstructured.NestedString(live(t, cloud).Object, "spec", "root", "max", "cpu")
		assert.Equal(t, "160", cpu)
		return nil
	}

	gone := resource.TestStep{Config: config, PreConfig: func() { cloud.API.Remove(kind, contract.QuotaTreeNamespace, contract.QuotaTreeName) }}
	gone.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(main, plancheck.ResourceActionCreate)}

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{create, same, spelling, drifted, gone,
			{ResourceName: main, ImportState: true, ImportStateVerify: true},
			{ResourceName: main, ImportState: true, ImportStateVerify: true, ImportStateId: "elasticquotatree"},
			{ResourceName: main, ImportState: true, ImportStateId: "default/x", ExpectError: acctest.Saying("does not name a quota tree")},
		},
		CheckDestroy: func(*terraform.State) error {
			_, err := cloud.Kube.Get(t.Context(), kind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
			assert.True(t, kube.IsNotFound(err), "%v", err)
			return nil
		},
	})
}

// fleetTree is the tree of the document on gang scheduling in a fleet, as someone has applied it.
const fleetTree = `{
  "apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
  "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
  "spec": {"root": {
    "name": "root",
    "max": {"cpu": 999900, "memory": "400000Gi", "kube-queue/max-jobs": 10000000000, "nvidia.com/gpu": 100000},
    "min": {"cpu": 999900, "memory": "400000Gi", "kube-queue/max-jobs": 10000000000, "nvidia.com/gpu": 100000},
    "children": [{
      "name": "child-2",
      "max": {"kube-queue/max-jobs": 1, "cpu": 10000, "nvidia.com/gpu": 10000, "memory": "10000Gi"},
      "namespaces": ["default"]
    }]
  }}
}`

// fleetConfig is the same in Terraform.
func fleetConfig(jobs string) string {
	return treeOf(`{ cpu = "999900", memory = "400000Gi", "nvidia.com/gpu" = "100000" }`,
		`    child-2 = { max = { cpu = "10000", "nvidia.com/gpu" = "10000", memory = "10000Gi" }, max_jobs = 1, namespaces = ["default"] }`, jobs)
}

// The tree of the document on fleets is imported as it is, and declared as it is; its root limits jobs.
func TestTreeOfTheFleetDocument(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	tree := &unstructured.Unstructured{}
	require.NoError(t, tree.UnmarshalJSON([]byte(fleetTree)))
	asShown, err := inventory.QuotaSpec(tree)
	require.NoError(t, err)
	cloud.Put(t, tree)
	cli := acctest.StartCLI(t)
	declared := fleetConfig("  max_jobs = 10000000000")
	cli.Write(t, declared)
	cli.Must(t, "import", main, "kube-system/elasticquotatree")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.", "an import plans nothing")

	root := func() (least, most map[string]any) {
		least, _, _ = unstructured.NestedMap(live(t, cloud).Object, "spec", "root", "min")
		most, _, _ = unstructured.NestedMap(live(t, cloud).Object, "spec", "root", "max")
		return least, most
	}
	for name, broken := range map[string]string{
		"the limit of jobs":        `{"spec":{"root":{"min":{"kube-queue/max-jobs":5},"max":{"kube-queue/max-jobs":5}}}}`,
		"no limit of jobs":         `{"spec":{"root":{"min":{"kube-queue/max-jobs":null},"max":{"kube-queue/max-jobs":null}}}}`,
		"the minimum alone":        `{"spec":{"root":{"min":{"cpu":7}}}}`,
		"a minimum that is gone":   `{"spec":{"root":{"min":{"cpu":null}}}}`,
		"a minimum without a max":  `{"spec":{"root":{"min":{"aliyun.com/gpu":4}}}}`,
		"the maximum alone":        `{"spec":{"root":{"max":{"cpu":7}}}}`,
		"the limit of a node":      `{"spec":{"root":{"children":[{"name":"child-2","max":{"cpu":10000,"nvidia.com/gpu":10000,"memory":"10000Gi"},"namespaces":["default"]}]}}}`,
		"jobs in the maximum only": `{"spec":{"root":{"min":{"kube-queue/max-jobs":null},"max":{"kube-queue/max-jobs":3}}}}`,
	} {
		patch(t, cloud, broken)
		assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), "1 changed", name)
		spec, err := inventory.QuotaSpec(live(t, cloud))
		require.NoError(t, err)
		assert.Equal(t, asShown, spec, "repaired: %s", name)
		least, most := root()
		assert.Equal(t, most, least, "the root's minimum is its maximum, jobs included: %s", name)
	}

	cli.Write(t, fleetConfig(""))
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), "1 changed")
	_, most := root()
	assert.NotContains(t, most, contract.MaxJobsKey)
	cli.Must(t, "destroy", "-auto-approve")
	cli.Write(t, declared)
	cli.Must(t, "apply", "-auto-approve")
	spec, err := inventory.QuotaSpec(live(t, cloud))
	require.NoError(t, err)
	assert.Equal(t, asShown, spec, "what is declared is the document's tree")
}

// A plan says when the cluster lacks the kind of the tree, and nothing before the tree installs it.
func TestPlanNamesTheMissingKind(t *testing.T) {
	const (
		says      = "no gpuplan_scheduler comes before the quota tree that installs it"
		scheduler = "resource \"gpuplan_scheduler\" \"this\" {\n  image = \"x\"\n}\n"
	)
	for name, test := range map[string]struct {
		installed  bool
		more, body string
		warns      bool
	}{
		"nothing":        {warns: true},
		"it is there":    {installed: true},
		"it comes first": {more: scheduler, body: "  depends_on = [gpuplan_scheduler.this]"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			if test.installed {
				installKind(t, cloud)
			}
			cli := acctest.StartCLI(t)
			cli.Write(t, test.more+treeOf(total, quotas, test.body))
			assert.Equal(t, test.warns, strings.Contains(acctest.Unwrapped(cli.Must(t, "plan")), says))
		})
	}
}

func patch(t *testing.T, cloud *acctest.Cloud, text string) {
	t.Helper()
	trees := cloud.Kube.Dynamic.Resource(kind.GroupVersion().WithResource(contract.QuotaTreeResource)).Namespace(contract.QuotaTreeNamespace)
	_, err := trees.Patch(t.Context(), contract.QuotaTreeName, types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
}

// Each broken rule is found at plan and shown at the line of the value that breaks it.
func TestBadInput(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	cli := acctest.StartCLI(t)
	for name, test := range map[string]struct{ total, quotas, says string }{
		"malformed quantity":        {total, `a = { min = { cpu = "4x" } }`, `quotas["a"].min["cpu"]: "4x" is not an amount: write a number with an optional unit`},
		"malformed total":           {`{ cpu = "many" }`, `a = {}`, `total["cpu"]: "many" is not an amount`},
		"half a GPU":                {total, `a = { max = { "aliyun.com/gpu" = "500m" } }`, `quotas["a"].max["aliyun.com/gpu"]: "500m" of aliyun.com/gpu is not a whole number`},
		"min above max":             {total, `a = { min = { cpu = "8" }, max = { cpu = "4" } }`, `quotas["a"].min["cpu"]: min of cpu is`},
		"two leaves, one namespace": {total, "a = { namespaces = [\"x\"] }\n b = { namespaces = [\"x\"] }", `quotas["b"].namespaces: namespace "x" already belongs to root/a`},
		"namespaces above leaves":   {total, "a = { namespaces = [\"x\"] }\n \"a/b\" = {}", `quotas["a"].namespaces: only leaves have namespaces`},
		"a name twice":              {total, "a = {}\n b = {}\n \"b/a\" = {}", `quotas["b/a"]: the name "a" is already used by root/a`},
		"parent missing":            {total, `"a/b" = {}`, `quotas["a/b"]: this is below "a", which is not in quotas. Add an entry "a"`},
		"path with an empty part":   {total, `"a//b" = {}`, `quotas["a//b"]: this is not a path of names`},
		"namespace that cannot be":  {total, `a = { namespaces = ["Not_One"] }`, `quotas["a"].namespaces: "Not_One" cannot be a namespace`},
		"jobs as a resource":        {total, `a = { max = { "kube-queue/max-jobs" = "2" } }`, `quotas["a"].max["kube-queue/max-jobs"]: "kube-queue/max-jobs" is not a resource; limit the number of jobs with max_jobs`},
		"no jobs at all":            {total, `a = { max_jobs = 0 }`, `quotas["a"].max_jobs value must be between 1 and 1000000000000`},
		"jobs in the total":         {`{ "kube-queue/max-jobs" = "2" }`, `a = {}`, `total["kube-queue/max-jobs"]: "kube-queue/max-jobs" is not a resource; limit the number of jobs with max_jobs`},
		"lends more than it has":    {total, `a = { min = { cpu = "1" }, lend_limit = { cpu = "2" } }`, `quotas["a"].lend_limit["cpu"]: lend limit of cpu is`},
		"negative":                  {total, `a = { min = { cpu = "-1" } }`, `quotas["a"].min["cpu"]: "-1" is not an amount`},
		"memory without a unit":     {total, `a = { max = { memory = "64" } }`, `quotas["a"].max["memory"]: this is 64 bytes: memory needs a unit`},
		"no unit, further down":     {`{ memory = "64Gi" }`, `a = {}, "a/b" = { min = { memory = "2k" } }`, `quotas["a/b"].min["memory"]: this is 2000 bytes`},
		"a total without a unit":    {`{ memory = "64" }`, `a = {}`, `total["memory"]: this is 64 bytes`},
		"nothing to share":          {`{}`, `a = {}`, `must contain at least 1 elements`},
	} {
		t.Run(name, func(t *testing.T) {
			cli.Refuses(t, treeOf(test.total, test.quotas, ""), acctest.Saying(test.says))
		})
	}
}

// A rule on which the vendor's pages contradict each other warns, and does not fail.
func TestDisputedRuleOnlyWarns(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{Config: treeOf(total, `a = { min = { cpu = "4" } }
  "a/b" = { min = { cpu = "3" } }
  "a/c" = { min = { cpu = "3" } }`, "")}},
	})
}

func TestSecondTreeIsRefused(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	existing := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{"name": "root"}}}}
	existing.SetGroupVersionKind(kind)
	existing.SetNamespace(contract.QuotaTreeNamespace)
	existing.SetName("theirs")
	cloud.API.Put(existing)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{Config: treeOf(total, quotas, ""), PlanOnly: true,
			ExpectError: acctest.Saying("there is kube-system/theirs: it carries no stamp of this provider. Delete it first, or take it over with `terraform import gpuplan_quota_tree.NAME kube-system/theirs`")}},
	})
}

// A tree of an apply that was killed is continued; another configuration's never is.
func TestTreeOfAnApplyThatWasKilled(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	uid := func() types.UID { return live(t, cloud).GetUID() }
	var first types.UID
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: acctest.Owner("a") + treeOf(total, `research = {}`, ""), Check: func(*terraform.State) error { first = uid(); return nil }},
			{Config: acctest.Forgotten(main)},
			{Config: acctest.Owner("b") + treeOf(total, quotas, ""), PlanOnly: true,
				ExpectError: acctest.Saying(`another Terraform configuration manages it, with the owner "a" (this one is "b"). Change it there; `)},
			{Config: acctest.Owner("a") + treeOf(total, quotas, ""), Check: func(*terraform.State) error { assert.Equal(t, first, uid()); return nil }},
			{Config: acctest.Owner("a") + treeOf(total, quotas, ""), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}},
		},
	})
}

// A tree that the state has lost is not changed without the checks of a change.
func TestLostTreeIsCheckedLikeAChange(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	pod := acctest.GangPod("trainer", "trainer-0", "n1", 0, 1, 2, 3)
	pod.Labels[contract.QuotaLabel] = "vision"
	cloud.Put(t, pod)
	limited := func(amount, more string) string {
		return treeOf(total, `vision = { max = { "aliyun.com/gpu" = "`+amount+`" } }`, more)
	}
	cli := acctest.StartCLI(t)
	cli.Write(t, limited("16", ""))
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "state", "rm", main)

	for name, test := range map[string]struct{ config, refused, warned string }{
		"the same":           {config: limited("16", "")},
		"less than is used":  {config: limited("2", ""), refused: "The plan lowers the maximum of aliyun.com/gpu for vision to 2, but at least 4 stay in use, by default/trainer."},
		"the leaf goes":      {config: treeOf(total, `other = {}`, ""), refused: `The plan removes the leaf "vision", to which running jobs are charged: default/trainer.`},
		"less, with consent": {config: limited("2", "allow_disruption = true"), warned: "but at least 4 stay in use, by default/trainer. That is permitted (allow_disruption)."},
	} {
		t.Run(name, func(t *testing.T) {
			cli.Write(t, test.config)
			said, err := cli.Run("plan")
			said = acctest.Unwrapped(said)
			assert.Contains(t, said, "Quota tree kube-system/elasticquotatree of this configuration exists, and Terraform makes a new one")
			assert.Equal(t, test.refused == "", err == nil, said)
			assert.Contains(t, said, test.refused)
			assert.Contains(t, said, test.warned)
		})
	}
	cli.Write(t, limited("16", ""))
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "Quota tree was there already")
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "No changes")
}

// A tree whose deletion goes on, as after a destroy that was killed, is not gone: a destroy ends when
// the deletion does, and an apply makes a new tree after it.
func TestTreeThatIsBeingDeleted(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	trees := cloud.Kube.Dynamic.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: contract.QuotaTreeResource}).Namespace(contract.QuotaTreeNamespace)
	finalizers := func(value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, value)
		_, err := trees.Patch(t.Context(), contract.QuotaTreeName, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	cli := acctest.StartCLI(t)
	cli.Write(t, treeOf(total, quotas, ""))
	cli.Must(t, "apply", "-auto-approve")
	for _, test := range []struct{ command, says, then string }{
		{"apply", "1 added, 0 changed, 1 destroyed", "No changes"},
		{"destroy", "1 destroyed", "1 to add"},
	} {
		finalizers(`["example.com/slow"]`)
		leaving := live(t, cloud).GetUID()
		require.NoError(t, trees.Delete(t.Context(), contract.QuotaTreeName, metav1.DeleteOptions{}))
		assert.Contains(t, cli.Must(t, "plan"), "must be replaced")
		done := make(chan string, 1)
		go func() {
			said, err := cli.Run(test.command, "-auto-approve")
			done <- fmt.Sprint(said, err)
		}()
		select {
		case said := <-done:
			assert.Fail(t, "it did not wait", said)
		case <-time.After(5 * time.Second):
		}
		require.Equal(t, leaving, live(t, cloud).GetUID())
		finalizers("null")
		assert.Contains(t, <-done, test.says)
		assert.Contains(t, cli.Must(t, "plan"), test.then)
	}
}

// A tree that another apply creates at the same time is not changed.
func TestTreeThatAppearsMeanwhile(t *testing.T) {
	for owner, says := range map[string]string{
		"b": `another Terraform configuration manages it, with the owner "b" (this one is "a")`,
		"a": "1 added",
	} {
		t.Run(owner, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			installKind(t, cloud)
			cloud.Meanwhile(t, contract.QuotaTreeResource, func() {
				theirs := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": map[string]any{"name": "root", "max": map[string]any{"cpu": "1"}}}}}
				theirs.SetGroupVersionKind(kind)
				theirs.SetNamespace(contract.QuotaTreeNamespace)
				theirs.SetName(contract.QuotaTreeName)
				theirs.SetLabels(map[string]string{contract.OwnerLabel: owner})
				_, err := cloud.Kube.Create(t.Context(), theirs)
				require.NoError(t, err)
			})
			cli := acctest.StartCLI(t)
			cli.Write(t, acctest.Owner("a")+treeOf(total, quotas, ""))
			said, err := cli.Run("apply", "-auto-approve")
			assert.Equal(t, owner == "a", err == nil, said)
			assert.Contains(t, acctest.Unwrapped(said), says)
			cpu, _, _ := unstructured.NestedString(live(t, cloud).Object, "spec", "root", "max", "cpu")
			assert.Equal(t, map[string]string{"a": "160", "b": "1"}[owner], cpu)
		})
	}
}

func TestKindThatIsNotInstalled(t *testing.T) {
	acctest.StartCloud(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{Config: treeOf(total, quotas, `timeouts = { create = "10s" }`),
			ExpectError: acctest.Saying("The kind ElasticQuotaTree is not installed. A gpuplan_scheduler installs it")}},
	})
}

// The kind may be installed while the tree already waits for it.
func TestKindThatIsInstalledMeanwhile(t *testing.T) {
	cloud := acctest.StartCloud(t)
	step := resource.TestStep{Config: treeOf(total, quotas, "")}
	step.ConfigPlanChecks.PostApplyPreRefresh = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	installed := make(chan struct{})
	go func() {
		defer close(installed)
		installKind(t, cloud)
	}()
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{step}})
	<-installed
}

func TestQuotaOfRunningJobs(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	pod := acctest.GangPod("trainer", "trainer-0", "n1", 0, 1, 2, 3)
	pod.Labels[contract.QuotaLabel] = "vision"
	other := acctest.GangPod("without-gpus", "without-gpus-0", "n1")
	other.Labels[contract.QuotaLabel] = "vision"
	lower := strings.Replace(quotas, `"aliyun.com/gpu" = "16"`, `"aliyun.com/gpu" = "2"`, 1)
	lower = strings.Replace(lower, `min = { "aliyun.com/gpu" = "4" }, `, "", 1)
	lower = strings.Replace(lower, `, lend_limit = { "aliyun.com/gpu" = "2" }`, "", 1)
	without := `research = {}`
	limits := func(amount string) string {
		return `research = {}
    "research/vision" = { max = { "aliyun.com/gpu" = "` + amount + `" } }`
	}
	unlimited := `research = {}
    "research/vision" = {}`
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: treeOf(total, quotas, "")},
			{Config: treeOf(total, lower, ""), PlanOnly: true, PreConfig: func() { cloud.Put(t, pod); cloud.Put(t, other) },
				ExpectError: acctest.Saying("The plan lowers the maximum of aliyun.com/gpu for research/vision to 2, but at least 4 stay in use, by default/trainer.")},
			{Config: treeOf(total, without, ""), PlanOnly: true,
				ExpectError: acctest.Saying(`The plan removes the leaf "vision", to which running jobs are charged: default/trainer, default/without-gpus.`)},
			{Config: treeOf(strings.Replace(total, `"aliyun.com/gpu" = "16"`, `"aliyun.com/gpu" = "3"`, 1), unlimited, ""), PlanOnly: true,
				ExpectError: acctest.Saying("The plan lowers the maximum of aliyun.com/gpu for the whole tree to 3, but at least 4 stay in use, by default/trainer.")},
			{Config: treeOf(total, lower, "allow_disruption = true")},
			{Config: treeOf(total, limits("3"), "")}, // raised, though not enough: it takes nothing away
			{Config: treeOf(total, unlimited, "")},
			{Config: treeOf(total, limits("0"), ""), PlanOnly: true,
				ExpectError: acctest.Saying("The plan lowers the maximum of aliyun.com/gpu for research/vision to 0, but at least 4 stay in use, by default/trainer.")},
		},
	})
}

// What is unknown of a tree until apply hides no use of it: a plan looks at the leaves that go, and the apply at the rest.
func TestQuotaInUseOfATreeThatIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		quotas, more  string
		plan, applies string
	}{
		"a leaf goes":   {quotas: `other = {}`, plan: `The plan removes the leaf "vision", to which running jobs are charged: default/trainer.`},
		"less":          {quotas: `vision = { max = { "aliyun.com/gpu" = tostring(terraform_data.n.output) } }`, applies: "The plan lowers the maximum of aliyun.com/gpu for vision to 2, but at least 4 stay in use, by default/trainer."},
		"with consent":  {quotas: `other = {}`, more: "allow_disruption = true"},
		"nothing of it": {quotas: "vision = {}"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			installKind(t, cloud)
			pod := acctest.GangPod("trainer", "trainer-0", "n1", 0, 1, 2, 3)
			pod.Labels[contract.QuotaLabel] = "vision"
			cloud.Put(t, pod)
			cli := acctest.StartCLI(t)
			number := func(n int) string { return fmt.Sprintf("resource \"terraform_data\" \"n\" {\n  input = %d\n}\n", n) }
			cli.Write(t, number(16)+treeOf(total, "vision = {}", ""))
			cli.Must(t, "apply", "-auto-approve")

			unknown := `{ "aliyun.com/gpu" = "16", cpu = tostring(100 * terraform_data.n.output) }`
			cli.Write(t, number(2)+treeOf(unknown, test.quotas, test.more))
			said, err := cli.Run("plan", "-out=saved")
			said = acctest.Unwrapped(said)
			assert.Equal(t, test.plan == "", err == nil, said)
			assert.Contains(t, said, test.plan)
			assert.Equal(t, test.more == "", strings.Contains(said, "Use of the quota is checked at apply"), said)
			if test.plan != "" {
				return
			}
			said, err = cli.Run("apply", "saved")
			assert.Equal(t, test.applies == "", err == nil, said)
			assert.Contains(t, acctest.Unwrapped(said), test.applies)
		})
	}
}

// Everything counts that the scheduler charges to a leaf: pods of its namespaces that are of no job, as well.
func TestQuotaOfOtherPods(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	plain := func(namespace, name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resourceapi.MustParse("3"), "memory": resourceapi.MustParse("2Gi")},
			}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	limits := func(cpu, memory string) string {
		return `web = { namespaces = ["web"], max = { cpu = "` + cpu + `", memory = "` + memory + `" } }`
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: treeOf(total, limits("20", "20Gi"), "")},
			{Config: treeOf(total, limits("8", "20Gi"), ""), PlanOnly: true, PreConfig: func() {
				cloud.Put(t, plain("web", "a", nil))
				cloud.Put(t, plain("web", "b", nil))
				cloud.Put(t, plain("elsewhere", "c", map[string]string{contract.QuotaLabel: "web"}))
				cloud.Put(t, plain("elsewhere", "d", nil))
			}, ExpectError: acctest.Saying("The plan lowers the maximum of cpu for web to 8, but at least 9 stay in use, by elsewhere/c, web/a, web/b.")},
			{Config: treeOf(total, limits("20", "5Gi"), ""), PlanOnly: true,
				ExpectError: acctest.Saying("The plan lowers the maximum of memory for web to 5Gi, but at least 6Gi stay in use, by elsewhere/c, web/a, web/b.")},
			{Config: treeOf(total, limits("9", "6Gi"), "")},
			{Config: treeOf(strings.Replace(total, `cpu = "160"`, `cpu = "11"`, 1), limits("9", "6Gi"), ""), PlanOnly: true, PreConfig: func() {
				cloud.Put(t, plain("elsewhere", "e", map[string]string{contract.QuotaLabel: "gone"}))
			}, ExpectError: acctest.Saying("The plan lowers the maximum of cpu for the whole tree to 11, but at least 12 stay in use, by elsewhere/c, elsewhere/e, web/a, web/b.")},
		},
	})
}

// Who is created after a change of the tree sees the tree as it has become, though others have just looked.
func TestJobThatComesWithALeaf(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	jobs := job.PyTorch.GVK()
	cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "pytorchjobs." + jobs.Group},
		"spec": map[string]any{
			"group": jobs.Group, "scope": "Namespaced", "names": map[string]any{"kind": jobs.Kind, "plural": "pytorchjobs"},
			"versions": []any{map[string]any{"name": jobs.Version, "served": true}},
		},
	}})
	cli := acctest.StartCLI(t)
	for _, leaf := range []string{"x", "y", "z"} {
		cli.Write(t, treeOf(total, leaf+" = {}", "")+fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "j" {
  name      = "j"
  framework = "pytorch"
  image     = "train:1"
  quota     = gpuplan_quota_tree.main.leaves[%q]
  pools     = [gpuplan_node_pool.v100.capacity]
  mode      = "default"
  roles     = { master = { gpus = 4 } }
  wait_for  = "none"
}
`, leaf))
		assert.NotContains(t, cli.Must(t, "apply", "-auto-approve"), "Job will wait", leaf)
	}
}

// A tree that someone else has made in the place of ours is theirs: no plan takes it for ours, and neither a change nor
// a destroy touches it. One with our stamp is ours, written again.
func TestTreeInThePlaceOfOurs(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	ours, theirs := acctest.StartCLI(t), acctest.StartCLI(t)
	changed := acctest.Owner("a") + treeOf(total, `other = {}`, "")
	ours.Write(t, acctest.Owner("a")+treeOf(total, `research = {}`, ""))
	ours.Must(t, "apply", "-auto-approve")

	again := live(t, cloud)
	cloud.API.Remove(kind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
	again.SetUID("")
	cloud.API.Put(again)
	ours.Unchanged(t)
	ours.Must(t, "apply", "-auto-approve")

	ours.Write(t, changed)
	ours.Must(t, "plan", "-out=before")
	cloud.API.Remove(kind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
	theirs.Write(t, acctest.Owner("b")+treeOf(total, `vision = {}`, ""))
	theirs.Must(t, "apply", "-auto-approve")

	for _, command := range [][]string{{"plan"}, {"apply", "-auto-approve"}} {
		said, err := ours.Run(command...)
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), `there is kube-system/elasticquotatree: another Terraform configuration manages it, with the owner "b" (this one is "a"). Change it there;`)
	}
	said, err := ours.Run("apply", "before")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "Quota tree kube-system/elasticquotatree is another one since the plan was made: plan again.")
	ours.Must(t, "destroy", "-auto-approve", "-refresh=false")
	theirs.Unchanged(t)
}

// A tree that another configuration has imported and changed is no longer that of the first one, whose state still has it.
func TestTreeThatAnotherConfigurationHasTakenOver(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	first, second := acctest.StartCLI(t), acctest.StartCLI(t)
	first.Write(t, acctest.Owner("a")+treeOf(total, `research = {}`, ""))
	first.Must(t, "apply", "-auto-approve")
	second.Write(t, acctest.Owner("b")+treeOf(total, `vision = {}`, ""))
	assert.Contains(t, acctest.Unwrapped(second.Must(t, "import", "gpuplan_quota_tree.main", "elasticquotatree")),
		`Quota tree kube-system/elasticquotatree carries the owner "a" of another configuration (this one is "b"), which goes on to change it`)
	first.Unchanged(t)
	second.Must(t, "apply", "-auto-approve")

	said, err := first.Run("plan")
	require.Error(t, err, said)
	said = acctest.Unwrapped(said)
	assert.Contains(t, said, `another configuration has taken it over, and its owner is "b" by now (it was "a"). Remove it from this configuration.`)
	assert.Contains(t, said, `another Terraform configuration manages it, with the owner "b" (this one is "a")`)
	first.Must(t, "destroy", "-auto-approve", "-refresh=false")
	second.Unchanged(t)
}

// Pods that name no leaf are charged to that of their namespace, whether a question is about pools or the cluster.
func TestPlacementCountsPodsOfTheNamespace(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	cli := acctest.StartCLI(t)
	config := treeOf(`{ "aliyun.com/gpu" = "8" }`, `    a = { max = { "aliyun.com/gpu" = "4" }, namespaces = ["default"] }`, "") + `
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`
	cli.Write(t, config)
	cli.Must(t, "apply", "-auto-approve")
	cloud.Put(t, acctest.GangPod("x", "x-0", cloud.NodeNames(t)[0], 0, 1, 2))
	for _, pools := range []string{"pools = [gpuplan_node_pool.v100.capacity]", ""} {
		cli.Write(t, config+`
data "gpuplan_placement" "this" {
  namespace = "default"
  roles     = { worker = { replicas = 2, gpus = 1 } }
  `+pools+`
}
output "verdict" { value = data.gpuplan_placement.this.verdict }
`)
		assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "1 of 2 members fit: quota root/a: max of aliyun.com/gpu is 4, 3 is used", pools)
	}
}

// Without a tree, jobs start beyond their quota and evict others: one that is replaced goes on, changed in place, however
// Terraform comes to replace it.
func TestTreeThatIsReplaced(t *testing.T) {
	const trigger = "resource \"terraform_data\" \"n\" {\n  input = %d\n}\n"
	for name, test := range map[string]struct {
		body    string // of the resource
		prepare []string
		option  string
	}{
		"by order":   {option: "-replace=" + main},
		"tainted":    {prepare: []string{"taint", main}},
		"triggered":  {body: "lifecycle {\n    replace_triggered_by = [terraform_data.n]\n  }"},
		"made first": {body: "lifecycle {\n    create_before_destroy = true\n  }", option: "-replace=" + main},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			installKind(t, cloud)
			cli := acctest.StartCLI(t)
			cli.Write(t, fmt.Sprintf(trigger, 1)+treeOf(total, `research = {}`, test.body))
			cli.Must(t, "apply", "-auto-approve")
			first := live(t, cloud).GetUID()
			if test.prepare != nil {
				cli.Must(t, test.prepare...)
			}
			cli.Write(t, fmt.Sprintf(trigger, 2)+treeOf(total, `vision = {}`, test.body))
			said := acctest.Unwrapped(cli.Must(t, append([]string{"apply", "-auto-approve"}, strings.Fields(test.option)...)...))
			assert.Contains(t, said, "1 added, 1 changed, 1 destroyed")
			assert.Contains(t, said, "Quota tree was there already")
			assert.Equal(t, first, live(t, cloud).GetUID(), "it was there all the time")
			assert.Equal(t, "vision", leafOf(t, cloud))
			cli.Unchanged(t)
			cli.Must(t, "destroy", "-auto-approve")
			_, err := cloud.Kube.Get(t.Context(), kind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
			assert.True(t, kube.IsNotFound(err), "%v", err)
		})
	}
}

// leafOf is the name of the first node below the root.
func leafOf(t *testing.T, cloud *acctest.Cloud) string {
	t.Helper()
	children, _, err := unstructured.NestedSlice(live(t, cloud).Object, "spec", "root", "children")
	require.NoError(t, err)
	require.NotEmpty(t, children)
	return children[0].(map[string]any)["name"].(string)
}

// One that was imported and has not the stamp of this configuration yet goes on as well, and gets it.
func TestImportedTreeThatIsReplaced(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	tree := &unstructured.Unstructured{}
	require.NoError(t, tree.UnmarshalJSON([]byte(fleetTree)))
	cloud.Put(t, tree)
	first := live(t, cloud).GetUID()
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("a")+fleetConfig("  max_jobs = 10000000000"))
	cli.Must(t, "import", main, "kube-system/elasticquotatree")
	cli.Must(t, "apply", "-auto-approve", "-replace="+main)
	assert.Equal(t, first, live(t, cloud).GetUID())
	assert.Equal(t, "a", live(t, cloud).GetLabels()[contract.OwnerLabel])
	cli.Unchanged(t)
}

// One of another name cannot go on as the new one: until that is made the cluster has none, which needs consent.
func TestTreeOfAnotherNameThatIsReplaced(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	tree := &unstructured.Unstructured{}
	require.NoError(t, tree.UnmarshalJSON([]byte(fleetTree)))
	tree.SetName("theirs")
	cloud.Put(t, tree)
	cli := acctest.StartCLI(t)
	cli.Write(t, fleetConfig("  max_jobs = 10000000000"))
	cli.Must(t, "import", main, "kube-system/theirs")
	for _, taint := range []bool{false, true} {
		if taint {
			cli.Must(t, "taint", main)
		}
		said, err := cli.Run("plan", "-replace="+main)
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), "Until kube-system/elasticquotatree is made in the place of kube-system/theirs the cluster has no quota tree, and running jobs may be evicted")
	}
	cli.Write(t, fleetConfig("  max_jobs = 10000000000\n  allow_disruption = true"))
	cli.Must(t, "apply", "-auto-approve")
	live(t, cloud)
	_, err := cloud.Kube.Get(t.Context(), kind, contract.QuotaTreeNamespace, "theirs")
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

// A replacement that was cut off before it came to the tree leaves nothing by which a destroy would keep it.
func TestDestroyAfterAReplacementThatFailed(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKind(t, cloud)
	be := func(uid types.UID) {
		cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Namespace"), "", metav1.NamespaceSystem)
		cloud.Put(t, &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid},
		})
	}
	be("first")
	cli := acctest.StartCLI(t)
	cli.Write(t, treeOf(total, quotas, ""))
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "plan", "-out=saved", "-replace="+main)
	be("second")
	said, err := cli.Run("apply", "saved")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "Quota tree was not deleted")
	be("first")
	cli.Must(t, "destroy", "-auto-approve")
	_, err = cloud.Kube.Get(t.Context(), kind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
	assert.True(t, kube.IsNotFound(err), "%v", err)
}
