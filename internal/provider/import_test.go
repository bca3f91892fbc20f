package provider_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	fwresource "github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// serve makes the API server know the kinds of jobs, the quota tree and policies of fleets.
func serve(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	for _, k := range []struct{ group, version, kind, plural string }{
		{contract.KubeflowGroup, contract.KubeflowVersion, contract.PyTorchJobKind, contract.PyTorchJobResource},
		{contract.KubeflowGroup, contract.KubeflowVersion, contract.MPIJobKind, contract.MPIJobResource},
		{contract.JobSetGroup, contract.JobSetVersion, contract.JobSetKind, contract.JobSetResource},
		{contract.TrainerGroup, contract.TrainerVersion, contract.TrainJobKind, contract.TrainJobResource},
		{contract.TrainerGroup, contract.TrainerVersion, contract.TrainingRuntimeKind, contract.TrainingRuntimeResource},
		{contract.KarmadaPolicyGroup, "v1alpha1", contract.PropagationPolicyKind, contract.PropagationPolicyResource},
	} {
		crd := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec: {group: %[1]s, scope: Namespaced, names: {kind: %[3]s, plural: %[4]s}, versions: [{name: %[2]s, served: true, storage: true}]}
`, k.group, k.version, k.kind, k.plural), &crd.Object))
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

const workersOfAJob = `
  framework = "pytorch"
  image     = "train:1"
  roles     = { worker = { replicas = 2, gpus = 1 } }`

func jobOf(label, name, attributes string) string {
	return fmt.Sprintf("resource \"gpuplan_training_job\" %q {\n  name     = %q\n  wait_for = \"none\"\n%s\n}\n", label, name, attributes)
}

// What the provider created and the state has lost is imported as it was: nothing is left
// to do, by its ID and by its identity. The attributes are written as people write them, also where the object does not
// tell: with and without defaults, empty, or in another place.
func TestImportPlansNothing(t *testing.T) {
	tests := map[string]struct {
		id, config string
	}{
		"add-on":               {"kube-scheduler", "resource \"gpuplan_addon\" \"x\" {\n  name = \"kube-scheduler\"\n  config = jsonencode({ enableReservation = true })\n}\n"},
		"add-on, no settings":  {"ack-koordinator", "resource \"gpuplan_addon\" \"x\" {\n  name = \"ack-koordinator\"\n}\n"},
		"scheduler's settings": {"kube-scheduler", "resource \"gpuplan_scheduler_config\" \"x\" {\n  enable_reservation = true\n  feature_gates = { A = false }\n  binpack_resource_weight = { cpu = 1 }\n  extra_config = jsonencode({ schedulerQPS = 60 })\n}\n"},
		"eRDMA":                {"ack-erdma-controller", "resource \"gpuplan_erdma_controller\" \"x\" {\n  driver = \"ofed\"\n}\n"},
		"nodes":                {"gpu-1", "resource \"gpuplan_node_gpu\" \"x\" {\n  name = \"hand\"\n  nodes = [\"gpu-1\"]\n  mode = \"topology\"\n}\n"},
		"pool":                 {"v100", strings.ReplaceAll(pool, `"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "x"`)},
		"pool with the rest": {"a10", `resource "gpuplan_node_pool" "x" {
  name                 = "a10"
  instance_type        = "ecs.gn7i-c16g1.4xlarge"
  size                 = 1
  mode                 = "share"
  gpu_policy          = "spread"
  vswitch_ids          = ["vsw-2", "vsw-1"]
  security_group_ids   = ["sg-1"]
  system_disk_category = "cloud_essd"
  system_disk_size     = 120
  cpu_policy           = "static"
  labels               = { team = "vision" }
  taints               = [{ key = "gpu", value = "yes", effect = "NoSchedule" }]
}`},
		"pool, settings": {"a10", `resource "gpuplan_node_pool" "x" {
  name             = "a10"
  instance_type    = "ecs.gn7i-c16g1.4xlarge"
  size             = 1
  vswitch_ids      = ["vsw-1"]
  labels           = {}
  taints           = []
  allow_disruption = true
  timeouts         = { create = "30m", update = "1h30m15s", delete = "90m" }
}`},
		"tree": {"elasticquotatree", `resource "gpuplan_quota_tree" "x" {
  total  = { cpu = "1000m", memory = "1024Mi" }
  max_jobs = 7
  quotas = { a = { min = {} }, b = { max = { cpu = "1" }, max_jobs = 2, namespaces = [] } }
  allow_disruption = true
  timeouts = { create = "1m" }
}`},
		"policy": {"default/p", `resource "gpuplan_propagation_policy" "x" {
  name               = "p"
  resource_selectors = [{ api_version = "v1", kind = "ConfigMap", namespace = "default", label_selector = {} }]
  priority           = 0
  preemption         = "Never"
  propagate_deps     = true
  failover           = { application = { decision_conditions = { toleration_seconds = 300 }, purge_mode = "Gracefully", grace_period_seconds = 600 } }
  placement          = { cluster_affinity = {}, spread_constraints = [{ min_groups = 1 }], replica_scheduling = {} }
  suspension         = {}
  timeouts           = { create = "1m" }
}`},
		"scheduler":  {"gpuplan-system/gpuplan-scheduler", "resource \"gpuplan_scheduler\" \"x\" {\n  image = \"x\"\n  unreachable_grace = \"120s\"\n  timeouts = { update = \"1m\" }\n}\n"},
		"node agent": {"gpuplan-system/gpuplan-node-agent", "resource \"gpuplan_node_agent\" \"x\" {\n  image = \"x\"\n  interval = \"60s\"\n  metrics_port = 9400\n}\n"},
		"job":        {"default/j", jobOf("x", "j", workersOfAJob)},
	}
	imported := map[string]bool{}
	for name, test := range tests {
		imported[strings.Trim(strings.Fields(test.config)[1], `"`)] = true
		t.Run(name, func(t *testing.T) { importPlansNothing(t, test.id, test.config) })
	}
	for _, create := range provider.New("test", provider.Command{})().Resources(t.Context()) {
		r := create()
		var meta fwresource.MetadataResponse
		r.Metadata(t.Context(), fwresource.MetadataRequest{ProviderTypeName: "gpuplan"}, &meta)
		if _, can := r.(fwresource.ResourceWithImportState); can {
			assert.True(t, imported[meta.TypeName], "no import of %s is here", meta.TypeName)
		}
	}
}

