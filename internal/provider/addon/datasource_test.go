package addon_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// What the service knows, and what the cluster has, is known at plan.
func TestAddonData(t *testing.T) {
	s := start(t)
	s.set("kube-scheduler", `{"binpackPluginWeight":7}`)
	text := knownvalue.StringExact
	step := func(config string, outputs map[string]knownvalue.Check) resource.TestStep {
		step := resource.TestStep{Config: config, PlanOnly: true, ExpectNonEmptyPlan: true}
		for name, check := range outputs {
			step.ConfigPlanChecks.PostApplyPreRefresh = append(step.ConfigPlanChecks.PostApplyPreRefresh, plancheck.ExpectKnownOutputValue(name, check))
		}
		return step
	}
	const outputs = `
output "addon" {
  value = { for key, value in data.gpuplan_addon.x : key => value if !contains(["config", "config_schema"], key) }
}
output "weight" {
  value = nonsensitive(try(jsondecode(data.gpuplan_addon.x.config).binpackPluginWeight, -1))
}
output "setting" {
  value = try(jsondecode(data.gpuplan_addon.x.config_schema).properties.binpackPluginWeight.maximum, -1)
}
`
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			step("data \"gpuplan_addon\" \"x\" {\n  name = \"kube-scheduler\"\n}\n"+outputs, map[string]knownvalue.Check{
				"addon": knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"version": text("v1.36.3-aliyun.1"), "installed_version": text("v1.36.3-aliyun.1"), "state": text("active"),
					"managed": knownvalue.Bool(true), "install_by_default": knownvalue.Bool(true), "newer_versions": knownvalue.ListExact([]knownvalue.Check{}),
					"supported_actions": knownvalue.ListExact([]knownvalue.Check{text("Install"), text("Upgrade"), text("Modify")}),
				}),
				"weight": knownvalue.Int64Exact(7), "setting": knownvalue.Int64Exact(100000),
			}),
			step("data \"gpuplan_addon\" \"x\" {\n  name = \"ack-arena\"\n  version = \"0.15.4\"\n}\n"+outputs, map[string]knownvalue.Check{
				"addon": knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"version": text("0.15.4"), "installed_version": knownvalue.Null(), "state": knownvalue.Null(),
					"newer_versions": knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
						"version": text("0.15.5"), "minimum_cluster_version": text(""), "upgradable": knownvalue.Bool(true),
					})}),
				}),
				"weight": knownvalue.Int64Exact(-1), "setting": knownvalue.Int64Exact(-1),
			}),
			{
				Config: "data \"gpuplan_addon\" \"x\" {\n  name = \"no-such-addon\"\n}\n", PlanOnly: true,
				ExpectError: acctest.SayingAt("name", `The service has no add-on "no-such-addon" for cluster c-acctest.`),
			},
			{
				Config: "data \"gpuplan_addon\" \"x\" {\n  name = \"Kube Scheduler\"\n}\n", PlanOnly: true,
				ExpectError: acctest.SayingAt("name", "must be the name of an add-on: small letters, digits and '-'"),
			},
		},
	})
}
