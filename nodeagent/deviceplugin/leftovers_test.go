package deviceplugin

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/mps"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri/nritest"
)

// has waits until the agent's watch has so many pods, all of which are in a phase.
func (w *world) has(n int, phase corev1.PodPhase) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		pods := w.agent.pods.list()
		assert.Len(t, pods, n)
		for _, pod := range pods {
			assert.Equal(t, phase, pod.Status.Phase)
		}
	}, 20*time.Second, time.Millisecond)
}

// The scheduler's repair fails the members of a gang on a node that cannot be reached. When this comes back they still run, for their
// grace period.
func TestAPodThatHasEndedForTheAPIServerAlone(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", gpu, 1)))
	p.Status.Phase = corev1.PodFailed
	w.put(podKind, "p", p)
	w.has(1, corev1.PodFailed)
	next := w.kubelet.admit(w.pod("next", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	require.ErrorContains(t, w.kubelet.prestart(next), "GPU 1 GPU-1 is of pod default/p, too, of which containers have not ended on the node: the kubelet tries again")
	w.kubelet.forget("p")
	require.NoError(t, w.kubelet.prestart(next))
}

// Whoever deletes a pod by force does not wait for its containers, and the kubelet frees its devices at once.
func TestAPodThatIsDeletedByForce(t *testing.T) {
	const refusal = "GPU 1 GPU-1 is of pod default/p, too, of which containers have not ended on the node"
	ends := func(w *world) (next *given) { // it is gone, and another has its GPU
		w.kubelet.forget("p")
		w.Remove(podKind, "default", "p")
		w.has(0, "")
		return w.kubelet.admit(w.pod("next", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	}
	t.Run("the runtime tells when they have ended", func(t *testing.T) {
		w := newWorld(t, "topology")
		ask, runtime := w.askedBy()
		w.offers(map[string]int{gpu: 4})
		p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
		require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", gpu, 1)))
		_, _, err := ask(p, "main", "GPU-1", false)
		require.NoError(t, err)
		sandbox, c := &api.PodSandbox{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}, &api.Container{Id: "1", Name: "main"}
		nritest.Started(t, runtime.asks, sandbox, c)
		next := ends(w)
		require.ErrorContains(t, w.kubelet.prestart(next), refusal)
		nritest.Ended(t, runtime.asks, sandbox, c)
		require.NoError(t, w.kubelet.prestart(next))
	})
	t.Run("an agent that starts afterwards", func(t *testing.T) {
		w := newWorld(t, "topology")
		r := nritest.New(t)
		r.Has(&api.PodSandbox{Namespace: "default", Name: "p", Uid: "uid-p"}, &api.Container{Id: "1", Name: "main", Env: []string{contract.GivenGPUsEnv + "=GPU-1"}})
		r.Start()
		w.kubelet.start()
		w.run(func(a *Agent) { a.NRI = r.Socket })
		w.offers(map[string]int{gpu: 4})
		require.Eventually(t, func() bool { return len(w.agent.present()) == 1 }, 20*time.Second, time.Millisecond)
		next := w.kubelet.admit(w.pod("next", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
		require.ErrorContains(t, w.kubelet.prestart(next), refusal)
	})
	t.Run("the runtime does not tell", func(t *testing.T) {
		w := newWorld(t, "topology")
		w.kubelet.start()
		w.run()
		w.offers(map[string]int{gpu: 4})
		p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
		require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", gpu, 1)))
		next := ends(w)
		require.ErrorContains(t, w.kubelet.prestart(next), refusal)
		w.agent.left.mu.Lock()
		left := w.agent.left.pods[p.UID]
		assert.Equal(t, 90*time.Second, left.until.Sub(left.pod.DeletionTimestamp.Time).Round(time.Second), "the grace period, and a minute")
		left.until = time.Now()
		w.agent.left.pods[p.UID] = left
		w.agent.left.mu.Unlock()
		require.NoError(t, w.kubelet.prestart(next))
	})
	t.Run("they had ended", func(t *testing.T) {
		w := newWorld(t, "topology")
		w.kubelet.start()
		w.run()
		w.offers(map[string]int{gpu: 4})
		p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
		require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", gpu, 1)))
		w.terminated(p)
		require.NoError(t, w.kubelet.prestart(ends(w)))
	})
}

// terminated has the containers of a pod end, as the kubelet writes it before the pod is gone.
func (w *world) terminated(p *corev1.Pod) {
	w.t.Helper()
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	w.put(podKind, p.Name, p)
	require.Eventually(w.t, func() bool {
		known := w.agent.pods.known(nameOf(p))
		return known != nil && len(known.Status.ContainerStatuses) == 1 && known.Status.ContainerStatuses[0].State.Terminated != nil
	}, 20*time.Second, time.Millisecond)
}

// A static pod runs on when its mirror in the API server is deleted, and the kubelet makes that again.
func TestAMirrorThatIsMadeAgain(t *testing.T) {
	w := newWorld(t, "default")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{contract.ResourceDefaultGPU: 4})
	p := w.pod("p", nil, container("main", amounts{contract.ResourceDefaultGPU: 1}))
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	w.put(podKind, "p", p)
	g := w.kubelet.admit(p, "main", contract.ResourceDefaultGPU, 1)
	require.NoError(t, w.kubelet.prestart(g))
	w.Remove(podKind, "default", "p")
	w.has(0, "")
	require.Len(t, w.agent.present(), 1)
	p.UID = "uid-again"
	w.put(podKind, "p", p)
	w.has(1, "")
	require.NoError(t, w.kubelet.prestart(g), "its container can start again")
	assert.Len(t, w.agent.present(), 1)
}

// A pod that is deleted by force is gone at once, and its processes leave the GPU that they share before they are killed. Their part is in
// use until then.
func TestPartsOfAPodThatIsDeletedByForce(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	e := &enforcer{changed: make(chan struct{}, 1)}
	ask, runtime := w.askedBy(func(a *Agent) { a.Enforcer = e })
	w.offers(map[string]int{memory: 60, contract.ResourceGPUCount: 4})
	pod := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 4}}}, container("main", amounts{memory: 4}))
	_, _, err := ask(pod, "main", "GPU-1", false)
	require.NoError(t, err)
	sandbox, c := &api.PodSandbox{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)}, &api.Container{Id: "1", Name: "main"}
	nritest.Started(t, runtime.asks, sandbox, c)
	folder := filepath.Join(w.agent.Root, "proc", "1")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "cgroup"), []byte("0::/kubepods/besteffort/pod"+string(pod.UID)+"/c1\n"), 0o600))
	w.has(1, "")
	w.Remove(podKind, "default", "p")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		now, ended := e.told()
		assert.Equal(t, []string{"GPU-1/1"}, ended)
		assert.Equal(t, []mps.Share{{UUID: "GPU-1", MemoryMiB: 4096}}, now)
	}, 20*time.Second, time.Millisecond)
	nritest.Ended(t, runtime.asks, sandbox, c)
	require.Eventually(t, func() bool { now, _ := e.told(); return len(now) == 0 }, 20*time.Second, time.Millisecond)
}

// So do those of a pod that the scheduler has failed while the node could not be reached.
func TestPartsOfAPodThatHasEndedForTheAPIServerAlone(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	w.kubelet.start()
	e := &enforcer{changed: make(chan struct{}, 1)}
	w.run(func(a *Agent) { a.Enforcer = e })
	w.offers(map[string]int{memory: 60, contract.ResourceGPUCount: 4})
	p := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 4}}}, container("main", amounts{memory: 4}))
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", memory, 4)))
	folder := filepath.Join(w.agent.Root, "proc", "1")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "cgroup"), []byte("0::/kubepods/besteffort/pod"+string(p.UID)+"/c1\n"), 0o600))
	w.has(1, "")
	p.Status.Phase = corev1.PodFailed
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.put(podKind, "p", p)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		now, ended := e.told()
		assert.Len(t, ended, 1)
		assert.Equal(t, []mps.Share{{UUID: "GPU-1", MemoryMiB: 4096}}, now)
	}, 20*time.Second, time.Millisecond)
	w.terminated(p)
	require.Eventually(t, func() bool { now, _ := e.told(); return len(now) == 0 }, 20*time.Second, time.Millisecond)
}