// So are jobs, of every kind and in every spelling, all of them at once.
func TestImportOfJobsPlansNothing(t *testing.T) {
	const workers = workersOfAJob
	const all = `
  image       = "train:1"
  command     = ["sh", "-c", "train"]
  env         = { A = "1" }
  labels      = { team = "vision" }
  annotations = { a = "b" }
  volumes     = { data = { claim = "data", mount_path = "/data" } }`
	of := func(framework, attributes string) string {
		return "  framework = \"" + framework + "\"\n" + attributes
	}
	const two = `
  image = "a"
  roles = {
    actor   = { replicas = 2, gpus = 1, command = ["act"] }
    learner = { replicas = 1, gpus = 2, image = "b", memory = "1024Mi", env = { B = "2" } }
  }`
	tests := map[string]string{
		"batch":                 of("batch", all+"\n  roles = { worker = { replicas = 2, gpus = 1 } }\n  backoff_limit = 3\n  ttl_seconds_after_finished = 600"),
		"batch, bare":           of("batch", "\n  image = \"a\"\n  roles = { worker = { replicas = 1, gpus = 1 } }"),
		"JobSet":                of("jobset", all+"\n  roles = { worker = { replicas = 2, gpus = 1 } }"),
		"JobSet, roles":         of("jobset", two),
		"TrainJob":              of("trainjob", all+"\n  roles = { worker = { replicas = 2, gpus = 1 } }"),
		"TrainJob, roles":       of("trainjob", two+"\n  suspend = true"),
		"job, all defaults":     workers + "\n  gang = {}\n  labels = {}\n  timeouts = { create = \"5m\" }\n  triggers = { run = \"1\" }",
		"job, minimum":          workers + "\n  gang = { enabled = true, minimum = 1 }",
		"job, no gang, default": workers + "\n  mode = \"default\"\n  gang = { enabled = false }",
		"job, suspended":        workers + "\n  suspend = true\n  placement_check = \"warn\"",
		"job, arena":            workers + "\n  arena_compatible = true\n  labels = { team = \"v\" }\n  annotations = { a = \"b\" }",
		"MPI":                   "framework = \"mpi\"\n  image = \"train:1\"\n  command = [\"sh\", \"-c\", \"train\"]\n  working_dir = \"/w\"\n  roles = { worker = { replicas = 2, gpus = 1 } }",
		"MPI, launcher":         "framework = \"mpi\"\n  image = \"train:1\"\n  command = [\"train\"]\n  roles = { launcher = { replicas = 1, cpu = \"1000m\" }, worker = { replicas = 2, gpus = 1, image = \"w:1\" } }",
		"job, roles differ":     "framework = \"pytorch\"\n  image = \"a\"\n  env = { A = \"1\" }\n  roles = { master = { gpus = 1, env = { B = \"2\" } }, worker = { gpus = 1, command = [\"w\"], memory = \"1024Mi\" } }",
		"job, shared":           "framework = \"pytorch\"\n  image = \"a\"\n  mode = \"shared\"\n  shared_memory = \"1024Mi\"\n  roles = { worker = { memory_gib = 4 } }",
		"job, processes":        workers + "\n  nproc_per_node = \"auto\"\n  image_pull_policy = \"Always\"\n  image_pull_secrets = [\"registry\"]",
		"job, RDMA":             "framework = \"pytorch\"\n  image = \"a\"\n  placement_check = \"off\"\n  env = { NCCL_DEBUG = \"INFO\", NCCL_ALGO = \"Tree\" }\n  roles = { worker = { replicas = 2, gpus = 1, rdma = true } }",
		"job, RDMA, no more":    "framework = \"pytorch\"\n  image = \"a\"\n  placement_check = \"off\"\n  rdma_defaults = false\n  roles = { worker = { replicas = 2, gpus = 1, rdma = true } }",
		"MPI, own namespaces":   "framework = \"mpi\"\n  image = \"train:1\"\n  host_ipc = false\n  host_network = false\n  host_pid = false\n  roles = { worker = { replicas = 2, gpus = 1 } }",
		"job, host network":     workers + "\n  host_network = true\n  dns_policy = \"ClusterFirstWithHostNet\"\n  restart_policy = \"OnFailure\"\n  port = 23456\n  tolerations = [{ key = \"gpu\", operator = \"Exists\" }]\n  node_selector = {}",
	}
	startForImports(t)
	cli := acctest.StartCLI(t)
	var resources, imports strings.Builder
	forget := []string{"state", "rm"}
	for i, name := range slices.Sorted(maps.Keys(tests)) {
		label := fmt.Sprintf("j%d", i)
		fmt.Fprintf(&resources, "# %s\n%s", name, jobOf(label, label, tests[name]))
		fmt.Fprintf(&imports, "import {\n  to = gpuplan_training_job.%[1]s\n  id = \"default/%[1]s\"\n}\n", label)
		forget = append(forget, "gpuplan_training_job."+label)
	}
	cli.Write(t, resources.String())
	cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
	cli.Must(t, forget...)
	cli.Write(t, resources.String()+imports.String())
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), fmt.Sprintf("Plan: %d to import, 0 to add, 0 to change, 0 to destroy.", len(tests)))
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}

