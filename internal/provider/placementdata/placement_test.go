package placementdata_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// The questions are answered at plan, about nodes that do not exist yet.
func TestWhatIf(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	workers := func(n int) config.Variable { return config.IntegerVariable(n) }
	ask := func(variables config.Variables, outputs map[string]knownvalue.Check) resource.TestStep {
		var checks []plancheck.PlanCheck
		for name, check := range outputs {
			checks = append(checks, plancheck.ExpectKnownOutputValue(name, check))
		}
		return resource.TestStep{
			ConfigFile: config.StaticFile("testdata/whatif/main.tf"), ConfigVariables: variables,
			PlanOnly: true, ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: checks},
		}
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			ask(nil, map[string]knownvalue.Check{
				"fits": knownvalue.Bool(true), "fit": knownvalue.Int64Exact(4), "fix": knownvalue.StringExact(""),
				"worker": knownvalue.StringExact("worker-0..3 GPU 0-3: 50 GB/s, 2 NVLink rings"),
			}),
			ask(config.Variables{"workers": workers(20)}, map[string]knownvalue.Check{
				"fits": knownvalue.Bool(false), "fit": knownvalue.Int64Exact(16), "fix": knownvalue.StringExact("pool size 3 (now 2) for pool v100"),
			}),
			ask(config.Variables{"workers": workers(20), "sizes": config.MapVariable(map[string]config.Variable{"v100": workers(3)})}, map[string]knownvalue.Check{
				"fits": knownvalue.Bool(true), "fit": knownvalue.Int64Exact(20),
			}),
			ask(config.Variables{"without": config.ListVariable(config.StringVariable("v100[0]"))}, map[string]knownvalue.Check{
				"fits": knownvalue.Bool(true), "node": knownvalue.StringExact("v100[1]"), "worker": knownvalue.StringExact("worker-0..3 GPU 0-3: 50 GB/s, 2 NVLink rings"),
			}),
			{
				ConfigFile:      config.StaticFile("testdata/whatif/main.tf"),
				ConfigVariables: config.Variables{"sizes": config.MapVariable(map[string]config.Variable{"a10": workers(3)})},
				PlanOnly:        true,
				ExpectError:     acctest.Saying(`pools has no pool "a10".`),
			},
			{
				ConfigFile:      config.StaticFile("testdata/whatif/main.tf"),
				ConfigVariables: config.Variables{"without": config.ListVariable(config.StringVariable("v100[7]"))},
				PlanOnly:        true,
				ExpectError:     acctest.Saying(`There is no node "v100[7]"; the nodes are v100[0], v100[1].`),
			},
		},
	})
}

// The function answers without a cluster, about nodes that are only described, what the data source answers about them.
func TestFunction(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	text, object := knownvalue.StringExact, knownvalue.ObjectPartial
	resource.UnitTest(t, resource.TestCase{
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_8_0)},
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile: config.StaticFile("testdata/function/main.tf"), PlanOnly: true, ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{
				plancheck.ExpectKnownOutputValue("same", knownvalue.Bool(true)),
				plancheck.ExpectKnownOutputValue("fits", object(map[string]knownvalue.Check{
					"fits": knownvalue.Bool(true), "members_fit": knownvalue.Int64Exact(4), "verdict": text("4 of 4 members fit."),
					"placement": knownvalue.MapExact(map[string]knownvalue.Check{"v100[0]": text("worker-0..3 GPU 0-3: 50 GB/s, 2 NVLink rings")}),
				})),
				plancheck.ExpectKnownOutputValue("short", object(map[string]knownvalue.Check{
					"fits": knownvalue.Bool(false), "members_asked": knownvalue.Int64Exact(20), "members_fit": knownvalue.Int64Exact(16),
					"reasons": knownvalue.ListPartial(map[int]knownvalue.Check{0: object(map[string]knownvalue.Check{"code": text("NotEnoughGPUs"), "nodes": knownvalue.Int64Exact(2)})}),
					"fixes":   knownvalue.ListPartial(map[int]knownvalue.Check{0: object(map[string]knownvalue.Check{"kind": text("pool size"), "target": text("v100"), "to": text("3")})}),
				})),
				plancheck.ExpectKnownOutputValue("tainted", text("SelectorMismatch Untolerated")),
				plancheck.ExpectKnownOutputValue("shared", knownvalue.Bool(true)),
				plancheck.ExpectKnownOutputValue("nothing", text("NoNodes")),
			}},
		}},
	})
}

