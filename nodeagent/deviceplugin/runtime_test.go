package deviceplugin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri/nritest"
)

// asked runs the agent beside a runtime that asks plugins, and returns what asks as it does: about a container of a pod with
// the GPUs that the runtime has been told, or other variables, and whether these are pending.
func (w *world) asked(change ...func(*Agent)) func(pod *corev1.Pod, container, told string, pending bool) (env []string, removed []string, err error) {
	w.t.Helper()
	ask, _ := w.askedBy(change...)
	return ask
}

// asking is a runtime with the plugin that it asks.
type asking struct {
	*nritest.Runtime
	asks api.PluginService
}

// askedBy is asked that returns the runtime, too.
func (w *world) askedBy(change ...func(*Agent)) (ask func(pod *corev1.Pod, container, told string, pending bool) (env []string, removed []string, err error), r *asking) {
	w.t.Helper()
	r = &asking{Runtime: nritest.New(w.t)}
	r.Start()
	w.kubelet.start()
	w.run(append(change, func(a *Agent) { a.NRI = r.Socket })...)
	var plugin api.PluginService
	select {
	case plugin = <-r.Plugins:
		r.asks = plugin
	case <-time.After(20 * time.Second):
		require.Fail(w.t, "no plugin of the runtime")
	}
	return func(pod *corev1.Pod, container, told string, pending bool) (env, removed []string, err error) {
		c := &api.Container{Name: container, Env: []string{"PATH=/bin"}}
		for _, entry := range strings.Fields(told) {
			if !strings.Contains(entry, "=") {
				entry = contract.GivenGPUsEnv + "=" + entry
			}
			c.Env = append(c.Env, entry)
		}
		if pending {
			c.Mounts = []*api.Mount{{Destination: cdi.PendingPath}}
		}
		change, err := nritest.Create(w.t, plugin, &api.PodSandbox{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)}, c)
		for _, e := range change.GetEnv() {
			env = append(env, e.Key+"="+e.Value)
		}
		for _, m := range change.GetMounts() {
			if path, ok := m.IsMarkedForRemoval(); ok {
				removed = append(removed, path)
			}
		}
		return env, removed, err
	}, r
}

// An agent that is killed after it has told the runtime the GPUs of a container has not confirmed them: the next one does.
func TestContainersOfTheAgentBefore(t *testing.T) {
	w := newWorld(t, "core_mem")
	record := &contract.Allocation{Node: nodeName, Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 6, CorePercent: 30}}}
	p := w.pod("p", record, container("a", amounts{contract.ResourceGPUMemory: 2, contract.ResourceCorePercent: 10}), container("b", amounts{contract.ResourceGPUMemory: 4, contract.ResourceCorePercent: 20}), container("none", nil))
	r := nritest.New(t)
	sandbox := &api.PodSandbox{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}
	for name, told := range map[string]string{"a": "GPU-1", "b": "none", "none": "GPU-1"} {
		r.Has(sandbox, &api.Container{Name: name, Env: []string{contract.GivenGPUsEnv + "=" + told}})
	}
	r.Has(&api.PodSandbox{Namespace: "default", Name: "gone", Uid: "gone"}, &api.Container{Name: "main", Env: []string{contract.GivenGPUsEnv + "=GPU-1"}})
	r.Start()
	w.kubelet.start()
	w.run(func(a *Agent) { a.NRI = r.Socket })
	w.confirmed("p", "a", contract.ConfirmedContainer{
		Way: contract.WayCDI, GPUs: []string{"GPU-1"}, Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 2, CorePercent: 10}}, Unenforced: true,
	})
	live, err := w.client.Typed.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	confirmation, _, err := contract.ConfirmationFrom(live.Annotations)
	require.NoError(t, err)
	assert.Len(t, confirmation.Containers, 1, "%+v", confirmation)
}

