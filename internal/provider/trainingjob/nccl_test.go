package trainingjob_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// What NCCL says in the log of the first replica with GPUs is an attribute, and a warning where RDMA was asked for and is not used.
func TestWhatNCCLUses(t *testing.T) {
	const (
		rdma    = "h:1:1 [0] NCCL INFO NET/IB : Using [0]erdma_0:1/RoCE [RO]; OOB eth0:10.0.0.4<0>\nh:1:1 [0] NCCL INFO Using network IB\nh:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
		tcp     = "h:1:1 [0] NCCL INFO NET/IB : No device found.\nh:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>\nh:1:1 [0] NCCL INFO Using network Socket\n"
		warning = "NCCL sends over TCP, as the log of pod default/j-master-0 says."
		refused = "What NCCL uses is not known of job default/j: the log of pod default/j-master-0 cannot be read."
	)
	const hosted = "h:1:1 [0] NCCL INFO Using network IB\nh:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
	const overHost = `{"channels":["SHM/direct"],"devices":null,"network":"IB"}`
	overRDMA, overTCP := `{"channels":["P2P/IPC"],"devices":["erdma_0:1/RoCE"],"network":"IB"}`, `{"channels":null,"devices":["eth0"],"network":"Socket"}`
	for name, test := range map[string]struct {
		job, log string // "": it may not be read
		waits    bool
		rings    int // of NVLinks among the GPUs
		want     string
		says     string
	}{
		"RDMA":                         {"rdma = true", rdma, false, 0, overRDMA, ""},
		"TCP":                          {"rdma = true", tcp, false, 0, overTCP, warning},
		"TCP, and none wanted":         {`env = { NCCL_DEBUG = "info" }`, tcp, false, 0, overTCP, ""},
		"nothing yet":                  {"rdma = true", "Train Epoch: 1\n", false, 0, "null", ""},
		"not asked to say it":          {"", rdma, false, 0, "null", ""},
		"not started":                  {"rdma = true", rdma, true, 0, "null", ""},
		"over the host":                {`env = { NCCL_DEBUG = "INFO" }`, hosted, false, 0, overHost, ""},
		"over the host beside NVLinks": {`env = { NCCL_DEBUG = "INFO" }`, hosted, false, 2, overHost, "have a ring of NVLinks, but NCCL sends through the memory of the host"},
		"no rights":                    {"rdma = true", "", false, 0, "null", refused},
	} {
		t.Run(name, func(t *testing.T) {
			said, use := saidOfNCCL(t, fmt.Sprintf("master = { gpus = 1, %[1]s }, worker = { gpus = 1, %[1]s }", test.job), "j-master-0", test.log, test.waits, test.rings)
			assert.JSONEq(t, fmt.Sprintf("%q", test.want), use)
			if test.says == "" {
				assert.NotContains(t, said, "Warning")
			} else {
				assert.Contains(t, said, test.says)
			}
		})
	}
}

// The log is that of a replica that has GPUs, and one of them without a device is named.
func TestWhoseLogTellsOfNCCL(t *testing.T) {
	const tcp = "h:1:1 [0] NCCL INFO Using network Socket\n"
	for name, test := range map[string]struct{ roles, pod, says string }{
		"a master without GPUs":     {"master = {}, worker = { gpus = 1, rdma = true }", "j-worker-0", "Look whether the image has the user-space driver"},
		"a master without a device": {"master = { gpus = 1 }, worker = { gpus = 1, rdma = true }", "j-master-0", `That one has none, and NCCL needs one in each: set roles["master"].rdma to true.`},
	} {
		t.Run(name, func(t *testing.T) {
			said, use := saidOfNCCL(t, test.roles, test.pod, tcp, false, 0)
			assert.JSONEq(t, fmt.Sprintf("%q", `{"channels":null,"devices":null,"network":"Socket"}`), use)
			assert.Contains(t, said, "NCCL sends over TCP, as the log of pod default/"+test.pod+" says. "+test.says)
		})
	}
}

// saidOfNCCL is what Terraform says of a job whose pod has a log, and what its data source tells of NCCL.
func saidOfNCCL(t *testing.T, roles, pod, log string, waits bool, rings int) (said, use string) {
	cloud := acctest.StartCloud(t)
	serve(cloud, job.PyTorch, contract.KubeflowVersion)
	cloud.Intercept(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			return false
		}
		assert.Contains(t, r.URL.Path, "/"+pod+"/")
		assert.NotEmpty(t, r.URL.Query().Get("limitBytes"), "a log may be of any size")
		if log == "" {
			http.Error(w, "forbidden", http.StatusForbidden)
		} else {
			_, _ = w.Write([]byte(log))
		}
		return true
	})
	cli := acctest.StartCLI(t)
	cli.Write(t, fmt.Sprintf(`
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { %s }
}
data "gpuplan_training_job" "j" {
  id         = gpuplan_training_job.j.id
  depends_on = [gpuplan_training_job.j]
}
output "nccl" { value = jsonencode(data.gpuplan_training_job.j.nccl) }
`, roles))
	cli.Must(t, "apply", "-auto-approve")
	obj, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	pods, err := job.Pods(obj)
	require.NoError(t, err)
	for i, p := range pods {
		p.APIVersion, p.Kind = "v1", "Pod"
		p.Spec.NodeName, p.Status.Phase = "node-1", corev1.PodRunning
		if state := (corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}); !waits {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: state}}
		}
		record, err := contract.Allocation{Node: "node-1", GPUs: []int{i}, NVLinkRings: rings}.Annotations()
		require.NoError(t, err)
		p.Annotations = record
		cloud.Put(t, p)
	}
	said = acctest.Unwrapped(cli.Must(t, "apply", "-refresh-only", "-auto-approve"))
	return said, cli.Must(t, "output", "-json", "nccl")
}
