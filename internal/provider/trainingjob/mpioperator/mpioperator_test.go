// Package mpioperator_test drives MPI jobs on a platform whose MPIJobs the MPI operator runs.
package mpioperator_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m, "--mpi-operator")) }

const (
	mpi  = "gpuplan_training_job.mpi"
	data = "data.gpuplan_training_job.mpi"
)

var kind = schema.GroupVersionKind{Group: contract.KubeflowGroup, Version: contract.MPIOperatorVersion, Kind: contract.MPIJobKind}

func value(address, attribute string, check knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

// The course of a job: it is placed as planned, imported, suspended, resumed, ends, and leaves nothing behind.
func TestJobOfTheMPIOperator(t *testing.T) {
	client := acctest.OnPlatform(t)
	at := func(variables config.Variables) resource.TestStep {
		return resource.TestStep{ConfigFile: config.StaticFile("testdata/main.tf"), ConfigVariables: variables}
	}
	runs := []statecheck.StateCheck{
		value(mpi, "status", knownvalue.StringExact("Running")),
		value(mpi, "placement_as_planned", knownvalue.Bool(true)),
		value(data, "placement", knownvalue.MapSizeExact(2)),
	}
	create := at(nil)
	create.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(mpi, tfjsonpath.New("planned_node_count"), knownvalue.Int64Exact(2)),
	}
	create.ConfigStateChecks = runs
	create.Check = func(*terraform.State) error {
		acctest.AssertPredicted(t, client, kind, "vgg16")
		assert.Equal(t, "/home/mpi/.ssh", keysOf(t, client, "vgg16-worker-0"))
		return nil
	}
	again := at(nil)
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	imported := at(nil)
	imported.ResourceName, imported.ImportState, imported.ImportStateVerify = mpi, true, true
	imported.ImportStateVerifyIgnore = []string{"pools", "timeouts", "roles"}

	updates := []plancheck.PlanCheck{plancheck.ExpectResourceAction(mpi, plancheck.ResourceActionUpdate)}
	suspend := at(config.Variables{"suspend": config.BoolVariable(true)})
	suspend.ConfigPlanChecks.PreApply = updates
	suspend.ConfigStateChecks = []statecheck.StateCheck{value(mpi, "status", knownvalue.StringExact("Suspended"))}

	resume := at(nil)
	resume.ConfigPlanChecks.PreApply = updates
	resume.ConfigStateChecks = runs

	ends := at(config.Variables{"run_for": config.StringVariable("1s"), "wait_for": config.StringVariable("succeeded"), "suspend": config.BoolVariable(false)})
	ends.Taint = []string{mpi}
	ends.ConfigStateChecks = []statecheck.StateCheck{
		value(mpi, "status", knownvalue.StringExact("Succeeded")),
		value(mpi, "placement_as_planned", knownvalue.Bool(true)),
		value(data, "completion_time", knownvalue.NotNull()),
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{create, again, imported, suspend, resume, ends},
		CheckDestroy: func(*terraform.State) error {
			assertNothing(t, client)
			return nil
		},
	})
}

// keysOf is where a pod has the keys by which the launcher reaches it.
func keysOf(t *testing.T, client *kube.Client, name string) string {
	pod, err := client.Typed.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if mount.Name == "ssh-auth" {
			return mount.MountPath
		}
	}
	return ""
}

// assertNothing waits until no job and nothing that was made for one is left.
func assertNothing(t *testing.T, client *kube.Client) {
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		left, err := client.List(t.Context(), kind, "default", "")
		require.NoError(c, err)
		assert.Empty(c, left)
		jobs, err := client.Typed.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.Empty(c, jobs.Items)
		pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.Empty(c, pods.Items)
	}, time.Minute, 100*time.Millisecond)
}

const queue = `
resource "gpuplan_node_pool" "v100" {
  name          = "queue"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }

resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }

resource "gpuplan_quota_tree" "this" {
  total      = { "aliyun.com/gpu" = "8" }
  quotas     = { "one-at-a-time" = { max_jobs = 1, namespaces = ["default"] } }
  depends_on = [gpuplan_scheduler.this]
}
`

// queued is a job of four workers that waits for its turn.
func queued(name, more string) string {
	return fmt.Sprintf(`
resource "gpuplan_training_job" %[1]q {
  name         = %[1]q
  framework    = "mpi"
  image        = "train:1"
  command      = ["mpirun", "train"]
  pools        = [gpuplan_node_pool.v100.capacity]
  host_network = false
  queue        = true
  roles        = { worker = { replicas = 4, gpus = 1 } }
  timeouts     = { create = "2m" }
  %[2]s
}
`, name, more)
}

