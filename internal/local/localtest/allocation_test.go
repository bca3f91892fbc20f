package localtest_test

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/deploy/charts"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode/programs"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// allocationPod is a pod of the scheduler whose containers ask for so many GPUs each, by name; names that begin with "init" are
// init containers that end at once.
func allocationPod(name string, containers ...corev1.Container) *corev1.Pod {
	grace := int64(0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod.Spec.SchedulerName, pod.Spec.TerminationGracePeriodSeconds = contract.SchedulerName, &grace
	for _, c := range containers {
		if strings.HasPrefix(c.Name, "init") {
			c.Env = []corev1.EnvVar{{Name: "GPUPLAN_RUN_FOR", Value: "100ms"}}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			continue
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

func asking(name string, gpus int64) corev1.Container {
	c := corev1.Container{Name: name, Image: "example.com/train:1", ImagePullPolicy: corev1.PullIfNotPresent}
	if gpus > 0 {
		c.Resources.Limits = corev1.ResourceList{contract.ResourceTopologyGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return c
}

var givenGPUs = regexp.MustCompile(`(?m)^env ` + contract.GivenGPUsEnv + `=(.*)$`)

// confirmedAs complains unless each container of a pod with GPUs says in its log that it has what the pod's annotation confirms. It
// returns the GPUs of all containers but init containers.
func (i instance) confirmedAs(pod string) (gpus []string, err error) {
	client := i.client()
	live, err := client.CoreV1().Pods("default").Get(i.t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if live.Status.Phase != corev1.PodRunning {
		return nil, fmt.Errorf("%s is %s", pod, live.Status.Phase)
	}
	record, _, err := contract.AllocationFrom(live.Annotations)
	if err != nil {
		return nil, err
	}
	confirmation, _, err := contract.ConfirmationFrom(live.Annotations)
	if err != nil {
		return nil, err
	}
	if given, ok := inventory.GivenTo(live); !ok || !given.Whole || given.Differs(record) != "" {
		return nil, fmt.Errorf("%s has the record %+v, confirmed: %+v", pod, record, confirmation)
	}
	for _, c := range slices.Concat(live.Spec.InitContainers, live.Spec.Containers) {
		log, err := client.CoreV1().Pods("default").GetLogs(pod, &corev1.PodLogOptions{Container: c.Name}).DoRaw(i.t.Context())
		if err != nil {
			return nil, err
		}
		var given []string
		if match := givenGPUs.FindSubmatch(log); match != nil {
			given = strings.Split(string(match[1]), ",")
		}
		asked := c.Resources.Limits[contract.ResourceTopologyGPU]
		if !slices.Equal(given, confirmation.Containers[c.Name].GPUs) || int64(len(given)) != asked.Value() {
			return nil, fmt.Errorf("container %s of %s asks for %d GPUs and has %v, confirmed: %+v", c.Name, pod, asked.Value(), given, confirmation)
		}
		recorded := strings.Split(contract.IndexList(record.GPUs), ",")
		for _, gpu := range given { // simulated GPUs have no UUID, so that their index is told
			if !slices.Contains(recorded, gpu) {
				return nil, fmt.Errorf("container %s of %s has GPU %s, and the record says %v", c.Name, pod, gpu, recorded)
			}
		}
		if !strings.HasPrefix(c.Name, "init") {
			gpus = append(gpus, given...)
		}
	}
	return gpus, nil
}

// realNode is a platform with the scheduler and one node pool of a real node; install installs the node agent, as device plugin or not.
func realNode(t *testing.T, plugins bool) (i instance, client kubernetes.Interface, node realnode.Node, install func(plugins bool)) {
	t.Helper()
	i, install = realNodes(t, plugins, scheduler.Options{}, v100Pool("exact", 1))
	nodes, err := realnode.List(datadir.Dir(i.dir))
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	return i, i.client(), nodes[0], install
}

// realNodes is a platform with one scheduler and node pools, all nodes of which are real; install installs the node agent, as device
// plugin or not.
func realNodes(t *testing.T, plugins bool, options scheduler.Options, pools ...acs.NodePoolSpec) (i instance, install func(plugins bool)) {
	t.Helper()
	if _, err := programs.Find(); err != nil {
		t.Skip(err)
	}
	i = newInstance(t)
	t.Cleanup(i.dumpRealNodes)
	i.must("up", "--real-nodes", strconv.Itoa(realnode.Most))
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(i.dir, "kubeconfig"))
	require.NoError(t, err)
	access, err := kube.New(config)
	require.NoError(t, err)
	agent := charts.Program{
		Name: contract.NodeAgentName, CRDs: []string{contract.GPUNodeResource + "." + contract.GPUNodeGroup}, Templates: []string{"node-agent.yaml"},
	}
	install = func(plugins bool) {
		t.Helper()
		objects, err := agent.Objects(charts.Values{"nodeAgent": {"image": "example.com/agent:1", "devicePlugins": plugins, "metricsPort": 0}})
		require.NoError(t, err)
		require.NoError(t, access.ApplyAll(t.Context(), objects, nil))
	}
	install(plugins)
	options.Image, options.Replicas = "example.com/scheduler:1", 1
	objects, err := scheduler.Objects(options)
	require.NoError(t, err)
	require.NoError(t, access.ApplyAll(t.Context(), objects, nil))
	cloud := cloudClient(t, i.env())
	for _, pool := range pools {
		created, err := cloud.CreateNodePool(t.Context(), i.env()["GPUPLAN_CLUSTER_ID"], pool)
		require.NoError(t, err)
		_, err = cloud.WaitTask(t.Context(), created.TaskID, nil)
		require.NoError(t, err)
	}
	return i, install
}

// What the scheduler decides is what containers get, from a real kubelet and a real container runtime. A runtime that cannot be told
// starts none of them.
func TestRealAllocation(t *testing.T) {
	t.Parallel()
	i, client, machine, _ := realNode(t, true)
	eventually(t, "the agent offers the node's GPUs", func() error { return offers(client, machine.Name, contract.ResourceTopologyGPU, 8) })

	again := asking("main", 2)
	again.Env = []corev1.EnvVar{{Name: "GPUPLAN_RUN_FOR", Value: "30s"}} // then it starts again
	pods := []*corev1.Pod{
		allocationPod("one", again),
		allocationPod("two", asking("a", 1), asking("b", 1), asking("none", 0)),
		allocationPod("three", asking("init", 2), asking("a", 1), asking("b", 1)),
		allocationPod("early", asking("init", 1), asking("main", 0)),
	}
	for _, pod := range pods {
		_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), machine.Name, metav1.GetOptions{})
	require.NoError(t, err)
	if oldContainerd(node) {
		eventually(t, "a container that cannot be told its GPUs does not start", func() error {
			events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=GPUsRefused,involvedObject.name=one"})
			if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "cannot be told") }) {
				err = errors.New("no such event")
			}
			return err
		})
		t.Logf("%s reads no CDI specifications: containers with GPUs are refused, and what they are given is not tested", node.Status.NodeInfo.ContainerRuntimeVersion)
		return
	}
	var given []string
	for _, pod := range pods {
		eventually(t, pod.Name+" has the GPUs of its record", func() error {
			gpus, err := i.confirmedAs(pod.Name)
			if err == nil {
				given = append(given, gpus...)
			}
			return err
		})
	}
	slices.Sort(given)
	assert.Len(t, slices.Compact(given), 6, "no GPU has two containers: %v", given)

	// A pod of any user that names the node and asks for what it does not offer runs, since the kubelet passes over it. The node goes
	// on to offer what it did.
	c := asking("main", 0)
	c.Resources.Limits = corev1.ResourceList{contract.ResourceDefaultGPU: *resource.NewQuantity(1, resource.DecimalSI)}
	stranger := allocationPod("stranger", c)
	stranger.Spec.SchedulerName, stranger.Spec.NodeName = "", machine.Name
	_, err = client.CoreV1().Pods("default").Create(t.Context(), stranger, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "stranger runs", func() error { return hasPhase(client, "stranger", corev1.PodRunning) })
	restarts := func() int32 {
		pod, err := client.CoreV1().Pods("default").Get(t.Context(), "one", metav1.GetOptions{})
		require.NoError(t, err)
		return pod.Status.ContainerStatuses[0].RestartCount
	}
	before := restarts()
	eventually(t, "one starts again with the GPUs of its record", func() error {
		if restarts() == before {
			return errors.New("not yet")
		}
		_, err := i.confirmedAs("one")
		return err
	})
	require.NoError(t, offers(client, machine.Name, contract.ResourceTopologyGPU, 8))
	log, err := client.CoreV1().Pods("default").GetLogs("stranger", &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	assert.NotRegexp(t, givenGPUs, string(log))
}

// oldContainerd tells whether the container runtime of a node cannot be told the GPUs of containers.
func oldContainerd(node *corev1.Node) bool {
	runtime := node.Status.NodeInfo.ContainerRuntimeVersion
	return strings.HasPrefix(runtime, "containerd://1.") && !strings.HasPrefix(runtime, "containerd://1.7.")
}

// The node agent does not take over while a pod has devices of another plugin, of which nobody knows the GPUs.
func TestRealTakeover(t *testing.T) {
	t.Parallel()
	_, client, machine, install := realNode(t, false)
	dir, end := machine.DevicePlugins(), make(chan struct{})
	toy := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(toy, plugin{gpus: 8, end: end})
	listener, err := net.Listen("unix", filepath.Join(dir, "toy.sock"))
	require.NoError(t, err)
	go func() { _ = toy.Serve(listener) }()
	t.Cleanup(toy.Stop)
	connection, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	_, err = deviceplugin.NewRegistrationClient(connection).Register(t.Context(), &deviceplugin.RegisterRequest{Version: deviceplugin.Version, Endpoint: "toy.sock", ResourceName: contract.ResourceTopologyGPU})
	require.NoError(t, err)
	require.NoError(t, connection.Close())
	eventually(t, "the other plugin offers", func() error { return offers(client, machine.Name, contract.ResourceTopologyGPU, 8) })
	_, err = client.CoreV1().Pods("default").Create(t.Context(), allocationPod("one", asking("main", 2)), metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "one runs", func() error { return hasPhase(client, "one", corev1.PodRunning) })

	close(end)
	toy.Stop()
	install(true)
	eventually(t, "the agent stays out", func() error {
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=DevicePluginStaysOut"})
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, "pod default/one has a device of another plugin")
		}) {
			err = fmt.Errorf("no such event: %+v", events.Items)
		}
		return err
	})
	require.NoError(t, client.CoreV1().Pods("default").Delete(t.Context(), "one", metav1.DeleteOptions{}))
	eventually(t, "the agent offers the node's GPUs", func() error { return offers(client, machine.Name, contract.ResourceTopologyGPU, 8) })
}
