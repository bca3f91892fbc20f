package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/mps"
)

const nodeName = "cn-local.10.0.1.1"

var (
	nodeKind    = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	podKind     = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	gpuNodeKind = schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
)

// world is an API server with one node, its kubelet, and the agent's device plugins.
type world struct {
	*kubetest.Server
	t       *testing.T
	kubelet *fakeKubelet
	client  *kube.Client
	events  *record.FakeRecorder
	agent   *Agent
	// end ends the agent and waits for it.
	end func()
}

// newWorld has a node of four GPUs of 16 GiB each; nothing runs yet.
func newWorld(t *testing.T, mode string) *world {
	t.Helper()
	w := &world{Server: kubetest.Start(t), t: t, kubelet: newKubelet(t)}
	client, err := kube.New(w.Config())
	require.NoError(t, err)
	w.client = client
	objs, err := deploy.Objects(deploy.Options{Image: "agent"})
	require.NoError(t, err)
	w.Put(objs[slices.IndexFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })])
	w.mode(mode)
	w.gpus(func(*contract.GPUNodeStatus) {})
	return w
}

func (w *world) mode(mode string) {
	node := &unstructured.Unstructured{Object: map[string]any{}}
	node.SetGroupVersionKind(nodeKind)
	node.SetName(nodeName)
	node.SetLabels(map[string]string{contract.NodeModeLabel: mode})
	w.Put(node)
}

func (w *world) gpus(change func(*contract.GPUNodeStatus)) {
	w.t.Helper()
	published := contract.GPUNode{}
	for i := range 4 {
		published.Status.GPUs = append(published.Status.GPUs, contract.GPUInfo{
			Index: i, UUID: fmt.Sprintf("GPU-%d", i), MemoryMiB: 16160, Health: contract.Healthy, PCIBusID: fmt.Sprintf("0000:0A:0%d.0", i),
		})
	}
	change(&published.Status)
	w.put(gpuNodeKind, nodeName, &published)
}

func (w *world) put(gvk schema.GroupVersionKind, name string, object any) {
	w.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(w.t, err)
	obj := &unstructured.Unstructured{Object: fields}
	obj.SetGroupVersionKind(gvk)
	obj.SetName(name)
	w.Put(obj)
}

// run starts the agent.
func (w *world) run(change ...func(*Agent)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	nodes, err := cluster.Start(ctx, w.client.Dynamic, nodeName)
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool { return nodes.Synced() == nil }, time.Minute, time.Millisecond)
	w.events = record.NewFakeRecorder(100)
	w.agent = &Agent{
		Client: w.client, Nodes: nodes, Node: nodeName, Events: w.events, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		PluginDir: w.kubelet.pluginDir(), PodResources: w.kubelet.podResources(), CDI: cdi.Dir(filepath.Join(w.kubelet.dir, "cdi")), Root: w.t.TempDir(),
		Simulated: true,
	}
	for _, c := range change {
		c(w.agent)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.agent.Run(ctx) }()
	w.end = func() {
		w.t.Helper()
		cancel()
		if ended != nil {
			assert.NoError(w.t, <-ended)
			ended = nil
		}
	}
	w.t.Cleanup(w.end)
}

// offers waits until the kubelet has devices of these resources, and of no others.
func (w *world) offers(want map[string]int) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) { assert.Equal(t, want, w.kubelet.allocatable()) }, 20*time.Second, 5*time.Millisecond)
}

// event waits for an event with a text.
func (w *world) event(text string) {
	w.t.Helper()
	for {
		select {
		case event := <-w.events.Events:
			if strings.Contains(event, text) {
				return
			}
		case <-time.After(20 * time.Second):
			require.Fail(w.t, "no such event", text)
		}
	}
}

type amounts = map[string]int64