// An init container in a pod of which no container asks for GPUs is none that the kubelet lists; the runtime knows it.
func TestRuntimeTellsWhoTheKubeletDoesNot(t *testing.T) {
	w := newWorld(t, "topology")
	ask := w.asked()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(1, 3), container("init", amounts{gpu: 2}), container("main", nil))
	g := w.kubelet.admit(p, "init", gpu, 2)
	g.plain = true
	require.NoError(t, w.kubelet.prestart(g))
	assert.Equal(t, map[string]any{"mounts": []any{map[string]any{
		"hostPath": cdi.PendingPath + "/the-node-agent-has-not-told-the-GPUs", "containerPath": cdi.PendingPath, "options": []any{"bind", "ro"},
	}}}, w.spec(g), "without an answer to the runtime it does not start")
	env, removed, err := ask(p, "init", "none", true)
	require.NoError(t, err)
	assert.Equal(t, []string{"GPUPLAN_GPUS=GPU-1,GPU-3", "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-3"}, env)
	assert.Equal(t, []string{cdi.PendingPath}, removed)
	w.confirmed("p", "init", contract.ConfirmedContainer{Way: "NRI", GPUs: []string{"GPU-1", "GPU-3"}})

	env, _, err = ask(p, "main", "", false)
	require.NoError(t, err)
	assert.Empty(t, env, "it asks for no GPU")
	env, _, err = ask(p, "main", "none", false)
	require.NoError(t, err)
	assert.Empty(t, env, "it has set the variable itself")
}

