package placementdata_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

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
				ExpectError:     acctest.Saying(`There is no node "v100[7]"; the nodes are [v100[0] v100[1]].`),
			},
		},
	})
}