func container(name string, asked amounts) corev1.Container {
	c := corev1.Container{Name: name}
	c.Resources.Requests = corev1.ResourceList{}
	for resourceName, n := range asked {
		c.Resources.Requests[corev1.ResourceName(resourceName)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return c
}

// pod makes a bound pod with its record, nil for none.
func (w *world) pod(name string, record *contract.Allocation, containers ...corev1.Container) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.NodeName = nodeName
	for _, c := range containers {
		if strings.HasPrefix(c.Name, "init") {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			continue
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if record != nil {
		if record.Node == "" {
			record.Node = nodeName
		}
		annotations, err := record.Annotations()
		require.NoError(w.t, err)
		p.Annotations = annotations
	}
	w.put(podKind, name, p)
	return p
}

// spec reads the specification of a CDI device as a runtime would find it, nil when there is none.
func (w *world) spec(g *given) map[string]any {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(string(w.agent.CDI), "*.json"))
	require.NoError(w.t, err)
	var found map[string]any
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		require.NoError(w.t, err)
		var spec struct {
			Kind    string
			Devices []struct {
				Name           string
				ContainerEdits map[string]any
			}
		}
		require.NoError(w.t, json.Unmarshal(text, &spec))
		if spec.Kind+"="+spec.Devices[0].Name == cdi.Qualified(cdi.Name(g.resource, g.ids)) {
			require.Nil(w.t, found, "a device in two files")
			found = spec.Devices[0].ContainerEdits
		}
	}
	return found
}

// told are the edits of a container that is told its GPUs.
func told(gpus string) map[string]any {
	return map[string]any{"env": []any{"NVIDIA_VISIBLE_DEVICES=" + gpus, "GPUPLAN_GPUS=" + gpus}}
}

// confirmed waits for what a pod's annotation says of a container.
func (w *world) confirmed(pod, container string, want contract.ConfirmedContainer) {
	w.t.Helper()
	for _, name := range want.GPUs { // GPU-2 is number 2
		index, err := strconv.Atoi(strings.TrimPrefix(name, "GPU-"))
		require.NoError(w.t, err)
		want.Indexes = append(want.Indexes, index)
	}
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		live, err := w.client.Typed.CoreV1().Pods("default").Get(context.Background(), pod, metav1.GetOptions{})
		if !assert.NoError(t, err) {
			return
		}
		c, _, err := contract.ConfirmationFrom(live.Annotations)
		assert.NoError(t, err)
		assert.Equal(t, nodeName, c.Node)
		assert.Equal(t, want, c.Containers[container])
	}, 20*time.Second, 5*time.Millisecond)
}

const gpu = contract.ResourceTopologyGPU

func recordOf(indexes ...int) *contract.Allocation {
	return &contract.Allocation{GPUs: indexes, Visible: indexes}
}

