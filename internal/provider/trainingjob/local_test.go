package trainingjob_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

const (
	mpi     = "gpuplan_training_job.mpi"
	pytorch = "gpuplan_training_job.pytorch"
	mpiData = "data.gpuplan_training_job.mpi"
)

// oneLine expects a placement on one node.
type oneLine struct{ *regexp.Regexp }

func (l oneLine) CheckValue(v any) error {
	lines, _ := v.(map[string]any)
	for _, line := range lines {
		if text, ok := line.(string); ok && len(lines) == 1 && l.MatchString(text) {
			return nil
		}
	}
	return fmt.Errorf("%v is no placement on one node that says %s", v, l)
}

func step(variables config.Variables) resource.TestStep {
	return resource.TestStep{ConfigFile: config.StaticFile("testdata/local/main.tf"), ConfigVariables: variables}
}

func value(address, attribute string, check knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

// The course of two jobs: what the first plan said happens, changes happen in place
// or with a new job, and the end of a job is the end of its changes.
func TestJobsOnTheLocalPlatform(t *testing.T) {
	client := acctest.OnPlatform(t)

	create := step(nil)
	create.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(mpi, tfjsonpath.New("planned_node_count"), knownvalue.Int64Exact(2)),
	}
	create.ConfigStateChecks = []statecheck.StateCheck{
		value(mpi, "status", knownvalue.StringExact("Running")),
		value(mpi, "placement_as_planned", knownvalue.Bool(true)),
		value(mpiData, "placement", knownvalue.MapSizeExact(2)),
		value(mpiData, "status", knownvalue.StringExact("Running")),
		value(pytorch, "placement_as_planned", knownvalue.Bool(true)),
	}
	create.Check = func(*terraform.State) error {
		acctest.AssertPredicted(t, client, job.MPI.GVK(), "vgg16")
		acctest.AssertPredicted(t, client, job.PyTorch.GVK(), "mnist")
		_, err := client.Get(t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"), "default", "vgg16-mpijob")
		return err
	}

	again := step(nil)
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	importMPI := step(nil)
	importMPI.ResourceName, importMPI.ImportState, importMPI.ImportStateVerify = mpi, true, true
	importMPI.ImportStateVerifyIgnore = []string{"pools", "timeouts", "triggers", "roles", "working_dir"}
	importPyTorch := importMPI
	importPyTorch.ResourceName = pytorch
	importPyTorch.ImportStateVerifyIgnore = []string{"pools", "timeouts", "after", "roles"}

	suspend := step(config.Variables{"suspend": config.BoolVariable(true)})
	suspend.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(mpi, plancheck.ResourceActionUpdate)}
	suspend.ConfigStateChecks = []statecheck.StateCheck{value(mpi, "status", knownvalue.StringExact("Suspended"))}

	resume := step(nil)
	resume.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(mpi, plancheck.ResourceActionUpdate)}
	resume.ConfigStateChecks = []statecheck.StateCheck{
		value(mpi, "status", knownvalue.StringExact("Running")),
		value(mpi, "placement_as_planned", knownvalue.Bool(true)),
	}

	replace := step(config.Variables{"image": config.StringVariable("train:2")})
	replace.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectResourceAction(mpi, plancheck.ResourceActionDestroyBeforeCreate),
		plancheck.ExpectKnownValue(mpi, tfjsonpath.New("planned_placement"), knownvalue.MapSizeExact(2)),
		plancheck.ExpectResourceAction(pytorch, plancheck.ResourceActionNoop),
	}
	replace.ConfigStateChecks = []statecheck.StateCheck{value(mpi, "placement_as_planned", knownvalue.Bool(true))}

	last := config.Variables{
		"image": config.StringVariable("train:2"), "run_for": config.StringVariable("1s"), "wait_for": config.StringVariable("succeeded"),
		"triggers": config.MapVariable(map[string]config.Variable{"run": config.StringVariable("2")}),
	}
	runAgain := step(last)
	runAgain.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(mpi, plancheck.ResourceActionDestroyBeforeCreate)}
	runAgain.ConfigStateChecks = []statecheck.StateCheck{
		value(mpi, "status", knownvalue.StringExact("Succeeded")),
		value(mpi, "placement_as_planned", knownvalue.Bool(true)),
		value(mpiData, "completion_time", knownvalue.NotNull()),
	}

	finished := step(last)
	finished.PreConfig = func() {
		require.NoError(t, client.Delete(t.Context(), job.MPI.GVK(), "default", "vgg16"))
	}
	finished.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	vanished := step(last)
	vanished.PreConfig = func() {
		require.NoError(t, client.Delete(t.Context(), job.PyTorch.GVK(), "default", "mnist"))
	}
	vanished.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectResourceAction(pytorch, plancheck.ResourceActionCreate),
		plancheck.ExpectResourceAction(mpi, plancheck.ResourceActionNoop),
	}

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{create, again, importMPI, importPyTorch, suspend, resume, replace, runAgain, finished, vanished},
		CheckDestroy: func(*terraform.State) error {
			assert.Empty(t, acctest.Jobs(t, client, "default"))
			return nil
		},
	})
}

