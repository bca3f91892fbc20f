package gpunodes_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const v100 = "ecs.gn6v-c10g1.20xlarge"

// node puts a node of a pool into the cluster.
func node(t *testing.T, cloud *acctest.Cloud, name, pool, instanceType, mode string, labels map[string]string, change func(*corev1.Node)) {
	t.Helper()
	all := map[string]string{contract.InstanceTypeLabel: instanceType, contract.NodePoolNameLabel: pool, contract.NodeModeLabel: mode}
	for key, value := range labels {
		all[key] = value
	}
	object, err := acctest.Node(acsfake.Node{Name: name, InstanceType: instanceType, Mode: mode, Labels: all, Created: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	cloud.API.Put(object)
	if change == nil {
		return
	}
	typed, err := cloud.Kube.Typed.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	change(typed)
	typed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	cloud.Put(t, typed)
}

// cluster starts a cloud with nodes of two pools, and others.
func cluster(t *testing.T) *acctest.Cloud {
	cloud := acctest.StartCloud(t)
	node(t, cloud, "v100-1", "v100", v100, "topology", map[string]string{corev1.LabelTopologyZone: "cn-hangzhou-b", "team": "research"}, nil)
	node(t, cloud, "v100-2", "v100", v100, "topology", nil, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/repair", Value: "fan", Effect: corev1.TaintEffectNoSchedule}}
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
	})
	node(t, cloud, "shared-1", "shared", v100, "core_mem", nil, nil)
	node(t, cloud, "dark", "shared", v100, "core_mem", nil, func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{} })
	node(t, cloud, "no-gpu", "cpu", "ecs.g7.xlarge", "", nil, nil)

	machine, ok := catalog.Machine(v100)
	require.True(t, ok)
	for i := range machine.GPUs {
		machine.GPUs[i].UUID = "GPU-" + string(rune('a'+i))
	}
	machine.GPUs[3].Unhealthy = "XID 79: the GPU has fallen off the bus; 2 of 6 NVLinks are down"
	status := contract.StatusOf(machine)
	status.DriverVersion = "580.95.05"
	far := strings.TrimSpace(strings.Repeat("SYS ", len(status.GPUs)))
	status.NICs, status.LockableKiB = []contract.NICInfo{{Name: "erdma_0", Links: far, Port: "ACTIVE", GID: "1", MTUBytes: 1500, RedirectedBy: []string{"0000:02:00.0"}, Driver: "erdma"}, {Name: "mlx5_0", Links: far}}, 64
	status.GPUs[3].Faults = []contract.GPUFault{
		{Code: "XID79", Class: "NeedsReset", Message: "XID 79: the GPU has fallen off the bus"},
		{Code: "NVLinksDown", Class: "Warning", Message: "2 of 6 NVLinks are down"},
	}
	cloud.Publish(t, "v100-1", status)

	cloud.Put(t, acctest.GangPod("train", "train-worker-0", "v100-1", 0, 1))
	memory := corev1.ResourceList{
		contract.ResourceGPUMemory: apiresource.MustParse("5"), contract.ResourceCorePercent: apiresource.MustParse("30"), corev1.ResourceCPU: apiresource.MustParse("2"),
	}
	part := acctest.GangPod("serve", "serve-0", "shared-1")
	record, err := contract.Allocation{Gang: "default/serve", Node: "shared-1", Shares: []contract.GPUShare{{GPU: 2, MemoryGiB: 5, CorePercent: 30}}}.Annotations()
	require.NoError(t, err)
	part.Annotations, part.Spec.Containers[0].Resources = record, corev1.ResourceRequirements{Requests: memory, Limits: memory}
	cloud.Put(t, part)
	return cloud
}

