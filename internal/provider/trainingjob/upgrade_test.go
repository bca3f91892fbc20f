package trainingjob_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// serveJobs makes the API server serve the kinds of operators' jobs; nobody runs them.
func serveJobs(cloud *acctest.Cloud) {
	for _, framework := range []job.Framework{job.MPI, job.PyTorch} {
		serve(cloud, framework, framework.GVK().Version)
	}
}

// serve makes the API server serve a framework's kind in some versions.
func serve(cloud *acctest.Cloud, framework job.Framework, versions ...string) {
	kind := framework.GVK()
	plural := map[job.Framework]string{job.MPI: "mpijobs", job.PyTorch: "pytorchjobs", job.JobSet: "jobsets"}[framework]
	var served []any
	for _, version := range versions {
		served = append(served, map[string]any{"name": version, "served": true})
	}
	if served == nil {
		return
	}
	cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group, "scope": "Namespaced", "names": map[string]any{"kind": kind.Kind, "plural": plural}, "versions": served,
		},
	}})
}

const twoJobs = `
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "first" {
  name      = "first"
  framework = "mpi"
  image     = "train:1"
  command   = ["train"]
  pools     = [gpuplan_node_pool.v100.capacity]
  roles     = { worker = { replicas = 4, gpus = 1 } }
  wait_for  = "none"
}

resource "gpuplan_training_job" "second" {
  name      = "second"
  framework = "mpi"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  after     = [gpuplan_training_job.first.placed]
  roles     = { worker = { replicas = 8, gpus = 1 } }
  wait_for  = "none"
}
`

// A state of the first form of the resource is taken over without a change.
func TestStateOfVersion0(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, twoJobs)
	terraform.Must(t, "apply", "-auto-approve")
	terraform.Must(t, "plan", "-detailed-exitcode")

	file := filepath.Join(terraform.Dir, "terraform.tfstate")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var state struct {
		Version          int              `json:"version"`
		TerraformVersion string           `json:"terraform_version"`
		Serial           int              `json:"serial"`
		Lineage          string           `json:"lineage"`
		Outputs          map[string]any   `json:"outputs"`
		Resources        []map[string]any `json:"resources"`
	}
	require.NoError(t, json.Unmarshal(text, &state))
	downgraded := 0
	for _, r := range state.Resources {
		if r["type"] != "gpuplan_training_job" {
			continue
		}
		downgraded++
		instance := r["instances"].([]any)[0].(map[string]any)
		instance["schema_version"] = 0
		attributes := instance["attributes"].(map[string]any)
		delete(attributes, "pool_names")
		delete(attributes, "placed")
		attributes["after"] = []any{"default/first"}
		attributes["pools"] = []any{map[string]any{"pool": "v100", "nodes": []any{map[string]any{"name": "v100[0]", "free_cards": []any{0, 1}}}}}
		attributes["planned_placement"] = []any{map[string]any{"member": "worker-0", "node": "v100[0]", "cards": []any{3}, "ring_gbps": 50, "nvlink_rings": 2}}
		attributes["actual_placement"] = []any{}
		worker := attributes["roles"].(map[string]any)["worker"].(map[string]any)
		worker["cards"] = worker["gpus"]
		delete(worker, "gpus")
		attributes["host_ipc"], attributes["preemptible"], attributes["clean_pod_policy"] = false, true, "None"
	}
	require.Equal(t, 2, downgraded)
	state.Serial++
	text, err = json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))

	terraform.Must(t, "plan", "-detailed-exitcode")
	terraform.Must(t, "apply", "-auto-approve", "-refresh-only")
	shown := terraform.Must(t, "show")
	require.Contains(t, shown, `"worker-0 GPU 3: 50 GB/s, 2 NVLink rings"`)
	require.Contains(t, shown, `"default/first#exists"`)
}
