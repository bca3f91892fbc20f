package instancetypes_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// plan expects outputs that are known at plan, without any access.
func plan(t *testing.T, folder string, outputs map[string]knownvalue.Check, checks ...tfversion.TerraformVersionCheck) {
	t.Helper()
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	var planned []plancheck.PlanCheck
	for name, check := range outputs {
		planned = append(planned, plancheck.ExpectKnownOutputValue(name, check))
	}
	resource.UnitTest(t, resource.TestCase{
		TerraformVersionChecks:   checks,
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile: config.StaticFile("testdata/" + folder + "/main.tf"), PlanOnly: true, ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: planned},
		}},
	})
}

func names(values ...string) knownvalue.Check {
	checks := []knownvalue.Check{}
	for _, v := range values {
		checks = append(checks, knownvalue.StringExact(v))
	}
	return knownvalue.ListExact(checks)
}

func TestFilters(t *testing.T) {
	plan(t, "filters", map[string]knownvalue.Check{
		"count":   knownvalue.Int64Exact(int64(len(catalog.InstanceTypes()))),
		"v100":    names("ecs.ebmgn6e.24xlarge", "ecs.ebmgn6v.24xlarge", "ecs.gn6e-c12g1.24xlarge", "ecs.gn6v-c10g1.20xlarge", "ecs.gn6v-c8g1.16xlarge"),
		"v100_32": names("ecs.ebmgn6e.24xlarge", "ecs.gn6e-c12g1.24xlarge"),
		"l20":     names("ecs.ebmgn8is.32xlarge"),
		"without": names(),
	})
}

// A type of the list is what the function returns.
func TestFunction(t *testing.T) {
	plan(t, "function", map[string]knownvalue.Check{
		"same": knownvalue.Bool(true),
		"type": knownvalue.ObjectPartial(map[string]knownvalue.Check{
			"family": knownvalue.StringExact("ecs.gn8is"), "gpus": knownvalue.Int64Exact(1), "gpu_model": knownvalue.StringExact("NVIDIA L20"),
			"gpu_memory_gib": knownvalue.Int64Exact(48), "gpu_memory_mib": knownvalue.Int64Exact(46068), "erdma_devices": knownvalue.Int64Exact(1),
			"links": names("X"),
		}),
		"topology": knownvalue.ObjectPartial(map[string]knownvalue.Check{
			"milli_cpu": knownvalue.Int64Exact(15890),
			"extended":  knownvalue.MapExact(map[string]knownvalue.Check{"aliyun.com/gpu": knownvalue.Int64Exact(1), "aliyun/erdma": knownvalue.Int64Exact(200)}),
		}),
		"shared": knownvalue.Int64Exact(44),
	}, tfversion.SkipBelow(tfversion.Version1_8_0))
}

func TestMistakes(t *testing.T) {
	acctest.ClearEnv(t)
	for name, test := range map[string]struct{ config, says string }{
		"model":    {`data "gpuplan_instance_types" "x" { gpu_model = "V200" }`, `No GPU of the catalogue has "V200" in its name; the GPUs are NVIDIA A10, NVIDIA A100-SXM4-40GB,`},
		"number":   {`data "gpuplan_instance_types" "x" { min_gpus = 0 }`, "Attribute min_gpus value must be at least 1"},
		"function": {`output "x" { value = provider::gpuplan::instance_type("ecs.gn6v-c10g1.21xlarge") }`, `There is no GPU instance type "ecs.gn6v-c10g1.21xlarge". Did you mean ecs.gn6v-c10g1.20xlarge,`},
	} {
		t.Run(name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{
				TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_8_0)},
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{{
					Config:   "terraform {\n  required_providers {\n    gpuplan = { source = \"hashicorp/gpuplan\" }\n  }\n}\n" + test.config + "\n",
					PlanOnly: true, ExpectError: acctest.Saying(test.says),
				}},
			})
		})
	}
}
