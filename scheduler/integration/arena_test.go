package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

var updateArena = flag.Bool("update-arena", false, "write the table of arena commands into docs/arena.md")

const (
	arenaDoc   = "../../docs/arena.md"
	arenaBegin = "<!-- table: made by make test-arena -->\n"
	arenaEnd   = "<!-- end of table -->\n"
)

// following is how long a log is followed, to see that it is.
const following = 5 * time.Second

// arenaStep is a command of arena and what comes of it: what it prints, in the end, and
// what is said of it in the documentation.
type arenaStep struct {
	command string
	says    []string
	// jobs are all that it lists, nil for a command that lists none: name, status, kind, and the GPUs requested and allocated.
	jobs   [][]string
	result string
}

// arenaJobs are the jobs that arena lists while all of them run.
var arenaJobs = [][]string{
	{"pytorch-topo-4-vgg16", "RUNNING", "MPIJOB", "4", "0"},
	{"pytorch-4-vgg16", "RUNNING", "MPIJOB", "4", "4"},
	{"pytorch-topo-4-resnet50", "RUNNING", "MPIJOB", "4", "0"},
	{"pytorch-4-resnet50", "RUNNING", "MPIJOB", "4", "4"},
	{"pytorch-mnist", "RUNNING", "PYTORCHJOB", "2", "2"},
	{"ours", "RUNNING", "PYTORCHJOB", "2", "0"},
	{"ours-mpi", "RUNNING", "MPIJOB", "2", "0"},
	{"ours-v1", "PENDING", "MPIJOB", "2", "0"},
}

