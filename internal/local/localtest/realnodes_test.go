package localtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode/programs"
	agent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

// plugin is a device plugin that offers GPUs, of which each is /dev/null.
type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	gpus int
	end  <-chan struct{}
}

func (p plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p plugin) ListAndWatch(_ *deviceplugin.Empty, stream deviceplugin.DevicePlugin_ListAndWatchServer) error {
	var devices []*deviceplugin.Device
	for i := range p.gpus {
		devices = append(devices, &deviceplugin.Device{ID: strconv.Itoa(i), Health: deviceplugin.Healthy})
	}
	if err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-p.end:
	case <-stream.Context().Done():
	}
	return nil
}

func (p plugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	answer := &deviceplugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given := &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}}
		for _, id := range container.DevicesIds {
			given.Devices = append(given.Devices, &deviceplugin.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/nvidia" + id, Permissions: "rw"})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

// servePlugin serves the plugin in a node's directory and registers it with the kubelet.
func servePlugin(t *testing.T, dir string, gpus int) {
	t.Helper()
	end := make(chan struct{})
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, plugin{gpus: gpus, end: end})
	socket := filepath.Join(dir, "toy.sock")
	_ = os.Remove(socket) // of the plugin before, if the kubelet has not emptied the directory
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }() // it ends with the test
	t.Cleanup(func() {
		close(end)
		server.Stop()
	})
	connection, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer connection.Close()
	_, err = deviceplugin.NewRegistrationClient(connection).Register(t.Context(), &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: "toy.sock", ResourceName: contract.ResourceTopologyGPU,
	})
	require.NoError(t, err)
}