// The same after a change of settings that only concern the provider.
func TestImportKnowsChangedSettings(t *testing.T) {
	const settings = `
  allow_disruption = true
  timeouts         = { create = "1h30m15s", update = "90m", delete = "100s" }
`
	const job = `
  name              = "j"
  framework         = "pytorch"
  image             = "train:1"
  wait_for          = "none"
  roles             = { worker = { replicas = 2, gpus = 1 } }
`
	const jobSettings = `
  require_immediate = true
  allow_preemption  = true
  placement_check   = "warn"
  triggers          = { run = "1" }
  timeouts          = { delete = "1m" }
`
	const node = "\n  name = \"a10\"\n  instance_type = \"ecs.gn7i-c16g1.4xlarge\"\n  size = 1\n  vswitch_ids = [\"vsw-1\"]\n"
	const tree = "\n  total = { cpu = \"1\" }\n  quotas = { a = {} }\n"
	const policy = "\n  name = \"p\"\n  resource_selectors = [{ api_version = \"v1\", kind = \"ConfigMap\" }]\n"
	for name, test := range map[string]struct {
		id, kind, before, after string
	}{
		"pool":                 {"a10", "node_pool", node, node + settings},
		"pool, spelling":       {"a10", "node_pool", node, node + settings + "  labels = {}\n  taints = []\n"},
		"pool, and labels":     {"a10", "node_pool", node, node + settings + "  labels = { team = \"a\" }\n"},
		"pool, taken back":     {"a10", "node_pool", node + settings, node},
		"tree":                 {"elasticquotatree", "quota_tree", tree, tree + settings},
		"policy":               {"default/p", "propagation_policy", policy, policy + "  priority = 0\n  timeouts = { create = \"1m\" }\n"},
		"node agent":           {"gpuplan-system/gpuplan-node-agent", "node_agent", "image = \"x\"", "image = \"x\"\ntimeouts = { delete = \"1m\" }"},
		"scheduler":            {"gpuplan-system/gpuplan-scheduler", "scheduler", "image = \"x\"", "image = \"x\"\ntimeouts = { delete = \"1m\" }"},
		"job":                  {"default/j", "training_job", job, job + jobSettings},
		"job, spelling":        {"default/j", "training_job", job, job + "  gang = {}\n  labels = {}\n"},
		"job, part taken back": {"default/j", "training_job", job + jobSettings, job + "  triggers = { run = \"1\" }\n"},
	} {
		t.Run(name, func(t *testing.T) {
			config := func(attributes string) string {
				return "resource \"gpuplan_" + test.kind + "\" \"x\" {\n" + attributes + "\n}\n"
			}
			importPlansNothing(t, test.id, config(test.before), config(test.after))
		})
	}
}

