package trainingjob_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// fleet is a configuration of pools of two nodes, each with jobs of eight members.
func fleet(pools, jobsPerPool int, label string) string {
	var config strings.Builder
	for p := range pools {
		fmt.Fprintf(&config, `
resource "gpuplan_node_pool" "p%[1]d" {
  name          = "p%[1]d"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`, p)
		for j := range jobsPerPool {
			after := ""
			if j > 0 {
				after = fmt.Sprintf("after = [gpuplan_training_job.j%d_%d.placed]", p, j-1)
			}
			fmt.Fprintf(&config, `
resource "gpuplan_training_job" "j%[1]d_%[2]d" {
  name      = "j%[1]d-%[2]d"
  framework = "mpi"
  image     = "train:1"
  command   = ["sh", "-c", "train"]
  pools     = [gpuplan_node_pool.p%[1]d.capacity]
  roles     = { worker = { replicas = 8, gpus = 1 } }
  labels    = { team = %[4]q }
  wait_for  = "none"
  %[3]s
}
`, p, j, after, label)
		}
	}
	return config.String()
}

// startMembers makes the workers of a job run on all GPUs of the i-th node of a pool, as
// its operator and the scheduler would.
func startMembers(t *testing.T, cloud *acctest.Cloud, name, pool string, i int) {
	t.Helper()
	nodes, err := cloud.Kube.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodePoolNameLabel + "=" + pool})
	require.NoError(t, err)
	obj, err := cloud.Kube.Get(t.Context(), job.MPI.GVK(), "default", name)
	require.NoError(t, err)
	pods, err := job.Pods(obj)
	require.NoError(t, err)
	for gpu, pod := range slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.Labels[contract.JobReplicaTypeLabel] != contract.ReplicaWorker }) {
		record, err := contract.Allocation{Gang: "default/" + name, Node: nodes.Items[i].Name, GPUs: []int{gpu}, Visible: []int{0, 1, 2, 3, 4, 5, 6, 7}}.Annotations()
		require.NoError(t, err)
		pod.APIVersion, pod.Kind = "v1", "Pod"
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(obj, obj.GroupVersionKind())}
		pod.Annotations, pod.Spec.NodeName, pod.Status.Phase = record, nodes.Items[i].Name, corev1.PodRunning
		cloud.Put(t, pod)
	}
	var conditions []any
	for _, kind := range []string{"Created", "Running"} {
		conditions = append(conditions, map[string]any{"type": kind, "status": "True", "reason": "MPIJob" + kind, "message": "MPIJob default/" + name + " is " + kind})
	}
	report := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"startTime": "2026-01-01T00:00:00Z", "conditions": conditions}}}
	report.SetGroupVersionKind(obj.GroupVersionKind())
	report.SetName(name)
	mpijobs := obj.GroupVersionKind().GroupVersion().WithResource(contract.MPIJobResource)
	_, err = cloud.Kube.Dynamic.Resource(mpijobs).Namespace("default").ApplyStatus(t.Context(), name, report, metav1.ApplyOptions{FieldManager: "operator"})
	require.NoError(t, err)
}