// What CDI has given is held against the record of the pod of that UID.
func TestRuntimeVerifies(t *testing.T) {
	w := newWorld(t, "topology")
	ask := w.asked()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(0, 2), container("init", amounts{gpu: 1}), container("a", amounts{gpu: 1}), container("b", amounts{gpu: 1}))
	another := w.pod("another", nil, container("main", amounts{gpu: 1}))
	third := w.pod("third", recordOf(1), container("main", amounts{gpu: 1}))
	others := w.pod("others", nil, container("main", amounts{contract.ResourceDefaultGPU: 1}))
	listed := w.pod("listed", nil, container("main", amounts{contract.ResourceDefaultGPU: 1}))
	w.kubelet.admitted(listed, "main", contract.ResourceDefaultGPU, "GPU-3") // of which the plugin has gone
	same := p.DeepCopy()
	same.UID = "uid-of-one-that-has-gone"
	for name, test := range map[string]struct {
		pod             *corev1.Pod
		container, told string
		env             []string
		refusal         string
	}{
		"as recorded":                             {pod: p, container: "b", told: "GPU-2"},
		"the other container's":                   {pod: p, container: "b", told: "GPU-0", refusal: "no GPU for container b: the container runtime was to give it GPU-0, and the allocation record says GPU-2"},
		"more":                                    {pod: p, container: "b", told: "GPU-2,GPU-3", refusal: "was to give it GPU-2,GPU-3"},
		"one that is free by then":                {pod: p, container: "init", told: "GPU-0"},
		"another pod's":                           {pod: p, container: "init", told: "GPU-1", refusal: "was to give it GPU-1"},
		"more than it asks for":                   {pod: p, container: "init", told: "GPU-0,GPU-2", refusal: "was to give it GPU-0,GPU-2"},
		"a runtime that has no CDI":               {pod: p, container: "a", told: "none", env: []string{"GPUPLAN_GPUS=GPU-0", "NVIDIA_VISIBLE_DEVICES=GPU-0"}},
		"no record":                               {pod: another, container: "main", told: "none", refusal: "the pod has no allocation record"},
		"one of the same name":                    {pod: same, container: "b", told: "GPU-2", refusal: "the pod is gone"},
		"an ephemeral container":                  {pod: p, container: "debug", told: "none"},
		"of a plugin that is not there":           {pod: others, container: "main", told: "NVIDIA_VISIBLE_DEVICES=all", refusal: "no GPU for container main: no device plugin of the node offers nvidia.com/gpu"},
		"it, without an image that asks for GPUs": {pod: others, container: "main"},
		"of another plugin":                       {pod: listed, container: "main", told: "NVIDIA_VISIBLE_DEVICES=GPU-3"},
		"all of them":                             {pod: p, container: "b", told: "GPU-2 NVIDIA_VISIBLE_DEVICES=all", refusal: `its NVIDIA_VISIBLE_DEVICES is "all", and the container runtime was to give it GPU-2`},
		"told by itself":                          {pod: others, container: "main", told: "GPU-3", refusal: "the node agent does not offer nvidia.com/gpu"},
		"given nothing":                           {pod: third, container: "main", refusal: "no GPU for container main: the kubelet has given it no device of aliyun.com/gpu: make the pod again"},
	} {
		t.Run(name, func(t *testing.T) {
			env, _, err := ask(test.pod, test.container, test.told, false)
			assert.Equal(t, test.env, env)
			if test.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.refusal)
		})
	}
	w.confirmed("p", "a", contract.ConfirmedContainer{Way: "NRI", GPUs: []string{"GPU-0"}})
	w.confirmed("p", "b", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-2"}})
	w.confirmed("p", "init", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-0"}})
	w.event("GPUsRefused")
}

// The kubelet lists an init container's devices as those of the container that has them next; the runtime confirms the one that
// it creates, and until then nothing is confirmed.
func TestRuntimeConfirms(t *testing.T) {
	w := newWorld(t, "topology")
	ask := w.asked()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(0, 2), container("init", amounts{gpu: 2}), container("main", amounts{gpu: 2}))
	g := w.kubelet.admit(p, "main", gpu, 2)
	require.NoError(t, w.kubelet.prestart(g))
	assert.Equal(t, told("GPU-0,GPU-2"), w.spec(g))
	_, _, err := ask(p, "init", "GPU-0,GPU-2", false)
	require.NoError(t, err)
	w.confirmed("p", "init", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-0", "GPU-2"}})
	w.confirmed("p", "main", contract.ConfirmedContainer{})
}

// Parts of GPUs are verified by their GPUs.
func TestRuntimeVerifiesShares(t *testing.T) {
	const memory, core = contract.ResourceGPUMemory, contract.ResourceCorePercent
	w := newWorld(t, "core_mem")
	ask := w.asked()
	w.offers(map[string]int{memory: 60, core: 400, contract.ResourceGPUCount: 4})
	share := contract.GPUShare{GPU: 2, MemoryGiB: 4, CorePercent: 30}
	p := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{share}}, container("main", amounts{memory: 4, core: 30}))
	_, _, err := ask(p, "main", "GPU-1", false)
	require.ErrorContains(t, err, "the allocation record says GPU-2")
	init := w.pod("init", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 0, MemoryGiB: 4}, {GPU: 1, MemoryGiB: 4}}},
		container("init", amounts{memory: 4}), container("a", amounts{memory: 4}), container("b", amounts{memory: 4}))
	_, _, err = ask(init, "init", "GPU-0", false) // what a has next
	require.NoError(t, err)
	w.confirmed("init", "init", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-0"}, Shares: []contract.GPUShare{{GPU: 0, MemoryGiB: 4}}, Unenforced: true})
	_, _, err = ask(p, "main", "GPU-2", false)
	require.NoError(t, err)
	w.confirmed("p", "main", contract.ConfirmedContainer{Way: "CDI", GPUs: []string{"GPU-2"}, Shares: []contract.GPUShare{share}, Unenforced: true})
	env, _, err := ask(p, "main", "none", false)
	require.NoError(t, err)
	assert.Equal(t, []string{"ALIYUN_COM_GPU_MEM_CONTAINER=4", "ALIYUN_COM_GPU_MEM_DEV=15", "GPUPLAN_GPUS=GPU-2", "NVIDIA_VISIBLE_DEVICES=GPU-2"}, env)
}