// The queue holds a job of the MPI operator and what that makes of it, and lets it start when it is its turn.
func TestQueuedJobsOfTheMPIOperator(t *testing.T) {
	client := acctest.OnPlatform(t)
	const after = `depends_on = [gpuplan_quota_tree.this, gpuplan_node_agent.this]`
	first := queued("first", after)
	second := queued("second", "wait_for = \"none\"\n  after = [gpuplan_training_job.first.placed]")
	both := resource.TestStep{Config: queue + first + second}
	both.ConfigStateChecks = []statecheck.StateCheck{value("gpuplan_training_job.first", "status", knownvalue.StringExact("Running"))}
	waits := resource.TestStep{Config: queue + first + second}
	waits.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	waits.ConfigStateChecks = []statecheck.StateCheck{value("gpuplan_training_job.second", "status", knownvalue.StringExact("Suspended"))}
	waits.Check = func(*terraform.State) error {
		pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=second"})
		require.NoError(t, err)
		assert.Empty(t, pods.Items)
		launcher, err := client.Typed.BatchV1().Jobs("default").Get(t.Context(), "second-launcher", metav1.GetOptions{})
		require.NoError(t, err)
		assert.True(t, *launcher.Spec.Suspend)
		units, err := client.List(t.Context(), schema.GroupVersionKind{Group: contract.QueueGroup, Version: contract.QueueVersion, Kind: contract.QueueUnitKind}, "default", "")
		require.NoError(t, err)
		assert.Len(t, units, 2, "the launchers' Jobs are parts of their jobs")
		return nil
	}
	turn := resource.TestStep{Config: queue + queued("second", "wait_for = \"none\"\n  "+after)}
	turn.Check = func(*terraform.State) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.WaitFor(ctx, kind, "default", "second", func(obj *unstructured.Unstructured) (bool, string, error) {
			status, err := job.StatusOf(obj)
			return status.Runs(0), fmt.Sprint(status.Phase), err
		}, nil)
		return err
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{both, waits, turn}})
}

// theirs is an MPIJob as the MPI operator's examples have it.
const theirs = `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 1
  runPolicy: {cleanPodPolicy: Running}
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - {image: mpi-pi, name: mpi-launcher, command: [mpirun], args: [-n, "2", /home/mpiuser/pi]}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {image: mpi-pi, name: mpi-worker, command: [/usr/sbin/sshd], args: [-De], resources: {limits: {nvidia.com/gpu: 1}}}
`

// An MPIJob that someone has made with kubectl is imported without a change, and what can change does without a new
// one, and with its containers as they were.
func TestMPIJobOfKubectlIsImported(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	jobs := client.Dynamic.Resource(kind.GroupVersion().WithResource(contract.MPIJobResource)).Namespace("default")
	obj := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(theirs), obj))
	made, err := jobs.Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "kubectl-create"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = jobs.Delete(context.Background(), "pi", metav1.DeleteOptions{}) })

	cli := acctest.StartCLI(t)
	config := `
resource "gpuplan_training_job" "pi" {
  name                = "pi"
  framework           = "mpi"
  mode                = "default"
  gang                = { enabled = false }
  image               = "mpi-pi"
  command             = ["mpirun"]
  args                = ["-n", "2", "/home/mpiuser/pi"]
  clean_pod_policy    = "Running"
  ssh_auth_mount_path = "/home/mpiuser/.ssh"
  roles = {
    launcher = { replicas = 1 }
    worker   = { replicas = 2, gpus = 1, command = ["/usr/sbin/sshd"], args = ["-De"] }
  }
}
`
	cli.Write(t, config)
	cli.Must(t, "import", "gpuplan_training_job.pi", "default/pi")
	require.Contains(t, cli.Must(t, "plan"), "No changes.")

	cli.Write(t, strings.Replace(config, "  roles =", "  suspend = true\n  labels = { team = \"vision\" }\n  roles =", 1))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "0 added, 1 changed, 0 destroyed")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
	live, err := jobs.Get(t.Context(), "pi", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, made.GetUID(), live.GetUID())
	assert.True(t, job.Held(live))
	for role, name := range map[string]string{"Launcher": "mpi-launcher", "Worker": "mpi-worker"} {
		containers, _, err := unstructured.NestedSlice(live.Object, "spec", "mpiReplicaSpecs", role, "template", "spec", "containers")
		require.NoError(t, err)
		require.Len(t, containers, 1)
		assert.Equal(t, name, containers[0].(map[string]any)["name"])
	}
	cli.Must(t, "destroy", "-auto-approve")
	assertNothing(t, client)
}

// Of a job whose workers cannot be created the operator's reason is told.
func TestWorkersThatTheMPIOperatorCannotCreate(t *testing.T) {
	client := acctest.OnPlatform(t)
	_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "refusing", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{{
		Config: `resource "gpuplan_training_job" "j" {
  name            = "refused"
  namespace       = "refusing"
  framework       = "mpi"
  image           = "x"
  command         = ["mpirun", "train"]
  mode            = "default"
  scheduler_name  = "default-scheduler"
  host_ipc        = true
  placement_check = "off"
  roles           = { worker = { gpus = 1 } }
  timeouts        = { create = "20s" }
}`,
		ExpectError: acctest.Saying(`the job's operator says: worker pod created failed: pods "refused-worker-0" is forbidden: violates PodSecurity`),
	}}})
}