// Two equal pods: whichever devices the kubelet chooses, each gets the GPUs of its own record.
func TestContainersGetTheirRecord(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	left := filepath.Join(w.kubelet.dir, "cdi", ".gpuplan.dev-gpu_1234567")
	require.NoError(t, os.MkdirAll(filepath.Dir(left), 0o755))
	require.NoError(t, os.WriteFile(left, []byte("{"), 0o600))
	w.run()
	w.offers(map[string]int{gpu: 4})
	assert.NoFileExists(t, left, "of an agent that was killed")

	one := w.pod("one", recordOf(0, 3), container("main", amounts{gpu: 2}))
	two := w.pod("two", recordOf(1, 2), container("a", amounts{gpu: 1}), container("b", amounts{gpu: 1}))
	first := w.kubelet.admit(one, "main", gpu, 2)
	answer := w.kubelet.allocate(first)
	assert.Equal(t, map[string]string{"NVIDIA_VISIBLE_DEVICES": "void", "GPUPLAN_GPUS": "none"}, answer.Envs, "where the runtime knows no CDI")
	require.Len(t, answer.CdiDevices, 1)
	assert.Equal(t, cdi.Qualified(cdi.Name(gpu, first.ids)), answer.CdiDevices[0].Name)
	assert.Nil(t, w.spec(first), "nobody knows yet for whom the devices are")
	a, b := w.kubelet.admit(two, "a", gpu, 1), w.kubelet.admit(two, "b", gpu, 1)

	require.NoError(t, w.kubelet.prestart(b))
	require.NoError(t, w.kubelet.prestart(first))
	for g, want := range map[*given]string{first: "GPU-0,GPU-3", b: "GPU-2"} {
		assert.Equal(t, told(want), w.spec(g), g.container)
	}
	w.confirmed("one", "main", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-0", "GPU-3"}})
	w.confirmed("two", "b", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-2"}})

	// An agent that starts again goes on with what is on the pod, and keeps the specifications of those that are there.
	w.end()
	w.Remove(podKind, "default", "one")
	w.run()
	require.Eventually(t, func() bool { return w.spec(first) == nil }, 20*time.Second, time.Millisecond, "its pod went meanwhile")
	w.offers(map[string]int{gpu: 4})
	assert.NotNil(t, w.spec(b))
	require.NoError(t, w.kubelet.prestart(a))
	assert.Equal(t, told("GPU-1"), w.spec(a))
	w.confirmed("two", "a", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-1"}})
	w.confirmed("two", "b", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-2"}})
	w.Remove(podKind, "default", "two")
	require.Eventually(t, func() bool { return w.spec(a) == nil && w.spec(b) == nil }, 20*time.Second, time.Millisecond)
}

func TestRefusals(t *testing.T) {
	main := container("main", amounts{gpu: 1})
	for name, test := range map[string]struct {
		record *contract.Allocation
		change func(*corev1.Pod)
		real   bool
		want   string
	}{
		"no record":      {want: "no GPU for container main: the pod has no allocation record: pods that ask for aliyun.com/gpu need the schedulerName gpuplan-scheduler"},
		"another node's": {record: &contract.Allocation{Node: "other", GPUs: []int{1}}, want: `the allocation record is for node "other", and this is ` + nodeName},
		"too few":        {record: &contract.Allocation{}, want: "container main asks for 1 GPUs, and the allocation record has 0 GPUs left of 0 GPUs"},
		"too many":       {record: recordOf(1, 2), want: "the pod asks for 1 GPUs, and the allocation record has 2 GPUs"},
		"no such GPU":    {record: recordOf(7), want: "has no GPU 7"},
		"unreadable":     {record: recordOf(1), change: func(p *corev1.Pod) { p.Annotations[contract.AllocationAnnotation] = "{" }, want: "is not an allocation record"},
		"gone from the driver": {record: recordOf(1), real: true,
			want: "GPU 1 GPU-1 has gone from the driver"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "topology")
			w.kubelet.start()
			w.run(func(a *Agent) { a.Simulated = !test.real })
			w.offers(map[string]int{gpu: 4})
			p := w.pod("p", test.record, main)
			if test.change != nil {
				test.change(p)
				w.put(podKind, "p", p)
			}
			g := w.kubelet.admit(p, "main", gpu, 1)
			require.ErrorContains(t, w.kubelet.prestart(g), test.want)
			w.event("GPUsRefused")
			assert.Nil(t, w.spec(g), "never another GPU")
		})
	}
}

// What the kubelet no longer waits for is not written: it may have given the devices to another container by then.
func TestAnAnswerThatIsTooLate(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	g := w.kubelet.admit(w.pod("p", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.agent.give(ctx, g.pod, "main", gpu, g.ids)
	require.ErrorContains(t, err, "the kubelet does not wait any more")
	assert.Nil(t, w.spec(g))
}

// A pod of the same name as one that was deleted gets its own GPUs, although the kubelet gives it the same devices, and
// nothing is left of the other's.
func TestSameNameAndDevices(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	g := w.kubelet.admit(w.pod("p", recordOf(0), container("main", amounts{gpu: 1})), "main", gpu, 1)
	w.kubelet.allocate(g)
	require.NoError(t, w.kubelet.prestart(g))
	next := w.pod("p", recordOf(2), container("main", amounts{gpu: 1}))
	next.UID = "uid-next"
	w.put(podKind, "p", next)
	w.kubelet.allocate(g)
	assert.Nil(t, w.spec(g), "a runtime that was slow to see the new one would take the old one")
	require.NoError(t, w.kubelet.prestart(g))
	assert.Equal(t, told("GPU-2"), w.spec(g))
	w.confirmed("p", "main", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-2"}})
}

func TestInitContainers(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(0, 2, 3), container("init", amounts{gpu: 3}), container("main", amounts{gpu: 2}))
	first := w.kubelet.admit(p, "init", gpu, 3)
	first.plain = true
	main := w.kubelet.admit(p, "main", gpu, 2, first.ids[:2]...)
	require.NoError(t, w.kubelet.prestart(first))
	assert.Equal(t, told("GPU-0,GPU-2,GPU-3"), w.spec(first))
	require.NoError(t, w.kubelet.prestart(main))
	assert.Equal(t, told("GPU-0,GPU-2"), w.spec(main))
	w.confirmed("p", "init", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-0", "GPU-2", "GPU-3"}})

	alone := w.kubelet.admit(p, "init", gpu, 1)
	alone.plain = true
	require.ErrorContains(t, w.kubelet.prestart(alone), "the kubelet does not tell which container has these devices")
}

// enforcer is an [Enforcer] with knobs, which writes down what it is told.
type enforcer struct {
	refuses error
	panics  string
	hangs   chan struct{} // unless nil, who tells it what is in use waits until it can be read
	changed chan struct{}

	edited, telling atomic.Int64 // how often it was asked for edits, and told what is in use

	mu         sync.Mutex
	states     []mps.State
	inUse      []mps.Share
	terminated []string
}

func (e *enforcer) Edits(uuid string, memoryMiB, corePercent int64) ([]string, []mps.Mount, error) {
	e.edited.Add(1)
	if e.panics != "" {
		panic(e.panics)
	}
	env := []string{"PIPE=/mps", fmt.Sprintf("LIMIT=%dM", memoryMiB), fmt.Sprintf("PERCENT=%d", corePercent)}
	return env, []mps.Mount{{Host: "/run/" + uuid, Container: "/mps"}}, e.refuses
}

func (e *enforcer) InUse(shares []mps.Share) error {
	e.telling.Add(1)
	if e.hangs != nil {
		<-e.hangs
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inUse = shares
	return nil
}

func (e *enforcer) Terminate(_ context.Context, uuid string, belongs func(pid int) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for pid := range 5 {
		if belongs(pid) {
			e.terminated = append(e.terminated, fmt.Sprintf("%s/%d", uuid, pid))
		}
	}
	return nil
}

func (e *enforcer) States() []mps.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.states
}

func (e *enforcer) Changed() <-chan struct{} { return e.changed }

// told are what [Enforcer.InUse] and Terminate were told last.
func (e *enforcer) told() (inUse []mps.Share, terminated []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inUse, e.terminated
}

func TestShares(t *testing.T) {
	const memory, core = contract.ResourceGPUMemory, contract.ResourceCorePercent
	offered := map[string]int{memory: 60, core: 400, contract.ResourceGPUCount: 4}
	asks := container("main", amounts{memory: 4, core: 30})
	share := contract.GPUShare{GPU: 2, MemoryGiB: 4, CorePercent: 30}
	start := func(w *world, p *corev1.Pod) (env []any, mounts any, memoryErr, coreErr error) {
		m, c := w.kubelet.admit(p, "main", memory, 4), w.kubelet.admit(p, "main", core, 30)
		memoryErr, coreErr = w.kubelet.prestart(m), w.kubelet.prestart(c)
		assert.Equal(t, w.spec(m), w.spec(c), "the same by either resource")
		env, _ = w.spec(m)["env"].([]any)
		return env, w.spec(m)["mounts"], memoryErr, coreErr
	}
	acs := []any{"NVIDIA_VISIBLE_DEVICES=GPU-2", "GPUPLAN_GPUS=GPU-2", "ALIYUN_COM_GPU_MEM_CONTAINER=4", "ALIYUN_COM_GPU_MEM_DEV=15"}

	w := newWorld(t, "core_mem")
	w.kubelet.start()
	w.run()
	w.offers(offered)
	count := w.kubelet.allocate(&given{resource: contract.ResourceGPUCount, ids: []string{"gpuplan-0"}})
	assert.Empty(t, count.CdiDevices, "it is only a number")
	env, mounts, e1, e2 := start(w, w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{share}}, asks))
	require.NoError(t, errors.Join(e1, e2))
	assert.Equal(t, acs, env)
	assert.Nil(t, mounts)
	w.confirmed("p", "main", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-2"}, Shares: []contract.GPUShare{share}, Unenforced: true})

	w = newWorld(t, "core_mem")
	w.kubelet.start()
	w.run(func(a *Agent) { a.Enforcer = new(enforcer) })
	w.offers(offered)
	env, mounts, e1, e2 = start(w, w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{share}}, asks))
	require.NoError(t, errors.Join(e1, e2))
	assert.ElementsMatch(t, append(acs, "PIPE=/mps", "LIMIT=4096M", "PERCENT=30"), env)
	assert.Equal(t, []any{map[string]any{"hostPath": "/run/GPU-2", "containerPath": "/mps", "options": []any{"rbind", "ro"}}}, mounts)
	w.confirmed("p", "main", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-2"}, Shares: []contract.GPUShare{share}})
	early := w.pod("early", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 3, MemoryGiB: 4, CorePercent: 50}}},
		container("init", amounts{memory: 4, core: 50}), container("main", amounts{memory: 4, core: 10}))
	require.ErrorContains(t, w.kubelet.prestart(w.kubelet.admit(early, "main", memory, 4)), "init container init asks for aliyun.com/gpu-core.percentage: only sidecars and containers can")
	both := w.pod("both", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 0, MemoryGiB: 2}, {GPU: 1, MemoryGiB: 2}}}, container("main", amounts{memory: 4}))
	require.ErrorContains(t, w.kubelet.prestart(w.kubelet.admit(both, "main", memory, 4)), "parts of GPUs 0 and 1 cannot both be enforced in one container")

	w = newWorld(t, "core_mem")
	w.kubelet.start()
	w.run(func(a *Agent) { a.Enforcer = &enforcer{refuses: errors.New("MPS is down")} })
	w.offers(offered)
	_, _, e1, e2 = start(w, w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{share}}, asks))
	require.ErrorContains(t, e1, "its part of GPU 2 cannot be enforced: MPS is down")
	require.ErrorContains(t, e2, "MPS is down")
}

