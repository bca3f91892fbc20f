package deviceplugin

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri/nritest"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/soaktest"
)

var soakPods = flag.Int("soak.pods", 100, "pods that come and go, twice; what is in use after the first is in use after the last")

// Nothing that pods, kubelets and container runtimes do costs memory, goroutines or descriptors that stay.
func TestSoak(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	_, r := w.askedBy(func(a *Agent) { a.Enforcer = &enforcer{changed: make(chan struct{}, 1)} })
	offered := map[string]int{memory: 60, contract.ResourceGPUCount: 4}
	w.offers(offered)
	random := rand.New(rand.NewPCG(1, 0))
	// pod comes, gets its part, and goes in one of the ways in which pods go.
	pod := func(name string) {
		share := contract.GPUShare{GPU: random.IntN(4), MemoryGiB: 4}
		p := w.pod(name, &contract.Allocation{Shares: []contract.GPUShare{share}}, container("main", amounts{memory: 4}))
		g := w.kubelet.admit(p, "main", memory, 4)
		require.Eventually(t, func() bool { // the kubelet tries again when it has lost the plugin
			plugin := w.kubelet.plugin(memory)
			if plugin == nil {
				return false
			}
			_, err := plugin.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: g.ids}}})
			return err == nil && w.kubelet.prestart(g) == nil
		}, 20*time.Second, time.Millisecond)
		sandbox := &api.PodSandbox{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}
		c := &api.Container{Id: "c-" + name, Name: "main", Env: []string{fmt.Sprintf("%s=GPU-%d", contract.GivenGPUsEnv, share.GPU)}}
		_, err := nritest.Create(t, r.asks, sandbox, c)
		require.NoError(t, err)
		nritest.Started(t, r.asks, sandbox, c)
		switch random.IntN(3) {
		case 0: // it ends
			p.Status.Phase = corev1.PodSucceeded
			w.terminated(p)
			nritest.Ended(t, r.asks, sandbox, c)
		case 1: // it is deleted
			nritest.Ended(t, r.asks, sandbox, c)
			w.terminated(p)
		case 2: // it is deleted by force, and ends later
			w.Remove(podKind, p.Namespace, p.Name)
			w.has(0, "")
			nritest.Ended(t, r.asks, sandbox, c)
		}
		w.kubelet.forget(name)
		w.Remove(podKind, p.Namespace, p.Name)
		w.has(0, "")
	}
	others := func() {
		switch random.IntN(4) {
		case 0: // the kubelet starts again
			w.kubelet.stop()
			w.kubelet.start()
		case 1: // and the container runtime
			r.Stop()
			require.NoError(t, os.RemoveAll(r.Socket))
			r.Start()
			select {
			case r.asks = <-r.Plugins:
			case <-time.After(time.Minute):
				require.Fail(t, "no plugin of the runtime")
			}
			<-r.Registered
		case 2: // a GPU is sick, and well again
			w.gpus(func(s *contract.GPUNodeStatus) { s.GPUs[random.IntN(4)].Health = contract.Unhealthy })
			w.offers(map[string]int{memory: 45, contract.ResourceGPUCount: 3})
			w.gpus(func(*contract.GPUNodeStatus) {})
		case 3: // the kubelet loses the plugin
			before := w.kubelet.registered(memory)
			w.kubelet.drop(memory)
			require.Eventually(t, func() bool { return w.kubelet.registered(memory) > before }, 20*time.Second, time.Millisecond)
		}
		w.offers(offered)
	}
	var before soaktest.Use
	for turn := range 2 {
		for n := range *soakPods {
			pod(fmt.Sprintf("p-%d-%d", turn, n))
			if n%5 == 0 {
				others()
			}
			for len(w.events.Events) > 0 {
				<-w.events.Events
			}
		}
		left := func() int {
			entries, err := os.ReadDir(string(w.agent.CDI))
			require.NoError(t, err)
			return len(entries) + len(w.agent.present())
		}
		require.Eventually(t, func() bool { return left() == 0 }, time.Minute, 5*time.Millisecond)
		w.ExpireWatches()
		if now := soaktest.Measure(t); turn == 0 {
			before = now
		} else {
			now.HasNotGrown(t, before, soaktest.Use{Heap: 96, Goroutines: 6, Descriptors: 2}) // a connection to the API server
		}
	}
}
