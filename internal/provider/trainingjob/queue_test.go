package trainingjob_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Two queued jobs in a leaf that releases one at a time: what the queue does to them
// is no change for Terraform, and their own changes do not disturb the queue.
func TestQueuedJobsOnTheLocalPlatform(t *testing.T) {
	client := connected(t)
	const first, second = "gpuplan_training_job.first[0]", "gpuplan_training_job.second"
	step := func(variables config.Variables) resource.TestStep {
		return resource.TestStep{ConfigFile: config.StaticFile("testdata/queue/main.tf"), ConfigVariables: variables}
	}
	create := step(nil)
	create.ConfigStateChecks = []statecheck.StateCheck{value(first, "status", knownvalue.StringExact("Running"))}
	again := step(nil)
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	again.ConfigStateChecks = []statecheck.StateCheck{value(second, "status", knownvalue.StringExact("Suspended"))}

	labels := config.Variables{"label": config.StringVariable("b")}
	changed := step(labels)
	changed.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectResourceAction(first, plancheck.ResourceActionUpdate),
		plancheck.ExpectResourceAction(second, plancheck.ResourceActionNoop),
	}
	changed.ConfigStateChecks = []statecheck.StateCheck{value(first, "status", knownvalue.StringExact("Running"))}

	gone := step(config.Variables{"first": config.BoolVariable(false)})
	gone.Check = func(*terraform.State) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.WaitFor(ctx, job.PyTorch.GVK(), "default", "second", func(obj *unstructured.Unstructured) (bool, string, error) {
			status, err := job.StatusOf(obj)
			return status.Runs(0), fmt.Sprint(status.Phase), err
		}, nil)
		return err
	}
	after := step(config.Variables{"first": config.BoolVariable(false)})
	after.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	after.ConfigStateChecks = []statecheck.StateCheck{value(second, "status", knownvalue.StringExact("Running"))}

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{create, again, changed, gone, after},
	})
}