// All is known at plan, and each kind is listed once for all data sources.
func TestNodesWithGPUs(t *testing.T) {
	cloud := cluster(t)
	expect := map[string]knownvalue.Check{
		"names":  list("dark", "shared-1", "v100-1", "v100-2"),
		"pool":   list("v100-1", "v100-2"),
		"chosen": list("v100-1"),
		"none":   list(),
		"first": knownvalue.ObjectPartial(map[string]knownvalue.Check{
			"pool": knownvalue.StringExact("v100"), "instance_type": knownvalue.StringExact(v100), "zone": knownvalue.StringExact("cn-hangzhou-b"),
			"mode": knownvalue.StringExact("topology"), "ready": knownvalue.Bool(true), "schedulable": knownvalue.Bool(true), "taints": list(), "problem": knownvalue.Null(),
			"topology": knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"published": knownvalue.Bool(true), "wiring": knownvalue.StringExact("dgx1-v100"), "nvlink_gbps": knownvalue.Float64Exact(25),
				"driver_version": knownvalue.StringExact("580.95.05"), "lockable_kib": knownvalue.Int64Exact(64),
				"nics": knownvalue.ListExact([]knownvalue.Check{
					knownvalue.ObjectExact(map[string]knownvalue.Check{
						"name": knownvalue.StringExact("erdma_0"), "links": knownvalue.StringExact("SYS SYS SYS SYS SYS SYS SYS SYS"), "port": knownvalue.StringExact("ACTIVE"),
						"gid": knownvalue.StringExact("1"), "mtu_bytes": knownvalue.Int64Exact(1500), "driver": knownvalue.StringExact("erdma"), "redirected_by": list("0000:02:00.0"),
					}),
					knownvalue.ObjectExact(map[string]knownvalue.Check{
						"name": knownvalue.StringExact("mlx5_0"), "links": knownvalue.StringExact("SYS SYS SYS SYS SYS SYS SYS SYS"), "port": knownvalue.Null(),
						"gid": knownvalue.Null(), "mtu_bytes": knownvalue.Null(), "driver": knownvalue.Null(), "redirected_by": list(),
					}),
				}),
			}),
			"allocatable": knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"gpus": knownvalue.Int64Exact(7), "gpu_memory_gib": knownvalue.Int64Exact(0), "pods": knownvalue.Int64Exact(64),
			}),
			"free": knownvalue.ObjectPartial(map[string]knownvalue.Check{"gpus": knownvalue.Int64Exact(5), "pods": knownvalue.Int64Exact(63)}),
		}),
		"sick": knownvalue.ObjectExact(map[string]knownvalue.Check{
			"index": knownvalue.Int64Exact(3), "uuid": knownvalue.StringExact("GPU-d"), "model": knownvalue.StringExact("Tesla V100-SXM2-16GB"),
			"memory_gib": knownvalue.Int64Exact(15), "healthy": knownvalue.Bool(false),
			"reasons": list("XID 79: the GPU has fallen off the bus", "2 of 6 NVLinks are down"),
		}),
		"link": knownvalue.StringExact("X NV1 NV1 NV2 NV2 SYS SYS SYS"),
		"second": knownvalue.ObjectPartial(map[string]knownvalue.Check{
			"ready": knownvalue.Bool(false), "schedulable": knownvalue.Bool(false), "taints": list("example.com/repair=fan:NoSchedule"), "zone": knownvalue.Null(),
		}),
		"shared": knownvalue.ObjectPartial(map[string]knownvalue.Check{
			"topology":    knownvalue.ObjectPartial(map[string]knownvalue.Check{"published": knownvalue.Bool(false), "wiring": knownvalue.StringExact("dgx1-v100")}),
			"allocatable": knownvalue.ObjectPartial(map[string]knownvalue.Check{"gpus": knownvalue.Int64Exact(0), "gpu_memory_gib": knownvalue.Int64Exact(120), "gpu_core_percent": knownvalue.Int64Exact(800)}),
			"free":        knownvalue.ObjectPartial(map[string]knownvalue.Check{"gpu_memory_gib": knownvalue.Int64Exact(115), "gpu_core_percent": knownvalue.Int64Exact(770)}),
		}),
		"dark": knownvalue.StringExact("the node offers no GPUs in mode core_mem at the moment: its device plugin does not run, or has not followed a change of the mode yet"),
	}
	var checks []plancheck.PlanCheck
	for name, check := range expect {
		checks = append(checks, plancheck.ExpectKnownOutputValue(name, check))
	}
	before := cloud.API.Lists()
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{
			ConfigFile: config.StaticFile(filepath.Join("testdata", "nodes", "main.tf")),
			PlanOnly:   true, ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: checks},
		}},
	})
	after := cloud.API.Lists()
	assert.Equal(t, after["nodes"]-before["nodes"], after["pods"]-before["pods"])
	assert.Equal(t, after["nodes"]-before["nodes"], after["gpunodes"]-before["gpunodes"])
}

func list(values ...string) knownvalue.Check {
	checks := []knownvalue.Check{}
	for _, v := range values {
		checks = append(checks, knownvalue.StringExact(v))
	}
	return knownvalue.ListExact(checks)
}

func TestMistakes(t *testing.T) {
	acctest.StartCloud(t)
	for name, test := range map[string]struct{ config, attribute, says string }{
		"selector": {`label_selector = "team in research"`, "label_selector", `"team in research" cannot be used: unable to parse requirement: found 'research' expected: '('. Write it as for kubectl get -l`},
		"pool":     {`pool = ""`, "pool", "string length must be at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{{
				Config: "data \"gpuplan_gpu_nodes\" \"x\" {\n  " + test.config + "\n}\n", PlanOnly: true, ExpectError: acctest.SayingAt(test.attribute, test.says),
			}}})
		})
	}
}

// A cluster that nobody told the provider of is an error that says what to set, or when to read.
func TestNoAccess(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	unknown := `
resource "terraform_data" "cluster" {
  input = "apiVersion: v1"
}
provider "gpuplan" {
  kubeconfig_content = terraform_data.cluster.output
}
`
	for name, test := range map[string]struct{ config, says string }{
		"none":    {"", "set kubeconfig or kubeconfig_content in the provider block, or the environment variable KUBECONFIG"},
		"unknown": {unknown, "The provider's configuration is unknown until apply: kubeconfig_content. Name the resource that makes it known in depends_on, so that Terraform reads this at apply."},
	} {
		t.Run(name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{{
				Config: test.config + "data \"gpuplan_gpu_nodes\" \"x\" {}\n", PlanOnly: true, ExpectError: acctest.Saying(test.says),
			}}})
		})
	}
}