// Jobs that name no pools are checked against the cluster as it is, and a job that
// has to wait says what for.
func TestJobsOnALiveCluster(t *testing.T) {
	acctest.OnPlatform(t)
	live := func(running, waiting bool, check string) resource.TestStep {
		variables := config.Variables{"running": config.BoolVariable(running), "waiting": config.BoolVariable(waiting)}
		if check != "" {
			variables["placement_check"] = config.StringVariable(check)
		}
		return resource.TestStep{ConfigFile: config.StaticFile("testdata/live/main.tf"), ConfigVariables: variables}
	}
	const anywhere, regular = "gpuplan_training_job.anywhere[0]", "gpuplan_training_job.regular[0]"
	const stock, waiting = "gpuplan_training_job.stock[0]", "gpuplan_training_job.waits[0]"

	run := live(true, false, "")
	run.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectUnknownValue(anywhere, tfjsonpath.New("planned_placement")),
		plancheck.ExpectKnownValue(regular, tfjsonpath.New("planned_placement"), oneLine{regexp.MustCompile(`^worker-0..3: 5 GB/s guaranteed$`)}),
	}
	run.ConfigStateChecks = []statecheck.StateCheck{
		value(anywhere, "planned_placement", knownvalue.NotNull()),
		value(anywhere, "placement_as_planned", knownvalue.Bool(true)),
		value(regular, "placement_as_planned", knownvalue.Bool(true)),
		value(stock, "status", knownvalue.StringExact("Running")),
		value(stock, "planned_placement", knownvalue.Null()),
		value("data.gpuplan_training_job.stock[0]", "placement", knownvalue.NotNull()),
		value("gpuplan_training_job.brief[0]", "status", knownvalue.StringRegexp(regexp.MustCompile("^(Succeeded|CleanedUp)$"))),
	}
	again := live(true, false, "")
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	refused := live(true, true, "")
	refused.ExpectError = acctest.Saying("Job default/waits does not fit: 12 of 20 members fit")
	waits := live(true, true, "off")
	waits.ConfigStateChecks = []statecheck.StateCheck{value(waiting, "status", knownvalue.StringExact("Created"))}

	// A node is added and filled in one apply.
	grown := live(true, true, "")
	grown.ConfigVariables["size"] = config.IntegerVariable(3)
	grown.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(waiting, tfjsonpath.New("planned_node_count"), knownvalue.Int64Exact(3)),
	}
	grown.ConfigStateChecks = []statecheck.StateCheck{
		value(waiting, "status", knownvalue.StringExact("Running")),
		value(waiting, "placement_as_planned", knownvalue.Bool(true)),
	}

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{live(false, false, ""), run, again, refused, waits, live(true, false, ""), grown},
	})
}
