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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Two queued jobs in a leaf that releases one at a time: what the queue does to them
// is no change for Terraform, and their own changes do not disturb the queue.
func TestQueuedJobsOnTheLocalPlatform(t *testing.T) {
	client := acctest.OnPlatform(t)
	const first, second = "gpuplan_training_job.first[0]", "gpuplan_training_job.second"
	step := func(variables config.Variables) resource.TestStep {
		return resource.TestStep{ConfigFile: config.StaticFile("testdata/queue/main.tf"), ConfigVariables: variables}
	}
	create := step(nil)
	create.ConfigStateChecks = []statecheck.StateCheck{value(first, "status", knownvalue.StringExact("Running"))}
	again := step(nil)
	again.PreConfig = func() { // the node agent publishes after a node is there
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			nodes, err := client.List(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Node"}, "", contract.NodePoolNameLabel)
			require.NoError(c, err)
			for _, node := range nodes {
				published, err := client.Get(t.Context(), schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}, "", node.GetName())
				require.NoError(c, err)
				gpus, _, _ := unstructured.NestedSlice(published.Object, "status", "gpus")
				assert.NotEmpty(c, gpus)
			}
		}, time.Minute, 100*time.Millisecond)
	}
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	const queues, nodes = "data.gpuplan_queues.now", "data.gpuplan_gpu_nodes.now"
	again.ConfigStateChecks = []statecheck.StateCheck{
		value(second, "status", knownvalue.StringExact("Suspended")),
		value(queues, "queues", knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectPartial(map[string]knownvalue.Check{
			"path": knownvalue.StringExact("root/one-at-a-time"), "max_jobs": knownvalue.Int64Exact(1), "jobs": knownvalue.Int64Exact(1),
			"used": knownvalue.MapPartial(map[string]knownvalue.Check{"aliyun.com/gpu": knownvalue.StringExact("4")}),
			"queued": knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"namespace": knownvalue.StringExact("default"), "name": knownvalue.StringExact("second"), "kind": knownvalue.StringExact("PyTorchJob"),
			})}),
		})})),
		value(nodes, "nodes", knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectPartial(map[string]knownvalue.Check{
			"ready": knownvalue.Bool(true), "problem": knownvalue.Null(),
			"topology":    knownvalue.ObjectPartial(map[string]knownvalue.Check{"published": knownvalue.Bool(true), "wiring": knownvalue.StringExact("dgx1-v100")}),
			"allocatable": knownvalue.ObjectPartial(map[string]knownvalue.Check{"gpus": knownvalue.Int64Exact(8)}),
			"free":        knownvalue.ObjectPartial(map[string]knownvalue.Check{"gpus": knownvalue.Int64Exact(4)}),
		})})),
	}

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