// arenaSteps are the documents' commands in their order, then commands about jobs that
// the provider wrote.
var arenaSteps = []arenaStep{
	{
		command: `arena submit mpi --name=pytorch-topo-4-vgg16 --gpus=1 --workers=4 --gang --gputopology=true --image=registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1 "mpirun --allow-run-as-root -np "4" -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames t --mca btl ^openib python /examples/pytorch_synthetic_benchmark.py --model=vgg16 --batch-size=64"`,
		says:    []string{"The Job pytorch-topo-4-vgg16 has been submitted successfully"},
		result:  "MPIJob `v1alpha1`; routed to the scheduler, one gang on four GPUs of one node joined by NVLink, and its launcher",
	},
	{command: "arena get pytorch-topo-4-vgg16 --type mpijob", says: []string{"Status:      RUNNING", "pytorch-topo-4-vgg16-launcher-", "pytorch-topo-4-vgg16-worker-3 "}, result: "`RUNNING`, the launcher and four workers with a GPU each"},
	{command: "arena logs -f pytorch-topo-4-vgg16", says: []string{"This pod is simulated by gpuplan-local"}, result: "the launcher's log; on the local platform the lines that say that the pod is simulated"},
	{
		command: `arena submit mpi --name=pytorch-4-vgg16 --gpus=1 --workers=4 --image=registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1 "mpirun --allow-run-as-root -np "4" -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames t --mca btl ^openib python /examples/pytorch_synthetic_benchmark.py --model=vgg16 --batch-size=64"`,
		says:    []string{"The Job pytorch-4-vgg16 has been submitted successfully"},
		result:  "the same without topology, on a node in mode `default`",
	},
	{command: "arena get pytorch-4-vgg16 --type mpijob", says: []string{"Status:      RUNNING", "pytorch-4-vgg16-worker-3 "}, result: "`RUNNING`"},
	{command: "arena logs -f pytorch-4-vgg16", says: []string{"This pod is simulated by gpuplan-local"}, result: "its launcher's log"},
	{
		command: `arena submit mpi --name=pytorch-topo-4-resnet50 --gpus=1 --workers=4 --gang --gputopology=true --image=registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1 "mpirun --allow-run-as-root -np "4" -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames t --mca btl ^openib python /examples/pytorch_synthetic_benchmark.py --model=resnet50 --batch-size=64"`,
		says:    []string{"The Job pytorch-topo-4-resnet50 has been submitted successfully"},
		result:  "the same with ResNet50: four GPUs of one node joined by NVLink",
	},
	{command: "arena get pytorch-topo-4-resnet50 --type mpijob", says: []string{"Status:      RUNNING", "pytorch-topo-4-resnet50-launcher-", "pytorch-topo-4-resnet50-worker-3 "}, result: "`RUNNING`, the launcher and four workers"},
	{command: "arena logs -f pytorch-topo-4-resnet50", says: []string{"This pod is simulated by gpuplan-local"}, result: "the launcher's log"},
	{
		command: `arena submit mpi --name=pytorch-4-resnet50 --gpus=1 --workers=4 --image=registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1 "mpirun --allow-run-as-root -np "4" -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames t --mca btl ^openib python /examples/pytorch_synthetic_benchmark.py --model=resnet50 --batch-size=64"`,
		says:    []string{"The Job pytorch-4-resnet50 has been submitted successfully"},
		result:  "ResNet50 without topology",
	},
	{command: "arena get pytorch-4-resnet50 --type mpijob", says: []string{"Status:      RUNNING", "pytorch-4-resnet50-worker-3 "}, result: "`RUNNING`"},
	{command: "arena logs -f pytorch-4-resnet50", says: []string{"This pod is simulated by gpuplan-local"}, result: "its launcher's log"},
	{
		command: `arena submit pytorch --name=pytorch-mnist --workers=2 --gpus=1 --device=aliyun/erdma=1 --nproc-per-node=1 --env NCCL_NET_GDR_LEVEL=1 --env NCCL_P2P_LEVEL=5 --env NCCL_DEBUG=INFO --env NCCL_SOCKET_IFNAME=eth0 --env NCCL_ALGO=Ring --clean-task-policy=None --working-dir=/root --image=kube-ai-registry.cn-shanghai.cr.aliyuncs.com/kube-ai/pytorch:mnist-example --image-pull-policy=Always --tensorboard --logdir=/workspace/logs "torchrun /workspace/arena/examples/pytorch/mnist/main.py --epochs 10000 --backend nccl --data /workspace --dir /workspace/logs"`,
		says:    []string{"The Job pytorch-mnist has been submitted successfully"},
		result:  "PyTorchJob `v1`: a master and a worker with a GPU and an eRDMA slot each, and TensorBoard",
	},
	{command: "arena get pytorch-mnist", says: []string{"Status:      RUNNING", "pytorch-mnist-master-0 ", "pytorch-mnist-worker-0 "}, result: "`RUNNING`"},
	{command: "arena logs pytorch-mnist", says: []string{"This pod is simulated by gpuplan-local"}, result: "the master's log"},
	{command: "arena list", jobs: arenaJobs, result: "all jobs, those of `gpuplan_training_job` with `arena_compatible` among them, with the GPUs that they asked for; arena counts only `nvidia.com/gpu` as allocated"},
	{command: "arena list --type mpijob", says: []string{"ours-v1                  PENDING  MPIJOB"}, result: "of the provider's MPIJobs those of the shape of `v1` as `PENDING`, also while they run"},
	{command: "arena get ours-mpi --type mpijob", says: []string{"Status:      RUNNING", "ours-mpi-launcher-", "ours-mpi-worker-1 "}, result: "an MPI job of the provider, which is an MPIJob `v1alpha1` too"},
	{command: "arena logs ours-mpi --type mpijob", says: []string{"This pod is simulated by gpuplan-local"}, result: "its launcher's log"},
	{command: "arena get ours", says: []string{"Status:      RUNNING", "ours-worker-0 "}, result: "a job of the provider"},
	{command: "arena logs ours", says: []string{"This pod is simulated by gpuplan-local"}, result: "its log"},
	{command: "arena top job", says: []string{"Total Allocated/Requested GPUs of Training Jobs: 10/22"}, jobs: arenaJobs, result: "the same, and the sum of those that run"},
	{command: "arena delete ours", says: []string{"The training job ours has been deleted successfully"}, result: "job and ConfigMap are gone; the next `terraform plan` creates the job again"},
	{command: "arena delete ours-mpi", says: []string{"The training job ours-mpi has been deleted successfully"}, result: "the same of an MPI job"},
	{command: "arena delete ours-v1", says: []string{"The training job ours-v1 has been deleted successfully"}, result: "the same of an MPI job of the shape of `v1`"},
	{command: "arena delete pytorch-mnist", says: []string{"The training job pytorch-mnist has been deleted successfully"}, result: "everything of it is gone"},
	{command: "arena delete pytorch-4-resnet50", says: []string{"has been deleted successfully"}, result: "everything of it is gone"},
	{command: "arena delete pytorch-topo-4-resnet50", says: []string{"has been deleted successfully"}, result: "everything of it is gone"},
	{command: "arena delete pytorch-4-vgg16", says: []string{"has been deleted successfully"}, result: "everything of it is gone"},
	{command: "arena delete pytorch-topo-4-vgg16", says: []string{"has been deleted successfully"}, result: "everything of it is gone"},
	{command: "arena list", says: []string{"GPU(Allocated)"}, jobs: [][]string{}, result: "nothing any more"},
}