func TestMistakesInArguments(t *testing.T) {
	acctest.ClearEnv(t)
	const gang, pools = `{ roles = { worker = { gpus = 1 } } }`, `[{ instance_type = "ecs.gn6v-c10g1.20xlarge" }]`
	for name, test := range map[string]struct{ nodes, gang, says string }{
		"no list":           {`"v100"`, gang, "nodes: write a list of pools, as in [gpuplan_node_pool.NAME.capacity] or"},
		"no pool":           {`["v100"]`, gang, "nodes[0]: write an object."},
		"instance type":     {`[{ instance_type = "ecs.gn6v-c10g1.20xlarg" }]`, gang, `nodes[0].instance_type: There is no GPU instance type "ecs.gn6v-c10g1.20xlarg". Did you mean ecs.gn6v-c10g1.20xlarge,`},
		"attribute":         {`[{ instance_type = "ecs.gn6v-c10g1.20xlarge", count = 2 }]`, gang, `nodes[0]: there is no attribute "count"; the attributes are gpu_policy, instance_type, labels, mode, name, size, taints.`},
		"mode of nodes":     {`[{ instance_type = "ecs.gn6v-c10g1.20xlarge", mode = "whole" }]`, gang, `nodes[0].mode: there is no mode "whole"; the modes are default, topology, share,`},
		"policy":            {`[{ instance_type = "ecs.gn8is.4xlarge", mode = "share", gpu_policy = "pack" }]`, gang, `nodes[0].gpu_policy: there is no policy "pack"; the policies are binpack and spread.`},
		"taint":             {`[{ instance_type = "ecs.gn8is.4xlarge", taints = [{ key = "team" }] }]`, gang, `nodes[0].taints[0]: a taint has a key, and one of the effects NoSchedule, PreferNoSchedule, NoExecute.`},
		"size":              {`[{ instance_type = "ecs.gn6v-c10g1.20xlarge", size = 2001 }]`, gang, "nodes[0].size: a pool has 0 to 2000 nodes, not 2001."},
		"twice":             {`[{ instance_type = "ecs.gn6v-c10g1.20xlarge" }, { instance_type = "ecs.gn6v-c10g1.20xlarge" }]`, gang, `nodes[1]: there are two pools "ecs.gn6v-c10g1.20xlarge": give each a name of its own.`},
		"no gang":           {pools, `"worker"`, "gang: write an object with the attributes minimum, mode, node_selector, roles."},
		"no roles":          {pools, `{}`, "gang.roles: write at least one role, as in"},
		"role":              {pools, `{ roles = { worker = { gpu = 1 } } }`, `gang.roles["worker"]: there is no attribute "gpu"; the attributes are core_percent, cpu, gpus,`},
		"null role":         {pools, `{ roles = { worker = null } }`, `gang.roles["worker"] is null: leave it out.`},
		"number":            {pools, `{ roles = { worker = { gpus = "many" } } }`, `gang.roles["worker"].gpus: write a number.`},
		"fraction":          {pools, `{ roles = { worker = { gpus = 0.5 } } }`, `gang.roles["worker"].gpus: 0.5 is not an integer.`},
		"many GPUs":         {pools, `{ roles = { worker = { gpus = 1e30 } } }`, `gang.roles["worker"].gpus is 1e+30: no number of that size can be meant.`},
		"many replicas":     {pools, `{ roles = { worker = { replicas = 4294967296 } } }`, `gang.roles["worker"].replicas is 4294967296: no number of that size can be meant.`},
		"many nodes":        {`[{ instance_type = "ecs.gn8is.4xlarge", size = "1e30" }]`, gang, "nodes[0].size is 1e+30: no number of that size can be meant."},
		"many pools":        {`[for i in range(51) : { name = "p${i}", instance_type = "ecs.gn8is.4xlarge", size = 2000 }]`, gang, "nodes: the pools have more than 100000 nodes together"},
		"fraction of nodes": {`[{ instance_type = "ecs.gn8is.4xlarge", size = 1.5 }]`, gang, "nodes[0].size: 1.5 is not an integer."},
		"null label":        {`[{ instance_type = "ecs.gn8is.4xlarge", labels = { a = null } }]`, gang, `nodes[0].labels["a"] is null: leave it out.`},
		"nodes of nobody":   {`[{ nodes = [{}] }]`, gang, "nodes[0] is not the capacity of a gpuplan_node_pool as it is"},
		"flag":              {pools, `{ roles = { worker = { gpus = 1, rdma = "maybe" } } }`, `gang.roles["worker"].rdma: write true or false.`},
		"mode":              {pools, `{ mode = "share", roles = { worker = { gpus = 1 } } }`, `gang.mode: there is no mode "share"; the modes are topology, default and shared.`},
		"minimum":           {pools, `{ minimum = -1, roles = { worker = { gpus = 1 } } }`, `minimum: at least 1 member must run, not -1: leave minimum out instead.`},
		"amount of the job": {pools, `{ roles = { worker = { gpus = 1, cpu = "8GB" } } }`, `roles["worker"].cpu:`},
	} {
		t.Run(name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{
				TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_8_0)},
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{{
					Config: "terraform {\n  required_providers {\n    gpuplan = { source = \"hashicorp/gpuplan\" }\n  }\n}\n" +
						"output \"x\" {\n  value = provider::gpuplan::placement(" + test.nodes + ", " + test.gang + ")\n}\n",
					PlanOnly: true, ExpectError: acctest.Saying(test.says),
				}},
			})
		})
	}
}

// Of a gang that an invalid quota tree governs nobody knows what it may use; the others are answered.
func TestPlacementBesideAnInvalidTree(t *testing.T) {
	for governed, says := range map[string]string{"default": "Quota cannot be checked", "other": ""} {
		t.Run(governed, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": contract.QuotaTreeResource + "." + contract.QuotaTreeGroup},
				"spec": map[string]any{
					"group": contract.QuotaTreeGroup, "scope": "Namespaced", "versions": []any{map[string]any{"name": contract.QuotaTreeVersion, "served": true}},
					"names": map[string]any{"kind": contract.QuotaTreeKind, "plural": contract.QuotaTreeResource},
				},
			}})
			tree := podtest.QuotaTree(map[string]any{"name": "root", "namespaces": []any{governed}, "max": map[string]any{"cpu": "many"}})
			tree.SetAPIVersion(contract.QuotaTreeGroup + "/" + contract.QuotaTreeVersion)
			tree.SetKind(contract.QuotaTreeKind)
			tree.SetNamespace(contract.QuotaTreeNamespace)
			cloud.API.Put(tree)
			cli := acctest.StartCLI(t)
			cli.Write(t, `
data "gpuplan_placement" "x" {
  mode  = "topology"
  roles = { worker = { replicas = 1, gpus = 1 } }
}
`)
			said, err := cli.Run("plan")
			said = acctest.Unwrapped(said)
			assert.Equal(t, says != "", err != nil, said)
			assert.Contains(t, said, says)
		})
	}
}
