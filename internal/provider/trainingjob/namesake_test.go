package trainingjob_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// oneJob is a configuration of the owner "b" with a job j on a pool of 8 GPUs, and more.
func oneJob(framework, body, more string) string {
	return acctest.Owner("b") + fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "j" {
  name      = "j"
  framework = %q
  image     = "train:1"
  wait_for  = "none"
  roles     = { worker = { replicas = 4, gpus = 1 } }
  pools     = [gpuplan_node_pool.v100.capacity]
  %s
}
%s`, framework, body, more)
}

// liveJob is a job of the cluster with the stamp of an owner, "" for none.
func liveJob(t *testing.T, framework job.Framework, owner string) *unstructured.Unstructured {
	t.Helper()
	obj, err := job.Spec{
		Namespace: "default", Name: "j", Framework: framework, Mode: job.Topology, Owner: owner,
		Roles: map[string]job.Role{"worker": {Replicas: 1, Image: "train:1", GPUs: 1}},
	}.Render()
	require.NoError(t, err)
	return obj
}

// A name that someone else's job or pod has is refused at plan, as an apply would, and
// however little the plan is to check.
func TestNamesOfOthersAreRefusedAtPlan(t *testing.T) {
	const (
		importIt = "Choose another name, or delete it first, or take it over with `terraform import gpuplan_training_job.NAME default/j`"
		leaveIt  = "Change it there, or choose another name here; `terraform import gpuplan_training_job.NAME default/j` is right only once that configuration has given it up"
	)
	foreign := `another Terraform configuration manages it, with the owner "a" (this one is "b")`
	bare := liveJob(t, job.MPI, "a")
	bare.Object["spec"] = map[string]any{}
	leaving := liveJob(t, job.PyTorch, "a")
	leaving.SetDeletionTimestamp(new(metav1.Now()))
	leaving.SetFinalizers([]string{"foregroundDeletion"})
	pod := func(owner string, labels map[string]string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}},
		}}
		obj.SetNamespace("default")
		obj.SetName("j-worker-3")
		if owner == "StatefulSet" {
			obj.SetName("j-3")
		}
		obj.SetLabels(labels)
		if owner != "" {
			obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: owner, Name: "j", UID: "1"}})
		}
		return obj
	}
	for name, test := range map[string]struct {
		framework, body string
		live            *unstructured.Unstructured
		says            []string // nothing: the plan passes
	}{
		"another owner":              {"pytorch", "", liveJob(t, job.PyTorch, "a"), []string{"PyTorchJob default/j exists already", foreign, leaveIt}},
		"no owner":                   {"pytorch", "", liveJob(t, job.PyTorch, ""), []string{"PyTorchJob default/j exists already", "it carries no stamp", importIt}},
		"another kind":               {"pytorch", "", liveJob(t, job.MPI, "a"), []string{"MPIJob default/j exists already", "whose pods could not be told from this job's", foreign, leaveIt}},
		"of an unknown shape":        {"pytorch", "", bare, []string{"MPIJob default/j exists already", foreign}},
		"another kind, MPI":          {"mpi", "", liveJob(t, job.PyTorch, ""), []string{"PyTorchJob default/j exists already", "whose pods could not be told from this job's"}},
		"whatever is checked":        {"pytorch", `placement_check = "off"`, liveJob(t, job.PyTorch, "a"), []string{foreign}},
		"a job that is suspended":    {"pytorch", "suspend = true", liveJob(t, job.PyTorch, "a"), []string{foreign}},
		"this configuration":         {"pytorch", "", liveJob(t, job.PyTorch, "b"), nil},
		"of another kind":            {"pytorch", "", liveJob(t, job.MPI, "b"), nil},
		"one that is being deleted":  {"pytorch", "", leaving, nil},
		"nothing":                    {"pytorch", "", nil, nil},
		"a pod by itself":            {"pytorch", "", pod("", nil), []string{"there is one of that name that is not the job's: choose"}},
		"a pod of an unknown kind":   {"pytorch", "", pod("TFJob", nil), []string{"needs a pod j-worker-3", "but of the TFJob j"}},
		"a pod of no Job's name":     {"batch", "", pod("StatefulSet", nil), nil},
		"a pod that nobody asks for": {"pytorch", `placement_check = "off"`, pod("TFJob", nil), nil},
		"a pod that the job had": {"pytorch", "", pod("PyTorchJob", map[string]string{
			contract.JobNameLabel: "j", contract.JobOperatorNameLabel: job.PyTorch.Operators()[0],
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			if test.live != nil {
				cloud.API.Put(test.live)
			}
			terraform := acctest.StartCLI(t)
			terraform.Write(t, oneJob(test.framework, test.body, ""))
			output, err := terraform.Run("plan")
			if test.says == nil {
				require.NoError(t, err, output)
				return
			}
			require.Error(t, err, output)
			for _, says := range test.says {
				assert.Contains(t, acctest.Unwrapped(output), says)
			}
		})
	}
}

// A job of the state is replaced by one of the other kind, and what an apply of the other
// kind has left goes; what is imported is this configuration's, whatever its stamp.
func TestNamesOfThisConfiguration(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cloud.API.Put(liveJob(t, job.MPI, "b"))
	there := func(framework job.Framework) bool {
		_, err := cloud.Kube.Get(t.Context(), framework.GVK(), "default", "j")
		return err == nil
	}
	terraform := acctest.StartCLI(t)
	terraform.Write(t, oneJob("pytorch", "", ""))
	terraform.Must(t, "apply", "-auto-approve")
	assert.True(t, there(job.PyTorch))
	assert.False(t, there(job.MPI), "what was left of the other kind")

	terraform.Write(t, oneJob("mpi", "", ""))
	terraform.Must(t, "plan", "-refresh=false")
	terraform.Must(t, "apply", "-auto-approve")
	assert.True(t, there(job.MPI))
	assert.False(t, there(job.PyTorch))

	live, err := cloud.Kube.Get(t.Context(), job.MPI.GVK(), "default", "j")
	require.NoError(t, err)
	labels := live.GetLabels()
	labels[contract.OwnerLabel] = "a"
	live.SetLabels(labels)
	cloud.API.Put(live)
	terraform.Must(t, "state", "rm", "gpuplan_training_job.j")
	terraform.Must(t, "import", "gpuplan_training_job.j", "default/j")
	terraform.Must(t, "apply", "-auto-approve", "-replace=gpuplan_training_job.j")
}

// A job of this configuration that its state has lost, as by an apply that was killed, is replaced when it is
// another than the configured one: the plan says so, which would show a new job alone. One that goes on is
// not announced, nor is one of which it is not known.
func TestJobThatTheStateHasLostIsAnnounced(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	write := func(image, more string) {
		cli.Write(t, fmt.Sprintf(`
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  image           = %s
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 2, gpus = 1 } }
  %s
}
`, image, more))
	}
	const one, two = `"train:1"`, `"train:2"`
	const announced = "PyTorchJob default/j of this configuration exists, and Terraform makes a new one without regard to it"
	write(one, "")
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "state", "rm", "gpuplan_training_job.j")
	before, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)

	plan := func() string { return acctest.Unwrapped(cli.Must(t, "plan")) }
	assert.NotContains(t, plan(), "Job exists already")
	write("timestamp()", "")
	assert.NotContains(t, plan(), "Job exists already", "whether it goes on is not known")
	write(two, "")
	assert.Contains(t, plan(), announced)
	assert.Contains(t, plan(), "It differs in roles or their containers, so the apply deletes it and runs this one instead.")
	write(one, `triggers = { run = "2" }`)
	assert.Contains(t, plan(), "It differs in triggers, so")
	write(two, `triggers = { run = "2" }`)
	assert.Contains(t, plan(), "It differs in roles or their containers, triggers, so")
	cli.Must(t, "apply", "-auto-approve")
	after, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	assert.NotEqual(t, before.GetUID(), after.GetUID())
	assert.Contains(t, plan(), "No changes.")
}

// The first triggers run a job again like a change of them, and a change in place of a job that is gone by
// then says what to do.
func TestFirstTriggers(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	write := func(more string) {
		cli.Write(t, fmt.Sprintf(`
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 2, gpus = 1 } }
  %s
}
`, more))
	}
	write("")
	cli.Must(t, "apply", "-auto-approve")
	write(`triggers = {}`)
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "0 added, 1 changed, 0 destroyed", "there is no trigger still")
	write(`triggers = { run = "1" }`)
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "triggers = { # forces replacement")
	assert.Contains(t, said, "1 added, 0 changed, 1 destroyed")

	write(`triggers = { run = "1" }
  backoff_limit = 4`)
	cli.Must(t, "plan", "-out=tfplan")
	require.NoError(t, cloud.Kube.Delete(t.Context(), job.PyTorch.GVK(), "default", "j"))
	said, err := cli.Run("apply", "tfplan")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "Job default/j is gone since the plan was made: plan again, which creates it.")
}