// TestArena runs the real arena against the platform: the documents' commands as they are
// printed, and those about a job that the provider wrote. The documentation's table is
// made of what is tested here.
func TestArena(t *testing.T) {
	program, err := filepath.Abs("../../bin/arena")
	require.NoError(t, err)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		t.Skip("arena is not built; make bin/arena builds it in about 5 minutes")
	}
	s := newTestCluster(t, machine{count: 2, mode: "topology"}, machine{count: 2, mode: "default", extra: corev1.ResourceList{contract.ResourceERDMA: quantity(200)}})
	startScheduler(t)
	s.routePods()
	s.submitOurs("ours", trainingjob.PyTorch, "")
	s.submitOurs("ours-mpi", trainingjob.MPI, contract.MPIAlphaVersion)
	s.submitOurs("ours-v1", trainingjob.MPI, "")
	a := &arena{testCluster: s, program: program, home: filepath.Join(filepath.Dir(program), "arena-home")}
	s.await("ours-v1 to run", func(ctx context.Context) (bool, string) {
		pods, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=ours-v1", FieldSelector: "status.phase=Running"})
		require.NoError(t, err)
		return len(pods.Items) == 3, fmt.Sprint(len(pods.Items))
	})
	for _, step := range arenaSteps {
		if !a.try(step) {
			return
		}
		if _, rest, ok := strings.Cut(step.command, "--name="); ok && strings.Contains(step.command, "--gputopology") {
			name, _, _ := strings.Cut(rest, " ")
			a.requireBestGPUs(name)
		}
	}
	s.await("nothing to be left", func(ctx context.Context) (bool, string) {
		pods, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		configs, err := api().CoreV1().ConfigMaps(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: contract.ArenaCreatedByLabel + "=arena"})
		require.NoError(t, err)
		return len(pods.Items)+len(configs.Items) == 0, fmt.Sprint(len(pods.Items), len(configs.Items))
	})
}

// The documentation has the commands that the test runs.
func TestArenaTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| command | what comes of it |\n|---|---|\n")
	for _, step := range arenaSteps {
		fmt.Fprintf(&table, "| `%s` | %s |\n", step.command, step.result)
	}
	table.WriteString("\n")
	text, err := os.ReadFile(arenaDoc)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), arenaBegin)
	have, after, closed := strings.Cut(rest, arenaEnd)
	require.True(t, found && closed, "%s has no place for the table", arenaDoc)
	if *updateArena {
		require.NoError(t, os.WriteFile(arenaDoc, []byte(before+arenaBegin+table.String()+arenaEnd+after), 0o600))
		return
	}
	assert.Equal(t, table.String(), have, "run go test -run TestArenaTable ./scheduler/integration -update-arena")
}

