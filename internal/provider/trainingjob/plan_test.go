package trainingjob_test

import (
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
)

// disconnected makes sure that a plan has neither cloud nor cluster to look at.
func disconnected(t *testing.T) {
	t.Helper()
	for _, variable := range []string{
		"KUBECONFIG", "GPUPLAN_KUBE_CONTEXT", "GPUPLAN_CLUSTER_ID", "GPUPLAN_CS_ENDPOINT", "GPUPLAN_PLACEMENT_CHECK",
		"ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_REGION_ID",
	} {
		t.Setenv(variable, "")
	}
	t.Setenv("HOME", t.TempDir())
}

// message matches a text that Terraform has broken into lines.
func message(text string) *regexp.Regexp {
	return regexp.MustCompile(regexp.MustCompile(`\s+`).ReplaceAllString(regexp.QuoteMeta(text), `[\s│]+`))
}

func TestFirstPlanNamesNodesAndCards(t *testing.T) {
	disconnected(t)
	job := "gpuplan_training_job.vgg16"
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{{
			ConfigFile:         config.StaticFile("testdata/vgg16/main.tf"),
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(job, tfjsonpath.New("id"), knownvalue.StringExact("default/vgg16")),
				plancheck.ExpectKnownValue(job, tfjsonpath.New("planned_node_count"), knownvalue.Int64Exact(1)),
				plancheck.ExpectKnownValue(job, tfjsonpath.New("planned_placement"), knownvalue.ListSizeExact(4)),
				plancheck.ExpectKnownValue(job, tfjsonpath.New("planned_placement").AtSliceIndex(0), knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"member":       knownvalue.StringExact("worker-0"),
					"node":         knownvalue.StringExact("v100[0]"),
					"cards":        knownvalue.ListSizeExact(1),
					"nvlink_rings": knownvalue.Int64Exact(2),
				})),
			}},
		}},
	})
}

func TestFirstPlanRefusesAGangThatDoesNotFit(t *testing.T) {
	disconnected(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{{
			ConfigFile:      config.StaticFile("testdata/vgg16/main.tf"),
			ConfigVariables: config.Variables{"workers": config.IntegerVariable(20)},
			PlanOnly:        true,
			ExpectError:     message("Job default/vgg16 does not fit: 16 of 20 members fit"),
		}, {
			ConfigFile:      config.StaticFile("testdata/vgg16/main.tf"),
			ConfigVariables: config.Variables{"workers": config.IntegerVariable(20)},
			PlanOnly:        true,
			ExpectError:     message("Nearest fix: pool size 3 (now 2) for pool v100"),
		}, {
			ConfigFile:         config.StaticFile("testdata/vgg16/main.tf"),
			ConfigVariables:    config.Variables{"workers": config.IntegerVariable(20), "placement_check": config.StringVariable("warn")},
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
		}, {
			ConfigFile:         config.StaticFile("testdata/vgg16/main.tf"),
			ConfigVariables:    config.Variables{"workers": config.IntegerVariable(20), "size": config.IntegerVariable(3)},
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
		}},
	})
}