// What a plan prints of a job does not grow with the pools, and each kind is listed once
// however many resources there are.
func TestPlansAreShortAndListOnce(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, fleet(4, 2, "a"))
	plan := terraform.Must(t, "plan", "-out=saved")
	for p := range 4 {
		for j := range 2 {
			lines := acctest.Lines(plan, fmt.Sprintf("gpuplan_training_job.j%d_%d", p, j))
			require.NotZero(t, lines)
			assert.Less(t, lines, 40, plan)
		}
		lines := acctest.Lines(plan, fmt.Sprintf("gpuplan_node_pool.p%d", p))
		require.NotZero(t, lines)
		assert.Less(t, lines, 80, plan)
	}
	terraform.Must(t, "apply", "saved")

	before, asked, discovered := cloud.API.Lists(), cloud.API.Gets(), cloud.API.Discoveries()
	terraform.Must(t, "plan", "-detailed-exitcode")
	assert.LessOrEqual(t, cloud.API.Discoveries()-discovered, 8, "not each job asks which kinds are served")
	for kind, count := range cloud.API.Lists() {
		assert.LessOrEqual(t, count-before[kind], 1, kind)
	}
	for kind, count := range cloud.API.Gets() {
		if kind == contract.MPIJobResource {
			assert.Equal(t, 8, count-asked[kind], "a job asks for itself, by its name")
		} else {
			assert.LessOrEqual(t, count-asked[kind], 1, kind)
		}
	}

	// One word of the command of a job that runs is a new job on the same GPUs.
	for p := range 4 {
		for j := range 2 {
			startMembers(t, cloud, fmt.Sprintf("j%d-%d", p, j), fmt.Sprintf("p%d", p), j)
		}
	}
	terraform.Must(t, "apply", "-auto-approve", "-refresh-only")
	terraform.Write(t, strings.ReplaceAll(fleet(4, 2, "a"), `"train"]`, `"train --long"]`))
	plan = terraform.Must(t, "plan")
	most := 15
	if !acctest.Since(t, 11) {
		most = 16 // OpenTofu shows the name of what it replaces
	}
	for p := range 4 {
		for j := range 2 {
			lines := acctest.Lines(plan, fmt.Sprintf("gpuplan_training_job.j%d_%d", p, j))
			require.NotZero(t, lines)
			assert.Less(t, lines, most, plan)
		}
	}

	// A change of one word in place shows that word, and not what it cannot touch.
	terraform.Write(t, fleet(4, 2, "b"))
	plan = terraform.Must(t, "plan")
	assert.NotContains(t, plan, "(known after apply)")
	for p := range 4 {
		assert.Less(t, acctest.Lines(plan, fmt.Sprintf("gpuplan_training_job.j%d_0", p)), 15, plan)
	}
	terraform.Must(t, "apply", "-auto-approve")
	terraform.Must(t, "plan", "-detailed-exitcode")

	// Nor does a label of a pool.
	terraform.Write(t, strings.ReplaceAll(fleet(4, 2, "b"), `mode          = "topology"`, "mode = \"topology\"\n  labels = { rack = \"a\" }"))
	plan = terraform.Must(t, "plan", "-out=saved")
	assert.NotContains(t, plan, "(known after apply)")
	terraform.Must(t, "apply", "saved")
	terraform.Must(t, "plan", "-detailed-exitcode")

	// Of a pool that grows the plan knows the state.
	terraform.Write(t, strings.ReplaceAll(strings.ReplaceAll(fleet(4, 2, "b"), `mode          = "topology"`, "mode = \"topology\"\n  labels = { rack = \"a\" }"), "size          = 2", "size = 3"))
	plan = terraform.Must(t, "plan")
	assert.Contains(t, plan, "2 -> 3")
	assert.NotRegexp(t, `[~+-] state +=`, plan)
}

// Of a job that lists many pools, or is planned on many nodes, a plan prints a line more for each of them.
func TestPlansOfJobsWithManyPoolsAndNodes(t *testing.T) {
	disconnected(t)
	const pools, nodes = 50, 44
	var config, all strings.Builder
	for p := range pools {
		size := 1
		if p == 0 {
			size = nodes
		}
		fmt.Fprintf(&config, `
resource "gpuplan_node_pool" "p%[1]d" {
  name          = "p%[1]d"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = %[2]d
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`, p, size)
		fmt.Fprintf(&all, "gpuplan_node_pool.p%d.capacity, ", p)
	}
	for name, of := range map[string]struct {
		members int
		pools   string
	}{"one": {8, "gpuplan_node_pool.p1.capacity"}, "pools": {8, all.String()}, "nodes": {8 * nodes, "gpuplan_node_pool.p0.capacity"}} {
		fmt.Fprintf(&config, `
resource "gpuplan_training_job" "%[1]s" {
  name      = "%[1]s"
  framework = "mpi"
  image     = "train:1"
  command   = ["sh", "-c", "train"]
  pools     = [%[3]s]
  roles     = { worker = { replicas = %[2]d, gpus = 1 } }
}
`, name, of.members, of.pools)
	}
	terraform := acctest.StartCLI(t)
	terraform.Write(t, config.String())
	plan := terraform.Must(t, "plan")
	one := acctest.Lines(plan, "gpuplan_training_job.one")
	require.NotZero(t, one)
	assert.Less(t, one, 40, plan)
	assert.Equal(t, one+pools-1, acctest.Lines(plan, "gpuplan_training_job.pools"), plan)
	assert.Equal(t, one+nodes-1, acctest.Lines(plan, "gpuplan_training_job.nodes"), plan)
}

// A job that does not fit beside those that stay is refused as itself, whichever of them Terraform visits last.
func TestMisfitShowsWithItsJob(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, fleet(3, 1, "a"))
	terraform.Must(t, "apply", "-auto-approve")
	for p := range 3 {
		startMembers(t, cloud, fmt.Sprintf("j%d-0", p), fmt.Sprintf("p%d", p), 0)
	}
	terraform.Must(t, "apply", "-auto-approve", "-refresh-only")
	terraform.Write(t, fleet(3, 1, "a")+`
resource "gpuplan_training_job" "big" {
  name      = "big"
  framework = "mpi"
  image     = "train:1"
  command   = ["train"]
  pools     = [gpuplan_node_pool.p0.capacity]
  roles     = { worker = { replicas = 9, gpus = 1 } }
}
`)
	for range 3 {
		output, err := terraform.Run("plan")
		require.Error(t, err)
		assert.Contains(t, output, "Error: Gang does not fit")
		assert.Contains(t, output, "with gpuplan_training_job.big,")
	}
}
