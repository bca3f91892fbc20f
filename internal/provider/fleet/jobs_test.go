package fleet_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// alias is the provider for a member cluster, with a pool of one node with eight V100 there.
func alias(t *testing.T, name string) string {
	env := localtest.Start(t).Member(t, name)
	return fmt.Sprintf(`
provider "gpuplan" {
  alias      = %[1]q
  kubeconfig = %[2]q
  cluster_id = %[3]q
  endpoint   = %[4]q
  region     = %[5]q
  access_key = %[6]q
  secret_key = %[7]q
}
resource "gpuplan_node_pool" %[1]q {
  provider      = gpuplan.%[1]s
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-fleet"]
}
`, name, env["KUBECONFIG"], env["GPUPLAN_CLUSTER_ID"], env["GPUPLAN_CS_ENDPOINT"], env["ALIBABA_CLOUD_REGION_ID"], env["ALIBABA_CLOUD_ACCESS_KEY_ID"], env["ALIBABA_CLOUD_ACCESS_KEY_SECRET"])
}

// member is the client of a member cluster.
func member(t *testing.T, name string) *kube.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", localtest.Start(t).Member(t, name)["KUBECONFIG"])
	require.NoError(t, err)
	client, err := kube.New(config)
	require.NoError(t, err)
	return client
}

var pyTorchJob = schema.GroupVersionKind{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Kind: contract.PyTorchJobKind}

const gangs = `
resource "gpuplan_propagation_policy" "gangs" {
  name               = "gangs"
  resource_selectors = [{ api_version = "kubeflow.org/v1", kind = "PyTorchJob" }]
  placement          = { replica_scheduling = { replica_scheduling_type = "Divided", custom_scheduling_type = "Gang" } }
}
locals {
  fleet = {
    policy = gpuplan_propagation_policy.gangs.name
    clusters = {
      "member-1" = { pools = [gpuplan_node_pool.member-1.capacity] }
      "member-2" = { pools = [gpuplan_node_pool.member-2.capacity] }
    }
  }
}
`

// ofFleet is a job of a master and two workers with so many GPUs each.
func ofFleet(name string, gpus int, more string) string {
	return fmt.Sprintf(`
resource "gpuplan_training_job" %[1]q {
  name      = %[1]q
  framework = "pytorch"
  image     = "train:1"
  fleet     = local.fleet
  roles     = { master = { gpus = %[2]d }, worker = { replicas = 2, gpus = %[2]d } }
  %[3]s
}
output %[1]q {
  value = "${gpuplan_training_job.%[1]s.planned_cluster} ${gpuplan_training_job.%[1]s.cluster} ${gpuplan_training_job.%[1]s.placement_as_planned} ${gpuplan_training_job.%[1]s.status}"
}
`, name, gpus, more)
}

// onFleet is the hub of a fleet on the local platform, and a terraform that runs a provider for each cluster.
func onFleet(t *testing.T) (hub *kube.Client, cli *acctest.CLI) {
	t.Helper()
	if _, err := os.Stat("../../../bin/gpuplan-karmada"); err != nil {
		t.Skip("gpuplan-karmada is not built: run make fleet")
	}
	hub = acctest.OnPlatform(t)
	for _, name := range []string{"ALIBABA_CLOUD_ACCESS_KEY_ID", "GPUPLAN_CLUSTER_ID", "GPUPLAN_CS_ENDPOINT"} {
		t.Setenv(name, "")
	}
	binary, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	return hub, acctest.NewCLI(t, binary)
}