// A runtime that would start the container without its GPUs does not get that far.
func TestOldRuntimes(t *testing.T) {
	for version, want := range map[string]bool{
		"containerd://1.6.20~ds1": false, "containerd://v1.5.0": false, "docker://27.1.1": false, "containerd://0.2.9": false,
		"containerd://1.7.27": true, "containerd://1.10.0": true, "containerd://2.2.1": true, "containerd://v2.0.0": true, "cri-o://1.33.0": true, "": true,
	} {
		assert.Equal(t, want, tells(version), version)
	}
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
	g := w.kubelet.admit(p, "main", gpu, 1)
	require.NoError(t, w.kubelet.prestart(g))
	node := w.agent.Nodes.Get(cluster.Node, nodeName).DeepCopy()
	require.NoError(t, unstructured.SetNestedField(node.Object, "containerd://1.6.20", "status", "nodeInfo", "containerRuntimeVersion"))
	w.Put(node)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.ErrorContains(t, w.kubelet.prestart(g), "no GPU for container main: the container runtime, containerd://1.6.20, cannot be told")
	}, 20*time.Second, 5*time.Millisecond)
	w.event("GPUsRefused")
}

// In mode default the kubelet has chosen, which only CDI knows.
func TestRuntimeInModeDefault(t *testing.T) {
	w := newWorld(t, "default")
	ask := w.asked()
	w.offers(map[string]int{contract.ResourceDefaultGPU: 4})
	p := w.pod("p", nil, container("init", amounts{contract.ResourceDefaultGPU: 1}), container("main", amounts{contract.ResourceDefaultGPU: 1}))
	_, _, err := ask(p, "main", "GPU-3", false)
	require.NoError(t, err)
	_, _, err = ask(p, "main", "none", false)
	require.ErrorContains(t, err, "the container runtime does not read CDI specifications")
	chooses := container("main", amounts{contract.ResourceDefaultGPU: 1})
	chooses.Env = []corev1.EnvVar{{Name: contract.GivenGPUsEnv, Value: "GPU-0"}}
	_, _, err = ask(w.pod("chooses", nil, chooses), "main", "GPU-0", false)
	require.ErrorContains(t, err, "the pod sets GPUPLAN_GPUS itself")
	require.Eventually(t, func() bool { // the agent's watch has the pod
		return slices.ContainsFunc(w.agent.pods.list(), func(known *corev1.Pod) bool { return known.Name == p.Name })
	}, 20*time.Second, time.Millisecond)
	other := w.pod("other", nil, container("main", amounts{contract.ResourceDefaultGPU: 1}))
	_, _, err = ask(other, "main", "GPU-3", false)
	require.ErrorContains(t, err, "GPU 3 GPU-3 is of pod default/p, too")

	// The runtime knows a static pod by the UID that the kubelet has made of its file.
	static := w.pod("static", nil, container("main", amounts{contract.ResourceDefaultGPU: 1}))
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	w.put(podKind, "static", static)
	static.UID = "hash"
	_, _, err = ask(static, "main", "GPU-2", false)
	require.NoError(t, err)
	unlisted := w.kubelet.admit(p, "init", contract.ResourceDefaultGPU, 1)
	unlisted.plain = true
	require.ErrorContains(t, w.kubelet.prestart(unlisted), "the kubelet does not tell which container has these devices")
}

// An init container that comes after a sidecar does not run alone.
func TestRuntimeVerifiesAnInitContainerBesideASidecar(t *testing.T) {
	w := newWorld(t, "topology")
	ask := w.asked()
	w.offers(map[string]int{gpu: 4})
	always := corev1.ContainerRestartPolicyAlways
	before, after := container("init-before", amounts{gpu: 1}), container("init-after", amounts{gpu: 1})
	before.RestartPolicy, after.RestartPolicy = &always, &always
	p := w.pod("p", recordOf(0, 1, 2), before, container("init", amounts{gpu: 1}), after, container("main", amounts{gpu: 1}))
	_, _, err := ask(p, "init", "GPU-0", false)
	require.ErrorContains(t, err, "was to give it GPU-0, and the allocation record says GPU-2", "it is of the sidecar that runs")
	_, _, err = ask(p, "init", "GPU-1", false)
	require.NoError(t, err)
}