// submitOurs writes a job as the provider does, with a leading role and two GPUs in all.
func (s *testCluster) submitOurs(name string, framework trainingjob.Framework, version string) {
	s.t.Helper()
	leads := framework.Roles()[0]
	leader, worker := trainingjob.Role{Replicas: 1, Image: "train:1", GPUs: 1}, trainingjob.Role{Replicas: 1, Image: "train:1", GPUs: 1}
	if framework == trainingjob.MPI {
		leader.GPUs, worker.Replicas = 0, 2
	}
	spec := trainingjob.Spec{
		Namespace: s.namespace, Name: name, Framework: framework, Mode: trainingjob.Topology,
		Gang: true, Arena: true, SchedulerName: contract.SchedulerName, Version: version,
		Roles: map[string]trainingjob.Role{leads: leader, contract.ReplicaWorker: worker},
	}
	spec = spec.Complete()
	object, err := spec.Render()
	require.NoError(s.t, err)
	made, err := cluster.client.Apply(s.t.Context(), object)
	require.NoError(s.t, err)
	config, err := spec.ArenaConfigMap(made.GetUID())
	require.NoError(s.t, err)
	_, err = cluster.client.Apply(s.t.Context(), config)
	require.NoError(s.t, err)
}

// arena is the program with the home directory in which it finds its charts and kubectl.
type arena struct {
	*testCluster
	program, home string
}

// try runs a command until it says what it should, and submits and deletes once.
func (a *arena) try(step arenaStep) bool {
	a.t.Helper()
	once := strings.Contains(step.command, " submit ") || strings.Contains(step.command, " delete ")
	var output string
	try := func() bool {
		output = a.run(step.command)
		for _, text := range step.says {
			if !strings.Contains(output, text) {
				return false
			}
		}
		return step.jobs == nil || reflect.DeepEqual(inOrder(step.jobs), inOrder(jobsIn(output)))
	}
	ok := try()
	if !ok && !once {
		ok = assert.Eventually(a.t, try, settled, 500*time.Millisecond)
	}
	return assert.True(a.t, ok, "%s\n%s", step.command, output)
}

// jobsIn are the jobs of a table of arena, as in [arenaStep].
func jobsIn(output string) (jobs [][]string) {
	_, rows, _ := strings.Cut(output, "GPU(Allocated)  NODE\n")
	for row := range strings.Lines(rows) {
		if columns := strings.Fields(row); len(columns) == 7 {
			jobs = append(jobs, slices.Concat(columns[:3], columns[4:6]))
		} else if len(columns) == 0 {
			break // a sum follows
		}
	}
	return jobs
}

// inOrder are jobs by name: arena lists them by kind and age.
func inOrder(jobs [][]string) [][]string {
	return slices.SortedFunc(slices.Values(jobs), slices.Compare[[]string])
}

func (a *arena) run(command string) string {
	ctx := a.t.Context()
	if strings.Contains(command, " -f ") { // it follows a log that does not end
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, following)
		defer cancel()
	}
	// The shell splits the command as a person's does.
	line := exec.CommandContext(ctx, "sh", "-c", strings.Replace(command, "arena ", `exec "$ARENA" -n "$ARENA_NAMESPACE" `, 1))
	line.Env = append(os.Environ(), "ARENA="+a.program, "ARENA_NAMESPACE="+a.namespace, "HOME="+a.home, "KUBECONFIG="+cluster.kubeconfig,
		"PATH="+a.home+string(filepath.ListSeparator)+os.Getenv("PATH"))
	output, err := line.CombinedOutput()
	if err != nil {
		return string(output) + err.Error()
	}
	return string(output)
}

// requireBestGPUs checks the records of an MPIJob's workers.
func (a *arena) requireBestGPUs(name string) {
	a.t.Helper()
	a.await("the workers to be placed", func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().Pods(a.namespace).List(ctx, metav1.ListOptions{LabelSelector: contract.ArenaMPIJobLabel + "=" + name + "," + contract.ArenaMPIRoleLabel + "=worker"})
		require.NoError(a.t, err)
		if bound(list.Items) < 4 {
			return false, reason(list.Items)
		}
		for _, pod := range list.Items {
			record := a.allocation(pod)
			assert.Len(a.t, record.Visible, 4)
			assert.Positive(a.t, record.NVLinkRings)
		}
		return true, ""
	})
}
