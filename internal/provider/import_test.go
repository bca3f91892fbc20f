package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// serve makes the API server know the kinds of jobs and the quota tree.
func serve(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	for kind, plural := range map[string]string{contract.PyTorchJobKind: contract.PyTorchJobResource, contract.MPIJobKind: contract.MPIJobResource} {
		crd := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.kubeflow.org}
spec: {group: kubeflow.org, scope: Namespaced, names: {kind: %s, plural: %s}, versions: [{name: v1, served: true, storage: true}]}
`, plural, kind, plural), &crd.Object))
		cloud.API.Put(crd)
	}
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	for _, obj := range objs {
		if obj.GetKind() == "CustomResourceDefinition" {
			cloud.API.Put(obj)
		}
	}
}

// What the provider created and the state has lost is imported as it was: nothing is left
// to do. The attributes are written as people write them, also where the object does not
// tell: with and without defaults, empty, or in another place.
func TestImportPlansNothing(t *testing.T) {
	job := func(attributes string) string {
		return `resource "gpuplan_training_job" "x" {
  name     = "j"
  wait_for = "none"
` + attributes + "\n}\n"
	}
	const workers = `
  framework = "pytorch"
  image     = "train:1"
  roles     = { worker = { replicas = 2, cards = 1 } }`
	for name, test := range map[string]struct {
		id, config string
	}{
		"pool": {"v100", strings.ReplaceAll(pool, `"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "x"`)},
		"pool with the rest": {"a10", `resource "gpuplan_node_pool" "x" {
  name                 = "a10"
  instance_type        = "ecs.gn7i-c16g1.4xlarge"
  size                 = 1
  mode                 = "share"
  card_policy          = "spread"
  vswitch_ids          = ["vsw-2", "vsw-1"]
  security_group_ids   = ["sg-1"]
  system_disk_category = "cloud_essd"
  system_disk_size     = 120
  labels               = { team = "vision" }
  taints               = [{ key = "gpu", value = "yes", effect = "NoSchedule" }]
}`},
		"tree": {"elasticquotatree", `resource "gpuplan_quota_tree" "x" {
  total  = { cpu = "1000m", memory = "1024Mi" }
  quotas = { a = { min = {} }, b = { max = { cpu = "1" }, max_jobs = 2, namespaces = [] } }
  allow_disruption = true
  timeouts = { create = "1m" }
}`},
		"scheduler":             {"gpuplan-system/gpuplan-scheduler", "resource \"gpuplan_scheduler\" \"x\" {\n  image = \"x\"\n  unreachable_grace = \"120s\"\n  timeouts = { update = \"1m\" }\n}\n"},
		"node agent":            {"gpuplan-system/gpuplan-node-agent", "resource \"gpuplan_node_agent\" \"x\" {\n  image = \"x\"\n  interval = \"60s\"\n  metrics_port = 9400\n}\n"},
		"job":                   {"default/j", job(workers)},
		"job, all defaults":     {"default/j", job(workers + "\n  gang = {}\n  labels = {}\n  timeouts = { create = \"5m\" }\n  triggers = { run = \"1\" }")},
		"job, minimum":          {"default/j", job(workers + "\n  gang = { enabled = true, minimum = 1 }")},
		"job, no gang, default": {"default/j", job(workers + "\n  mode = \"default\"\n  gang = { enabled = false }")},
		"job, suspended":        {"default/j", job(workers + "\n  suspend = true\n  placement_check = \"warn\"")},
		"job, arena":            {"default/j", job(workers + "\n  arena_compatible = true\n  labels = { team = \"v\" }\n  annotations = { a = \"b\" }")},
		"MPI":                   {"default/j", job("framework = \"mpi\"\n  image = \"train:1\"\n  command = [\"sh\", \"-c\", \"train\"]\n  working_dir = \"/w\"\n  roles = { worker = { replicas = 2, cards = 1 } }")},
		"MPI, launcher":         {"default/j", job("framework = \"mpi\"\n  image = \"train:1\"\n  command = [\"train\"]\n  roles = { launcher = { replicas = 1, cpu = \"1000m\" }, worker = { replicas = 2, cards = 1, image = \"w:1\" } }")},
		"job, roles differ":     {"default/j", job("framework = \"pytorch\"\n  image = \"a\"\n  env = { A = \"1\" }\n  roles = { master = { cards = 1, env = { B = \"2\" } }, worker = { cards = 1, command = [\"w\"], memory = \"1024Mi\" } }")},
		"job, shared":           {"default/j", job("framework = \"pytorch\"\n  image = \"a\"\n  mode = \"shared\"\n  shared_memory = \"1024Mi\"\n  roles = { worker = { memory_gib = 4 } }")},
		"job, host network":     {"default/j", job(workers + "\n  host_network = true\n  dns_policy = \"ClusterFirstWithHostNet\"\n  restart_policy = \"OnFailure\"\n  port = 23456\n  tolerations = [{ key = \"gpu\", operator = \"Exists\" }]\n  node_selector = {}")},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cloud.RunWorkloads(t)
			serve(t, cloud)
			t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
			address := strings.ReplaceAll(strings.Join(strings.Fields(test.config)[1:3], "."), `"`, "")
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{
					{Config: test.config},
					{Config: acctest.Forgotten(address)},
					{Config: test.config, ResourceName: address, ImportState: true, ImportStateId: test.id, ImportStatePersist: true},
					{Config: test.config, PlanOnly: true},
				},
			})
		})
	}
}