// hideMember takes away what the hub needs to reach a member cluster, until restore is called.
func hideMember(t *testing.T, hub *kube.Client, name string) (restore func()) {
	t.Helper()
	cluster, err := hub.Get(t.Context(), schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Kind: "Cluster"}, "", name)
	require.NoError(t, err)
	ref, _, err := unstructured.NestedStringMap(cluster.Object, "spec", "secretRef")
	require.NoError(t, err)
	secrets := hub.Typed.CoreV1().Secrets(ref["namespace"])
	secret, err := secrets.Get(t.Context(), ref["name"], metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, secrets.Delete(t.Context(), secret.Name, metav1.DeleteOptions{}))
	return func() {
		secret.ResourceVersion, secret.UID = "", ""
		_, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// A plan of a fleet from nothing names the cluster and the GPUs of each gang, and so it comes; what does not fit, or cannot be, fails
// at plan.
func TestJobsOfAFleet(t *testing.T) {
	hub, cli := onFleet(t)
	base := alias(t, "member-1") + alias(t, "member-2") + gangs
	jobs := func(of ...string) { cli.Write(t, base+strings.Join(of, "")) }
	first := ofFleet("a", 2, "")
	second := ofFleet("b", 2, "after = [gpuplan_training_job.a.placed]")

	jobs(first, second)
	planned := strings.Join(strings.Fields(cli.Must(t, "plan")), " ")
	for _, says := range []string{`+ planned_cluster = "member-1" + planned_node_count = 1 + planned_placement = { + "v100[0]" = "master-0 GPU 0,4; worker-0..1 GPU 2,3,6,7: 50 GB/s, 2 NVLink rings" }`, `+ planned_cluster = "member-2"`} {
		assert.Contains(t, planned, says)
	}
	assert.Contains(t, planned, "Members cannot use the NVLink between them")
	cli.Apply(t, 5, 0, 0)
	is := func(name, want string) {
		t.Helper()
		assert.Equal(t, want, strings.TrimSpace(cli.Must(t, "output", "-raw", name)))
	}
	is("a", "member-1 member-1 true Running")
	is("b", "member-2 member-2 true Running")
	cli.Unchanged(t)
	jobs(first, second, `
data "gpuplan_training_job" "b" {
  id = gpuplan_training_job.b.id
}
output "where" {
  value = "${data.gpuplan_training_job.b.cluster} ${join(", ", values(data.gpuplan_training_job.b.placement))}"
}`)
	cli.Apply(t, 0, 0, 0)
	assert.Regexp(t, `^member-2 master-0 GPU 0,4; worker-0..1 GPU 2,3,6,7`, cli.Must(t, "output", "-raw", "where"))

	refuses := func(says string, of ...string) {
		t.Helper()
		cli.Refuses(t, base+strings.Join(of, ""), acctest.Saying(says))
	}
	refuses(`Job default/c has a place in no cluster of the fleet: member-1: `, first, second, ofFleet("c", 1, ""))
	refuses(`pools is not for jobs with fleet`, first, second, ofFleet("c", 1, "pools = [gpuplan_node_pool.member-1.capacity]"))
	refuses(`suspend is not for jobs with fleet`, first, second, ofFleet("c", 1, "suspend = true"))
	refuses(`ttl_seconds_after_finished is not for jobs with fleet`, first, second, ofFleet("c", 1, "ttl_seconds_after_finished = 5"))
	refuses(`The hub has no policy default/other`, first, second, strings.Replace(ofFleet("c", 1, ""), "local.fleet", `{ policy = "other" }`, 1))
	refuses(`is given pools of cluster "member-3", and the clusters of the fleet are member-1, member-2`, first, second,
		strings.Replace(ofFleet("c", 1, ""), "local.fleet", `{ policy = local.fleet.policy, clusters = { "member-3" = { pools = [gpuplan_node_pool.member-1.capacity] } } }`, 1))
	refuses(`Policy gangs does not select Job default/c`, first, second, strings.Replace(strings.Replace(ofFleet("c", 1, ""), `"pytorch"`, `"batch"`, 1), "master = { gpus = 1 }, ", "", 1))

	// A job that is replaced gets the place of what it was.
	changed := strings.Replace(first, "train:1", "train:2", 1)
	jobs(changed, second)
	cli.Apply(t, 1, 0, 1)
	is("a", "member-1 member-1 true Running")
	is("b", "member-2 member-2 true Running")
	cli.Unchanged(t)

	// Someone else has what a plan counts on: the job goes where there is room, and the plan says so.
	alone := ofFleet("b", 2, "")
	jobs(alone)
	cli.Apply(t, 0, 0, 1)
	one := member(t, "member-1")
	nodes, err := one.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodePoolNameLabel + "=v100"})
	require.NoError(t, err)
	node := nodes.Items[0]
	node.Spec.Unschedulable = true
	_, err = one.Typed.CoreV1().Nodes().Update(t.Context(), &node, metav1.UpdateOptions{})
	require.NoError(t, err)
	refuses(`Job default/a has a place in no cluster of the fleet: member-1: `, alone, ofFleet("a", 2, ""))

	// A cluster that cannot be asked keeps nobody from deleting its jobs.
	restore := hideMember(t, hub, "member-2")
	said := cli.Must(t, "destroy", "-auto-approve", "-target=gpuplan_training_job.b")
	assert.Contains(t, said, "Job may run still")
	restore()
	two := member(t, "member-2")
	require.Eventually(t, func() bool {
		list, err := two.List(t.Context(), pyTorchJob, "", "")
		return err == nil && len(list) == 0
	}, time.Minute, time.Second, "the hub deletes it there")

	// What a policy leaves in its cluster is not waited for.
	keeps := strings.Replace(base, `"gangs"
  resource`, `"gangs"
  preserve_resources_on_deletion = true
  resource`, 1)
	cli.Write(t, keeps+ofFleet("c", 2, ""))
	cli.Apply(t, 1, 1, 0)
	said = cli.Must(t, "destroy", "-auto-approve", "-target=gpuplan_training_job.c")
	assert.Contains(t, strings.Join(strings.Fields(said), " "), "Job default/c is deleted on the hub, and stays in cluster member-2")
	kept, err := two.Get(t.Context(), pyTorchJob, "default", "c")
	require.NoError(t, err)
	require.NoError(t, two.DeleteObject(t.Context(), kept))

	cli.Must(t, "destroy", "-auto-approve")
	for name, client := range map[string]*kube.Client{"hub": hub, "member-1": one, "member-2": two} {
		list, err := client.List(t.Context(), pyTorchJob, "", "")
		require.NoError(t, err)
		assert.Empty(t, list, name)
		pods, err := client.List(t.Context(), corev1.SchemeGroupVersion.WithKind("Pod"), "default", "")
		require.NoError(t, err)
		assert.Empty(t, pods, name)
	}
}