// What goes wrong with one container does not end the agent, whoever asks it.
func TestFaults(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	ask := w.asked(func(a *Agent) { a.Enforcer = &enforcer{panics: "boom"} })
	w.offers(map[string]int{memory: 60, contract.ResourceGPUCount: 4})
	p := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 4}}}, container("main", amounts{memory: 4}))
	require.ErrorContains(t, w.kubelet.prestart(w.kubelet.admit(p, "main", memory, 4)), "a fault of the node agent: boom")
	_, _, err := ask(p, "main", "none", false)
	require.ErrorContains(t, err, "a fault of the node agent: boom")
}

// The enforcer knows the parts of all pods that have not ended, those that are starting too, and takes a pod off its GPUs
// before it is killed.
func TestPartsInUse(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	w.kubelet.start()
	e := &enforcer{changed: make(chan struct{}, 1)}
	w.run(func(a *Agent) {
		a.Enforcer = e
		w.events.IncludeObject = true // which reads it, as a real one does
	})
	w.offers(map[string]int{memory: 60, contract.ResourceGPUCount: 4})
	share := contract.GPUShare{GPU: 1, MemoryGiB: 4}
	pod := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{share}}, container("main", amounts{memory: 4}))
	part := []mps.Share{{UUID: "GPU-1", MemoryMiB: 4096}}
	inUse := func(want []mps.Share) {
		t.Helper()
		require.Eventually(t, func() bool { now, _ := e.told(); return slices.Equal(want, now) }, 10*time.Second, 5*time.Millisecond)
	}
	inUse(part)
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(pod, "main", memory, 4)))

	w.Remove(nodeKind, "", nodeName)
	require.Eventually(t, func() bool { return w.agent.Nodes.Get(cluster.Node, nodeName) == nil }, 10*time.Second, time.Millisecond)
	e.mu.Lock()
	e.states = []mps.State{{UUID: "GPU-1", Reason: "another program uses the GPU"}}
	e.mu.Unlock()
	e.changed <- struct{}{}
	require.Eventually(t, func() bool { return len(e.changed) == 0 }, 10*time.Second, time.Millisecond)
	w.mode("share") // an event needs the Node
	w.event("GPUNotShared GPU GPU-1 cannot be shared, so that no container starts with a part of it: another program uses the GPU")

	for pid, line := range map[int]string{1: "0::/kubepods/besteffort/pod" + string(pod.UID) + "/c1", 2: "0::/kubepods/besteffort/podother/c2"} {
		folder := filepath.Join(w.agent.Root, "proc", strconv.Itoa(pid))
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "cgroup"), []byte(line), 0o600))
	}
	pod.Finalizers = []string{"kubelet.test/ends"}
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Hour)}
	w.put(podKind, "p", pod)
	require.Eventually(t, func() bool {
		known := w.agent.pods.list()
		return len(known) == 1 && known[0].DeletionTimestamp != nil
	}, 10*time.Second, time.Millisecond)
	for range 3 {
		e.changed <- struct{}{} // two of them are taken, so that the agent has gone round once
	}
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} // its grace is cut short
	w.put(podKind, "p", pod)
	require.Eventually(t, func() bool { _, ended := e.told(); return slices.Equal([]string{"GPU-1/1"}, ended) }, 10*time.Second, 5*time.Millisecond)
	w.terminated(pod)
	w.Remove(podKind, "default", "p")
	inUse(nil)
}

