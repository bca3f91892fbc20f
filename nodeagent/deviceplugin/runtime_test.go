package deviceplugin

import (
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri/nritest"
)

// asked runs the agent beside a runtime that asks plugins, and returns what asks as it does: about a container of a pod with
// the GPUs that the runtime has been told, and whether these are pending.
func (w *world) asked() func(pod *corev1.Pod, container, told string, pending bool) (env []string, removed []string, err error) {
	w.t.Helper()
	r := nritest.New(w.t)
	r.Start()
	w.kubelet.start()
	w.run(func(a *Agent) { a.NRI = r.Socket })
	var plugin api.PluginService
	select {
	case plugin = <-r.Plugins:
	case <-time.After(20 * time.Second):
		require.Fail(w.t, "no plugin of the runtime")
	}
	return func(pod *corev1.Pod, container, told string, pending bool) (env, removed []string, err error) {
		c := &api.Container{Name: container, Env: []string{"PATH=/bin"}}
		if told != "" {
			c.Env = append(c.Env, contract.GivenGPUsEnv+"="+told)
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
	}
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
	same := p.DeepCopy()
	same.UID = "uid-of-one-that-has-gone"
	for name, test := range map[string]struct {
		pod             *corev1.Pod
		container, told string
		env             []string
		refusal         string
	}{
		"as recorded":                {pod: p, container: "b", told: "GPU-2"},
		"the other container's":      {pod: p, container: "b", told: "GPU-0", refusal: "no GPU for container b: the container runtime was to give it GPU-0, and the allocation record says GPU-2"},
		"more":                       {pod: p, container: "b", told: "GPU-2,GPU-3", refusal: "was to give it GPU-2,GPU-3"},
		"one that is free by then":   {pod: p, container: "init", told: "GPU-0"},
		"another pod's":              {pod: p, container: "init", told: "GPU-1", refusal: "was to give it GPU-1"},
		"more than it asks for":      {pod: p, container: "init", told: "GPU-0,GPU-2", refusal: "was to give it GPU-0,GPU-2"},
		"a runtime that has no CDI":  {pod: p, container: "a", told: "none", env: []string{"GPUPLAN_GPUS=GPU-0", "NVIDIA_VISIBLE_DEVICES=GPU-0"}},
		"no record":                  {pod: another, container: "main", told: "none", refusal: "the pod has no allocation record"},
		"one of the same name":       {pod: same, container: "b", told: "GPU-2", refusal: "the pod is gone"},
		"an ephemeral container":     {pod: p, container: "debug", told: "none"},
		"of no device plugin at all": {pod: another, container: "main"},
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
	unlisted := w.kubelet.admit(p, "init", contract.ResourceDefaultGPU, 1)
	unlisted.plain = true
	require.ErrorContains(t, w.kubelet.prestart(unlisted), "the kubelet does not tell which container has these devices")
}
