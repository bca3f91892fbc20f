package trainingjob_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const onePool = `
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`

// The plan counts what kubectl and node agents do to nodes, as the scheduler does.
func TestPlanSeesWhatHappenedToNodes(t *testing.T) {
	const first, second = "cn-hangzhou.10.0.1.1", "cn-hangzhou.10.0.1.2"
	job := func(workers int, more string) string {
		return onePool + fmt.Sprintf(`
resource "gpuplan_training_job" "job" {
  name      = "job"
  framework = "mpi"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  roles     = { worker = { replicas = %d, gpus = 1 } }
  wait_for  = "none"
  %s
}
`, workers, more)
	}
	change := func(name string, do func(*corev1.Node)) func(*testing.T, *acctest.Cloud) {
		return func(t *testing.T, cloud *acctest.Cloud) {
			node, err := cloud.Kube.Typed.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			do(node)
			node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
			cloud.Put(t, node)
		}
	}
	taint := func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "example.com/repair", Value: "fan", Effect: corev1.TaintEffectNoSchedule})
	}
	label := func(n *corev1.Node) { n.Labels["topology.kubernetes.io/zone"] = "cn-hangzhou-b" }
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	zone := `node_selector = { "topology.kubernetes.io/zone" = "cn-hangzhou-b" }`
	tolerant := `tolerations = [{ key = "example.com/repair", operator = "Exists" }]`

	for name, test := range map[string]struct {
		changes []func(*testing.T, *acctest.Cloud)
		config  string
		node    string   // of all members
		says    []string // of a plan that fails
	}{
		"nothing":                         {nil, job(8, ""), first, nil},
		"a taint":                         {[]func(*testing.T, *acctest.Cloud){change(first, taint)}, job(8, ""), second, nil},
		"a taint, tolerated":              {[]func(*testing.T, *acctest.Cloud){change(first, taint)}, job(8, tolerant), first, nil},
		"a taint, too many":               {[]func(*testing.T, *acctest.Cloud){change(first, taint)}, job(9, ""), "", []string{"8 of 9 members fit", "node " + first + " has the taint example.com/repair=fan:NoSchedule"}},
		"a label that is asked for":       {[]func(*testing.T, *acctest.Cloud){change(second, label)}, job(8, zone), second, nil},
		"a label that one of two has":     {[]func(*testing.T, *acctest.Cloud){change(second, label)}, job(9, zone), "", []string{"8 of 9 members fit"}},
		"a label that nobody has":         {nil, job(1, zone), "", []string{"0 of 1 members fit"}},
		"labels of all are not of others": {[]func(*testing.T, *acctest.Cloud){change(first, label), change(second, label)}, strings.Replace(job(17, zone), "size          = 2", "size          = 3", 1), "", []string{"16 of 17 members fit"}},
		"a cordon":                        {[]func(*testing.T, *acctest.Cloud){change(first, cordon)}, job(8, ""), second, nil},
		"a cordon, too many":              {[]func(*testing.T, *acctest.Cloud){change(first, cordon)}, job(9, ""), "", []string{"node " + first + " is cordoned"}},
		"a sick GPU":                      {[]func(*testing.T, *acctest.Cloud){sick(first, 3)}, job(8, ""), second, nil},
		"a sick GPU, too many":            {[]func(*testing.T, *acctest.Cloud){sick(first, 3)}, job(16, ""), "", []string{"15 of 16 members fit", "node " + first + " has GPU 3 sick (Xid 79)"}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			terraform := acctest.StartCLI(t)
			terraform.Write(t, onePool)
			terraform.Must(t, "apply", "-auto-approve")
			for _, change := range test.changes {
				change(t, cloud)
			}
			terraform.Must(t, "plan", "-detailed-exitcode") // what others do to nodes is no change of the pool
			terraform.Write(t, test.config)
			plan, err := terraform.Run("plan", "-out=saved")
			if test.says != nil {
				require.Error(t, err)
				for _, words := range test.says {
					assert.Contains(t, acctest.Unwrapped(plan), words)
				}
				return
			}
			require.NoError(t, err, plan)
			assert.Contains(t, plan, `"`+test.node+`" = "worker-0..7 GPU 0-7: `)
			terraform.Must(t, "apply", "saved")
			terraform.Must(t, "plan", "-detailed-exitcode")
		})
	}
}

// sick publishes a node's hardware with a GPU that must not be used.
func sick(node string, gpu int) func(*testing.T, *acctest.Cloud) {
	return func(t *testing.T, cloud *acctest.Cloud) {
		machine, ok := catalog.Machine("ecs.gn6v-c10g1.20xlarge")
		require.True(t, ok)
		machine.GPUs[gpu].Unhealthy = "Xid 79"
		cloud.Publish(t, node, contract.StatusOf(machine))
	}
}
