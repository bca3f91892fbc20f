package trainingjob_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// disconnected makes sure that a plan has neither cloud nor cluster to look at.
func disconnected(t *testing.T) {
	t.Helper()
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
}

func TestFirstPlanNamesNodesAndGPUs(t *testing.T) {
	disconnected(t)
	job := "gpuplan_training_job.vgg16"
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile:         config.StaticFile("testdata/vgg16/main.tf"),
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(job, tfjsonpath.New("id"), knownvalue.StringExact("default/vgg16")),
				plancheck.ExpectKnownValue(job, tfjsonpath.New("planned_node_count"), knownvalue.Int64Exact(1)),
				plancheck.ExpectKnownValue(job, tfjsonpath.New("planned_placement"), knownvalue.MapExact(map[string]knownvalue.Check{
					"v100[0]": knownvalue.StringExact("worker-0..3 GPU 0-3: 50 GB/s, 2 NVLink rings"),
				})),
				plancheck.ExpectKnownValue(job, tfjsonpath.New("pool_names"), knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("v100")})),
			}},
		}},
	})
}

func TestFirstPlanRefusesAGangThatDoesNotFit(t *testing.T) {
	disconnected(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile:      config.StaticFile("testdata/vgg16/main.tf"),
			ConfigVariables: config.Variables{"workers": config.IntegerVariable(20)},
			PlanOnly:        true,
			ExpectError:     acctest.Saying("Job default/vgg16 does not fit: 16 of 20 members fit"),
		}, {
			ConfigFile:      config.StaticFile("testdata/vgg16/main.tf"),
			ConfigVariables: config.Variables{"workers": config.IntegerVariable(20)},
			PlanOnly:        true,
			ExpectError:     acctest.Saying("Nearest fix: pool size 3 (now 2) for pool v100"),
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

func TestPlanOfJobsThatDoNotFitTogether(t *testing.T) {
	disconnected(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile:         config.StaticFile("testdata/together/main.tf"),
			PlanOnly:           true,
			ExpectNonEmptyPlan: true, // a warning: one of them waits
		}, {
			ConfigFile:      config.StaticFile("testdata/together/main.tf"),
			ConfigVariables: config.Variables{"require_immediate": config.BoolVariable(true)},
			PlanOnly:        true,
			ExpectError:     acctest.Saying("Job default/second fits on its own, but not at the same time as default/first"),
		}},
	})
}