// left is what real nodes of a platform have left on this machine: processes, control groups, the bridge and mounts.
func (i instance) left() []string {
	i.t.Helper()
	var left []string
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(i.t, err)
	for _, file := range processes {
		// Zombies have no command line, and others end meanwhile.
		if command, err := os.ReadFile(file); err == nil && bytes.Contains(command, []byte(i.dir+"/nodes/")) {
			left = append(left, "process "+filepath.Base(filepath.Dir(file))+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/gpuplan-*", "/sys/fs/cgroup/*/gpuplan-*", "/sys/class/net/gpuplan-*"} {
		found, err := filepath.Glob(pattern)
		require.NoError(i.t, err)
		for _, path := range found {
			if filepath.Base(path) == realnode.Identity(datadir.Dir(i.dir)) {
				left = append(left, path)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(i.t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, i.dir) {
			left = append(left, "mount "+line)
		}
	}
	return left
}

// onNode makes a pod on a node, with two GPUs or none.
func onNode(t *testing.T, client kubernetes.Interface, node realnode.Node, name string, gpus int64) {
	t.Helper()
	grace := int64(1)
	limits := corev1.ResourceList{
		// More than this machine has, perhaps, but not more than the node.
		corev1.ResourceCPU: resource.MustParse("40"), corev1.ResourceMemory: resource.MustParse("100Gi"),
	}
	if gpus > 0 {
		limits[contract.ResourceTopologyGPU] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podOn(node, name)},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node.Name},
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "train", Image: "registry.cn-hangzhou.aliyuncs.com/example/vgg16:latest", Command: []string{"python", "train.py"},
				Resources: corev1.ResourceRequirements{Limits: limits},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// podOn is the name of a test's pod on a node.
func podOn(node realnode.Node, name string) string {
	return name + "-" + filepath.Base(node.Dir)
}

// exec runs a command in a pod's container and returns what it printed.
func (i instance) exec(pod string, command ...string) (string, error) {
	i.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(i.dir, "kubeconfig"))
	require.NoError(i.t, err)
	url := i.client().CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	require.NoError(i.t, err)
	var output bytes.Buffer
	err = executor.StreamWithContext(i.t.Context(), remotecommand.StreamOptions{Stdout: &output, Stderr: &output})
	return output.String(), err
}

// dumpRealNodes shows the ends of the logs of a failed test's nodes and node agents, and the events.
func (i instance) dumpRealNodes() {
	if !i.t.Failed() {
		return
	}
	nodes, _ := realnode.List(datadir.Dir(i.dir))
	names := []string{contract.NodeAgentName}
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	for _, name := range names {
		log, _ := os.ReadFile(datadir.Dir(i.dir).Log(name))
		i.t.Logf("end of the log of %s:\n%s", name, log[max(0, len(log)-8000):])
	}
	events, err := i.client().CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, event := range events.Items {
		i.t.Logf("event of %s: %s: %s", event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

// givenTwoGPUs complains unless the pod's log and a command in its container say so.
func (i instance) givenTwoGPUs(client kubernetes.Interface, pod string) error {
	if err := hasPhase(client, pod, corev1.PodRunning); err != nil {
		return err
	}
	log, err := client.CoreV1().Pods("default").GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(i.t.Context())
	if err != nil {
		return err
	}
	for _, want := range []string{"in the place of: python train.py\n", "env NVIDIA_VISIBLE_DEVICES=", "device /dev/nvidia"} {
		if !strings.Contains(string(log), want) {
			return fmt.Errorf("the log lacks %q: %s", want, log)
		}
	}
	output, err := i.exec(pod, "devices")
	if err == nil && strings.Count(output, "device /dev/nvidia") != 2 {
		err = errors.New(output)
	}
	return err
}

func TestRealNodes(t *testing.T) {
	t.Parallel()
	if _, err := programs.Find(); err != nil {
		t.Skip(err)
	}
	i := newInstance(t)
	t.Cleanup(i.dumpRealNodes)
	i.must("up", "--real-nodes", "2")
	client, cloud, cluster := i.client(), cloudClient(t, i.env()), i.env()["GPUPLAN_CLUSTER_ID"]
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(i.dir, "kubeconfig"))
	require.NoError(t, err)
	access, err := kube.New(config)
	require.NoError(t, err)
	objects, err := agent.Objects(agent.Options{Image: "example.com/agent:1"})
	require.NoError(t, err)
	require.NoError(t, access.ApplyAll(t.Context(), objects, nil))
	created, err := cloud.CreateNodePool(t.Context(), cluster, v100Pool("mixed", 3))
	require.NoError(t, err)
	_, err = cloud.WaitTask(t.Context(), created.TaskID, nil)
	require.NoError(t, err)

	nodes, err := realnode.List(datadir.Dir(i.dir))
	require.NoError(t, err)
	require.Len(t, nodes, 2, "the third is simulated")
	for _, node := range nodes {
		servePlugin(t, node.DevicePlugins(), 8)
		eventually(t, "the node offers its GPUs", func() error { return offers(client, node.Name, contract.ResourceTopologyGPU, 8) })
		onNode(t, client, node, "train", 2)
		onNode(t, client, node, "launcher", 0)
	}
	// Simulated or real, nodes of a type offer the same.
	all := nodesOf(t, client, "mixed")
	require.Len(t, all, 3)
	for _, node := range all {
		assert.Equal(t, "topology", node.Labels[contract.NodeModeLabel])
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods, contract.ResourceTopologyGPU} {
			one, other := node.Status.Allocatable[name], all[0].Status.Allocatable[name]
			assert.Zero(t, one.Cmp(other), "%s: %s and %s", name, &one, &other)
		}
	}
	kind := schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
	for _, node := range nodes {
		eventually(t, "the pod has what the plugin gave", func() error { return i.givenTwoGPUs(client, podOn(node, "train")) })
		eventually(t, "the pod without GPUs runs", func() error { return hasPhase(client, podOn(node, "launcher"), corev1.PodRunning) })
		eventually(t, "a node agent of its own publishes the GPUs", func() error {
			object, err := access.Get(t.Context(), kind, "", node.Name)
			if err != nil {
				return err
			}
			if gpus, _, _ := unstructured.NestedSlice(object.Object, "status", "gpus"); len(gpus) != 8 {
				return fmt.Errorf("%d GPUs", len(gpus))
			}
			return nil
		})
		assert.Contains(t, i.must("status"), node.Name+", kubelet at "+node.Address)
	}
	assert.Len(t, agentProcesses(t, client), 3, "one for each real node, and one for the simulated")

	// A kubelet that is killed starts again, and containers go on.
	require.NoError(t, syscall.Kill(i.kubelet(nodes[0]), syscall.SIGKILL))
	eventually(t, "another kubelet has emptied the directory of plugins", func() error {
		if _, err := os.Stat(filepath.Join(nodes[0].DevicePlugins(), "toy.sock")); err == nil {
			return errors.New("it has not")
		}
		return nil
	})
	eventually(t, "the container has gone on", func() error { return i.givenTwoGPUs(client, podOn(nodes[0], "train")) })
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), podOn(nodes[0], "train"), metav1.GetOptions{})
	require.NoError(t, err)
	assert.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)

	// Killed, the platform takes the processes of its nodes with it; the next start removes the rest.
	require.NotEmpty(t, i.left())
	before := i.status()
	for _, p := range before.Processes {
		if p.Name == "gpuplan-local" {
			require.NoError(t, syscall.Kill(p.PID, syscall.SIGKILL))
		}
	}
	eventually(t, "no process of a node is left", func() error {
		if alive := before.alive(); len(alive) > 0 {
			return fmt.Errorf("%s live", alive)
		}
		for _, thing := range i.left() {
			if strings.HasPrefix(thing, "process") {
				return errors.New(thing)
			}
		}
		return nil
	})
	i.must("up")
	for _, node := range nodes {
		eventually(t, "the pod without GPUs runs again", func() error {
			_, err := i.exec(podOn(node, "launcher"), "devices")
			return err
		})
		// Pods with GPUs end with the node when their device plugin comes later than the kubelet.
		servePlugin(t, node.DevicePlugins(), 8)
		eventually(t, "the node offers its GPUs again", func() error { return offers(client, node.Name, contract.ResourceTopologyGPU, 8) })
		onNode(t, client, node, "again", 2)
		eventually(t, "another pod gets GPUs", func() error { return i.givenTwoGPUs(client, podOn(node, "again")) })
	}

	i.must("down")
	assert.Empty(t, i.left())
	i.must("up")
	deleted, err := cloud.DeleteNodePool(t.Context(), cluster, created.PoolID, true)
	require.NoError(t, err)
	_, err = cloud.WaitTask(t.Context(), deleted.TaskID, nil)
	require.NoError(t, err)
	nodes, err = realnode.List(datadir.Dir(i.dir))
	require.NoError(t, err)
	assert.Empty(t, nodes)
	i.must("down")
	assert.Empty(t, i.left())
}

// kubelet is the number of a node's kubelet.
func (i instance) kubelet(node realnode.Node) int {
	i.t.Helper()
	pid := i.programOf(node, "kubelet kubelet ")
	require.NotZero(i.t, pid, "no kubelet runs on %s", node.Name)
	return pid
}

// programOf is the number of a node's process whose command begins so, before the node's directory; 0 when there is none.
func (i instance) programOf(node realnode.Node, command string) (pid int) {
	i.t.Helper()
	for _, thing := range i.left() {
		if _, err := fmt.Sscanf(thing, "process %d "+command+node.Dir, &pid); err == nil {
			return pid
		}
	}
	return 0
}

// agentProcesses are the processes of the node agent's pods.
func agentProcesses(t *testing.T, client kubernetes.Interface) map[string]bool {
	t.Helper()
	processes := map[string]bool{}
	eventually(t, "the node agents run", func() error {
		pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: contract.NameLabel + "=" + contract.NodeAgentName})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if len(pod.Status.ContainerStatuses) == 0 {
				return fmt.Errorf("%s has no status", pod.Name)
			}
			id := pod.Status.ContainerStatuses[0].ContainerID
			if !strings.HasPrefix(id, "process://") {
				return fmt.Errorf("%s is %q", pod.Name, id)
			}
			processes[id] = true
		}
		return nil
	})
	return processes
}