// Of two agents on one node, as when the pod of one is deleted by force and still runs, the later one serves, until it ends.
func TestTwoAgents(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	first := w.agent
	w.run()
	require.Eventually(t, func() bool { return w.agent.serves(gpu) }, 20*time.Second, time.Millisecond)
	require.Never(t, func() bool { return w.kubelet.registered(gpu) > 5 }, 2*time.Second, 5*time.Millisecond, "they do not take it from each other")
	before := w.kubelet.registered(gpu)
	w.end()
	require.Eventually(t, func() bool { return w.kubelet.registered(gpu) > before && w.kubelet.allocatable()[gpu] == 4 }, 20*time.Second, time.Millisecond)
	g := w.kubelet.admit(w.pod("p", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	require.NoError(t, w.kubelet.prestart(g))
	assert.Len(t, first.confirmer.of(g.pod).Containers, 1, "the agent that is left serves")
}

// Of a pod that is gone before what it was given could be written nothing stays.
func TestAPodThatIsGoneUnconfirmed(t *testing.T) {
	c := newConfirmer(&Agent{})
	c.queue.AddRateLimited("gone")
	go c.run(t.Context())
	require.Eventually(t, func() bool { return c.queue.NumRequeues("gone") == 0 }, 20*time.Second, 5*time.Millisecond)
}

// An agent that takes a socket over leaves nobody without one: another agent that found none, or one that does not listen, would take
// it for one of an agent that has ended.
func TestASocketIsTakenOverAtOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugins") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	a := &Agent{PluginDir: dir}
	first := a.newServer(gpu)
	require.NoError(t, first.listen())
	defer first.remove()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			connection, err := net.Dial("unix", first.path)
			if err != nil {
				ended <- err
				return
			}
			_ = connection.Close()
		}
	}()
	for range 200 {
		next := a.newServer(gpu)
		require.NoError(t, next.listen())
		defer next.remove()
	}
	close(stop)
	assert.NoError(t, <-ended)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// In mode default the scheduler only counts: the kubelet's choice is what the container gets.
func TestModeDefault(t *testing.T) {
	w := newWorld(t, "default")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{contract.ResourceDefaultGPU: 4})
	g := w.kubelet.admit(w.pod("p", nil, container("main", amounts{contract.ResourceDefaultGPU: 2})), "main", contract.ResourceDefaultGPU, 2)
	assert.Equal(t, []string{"gpuplan-3", "gpuplan-2"}, g.ids)
	require.NoError(t, w.kubelet.prestart(g))
	assert.Equal(t, told("GPU-2,GPU-3"), w.spec(g))
}

