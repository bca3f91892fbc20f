package provider_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// importable is an object that is imported by its ID, as one configuration has created it, and the next ones have changed it. NAME stands
// for a name that no other of them has.
type importable struct {
	id      string
	configs []string
}

// named is the importable with its name, which is that of its resource, too.
func (i importable) named(name string) importable {
	named := importable{id: strings.ReplaceAll(i.id, "NAME", name)}
	for _, config := range i.configs {
		named.configs = append(named.configs, strings.ReplaceAll(strings.Replace(config, `"x" {`, strconv.Quote(name)+" {", 1), "NAME", name))
	}
	return named
}

func jobOf(attributes string) string {
	return "resource \"gpuplan_training_job\" \"x\" {\n  name     = \"NAME\"\n  wait_for = \"none\"\n" + attributes + "\n}\n"
}

// created are objects of every kind. The attributes are written as people write them, also where the object does not
// tell: with and without defaults, empty, or in another place.
func created() map[string]importable {
	const workers = `
  framework = "pytorch"
  image     = "train:1"
  roles     = { worker = { replicas = 2, gpus = 1 } }`
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
	return map[string]importable{
		"add-on":               {"kube-scheduler", []string{"resource \"gpuplan_addon\" \"x\" {\n  name = \"kube-scheduler\"\n  config = jsonencode({ enableReservation = true })\n}\n"}},
		"add-on, no settings":  {"ack-koordinator", []string{"resource \"gpuplan_addon\" \"x\" {\n  name = \"ack-koordinator\"\n}\n"}},
		"scheduler's settings": {"kube-scheduler", []string{"resource \"gpuplan_scheduler_config\" \"x\" {\n  enable_reservation = true\n  feature_gates = { A = false }\n  binpack_resource_weight = { cpu = 1 }\n  extra_config = jsonencode({ schedulerQPS = 60 })\n}\n"}},
		"eRDMA":                {"ack-erdma-controller", []string{"resource \"gpuplan_erdma_controller\" \"x\" {\n  driver = \"ofed\"\n}\n"}},
		"nodes":                {"gpu-1", []string{"resource \"gpuplan_node_gpu\" \"x\" {\n  name = \"hand\"\n  nodes = [\"gpu-1\"]\n  mode = \"topology\"\n}\n"}},
		"pool":                 {"v100", []string{strings.ReplaceAll(pool, `"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "x"`)}},
		"pool with the rest": {"NAME", []string{`resource "gpuplan_node_pool" "x" {
  name                 = "NAME"
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
}`}},
		"pool, settings": {"NAME", []string{`resource "gpuplan_node_pool" "x" {
  name             = "NAME"
  instance_type    = "ecs.gn7i-c16g1.4xlarge"
  size             = 1
  vswitch_ids      = ["vsw-1"]
  labels           = {}
  taints           = []
  allow_disruption = true
  timeouts         = { create = "30m", update = "1h30m15s", delete = "90m" }
}`}},
		"tree": {"elasticquotatree", []string{`resource "gpuplan_quota_tree" "x" {
  total  = { cpu = "1000m", memory = "1024Mi" }
  max_jobs = 7
  quotas = { a = { min = {} }, b = { max = { cpu = "1" }, max_jobs = 2, namespaces = [] } }
  allow_disruption = true
  timeouts = { create = "1m" }
}`}},
		"policy": {"default/p", []string{`resource "gpuplan_propagation_policy" "x" {
  name               = "p"
  resource_selectors = [{ api_version = "v1", kind = "ConfigMap", namespace = "default", label_selector = {} }]
  priority           = 0
  preemption         = "Never"
  propagate_deps     = true
  failover           = { application = { decision_conditions = { toleration_seconds = 300 }, purge_mode = "Gracefully", grace_period_seconds = 600 } }
  placement          = { cluster_affinity = {}, spread_constraints = [{ min_groups = 1 }], replica_scheduling = {} }
  suspension         = {}
  timeouts           = { create = "1m" }
}`}},
		"scheduler":             {"gpuplan-system/gpuplan-scheduler", []string{"resource \"gpuplan_scheduler\" \"x\" {\n  image = \"x\"\n  unreachable_grace = \"120s\"\n  timeouts = { update = \"1m\" }\n}\n"}},
		"node agent":            {"gpuplan-system/gpuplan-node-agent", []string{"resource \"gpuplan_node_agent\" \"x\" {\n  image = \"x\"\n  interval = \"60s\"\n  metrics_port = 9400\n}\n"}},
		"job":                   {"default/NAME", []string{jobOf(workers)}},
		"batch":                 {"default/NAME", []string{jobOf(of("batch", all+"\n  roles = { worker = { replicas = 2, gpus = 1 } }\n  backoff_limit = 3\n  ttl_seconds_after_finished = 600"))}},
		"batch, bare":           {"default/NAME", []string{jobOf(of("batch", "\n  image = \"a\"\n  roles = { worker = { replicas = 1, gpus = 1 } }"))}},
		"JobSet":                {"default/NAME", []string{jobOf(of("jobset", all+"\n  roles = { worker = { replicas = 2, gpus = 1 } }"))}},
		"JobSet, roles":         {"default/NAME", []string{jobOf(of("jobset", two))}},
		"TrainJob":              {"default/NAME", []string{jobOf(of("trainjob", all+"\n  roles = { worker = { replicas = 2, gpus = 1 } }"))}},
		"TrainJob, roles":       {"default/NAME", []string{jobOf(of("trainjob", two+"\n  suspend = true"))}},
		"job, all defaults":     {"default/NAME", []string{jobOf(workers + "\n  gang = {}\n  labels = {}\n  timeouts = { create = \"5m\" }\n  triggers = { run = \"1\" }")}},
		"job, minimum":          {"default/NAME", []string{jobOf(workers + "\n  gang = { enabled = true, minimum = 1 }")}},
		"job, no gang, default": {"default/NAME", []string{jobOf(workers + "\n  mode = \"default\"\n  gang = { enabled = false }")}},
		"job, suspended":        {"default/NAME", []string{jobOf(workers + "\n  suspend = true\n  placement_check = \"warn\"")}},
		"job, arena":            {"default/NAME", []string{jobOf(workers + "\n  arena_compatible = true\n  labels = { team = \"v\" }\n  annotations = { a = \"b\" }")}},
		"MPI":                   {"default/NAME", []string{jobOf("framework = \"mpi\"\n  image = \"train:1\"\n  command = [\"sh\", \"-c\", \"train\"]\n  working_dir = \"/w\"\n  roles = { worker = { replicas = 2, gpus = 1 } }")}},
		"MPI, launcher":         {"default/NAME", []string{jobOf("framework = \"mpi\"\n  image = \"train:1\"\n  command = [\"train\"]\n  roles = { launcher = { replicas = 1, cpu = \"1000m\" }, worker = { replicas = 2, gpus = 1, image = \"w:1\" } }")}},
		"job, roles differ":     {"default/NAME", []string{jobOf("framework = \"pytorch\"\n  image = \"a\"\n  env = { A = \"1\" }\n  roles = { master = { gpus = 1, env = { B = \"2\" } }, worker = { gpus = 1, command = [\"w\"], memory = \"1024Mi\" } }")}},
		"job, shared":           {"default/NAME", []string{jobOf("framework = \"pytorch\"\n  image = \"a\"\n  mode = \"shared\"\n  shared_memory = \"1024Mi\"\n  roles = { worker = { memory_gib = 4 } }")}},
		"job, processes":        {"default/NAME", []string{jobOf(workers + "\n  nproc_per_node = \"auto\"\n  image_pull_policy = \"Always\"\n  image_pull_secrets = [\"registry\"]")}},
		"job, RDMA":             {"default/NAME", []string{jobOf("framework = \"pytorch\"\n  image = \"a\"\n  placement_check = \"off\"\n  env = { NCCL_DEBUG = \"INFO\", NCCL_ALGO = \"Tree\" }\n  roles = { worker = { replicas = 2, gpus = 1, rdma = true } }")}},
		"job, RDMA, no more":    {"default/NAME", []string{jobOf("framework = \"pytorch\"\n  image = \"a\"\n  placement_check = \"off\"\n  rdma_defaults = false\n  roles = { worker = { replicas = 2, gpus = 1, rdma = true } }")}},
		"MPI, own namespaces":   {"default/NAME", []string{jobOf("framework = \"mpi\"\n  image = \"train:1\"\n  host_ipc = false\n  host_network = false\n  host_pid = false\n  roles = { worker = { replicas = 2, gpus = 1 } }")}},
		"job, host network":     {"default/NAME", []string{jobOf(workers + "\n  host_network = true\n  dns_policy = \"ClusterFirstWithHostNet\"\n  restart_policy = \"OnFailure\"\n  port = 23456\n  tolerations = [{ key = \"gpu\", operator = \"Exists\" }]\n  node_selector = {}")}},
	}
}