// A job that someone made with kubectl is imported as it is, in every spelling of a gang.
func TestImportOfJobsOfOthersPlansNothing(t *testing.T) {
	for name, labels := range map[string]string{
		"topology": `gpu-topology: hand, gpu-topology-replica: "3"`,
		"light":    `pod-group.scheduling.sigs.k8s.io/name: hand, pod-group.scheduling.sigs.k8s.io/min-available: "3"`,
		"PodGroup": `scheduling.x-k8s.io/pod-group: hand`,
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serve(t, cloud)
			t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
			template := "template: {metadata: {labels: {" + labels + "}}, spec: {containers: [{name: pytorch, image: x, resources: {limits: {aliyun.com/gpu: 1}}}]}}"
			job := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(`
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: hand, namespace: default, labels: {gpu-topology: hand}, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}
spec: {pytorchReplicaSpecs: {Master: {replicas: 1, `+template+`}, Worker: {replicas: 2, `+template+`}}}
`), &job.Object))
			cloud.API.Put(job)
			cli := acctest.StartCLI(t)
			cli.Write(t, `resource "gpuplan_training_job" "hand" {
  name      = "hand"
  framework = "pytorch"
  image     = "x"
  roles     = { master = { replicas = 1, gpus = 1 }, worker = { replicas = 2, gpus = 1 } }
}`)
			cli.Must(t, "import", "gpuplan_training_job.hand", "default/hand")
			assert.Contains(t, cli.Must(t, "plan"), "No changes.")
		})
	}
}

// startForImports starts a cloud that serves every kind, with a node. It does not check placements.
func startForImports(t *testing.T) {
	t.Helper()
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	serve(t, cloud)
	node, err := acctest.Node(acsfake.Node{Name: "gpu-1", InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: "topology",
		Labels: map[string]string{contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge", contract.NodeModeLabel: "topology"}})
	require.NoError(t, err)
	cloud.API.Put(node)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
}

// importPlansNothing applies configurations one after the other, forgets what there is, and
// imports it.
func importPlansNothing(t *testing.T, id string, configs ...string) {
	t.Helper()
	startForImports(t)
	var steps []resource.TestStep
	for _, config := range configs {
		steps = append(steps, resource.TestStep{Config: config})
	}
	last := configs[len(configs)-1]
	address := strings.ReplaceAll(strings.Join(strings.Fields(last)[1:3], "."), `"`, "")
	if acctest.Since(t, 12) {
		steps = append(steps, resource.TestStep{Config: last, ResourceName: address, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity})
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: append(steps,
		resource.TestStep{Config: acctest.Forgotten(address)},
		resource.TestStep{Config: last, ResourceName: address, ImportState: true, ImportStateId: id, ImportStatePersist: true},
		resource.TestStep{Config: last, PlanOnly: true},
	)})
}

// Two import blocks for one object are told what to do, though neither is in the state.
func TestImportOfOneObjectTwice(t *testing.T) {
	acctest.StartCloud(t)
	acctest.StartCLI(t).Refuses(t, `
resource "gpuplan_addon" "x" {
  for_each = toset(["a", "b"])
  name     = "csi-plugin"
}
import {
  for_each = toset(["a", "b"])
  to       = gpuplan_addon.x[each.key]
  id       = "csi-plugin"
}
`, acctest.Saying("Of two import blocks take one away instead."))
}
