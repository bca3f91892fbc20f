package trainingjob_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/trainingjob"
)

// Whatever is unknown of a job until apply, the plan has not said what the apply does otherwise. Every job has a pool
// of its own, so that all but those that are unknown have a planned placement.
func TestUnknownAttributes(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	serveQueue(cloud)
	serveHub(cloud)
	type object = acctest.Object
	type list = acctest.List
	texts := func(a, b string) [2]any { return [2]any{fmt.Sprintf("%q", a), fmt.Sprintf("%q", b)} }
	flags, numbers := [2]any{"true", "false"}, [2]any{"2", "1"}
	keyed := [2]any{object{"k": `"v"`}, object{"k": `"w"`}}
	listed := [2]any{list{`"a"`}, list{`"b"`}}
	role := func(replicas string) object { return object{"replicas": replicas, "gpus": "1"} }
	volume := func(claim string) object { return object{"claim": claim, "mount_path": `"/data"`, "read_only": "true"} }
	toleration := func(value string) object {
		return object{"key": `"k"`, "operator": `"Equal"`, "value": value, "effect": `"NoSchedule"`}
	}
	pytorch, shared := object{"framework": `"pytorch"`}, object{"mode": `"shared"`, "roles": object{"worker": object{"memory_gib": "1"}}}
	base := func(name string) object {
		return object{
			"name": fmt.Sprintf("%q", name), "framework": `"mpi"`, "image": `"train:1"`, "command": list{`"train"`}, "wait_for": `"none"`,
			"placement_check": `"warn"`, "roles": object{"worker": role("2")}, "pools": list{fmt.Sprintf("gpuplan_node_pool.all[%q].capacity", name)},
			"timeouts": object{"create": `"10m"`, "update": `"10m"`},
		}
	}
	u := acctest.Unknown{
		Type: "gpuplan_training_job", Resource: trainingjob.New(),
		Base: base,
		Values: map[string][2]any{
			"active_deadline_seconds": numbers, "allow_preemption": flags, "annotations": keyed, "arena_compatible": flags,
			"args": listed, "backoff_limit": numbers, "clean_pod_policy": texts("All", "Running"), "command": listed,
			"code_sync":        {object{"source": `"git"`, "url": `"https://example.com/a.git"`}, object{"source": `"git"`, "url": `"https://example.com/b.git"`}},
			"code_sync.source": texts("rsync", "git"), "code_sync.url": texts("https://example.com/c.git", "https://example.com/d.git"),
			"code_sync.branch": texts("a", "b"), "code_sync.revision": texts("a", "b"), "code_sync.image": texts("a", "b"), "code_sync.secret": texts("a", "b"),
			"dns_policy": texts("Default", "ClusterFirst"), "env": keyed, "framework": texts("pytorch", "mpi"),
			"gang": {object{"minimum": "2"}, object{"minimum": "1"}}, "gang.enabled": {"true", "null"}, "gang.minimum": numbers,
			"host_ipc": flags, "host_network": flags, "host_pid": flags, "image": texts("train:2", "train:3"),
			"image_pull_policy": texts("Always", "Never"), "image_pull_secrets": listed, "labels": keyed, "mpi_implementation": texts("OpenMPI", "OpenMPI"), "mode": texts("default", "topology"),
			"name": texts("one", "two"), "namespace": texts("default", "other"), "node_selector": keyed, "nproc_per_node": texts("2", "auto"),
			"placement_check": texts("off", "warn"), "port": numbers, "preemptible": flags, "priority_class": texts("high", "low"),
			"quota": texts("a", "b"), "queue": flags, "rdma_defaults": flags, "require_immediate": flags, "restart_policy": texts("Never", "OnFailure"),
			"roles":             {object{"worker": role("3")}, object{"worker": role("2")}},
			"roles.worker.args": listed, "roles.worker.command": listed, "roles.worker.core_percent": {"50", "25"}, "roles.worker.cpu": texts("2", "1"),
			"roles.worker.env": keyed, "roles.worker.gpus": numbers, "roles.worker.image": texts("train:2", "train:3"),
			"roles.worker.memory": texts("2Gi", "1Gi"), "roles.worker.memory_gib": numbers, "roles.worker.minimum": numbers,
			"roles.worker.rdma": flags, "roles.worker.replicas": numbers, "roles.worker.working_dir": texts("/a", "/b"),
			"scheduler_name": texts("default-scheduler", "gpuplan-scheduler"), "service_account": texts("a", "b"), "shared_memory": texts("2Gi", "1Gi"), "ssh_auth_mount_path": texts("/root/.ssh", "/root/.ssh"),
			"suspend": flags, "timeouts": {object{"create": `"9m"`}, object{"create": `"8m"`}}, "timeouts.create": texts("9m", "8m"),
			"timeouts.update": texts("9m", "8m"), "timeouts.delete": texts("9m", "8m"),
			"tolerations": {list{toleration(`"v"`)}, list{toleration(`"w"`)}}, "tolerations.0.key": texts("a", "b"),
			"tolerations.0.operator": {`"Equal"`, "null"}, "tolerations.0.value": texts("a", "b"), "tolerations.0.effect": texts("NoExecute", "NoSchedule"),
			"tensorboard":         {object{"log_dir": `"hdfs://a"`}, object{"log_dir": `"hdfs://b"`}},
			"tensorboard.log_dir": texts("hdfs://c", "hdfs://d"), "tensorboard.image": texts("a", "b"), "tensorboard.service_type": texts("ClusterIP", "NodePort"),
			"triggers": keyed, "ttl_seconds_after_finished": numbers,
			"volumes": {object{"d": volume(`"a"`)}, object{"d": volume(`"b"`)}}, "volumes.d.claim": texts("a", "b"), "volumes.d.mount_path": texts("/a", "/b"),
			"volumes.d.read_only": flags, "wait_for": texts("none", "none"), "working_dir": texts("/a", "/b"),
			"after": {list{"gpuplan_training_job.first.placed"}, list{"gpuplan_training_job.first.placed"}},
			"fleet": {object{"policy": `"p"`}, object{"policy": `"q"`}}, "fleet.policy": texts("p", "q"),
			"fleet.clusters": {object{"m": object{}}, object{"m": object{}, "n": object{}}}, "fleet.clusters.m": {object{}, object{}},
			"fleet.clusters.m.pools": {list{`gpuplan_node_pool.all["fleet-clusters-m-pools"].capacity`}, list{`gpuplan_node_pool.all["fleet-clusters-m-pools"].capacity`}},
			"pools":                  {list{`gpuplan_node_pool.all["pools"].capacity`}, list{`gpuplan_node_pool.all["pools"].capacity`}},
		},
		With: map[string]object{
			"fleet": {"pools": "null"}, "port": pytorch, "nproc_per_node": pytorch, "roles.worker.core_percent": shared, "roles.worker.memory_gib": shared,
		},
		Needed: []string{"image", "roles.worker.gpus", "roles.worker.memory_gib", "tolerations.0.key"},
		Rest: func(names []string) string {
			var all string
			for _, name := range names {
				all += fmt.Sprintf("%q, ", name)
			}
			return `
resource "gpuplan_node_pool" "all" {
  for_each      = toset([` + all + `"first"])
  name          = each.key
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "first" ` + acctest.Written(base("first")) + "\n"
		},
	}
	u.Test(t)
}