// A runtime that reads no CDI specifications gets the GPUs by NRI alone. While it does not ask, as in up to a minute after its start,
// a container would have none.
func TestRuntimeWithoutCDIThatDoesNotAsk(t *testing.T) {
	w := newWorld(t, "topology")
	ask, runtime := w.askedBy()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
	g := w.kubelet.admit(p, "main", gpu, 1)
	require.NoError(t, w.kubelet.prestart(g))
	_, _, err := ask(p, "main", "none", false)
	require.NoError(t, err)
	runtime.Stop()
	require.Eventually(t, func() bool { return !w.agent.runtime.Asked() }, 20*time.Second, time.Millisecond)
	require.ErrorContains(t, w.kubelet.prestart(g), "the container runtime reads no CDI specifications, and does not ask")
}

// A container that asks for no GPU has none, although its image asks NVIDIA's runtime for all of them.
func TestRuntimeTellsOfAContainerThatAsksForNothingAndTakesAll(t *testing.T) {
	w := newWorld(t, "topology")
	ask := w.asked()
	w.offers(map[string]int{gpu: 4})
	const mig = "nvidia.com/mig-1g.10gb"
	w.kubelet.stranger(mig, 2)
	p := w.pod("p", nil, container("main", nil), container("mig", amounts{mig: 1}), container("no-mig", amounts{"nvidia.com/mig-7g.80gb": 1}),
		container("count", amounts{contract.ResourceGPUCount: 1}), container("other", amounts{"nvidia.com/rdma": 1}))
	claims := container("claims", nil)
	claims.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	claim := w.pod("claim", nil, claims)
	monitor := w.pod("monitor", nil, container("main", nil))
	yes := true
	monitor.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "monitor", UID: "m", Controller: &yes}}
	w.put(podKind, "monitor", monitor)
	require.Eventually(t, func() bool { // the agent's watch has the change
		return slices.ContainsFunc(w.agent.pods.list(), func(p *corev1.Pod) bool { return p.Name == monitor.Name && len(p.OwnerReferences) > 0 })
	}, 20*time.Second, time.Millisecond)
	gone := p.DeepCopy()
	gone.Name = "gone"
	for name, test := range map[string]struct {
		pod             *corev1.Pod
		container, sees string
		env             []string
		refusal         string
	}{
		"an old image":        {pod: p, container: "main", sees: "CUDA_VERSION=12.4.1", env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"a number of GPUs":    {pod: p, container: "count", sees: "all", env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"no MIG device":       {pod: p, container: "no-mig", sees: "all", env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"what is no GPU":      {pod: p, container: "other", sees: "all", env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"a claim":             {pod: claim, container: "claims", sees: "GPU-3"},
		"all":                 {pod: p, container: "main", sees: "all", env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"one":                 {pod: p, container: "main", sees: "GPU-3", env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"none":                {pod: p, container: "main", sees: "void"},
		"a monitor":           {pod: monitor, container: "main", sees: "all"},
		"a MIG device":        {pod: p, container: "mig", sees: "MIG-1"},
		"of a pod that went":  {pod: gone, container: "main", sees: "all", refusal: "the pod is gone"},
		"none, and it is new": {pod: gone, container: "main", sees: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(test.sees, "=") {
				test.sees = contract.VisibleDevicesEnv + "=" + test.sees
			}
			env, _, err := ask(test.pod, test.container, test.sees, false)
			assert.Equal(t, test.env, env)
			if test.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.refusal)
		})
	}
}

// A kubelet gives away what is registered before the plugin has its answer.
func TestContainerBeforeTheAnswerToARegistration(t *testing.T) {
	w := newWorld(t, "default")
	w.kubelet.answers = make(chan struct{})
	ask := w.asked()
	w.offers(map[string]int{contract.ResourceDefaultGPU: 4})
	p := w.pod("p", nil, container("main", amounts{contract.ResourceDefaultGPU: 1}))
	_, _, err := ask(p, "main", "GPU-3", false)
	close(w.kubelet.answers)
	require.NoError(t, err)
}
