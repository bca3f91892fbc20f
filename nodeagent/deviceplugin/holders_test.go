package deviceplugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/usage"
)

// Holders are what containers were given, with the words by which their pods are known, until these have ended.
func TestHolders(t *testing.T) {
	const memory, core = contract.ResourceGPUMemory, contract.ResourceCorePercent
	w := newWorld(t, "core_mem")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{memory: 60, core: 400, contract.ResourceGPUCount: 4})
	assert.Empty(t, w.agent.Holders())

	share := contract.GPUShare{GPU: 2, MemoryGiB: 4, CorePercent: 30}
	pod := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{share}}, container("main", amounts{memory: 4, core: 30}))
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(pod, "main", memory, 4)))
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(pod, "main", core, 30)))
	want := usage.Holder{Namespace: "default", Pod: "p", UID: "uid-p", Container: "main", GPU: "GPU-2", MemoryLimit: 4 << 30, CoresLimit: 0.3}
	holders := func(want ...usage.Holder) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, want, w.agent.Holders()) }, time.Minute, time.Millisecond)
	}
	holders(want)

	pod.Labels = map[string]string{contract.LightGangLabel: "g"}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://77ff"}}
	w.put(podKind, "p", pod)
	want.Gang, want.ContainerID = "default/g", "containerd://77ff"
	holders(want)

	pod.Status.Phase = corev1.PodSucceeded
	w.put(podKind, "p", pod)
	require.Eventually(t, func() bool { return len(w.agent.Holders()) == 0 }, time.Minute, time.Millisecond)
}

// A container that has ended holds nothing any more: the one that goes on has the GPU alone, and its figures.
func TestHoldersThatHaveEnded(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(0, 2), container("init", amounts{gpu: 2}), container("main", amounts{gpu: 1}))
	before := w.kubelet.admit(p, "init", gpu, 2)
	before.plain = true
	main := w.kubelet.admit(p, "main", gpu, 1, before.ids[:1]...)
	holders := func(want ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var names []string
			for _, h := range w.agent.Holders() {
				names = append(names, h.Container)
			}
			assert.Equal(c, want, names)
		}, 20*time.Second, time.Millisecond)
	}
	require.NoError(t, w.kubelet.prestart(before))
	holders("init", "init")
	require.NoError(t, w.kubelet.prestart(main))
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.put(podKind, "p", p)
	holders("main")
}