// serveQueue makes the API server serve what the job queue keeps.
func serveQueue(cloud *acctest.Cloud) {
	cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "queueunits." + contract.QueueGroup},
		"spec": map[string]any{
			"group": contract.QueueGroup, "scope": "Namespaced", "names": map[string]any{"kind": contract.QueueUnitKind, "plural": "queueunits"},
			"versions": []any{map[string]any{"name": "v1alpha1", "served": true}},
		},
	}})
}

// serveHub makes the API server that of a hub without clusters, with two policies.
func serveHub(cloud *acctest.Cloud) {
	for _, kind := range [][3]string{
		{contract.KarmadaPolicyGroup, contract.PropagationPolicyKind, "Namespaced"}, {contract.KarmadaWorkGroup, contract.ResourceBindingKind, "Namespaced"}, {contract.KarmadaClusterGroup, contract.KarmadaClusterKind, "Cluster"},
	} {
		plural, version := strings.ToLower(kind[1])+"s", "v1alpha1"
		switch kind[1] {
		case contract.PropagationPolicyKind:
			plural = contract.PropagationPolicyResource
		case contract.ResourceBindingKind:
			version = contract.ResourceBindingVersion
		}
		cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + kind[0]},
			"spec": map[string]any{
				"group": kind[0], "scope": kind[2], "names": map[string]any{"kind": kind[1], "plural": plural},
				"versions": []any{map[string]any{"name": version, "served": true}},
			},
		}})
	}
	for _, name := range []string{"p", "q"} {
		var selectors []any
		for _, framework := range []job.Framework{job.PyTorch, job.MPI} {
			kind := framework.GVK()
			selectors = append(selectors, map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind})
		}
		cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": contract.KarmadaPolicyGroup + "/v1alpha1", "kind": contract.PropagationPolicyKind, "metadata": map[string]any{"name": name, "namespace": "default"},
			"spec": map[string]any{"resourceSelectors": selectors, "schedulerName": contract.FleetSchedulerName},
		}})
	}
}

// What is known of a job is checked, whatever else of it is not.
func TestKnownPartsOfAnUnknownRole(t *testing.T) {
	disconnected(t)
	cli := acctest.StartCLI(t)
	for attributes, says := range map[string]string{
		`name = "No Name", roles = { worker = { image = terraform_data.x.output } }`:                        `"No Name" cannot be the name of a job`,
		`name = "j", roles = { worker = { replicas = 2000000000, env = { A = terraform_data.x.output } } }`: "replicas",
		`name = "j", roles = { worker = { image = terraform_data.x.output }, chief = { replicas = 1 } }`:    "chief",
	} {
		config := "resource \"terraform_data\" \"x\" {\n  input = \"x\"\n}\nresource \"gpuplan_training_job\" \"j\" {\n  framework = \"pytorch\"\n  image = \"x\"\n  " +
			strings.Replace(attributes, ", roles", "\n  roles", 1) + "\n}\n"
		cli.Refuses(t, config, acctest.Saying("Invalid training job"))
		cli.Refuses(t, config, acctest.Saying(says))
	}
}