// Jobs of one for_each cannot come after each other: the plan warns of those that it has on the same GPUs.
func TestPlanOfJobsOfOneForEach(t *testing.T) {
	disconnected(t)
	terraform := acctest.StartCLI(t)
	plan := func(members int) string {
		terraform.Write(t, fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "x" {
  for_each  = toset(["a", "b"])
  name      = each.key
  framework = "pytorch"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  roles     = { worker = { replicas = %d, gpus = 1 } }
}
`, members))
		return acctest.Unwrapped(terraform.Must(t, "plan"))
	}
	const same = "Warning: Two jobs are planned on the same GPUs"
	output := plan(8)
	assert.Contains(t, output, same)
	assert.Contains(t, output, "Jobs default/a and default/b are each planned on v100[0] GPU 0,1,2,3,4,5,6,7.")
	assert.Contains(t, output, "jobs of one for_each or count cannot do that, so make two resources of them.")
	output = plan(16)
	assert.NotContains(t, output, same)
	assert.Contains(t, output, "but not at the same time as default/")
}

func TestPlanOfJobsInOrder(t *testing.T) {
	disconnected(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile:         config.StaticFile("testdata/together/main.tf"),
			ConfigVariables:    config.Variables{"workers": config.IntegerVariable(8), "ordered": config.BoolVariable(true)},
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{
				onNode("gpuplan_training_job.first", "v100[0]"),
				onNode("gpuplan_training_job.second", "v100[1]"),
			}},
		}, {
			ConfigFile:      config.StaticFile("testdata/together/main.tf"),
			ConfigVariables: config.Variables{"ordered": config.BoolVariable(true)},
			PlanOnly:        true,
			ExpectError:     acctest.Saying("Job default/second does not fit: 6 of 10 members fit"),
		}},
	})
}

func TestPlanChecksTheQuota(t *testing.T) {
	disconnected(t)
	file := config.StaticFile("testdata/quota/main.tf")
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile:         file,
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
		}, {
			// Whichever of the two Terraform visits first.
			ConfigFile:      file,
			ConfigVariables: config.Variables{"leaf": config.StringVariable("sound")},
			PlanOnly:        true,
			ExpectError:     acctest.Saying(`Job default/vgg16 is charged to the quota leaf "sound", which the planned quota tree does not have`),
		}, {
			ConfigFile:      file,
			ConfigVariables: config.Variables{"max": config.StringVariable("3"), "quota_by_name": config.BoolVariable(false)},
			PlanOnly:        true,
			ExpectError:     acctest.Saying("Job default/vgg16 fits on its pools, but can never run within its quota"),
		}},
	})
}

func TestPlanSaysWhatItCannotCheck(t *testing.T) {
	disconnected(t)
	file := config.StaticFile("testdata/unknown/main.tf")
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile:         file,
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue("gpuplan_training_job.vgg16", tfjsonpath.New("planned_placement")),
			}},
		}, {
			// Which image a job runs says nothing about where.
			ConfigFile:      file,
			ConfigVariables: config.Variables{"image_only": config.BoolVariable(true)},
			PlanOnly:        true,
			ExpectError:     acctest.Saying("16 of 20 members fit"),
		}},
	})
}

func TestInvalidJobs(t *testing.T) {
	disconnected(t)
	role := func(name string, attributes config.Variables) config.Variable {
		return config.MapVariable(map[string]config.Variable{name: config.ObjectVariable(attributes)})
	}
	number, text := config.IntegerVariable[int], config.StringVariable
	cases := map[string]struct {
		variables config.Variables
		want      string
	}{
		"core percentage": {
			config.Variables{"roles": role("worker", config.Variables{"memory_gib": number(4), "core_percent": number(7)})},
			"7 is no multiple of 5 from 5 to 100: use 5.",
		},
		"no cores": {
			config.Variables{"roles": role("worker", config.Variables{"memory_gib": number(4), "core_percent": number(0)})},
			"0 is no multiple of 5 from 5 to 100: leave it out, or write null, to limit memory only.",
		},
		"malformed cpu": {
			config.Variables{"roles": role("worker", config.Variables{"memory_gib": number(4), "cpu": text("8 cores")})},
			`"8 cores" is not an amount`,
		},
		"malformed memory": {
			config.Variables{"roles": role("worker", config.Variables{"memory_gib": number(4), "memory": text("64GB")})},
			`"64GB" is not an amount`,
		},
		"role of another framework": {
			config.Variables{"roles": role("launcher", config.Variables{"memory_gib": number(4)})},
			`has the roles master and worker; there is no role "launcher".`,
		},
		"mode that does not exist": {
			config.Variables{"mode": text("mps"), "roles": role("worker", config.Variables{"gpus": number(1)})},
			`Attribute mode value must be one of: ["default" "topology" "shared"], got: "mps"`,
		},
		"framework that does not exist": {
			config.Variables{"framework": text("horovod"), "roles": role("worker", config.Variables{"memory_gib": number(4)})},
			`Attribute framework value must be one of: ["mpi" "pytorch" "trainjob" "jobset" "batch"], got: "horovod"`,
		},
		"minimum of a role above its replicas": {
			config.Variables{"roles": role("worker", config.Variables{"memory_gib": number(4), "replicas": number(2), "minimum": number(3)})},
			"minimum is 3, but the role has 2 replicas.",
		},
		"minimum of a role that does not fit": {
			config.Variables{"mode": text("topology"), "roles": role("worker", config.Variables{"gpus": number(1), "replicas": number(40), "minimum": number(20)})},
			"16 of 20 members fit",
		},
		"workers that cannot share a node": {
			config.Variables{"mode": text("topology"), "host_network": config.BoolVariable(true), "roles": role("worker", config.Variables{"gpus": number(1), "replicas": number(3)})},
			"2 of 3 members fit",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{{
					ConfigFile:      config.StaticFile("testdata/shared/main.tf"),
					ConfigVariables: c.variables,
					PlanOnly:        true,
					ExpectError:     acctest.Saying(c.want),
				}},
			})
		})
	}
}

// ACK's own scheduler places only members that ask for the same by their links; ours does not mind.
func TestPlanOfMembersThatAreNotAlike(t *testing.T) {
	disconnected(t)
	terraform := acctest.StartCLI(t)
	job := func(more string) string {
		return strings.Replace(lone("pytorch", "{ gpus = 2 }", more), "{ worker =", "{ master = { gpus = 1 }, worker =", 1)
	}
	const theirs, says = `scheduler_name = "default-scheduler"`, `Job default/a: gpus is 2, and that of role "master" is 1.`
	terraform.Write(t, job(theirs))
	said, err := terraform.Run("plan")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), says)
	for more, warns := range map[string]bool{theirs + "\nplacement_check = \"warn\"": true, theirs + "\nplacement_check = \"off\"": false, "": false} {
		terraform.Write(t, job(more))
		assert.Equal(t, warns, strings.Contains(acctest.Unwrapped(terraform.Must(t, "plan")), says), more)
	}

	const open = "resource \"terraform_data\" \"open\" {\n  input = 2\n}\n"
	unknown := func(config, attribute, value string) string {
		return open + strings.Replace(config, attribute+value, attribute+"terraform_data.open.output", 1)
	}
	terraform.Write(t, unknown(job(theirs), "size          = ", "2"))
	said, err = terraform.Run("plan")
	require.Error(t, err, "of the job itself all is known")
	assert.Contains(t, acctest.Unwrapped(said), says)
	terraform.Write(t, unknown(job(theirs), "master = { gpus = ", "1"))
	said = acctest.Unwrapped(terraform.Must(t, "plan"))
	assert.Contains(t, said, "Whether the job fits is not checked: roles, host_network are unknown until apply.")
	assert.NotContains(t, said, "Replicas are not alike")
}

// onNode expects all members of a job on one node.
func onNode(job, node string) plancheck.PlanCheck {
	return plancheck.ExpectKnownValue(job, tfjsonpath.New("planned_placement").AtMapKey(node), knownvalue.StringRegexp(regexp.MustCompile("worker-0")))
}

// A job that does not fit for its mode alone is told which modes would do.
func TestPlanInAModeThatThePoolDoesNotOffer(t *testing.T) {
	disconnected(t)
	terraform := acctest.StartCLI(t)
	shared := strings.Replace(twoJobs[:strings.LastIndex(twoJobs, "resource ")], "{ replicas = 4, gpus = 1 } }", "{ replicas = 4, memory_gib = 4 } }\n  mode = \"shared\"", 1)
	terraform.Write(t, shared)
	output, err := terraform.Run("plan")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(output), `Use mode "topology" in the job, or a pool in mode "core_mem".`)
}