// What the provider created and the state has lost is imported as it was: nothing is left to do.
func TestImportPlansNothing(t *testing.T) {
	tests := created()
	const settings = "scheduler's settings" // which are of the same add-on as another
	apart, rest := map[string]importable{settings: tests[settings]}, maps.Clone(tests)
	delete(rest, settings)
	t.Run(settings, func(t *testing.T) { importTogether(t, apart) })
	t.Run("all the rest", func(t *testing.T) { importTogether(t, rest) })
	imported := map[string]bool{}
	for _, test := range tests {
		imported[strings.Trim(strings.Fields(test.configs[0])[1], `"`)] = true
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

// The same by import blocks with an identity, which Terraform has since 1.12.
func TestImportBlocksPlanNothing(t *testing.T) {
	if !acctest.Since(t, 12) {
		t.Skip("Terraform has no identities before 1.12")
	}
	for name, test := range created() {
		t.Run(name, func(t *testing.T) {
			test = test.named("j")
			startForImports(t)
			config := test.configs[0]
			address := strings.ReplaceAll(strings.Join(strings.Fields(config)[1:3], "."), `"`, "")
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
				{Config: config},
				{Config: config, ResourceName: address, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity},
			}})
		})
	}
}

// The same after a change of settings that only concern the provider.
func TestImportKnowsChangedSettings(t *testing.T) {
	const settings = `
  allow_disruption = true
  timeouts         = { create = "1h30m15s", update = "90m", delete = "100s" }
`
	const job = `
  name              = "NAME"
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
	const node = "\n  name = \"NAME\"\n  instance_type = \"ecs.gn7i-c16g1.4xlarge\"\n  size = 1\n  vswitch_ids = [\"vsw-1\"]\n"
	const tree = "\n  total = { cpu = \"1\" }\n  quotas = { a = {} }\n"
	const policy = "\n  name = \"p\"\n  resource_selectors = [{ api_version = \"v1\", kind = \"ConfigMap\" }]\n"
	tests := map[string]importable{}
	for name, test := range map[string]struct {
		id, kind, before, after string
	}{
		"pool":                 {"NAME", "node_pool", node, node + settings},
		"pool, spelling":       {"NAME", "node_pool", node, node + settings + "  labels = {}\n  taints = []\n"},
		"pool, and labels":     {"NAME", "node_pool", node, node + settings + "  labels = { team = \"a\" }\n"},
		"pool, taken back":     {"NAME", "node_pool", node + settings, node},
		"tree":                 {"elasticquotatree", "quota_tree", tree, tree + settings},
		"policy":               {"default/p", "propagation_policy", policy, policy + "  priority = 0\n  timeouts = { create = \"1m\" }\n"},
		"node agent":           {"gpuplan-system/gpuplan-node-agent", "node_agent", "image = \"x\"", "image = \"x\"\ntimeouts = { delete = \"1m\" }"},
		"scheduler":            {"gpuplan-system/gpuplan-scheduler", "scheduler", "image = \"x\"", "image = \"x\"\ntimeouts = { delete = \"1m\" }"},
		"job":                  {"default/NAME", "training_job", job, job + jobSettings},
		"job, spelling":        {"default/NAME", "training_job", job, job + "  gang = {}\n  labels = {}\n"},
		"job, part taken back": {"default/NAME", "training_job", job + jobSettings, job + "  triggers = { run = \"1\" }\n"},
	} {
		config := func(attributes string) string {
			return "resource \"gpuplan_" + test.kind + "\" \"x\" {\n" + attributes + "\n}\n"
		}
		tests[name] = importable{test.id, []string{config(test.before), config(test.after)}}
	}
	importTogether(t, tests)
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

// importTogether creates objects in one configuration, changes them as the next ones say, forgets all, and imports it.
func importTogether(t *testing.T, tests map[string]importable) {
	t.Helper()
	startForImports(t)
	cli := acctest.StartCLI(t)
	var before, after, imports strings.Builder
	forget := []string{"state", "rm"}
	for i, name := range slices.Sorted(maps.Keys(tests)) {
		label := fmt.Sprintf("x%d", i)
		test := tests[name].named(label)
		last := test.configs[len(test.configs)-1]
		fmt.Fprintf(&before, "# %s\n%s\n", name, test.configs[0])
		fmt.Fprintf(&after, "# %s\n%s\n", name, last)
		address := strings.Trim(strings.Fields(last)[1], `"`) + "." + label
		fmt.Fprintf(&imports, "import {\n  to = %s\n  id = %q\n}\n", address, test.id)
		forget = append(forget, address)
	}
	cli.Write(t, before.String())
	cli.Must(t, "apply", "-auto-approve")
	cli.Unchanged(t)
	cli.Write(t, after.String())
	cli.Must(t, "apply", "-auto-approve")
	cli.Unchanged(t)
	cli.Must(t, forget...)
	cli.Write(t, after.String()+imports.String())
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), fmt.Sprintf("Plan: %d to import, 0 to add, 0 to change, 0 to destroy.", len(tests)))
	cli.Write(t, after.String())
	cli.Unchanged(t)
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