// The device nodes are those that the driver says, not those of NVML's index; NVIDIA's own specification is used where
// there is one.
func TestDeviceNodes(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	vendor := t.TempDir()
	w.run(func(a *Agent) { a.VendorCDI, a.Simulated = []string{vendor}, false })
	for file, text := range map[string]string{
		"proc/driver/nvidia/gpus/0000:0a:01.0/information": "Model: \t\t X\nDevice Minor: \t 6\n",
		"dev/nvidiactl": "", "dev/nvidia-uvm": "",
	} {
		path := filepath.Join(w.agent.Root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	w.offers(map[string]int{gpu: 4})
	g := w.kubelet.admit(w.pod("p", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	require.NoError(t, w.kubelet.prestart(g))
	path := func(p string) any { return map[string]any{"path": p} }
	assert.Equal(t, map[string]any{
		"env":         []any{"NVIDIA_VISIBLE_DEVICES=GPU-1", "GPUPLAN_GPUS=GPU-1"},
		"deviceNodes": []any{path("/dev/nvidia6"), path("/dev/nvidiactl"), path("/dev/nvidia-uvm")},
	}, w.spec(g))

	require.NoError(t, os.WriteFile(filepath.Join(vendor, "nvidia.json"), []byte(`{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
		"containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "mounts": [{"hostPath": "/lib/libcuda.so", "containerPath": "/lib/libcuda.so"}]},
		"devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia6"}]}}]}`), 0o600))
	require.NoError(t, w.kubelet.prestart(g))
	assert.Equal(t, map[string]any{
		"env":         []any{"NVIDIA_VISIBLE_DEVICES=GPU-1", "GPUPLAN_GPUS=GPU-1", "NVIDIA_VISIBLE_DEVICES=void"},
		"deviceNodes": []any{path("/dev/nvidia6")},
		"mounts":      []any{map[string]any{"hostPath": "/lib/libcuda.so", "containerPath": "/lib/libcuda.so"}},
	}, w.spec(g), "the last one counts")

	require.NoError(t, os.WriteFile(filepath.Join(vendor, "nvidia.json"), []byte(`{"kind": "nvidia.com/gpu",
		"devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia5"}]}}]}`), 0o600))
	require.ErrorContains(t, w.kubelet.prestart(g), "has GPUs of this node, and not /dev/nvidia6", "made while the GPU was away")
}

// Where no folder can be watched the agent serves, and looks at it now and then; it is told, and tried again.
func TestFolderThatCannotBeWatched(t *testing.T) {
	w := newWorld(t, "topology")
	var fails atomic.Bool
	fails.Store(true)
	w.run(func(a *Agent) {
		a.firstRetry = lastRetry
		a.watch = func() (*fsnotify.Watcher, error) {
			if fails.Load() {
				return nil, errors.New("too many open files")
			}
			return fsnotify.NewWatcher()
		}
	})
	w.event("DevicePluginFails the node agent does not serve as device plugin as it should: watch the kubelet's folder of device plugins: too many open files")
	w.kubelet.start()
	wake(w.agent.lost) // as time does
	w.offers(map[string]int{gpu: 4})
	fails.Store(false)
	wake(w.agent.lost)
	w.kubelet.stop()
	w.kubelet.start()
	w.offers(map[string]int{gpu: 4})
}

// The loop goes round although nothing happens, so that a probe sees when it hangs.
func TestBeat(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	var beats atomic.Int64
	e := &enforcer{hangs: make(chan struct{})}
	w.run(func(a *Agent) {
		a.patience, a.Beat, a.Enforcer = time.Millisecond, func() { beats.Add(1) }, e
	})
	defer close(e.hangs)
	require.Eventually(t, func() bool { return beats.Load() == 1 }, 20*time.Second, time.Millisecond)
	require.Never(t, func() bool { return beats.Load() > 1 }, 200*time.Millisecond, time.Millisecond, "it hangs")
	e.hangs <- struct{}{}
	e.hangs <- struct{}{}
	require.Eventually(t, func() bool { return beats.Load() == 3 }, 20*time.Second, time.Millisecond)
}

// A kubelet that has taken a registration and does not listen gets another one.
func TestKubeletThatDoesNotListen(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.deaf = true
	w.kubelet.start()
	w.run()
	require.Eventually(t, func() bool { return w.kubelet.registered(gpu) > 0 }, 20*time.Second, time.Millisecond)
	w.kubelet.mu.Lock()
	w.kubelet.deaf = false
	w.kubelet.mu.Unlock()
	w.offers(map[string]int{gpu: 4})
}

func TestKubeletRestarts(t *testing.T) {
	w := newWorld(t, "topology")
	w.run() // before the kubelet: there is no folder
	w.kubelet.start()
	w.offers(map[string]int{gpu: 4})
	assert.Equal(t, 1, w.kubelet.registered(gpu))

	w.kubelet.stop()
	w.kubelet.start()
	w.offers(map[string]int{gpu: 4})

	w.kubelet.stop()
	w.kubelet.refuses = errors.New("not yet")
	w.kubelet.listen() // it does not empty the folder
	require.Eventually(t, func() bool { return w.kubelet.refused() > 0 }, 20*time.Second, time.Millisecond)
	w.kubelet.mu.Lock()
	w.kubelet.refuses = nil
	w.kubelet.mu.Unlock()
	w.offers(map[string]int{gpu: 4})

	g := w.kubelet.admit(w.pod("p", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	require.NoError(t, w.kubelet.prestart(g))

	// A kubelet that has lost the plugin, though it goes on.
	before := w.kubelet.registered(gpu)
	w.kubelet.drop(gpu)
	require.Eventually(t, func() bool { return w.kubelet.registered(gpu) > before }, 20*time.Second, time.Millisecond)
	w.offers(map[string]int{gpu: 4})

	// A kubelet that does not tell who has the devices lets no container start with GPUs, and one that tells again does.
	w.kubelet.mu.Lock()
	w.kubelet.hangs = make(chan struct{})
	w.kubelet.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, w.agent.start(ctx, gpu, g.ids), "ask the kubelet")
	w.kubelet.mu.Lock()
	close(w.kubelet.hangs)
	w.kubelet.mu.Unlock()
	require.NoError(t, w.kubelet.prestart(g))
}

// The kubelet answers so many questions at once, and more containers may start.
func TestManyContainersStartAtOnce(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.qps = 10
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	g := w.kubelet.admit(w.pod("p", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	errs := make(chan error)
	const starts = 40
	for range starts {
		go func() { errs <- w.kubelet.prestart(g) }()
	}
	for range starts {
		assert.NoError(t, <-errs)
	}
	assert.Positive(t, w.kubelet.limited.Load(), "the kubelet was asked too often")
}

// The kubelet writes in the folder of device plugins whenever a container gets devices. That is no news of plugins.
func TestFilesOfTheKubelet(t *testing.T) {
	for name, want := range map[string]bool{
		"kubelet_internal_checkpoint": false, ".1234567": false, "kubelet.sock": true, "gpuplan-aliyun.com-gpu.sock": true, "other.sock": true,
	} {
		assert.Equal(t, want, isSocket(filepath.Join("/var/lib/kubelet/device-plugins", name)), name)
	}
}

// What the agent publishes about GPUs itself the kubelet learns at once: when the watch shows it, it is known.
func TestGPUsPublishedByThisAgent(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	published := w.agent.Nodes.Get(cluster.GPUNode, nodeName).DeepCopy()
	gpus, _, err := unstructured.NestedSlice(published.Object, "status", "gpus")
	require.NoError(t, err)
	gpus[0].(map[string]any)["health"] = contract.Unhealthy
	require.NoError(t, unstructured.SetNestedSlice(published.Object, gpus, "status", "gpus"))
	published.SetResourceVersion("1000000")
	w.agent.Nodes.Wrote(cluster.GPUNode, published)
	w.offers(map[string]int{gpu: 3})
}

func TestHealthAndMode(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	w.gpus(func(s *contract.GPUNodeStatus) { s.GPUs[1].Health = contract.Unhealthy })
	w.offers(map[string]int{gpu: 3})
	w.gpus(func(s *contract.GPUNodeStatus) { s.GPUs[0].MIG, s.GPUs[1].MIG = true, true })
	w.offers(map[string]int{gpu: 2})
	w.gpus(func(*contract.GPUNodeStatus) {})
	w.offers(map[string]int{gpu: 4})

	// The mode changes when the last pod that has GPUs by the one before has ended.
	p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
	require.Eventually(t, func() bool { return len(w.agent.pods.list()) == 1 }, 20*time.Second, time.Millisecond)
	g := w.kubelet.admit(p, "main", gpu, 1)
	w.mode("share")
	w.gpus(func(s *contract.GPUNodeStatus) { s.GPUs = s.GPUs[:3] })
	w.offers(map[string]int{gpu: 3})
	require.NoError(t, w.kubelet.prestart(g), "its containers can start again")

	// A kubelet lets a pod run that names its node and asks for what this does not offer.
	stranger := w.pod("stranger", nil, container("main", amounts{contract.ResourceDefaultGPU: 1}))
	stranger.Status.Phase = corev1.PodRunning
	w.put(podKind, "stranger", stranger)
	require.Eventually(t, func() bool { return len(w.agent.pods.list()) == 2 }, 20*time.Second, time.Millisecond)
	require.Never(t, func() bool { return w.kubelet.allocatable()[contract.ResourceDefaultGPU] > 0 }, 200*time.Millisecond, 5*time.Millisecond)
	w.offers(map[string]int{gpu: 3})

	p.Status.Phase = corev1.PodSucceeded
	w.put(podKind, "p", p)
	w.offers(map[string]int{contract.ResourceGPUMemory: 45, contract.ResourceGPUCount: 3})
	w.mode("mig")
	w.offers(map[string]int{})
}

func TestAnotherPlugin(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.kubelet.stranger(gpu, 8)
	w.run(func(a *Agent) { a.patience = 2 * time.Second })
	w.event(`DevicePluginStaysOut aliyun.com/gpu is not offered by the node agent: another device plugin offers GPUs (aliyun.com/gpu, like "GPU-0")`)
	assert.Zero(t, w.kubelet.registered(gpu))

	// It goes, to start again maybe, and then the last pod with its devices, which may be any GPUs.
	p := w.pod("p", recordOf(0), container("main", amounts{gpu: 1}))
	w.kubelet.admitted(p, "main", gpu, "GPU-3")
	w.kubelet.offer(gpu, nil)
	require.NoError(t, os.Remove(filepath.Join(w.kubelet.pluginDir(), "other.sock")))
	w.event("DevicePluginStaysOut aliyun.com/gpu is not offered by the node agent: another device plugin has offered GPUs until lately, and may be starting again")
	w.event("DevicePluginStaysOut aliyun.com/gpu is not offered by the node agent: pod default/p has a device of another plugin (aliyun.com/gpu, like \"GPU-3\")")
	require.Zero(t, w.kubelet.registered(gpu))
	w.kubelet.forget("p")
	w.Remove(podKind, "default", "p")
	w.offers(map[string]int{gpu: 4})

	// One that comes later is left alone, too: no device of ours reaches the kubelet for it.
	w.kubelet.stranger(gpu, 8)
	w.event("DevicePluginStaysOut")
	w.gpus(func(s *contract.GPUNodeStatus) { s.GPUs[1].Health = contract.Unhealthy })
	require.Never(t, func() bool { return w.kubelet.allocatable()[gpu] != 8 }, 200*time.Millisecond, 5*time.Millisecond)
}

// NVIDIA's plugin offers the same GPUs by another resource, from the beginning or later. Its MIG devices are of GPUs that nobody else gives.
func TestAnotherPluginByAnotherResource(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.kubelet.stranger("nvidia.com/gpu.shared", 4)
	w.run(func(a *Agent) { a.patience = 50 * time.Millisecond })
	w.event(`DevicePluginStaysOut aliyun.com/gpu is not offered by the node agent: another device plugin offers GPUs (nvidia.com/gpu.shared, like "GPU-0")`)
	assert.Zero(t, w.kubelet.registered(gpu))
	w.kubelet.offer("nvidia.com/gpu.shared", nil)
	w.kubelet.stranger("nvidia.com/mig-1g.10gb", 2)
	w.offers(map[string]int{gpu: 4, "nvidia.com/mig-1g.10gb": 2})

	g := w.kubelet.admit(w.pod("p", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	require.NoError(t, w.kubelet.prestart(g))
	w.kubelet.offer(contract.ResourceDefaultGPU, []*pluginapi.Device{{ID: "GPU-0", Health: pluginapi.Healthy}}) // it registers after its socket was seen
	w.event("DevicePluginStaysOut")
	w.offers(map[string]int{contract.ResourceDefaultGPU: 1, "nvidia.com/mig-1g.10gb": 2})
	w.gpus(func(s *contract.GPUNodeStatus) { s.GPUs[1].Reason = "news" })
	require.Never(t, func() bool { return w.kubelet.allocatable()[gpu] > 0 }, 200*time.Millisecond, 5*time.Millisecond)
	require.NoError(t, w.kubelet.prestart(g), "its container can start again")
	w.kubelet.offer(contract.ResourceDefaultGPU, nil)
	w.offers(map[string]int{gpu: 4, "nvidia.com/mig-1g.10gb": 2})
	assert.Equal(t, 1, w.kubelet.registered(gpu), "the kubelet knew it all the time")
}

// A kubelet asks this plugin, by its checkpoint, about a container that is to start again with what another plugin has answered.
func TestDevicesOfAnotherPluginInTheCheckpoint(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(0), container("main", amounts{gpu: 1}))
	g := w.kubelet.admitted(p, "main", gpu, "GPU-3")
	require.ErrorContains(t, w.kubelet.prestart(g), `no GPU for container main: it has a device of another plugin, "GPU-3": make the pod again`)
	w.event("GPUsRefused")
	assert.Nil(t, w.spec(g), "nobody would read it")
	assert.Empty(t, w.agent.confirmer.of(p).Containers)
}

func TestOffer(t *testing.T) {
	const memory, core, count = contract.ResourceGPUMemory, contract.ResourceCorePercent, contract.ResourceGPUCount
	for name, test := range map[string]struct {
		mode string
		used []string
		want []string
	}{
		"no label":                   {"", nil, []string{contract.ResourceDefaultGPU}},
		"default":                    {"default", nil, []string{contract.ResourceDefaultGPU}},
		"topology":                   {"topology", []string{gpu}, []string{gpu}},
		"mps":                        {"mps", nil, []string{memory, count}},
		"core_mem":                   {"core_mem", []string{memory}, []string{memory, count, core}},
		"mig":                        {"mig", nil, nil},
		"of the mode before":         {"share", []string{"cpu", contract.ResourceDefaultGPU}, []string{contract.ResourceDefaultGPU}},
		"cores of the mode before":   {"share", []string{memory, core}, []string{memory, count, core}},
		"memory of the mode before":  {"topology", []string{memory}, []string{memory, count}},
		"both of the mode before":    {"topology", []string{memory, core}, []string{memory, count, core}},
		"a mode that is not offered": {"mig", []string{gpu}, []string{gpu}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, offer(placement.Mode(test.mode), test.used)) })
	}
}
