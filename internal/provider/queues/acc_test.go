package queues_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// installKinds installs the kinds of the scheduler.
func installKinds(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	for _, obj := range objs {
		if obj.GetKind() == "CustomResourceDefinition" {
			cloud.API.Put(obj)
		}
	}
}

func put(t *testing.T, cloud *acctest.Cloud, kind string, object any) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	content["apiVersion"], content["kind"] = contract.QueueGroup+"/"+contract.QueueVersion, kind
	cloud.API.Put(&unstructured.Unstructured{Object: content})
}

func putTree(cloud *acctest.Cloud, root map[string]any) {
	cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.QuotaTreeGroup + "/" + contract.QuotaTreeVersion, "kind": contract.QuotaTreeKind,
		"metadata": map[string]any{"namespace": contract.QuotaTreeNamespace, "name": contract.QuotaTreeName},
		"spec":     map[string]any{"root": root},
	}})
}

func texts(values map[string]string) knownvalue.Check {
	checks := map[string]knownvalue.Check{}
	for key, v := range values {
		checks[key] = knownvalue.StringExact(v)
	}
	return knownvalue.MapExact(checks)
}

// What each leaf uses and borrows, and who waits, is known at plan by one list call of each kind.
func TestQueues(t *testing.T) {
	cloud := acctest.StartCloud(t)
	installKinds(t, cloud)
	putTree(cloud, map[string]any{
		"name": "root", "min": map[string]any{contract.ResourceTopologyGPU: "16", "cpu": "32"}, "max": map[string]any{contract.ResourceTopologyGPU: "16", "cpu": "32"},
		"children": []any{
			map[string]any{
				"name": "vision", "namespaces": []any{"default"},
				"min": map[string]any{contract.ResourceTopologyGPU: "2", "cpu": "1500m"}, "max": map[string]any{contract.ResourceTopologyGPU: "8", contract.MaxJobsKey: "3"},
			},
			map[string]any{"name": "speech"},
		},
	})
	cloud.Put(t, acctest.GangPod("train", "train-worker-0", "", 0, 1, 2, 3))
	running := acctest.GangPod("more", "more-worker-0", "elsewhere", 0, 1, 2, 3)
	running.UID = "more"
	cloud.Put(t, running)

	seven, high := int32(7), int32(100)
	put(t, cloud, contract.QueueKind, &contract.Queue{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.QueueNamespace, Name: "root-vision-x1", Annotations: map[string]string{contract.QueuePathAnnotation: "root/vision"}},
		Spec:       contract.QueueSpec{QueuePolicy: contract.PolicyBlock, Priority: &seven},
	})
	unit := func(name, queue string, status contract.QueueUnitStatus) {
		put(t, cloud, contract.QueueUnitKind, &contract.QueueUnit{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-py-qu"},
			Spec: contract.QueueUnitSpec{
				Queue: queue, Priority: &high, ConsumerRef: corev1.ObjectReference{Kind: contract.PyTorchJobKind, Namespace: "default", Name: name},
			},
			Status: status,
		})
	}
	unit("late", "root-vision-x1", contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 2, Message: "quota root/vision: full"})
	unit("back", "root-vision-x1", contract.QueueUnitStatus{Phase: contract.UnitBackoff, Message: "its pods did not come to run"})
	unit("first", "root-vision-x1", contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 1})
	unit("runs", "root-vision-x1", contract.QueueUnitStatus{Phase: contract.UnitRunning})
	unit("other", "root-other-x2", contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 1})

	job := func(name string, position knownvalue.Check, phase, message string) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{
			"kind": knownvalue.StringExact(contract.PyTorchJobKind), "namespace": knownvalue.StringExact("default"), "name": knownvalue.StringExact(name),
			"priority": knownvalue.Int64Exact(100), "position": position, "phase": knownvalue.StringExact(phase), "message": knownvalue.StringExact(message),
		})
	}
	before := cloud.API.Lists()
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile: config.StaticFile("testdata/tree/main.tf"),
			PlanOnly:   true, ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{plancheck.ExpectKnownOutputValue("queues", knownvalue.ListExact([]knownvalue.Check{
				knownvalue.ObjectExact(map[string]knownvalue.Check{
					"name": knownvalue.StringExact("vision"), "path": knownvalue.StringExact("root/vision"),
					"namespaces": knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("default")}),
					"min":        texts(map[string]string{contract.ResourceTopologyGPU: "2", "cpu": "1500m"}),
					"max":        texts(map[string]string{contract.ResourceTopologyGPU: "8"}),
					"used":       texts(map[string]string{contract.ResourceTopologyGPU: "4", "cpu": "0"}),
					"borrowed":   texts(map[string]string{contract.ResourceTopologyGPU: "2", "cpu": "0"}),
					"jobs":       knownvalue.Int64Exact(1), "max_jobs": knownvalue.Int64Exact(3),
					"policy": knownvalue.StringExact("Block"), "priority": knownvalue.Int64Exact(7),
					"queued": knownvalue.ListExact([]knownvalue.Check{
						job("first", knownvalue.Int64Exact(1), "Enqueued", ""),
						job("late", knownvalue.Int64Exact(2), "Enqueued", "quota root/vision: full"),
						job("back", knownvalue.Null(), "TimeoutBackoff", "its pods did not come to run"),
					}),
				}),
				knownvalue.ObjectPartial(map[string]knownvalue.Check{
					"name": knownvalue.StringExact("speech"), "used": texts(nil), "max_jobs": knownvalue.Null(), "policy": knownvalue.Null(),
					"priority": knownvalue.Null(), "queued": knownvalue.ListExact([]knownvalue.Check{}),
				}),
			}))}},
		}},
	})
	after := cloud.API.Lists()
	for _, plural := range []string{"pods", contract.QueueResource, contract.QueueUnitResource} {
		assert.Equal(t, after["nodes"]-before["nodes"], after[plural]-before[plural], plural)
	}
}

func TestWithoutATree(t *testing.T) {
	cloud := acctest.StartCloud(t)
	step := resource.TestStep{
		ConfigFile: config.StaticFile("testdata/tree/main.tf"), PlanOnly: true, ExpectNonEmptyPlan: true,
		ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{
			plancheck.ExpectKnownOutputValue("queues", knownvalue.ListExact([]knownvalue.Check{})),
		}},
	}
	broken := resource.TestStep{
		PreConfig: func() {
			installKinds(t, cloud)
			putTree(cloud, map[string]any{"name": "root", "max": map[string]any{"cpu": "many"}})
		},
		ConfigFile: config.StaticFile("testdata/tree/main.tf"), PlanOnly: true,
		ExpectError: acctest.Saying("Queues cannot be read"),
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{step, broken}})
}
