package deviceplugin

import (
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/mps"
)

// A container gets no GPU that another pod of the node has, whatever its record says and the kubelet chooses.
func TestGPUsOfOtherPods(t *testing.T) {
	const nvidia, memory, core = contract.ResourceDefaultGPU, contract.ResourceGPUMemory, contract.ResourceCorePercent
	part := func(index int, memoryGiB, corePercent int64) *contract.Allocation {
		return &contract.Allocation{Shares: []contract.GPUShare{{GPU: index, MemoryGiB: memoryGiB, CorePercent: corePercent}}}
	}
	gave := func(way string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{contract.ConfirmedAnnotation: `{"version":1,"node":"` + nodeName + `","containers":{"main":{"way":"` + way + `","gpus":["GPU-3"]}}}`}
		}
	}
	for name, test := range map[string]struct {
		mode   string
		other  *contract.Allocation
		change func(other *corev1.Pod)
		record *contract.Allocation
		asks   amounts
		want   string
	}{
		"by its record":              {mode: "topology", other: recordOf(1), record: recordOf(1, 2), asks: amounts{gpu: 2}, want: "GPU 1 GPU-1 is of pod default/other, too, which has not ended"},
		"of one that has ended":      {mode: "topology", other: recordOf(1), change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, record: recordOf(1), asks: amounts{gpu: 1}},
		"of another node":            {mode: "topology", other: &contract.Allocation{Node: "other", GPUs: []int{1}}, record: recordOf(1), asks: amounts{gpu: 1}},
		"chosen by the kubelet":      {mode: "default", other: recordOf(3), asks: amounts{nvidia: 1}, want: "GPU 3 GPU-3 is of pod default/other"},
		"given without a record":     {mode: "default", change: gave("CDI"), asks: amounts{nvidia: 1}, want: "GPU 3 GPU-3 is of pod default/other"},
		"given, and not recorded":    {mode: "topology", change: gave("NRI"), record: recordOf(3), asks: amounts{gpu: 1}, want: "GPU 3 GPU-3 is of pod default/other"},
		"a part of a whole GPU":      {mode: "share", other: recordOf(1), record: part(1, 4, 0), asks: amounts{memory: 4}, want: "GPU 1 GPU-1 is of pod default/other"},
		"a GPU with a part":          {mode: "topology", other: part(1, 4, 0), record: recordOf(1), asks: amounts{gpu: 1}, want: "GPU 1 GPU-1 is of pod default/other"},
		"parts that fit":             {mode: "core_mem", other: part(1, 8, 50), record: part(1, 7, 50), asks: amounts{memory: 7, core: 50}},
		"more memory than a GPU has": {mode: "core_mem", other: part(1, 8, 50), record: part(1, 8, 50), asks: amounts{memory: 8, core: 50}, want: "GPU 1 GPU-1 is of pod default/other"},
		"more cores than a GPU has":  {mode: "core_mem", other: part(1, 8, 55), record: part(1, 7, 50), asks: amounts{memory: 7, core: 50}, want: "GPU 1 GPU-1 is of pod default/other"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.mode)
			w.kubelet.start()
			w.run()
			require.Eventually(t, func() bool { return len(w.kubelet.allocatable()) > 0 }, 20*time.Second, time.Millisecond)
			other := w.pod("other", test.other, container("main", nil))
			if test.change != nil {
				test.change(other)
				w.put(podKind, "other", other)
			}
			p := w.pod("p", test.record, container("main", test.asks))
			require.Eventually(t, func() bool { return len(w.agent.pods.list()) == 2 }, 20*time.Second, time.Millisecond)
			for resource, n := range test.asks {
				require.Eventually(t, func() bool { return w.kubelet.allocatable()[resource] >= int(n) }, 20*time.Second, time.Millisecond)
				g := w.kubelet.admit(p, "main", resource, int(n))
				if test.want == "" {
					require.NoError(t, w.kubelet.prestart(g))
					continue
				}
				require.ErrorContains(t, w.kubelet.prestart(g), test.want)
				assert.Nil(t, w.spec(g))
			}
		})
	}
}

// A GPU has less memory by now than a record says, as when ECC is switched on, or a smaller GPU has come to its place.
func TestAGPUWithLessMemoryThanARecordHas(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{memory: 60, contract.ResourceGPUCount: 4})
	g := w.kubelet.admit(w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 15}}}, container("main", amounts{memory: 15})), "main", memory, 15)
	require.NoError(t, w.kubelet.prestart(g))
	w.gpus(func(s *contract.GPUNodeStatus) { s.GPUs[1].MemoryMiB = 14 << 10 })
	w.offers(map[string]int{memory: 59, contract.ResourceGPUCount: 4})
	require.ErrorContains(t, w.kubelet.prestart(g), "the pod has 15 GiB of GPU 1 GPU-1, which has only 14 GiB by now: make the pod again")
}

// cut is access to the API server that breaks for requests about pods, watches only or all of them.
type cut struct {
	http.RoundTripper
	watches, all *atomic.Bool
	// limits receives for how long each watch is asked for.
	limits chan<- string
}

func (c cut) RoundTrip(r *http.Request) (*http.Response, error) {
	if query := r.URL.Query(); c.limits != nil && strings.Contains(r.URL.Path, "/pods") && query.Has("watch") {
		c.limits <- query.Get("timeoutSeconds")
	}
	if strings.Contains(r.URL.Path, "/pods") && (c.all.Load() || c.watches.Load() && !strings.Contains(r.URL.Path, "/pods/")) {
		return nil, errors.New("no route to host")
	}
	return c.RoundTripper.RoundTrip(r)
}

// breakable is a world of which the access to the API server may break.
func breakable(t *testing.T, mode string, offers map[string]int, change ...func(*Agent)) (w *world, watches, all *atomic.Bool) {
	t.Helper()
	w, watches, all = newWorld(t, mode), new(atomic.Bool), new(atomic.Bool)
	config := w.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return cut{RoundTripper: next, watches: watches, all: all}
	})
	client, err := kube.New(config)
	require.NoError(t, err)
	w.client = client
	w.kubelet.start()
	w.run(change...)
	w.offers(offers)
	return w, watches, all
}

// A watch that is asked for seldom costs the API server little.
func TestTheWatchOfPodsLastsAnHour(t *testing.T) {
	w, limits := newWorld(t, "topology"), make(chan string, 10)
	config := w.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return cut{RoundTripper: next, watches: new(atomic.Bool), all: new(atomic.Bool), limits: limits}
	})
	client, err := kube.New(config)
	require.NoError(t, err)
	w.client = client
	w.run()
	select {
	case limit := <-limits:
		assert.Equal(t, "3600", limit)
	case <-time.After(20 * time.Second):
		require.Fail(t, "no watch of pods")
	}
}

// A record that was made by hand takes nothing from the pod that has the GPU, and is good when that one has gone, however late the watch
// tells of it.
func TestARecordThatIsMadeLater(t *testing.T) {
	w, watches, _ := breakable(t, "topology", map[string]int{gpu: 4})
	first := w.kubelet.admit(w.pod("first", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	require.NoError(t, w.kubelet.prestart(first))
	second := w.kubelet.admit(w.pod("second", recordOf(1), container("main", amounts{gpu: 1})), "main", gpu, 1)
	require.Eventually(t, func() bool { return len(w.agent.pods.list()) == 2 }, 20*time.Second, time.Millisecond)
	require.ErrorContains(t, w.kubelet.prestart(second), "is of pod default/first")
	require.NoError(t, w.kubelet.prestart(first), "its container can start again")
	watches.Store(true)
	w.ExpireWatches()
	w.kubelet.forget("first")
	w.Remove(podKind, "default", "first")
	require.NoError(t, w.kubelet.prestart(second))
	assert.Equal(t, told("GPU-1"), w.spec(second))
}

// An agent that cannot reach the API server, where its kubelet can, knows only the predecessor of a pod that was made again: a
// worker of a gang, say, whose GPUs another pod may have by now.
func TestPodMadeAgainWhileTheAgentIsCutOff(t *testing.T) {
	w, _, all := breakable(t, "topology", map[string]int{gpu: 4})
	g := w.kubelet.admit(w.pod("worker-0", recordOf(0), container("main", amounts{gpu: 1})), "main", gpu, 1)
	w.kubelet.allocate(g)
	require.NoError(t, w.kubelet.prestart(g))
	require.Eventually(t, func() bool { return len(w.agent.pods.list()) == 1 }, 20*time.Second, time.Millisecond)
	all.Store(true)
	w.ExpireWatches()
	require.NoError(t, w.kubelet.prestart(g), "its container can start again")
	w.Remove(podKind, "default", "worker-0")
	next := w.pod("worker-0", recordOf(2), container("main", amounts{gpu: 1}))
	next.UID = "uid-next"
	w.put(podKind, "worker-0", next)
	w.kubelet.allocate(g)
	require.ErrorContains(t, w.kubelet.prestart(g), "no route to host")
	assert.Nil(t, w.spec(g), "nobody knows the record of the new pod")
}

// A pod that was made again while the watch was broken is shown as a change of the one of before: that one is gone, too, and nothing
// of it stays. What whoever made the pod says that it was given does not count.
func TestAPodThatEndsWhileTheWatchIsBroken(t *testing.T) {
	w, watches, _ := breakable(t, "topology", map[string]int{gpu: 4})
	p := w.pod("p", recordOf(0), container("main", amounts{gpu: 1}))
	p.Annotations[contract.ConfirmedAnnotation] = `{"version":1,"node":"` + nodeName + `","containers":{"ghost":{"way":"CDI","gpus":["GPU-0"]}}}`
	w.put(podKind, "p", p)
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", gpu, 1)))
	assert.Equal(t, []string{"main"}, slices.Collect(maps.Keys(w.agent.confirmer.of(p).Containers)))
	require.Eventually(t, func() bool { return len(w.agent.pods.list()) == 1 }, 20*time.Second, time.Millisecond)
	watches.Store(true)
	w.ExpireWatches()
	w.Remove(podKind, "default", "p")
	next := w.pod("p", recordOf(2), container("main", amounts{gpu: 1}))
	next.UID = "uid-next"
	w.put(podKind, "p", next)
	watches.Store(false)
	require.Eventually(t, func() bool { list := w.agent.pods.list(); return len(list) == 1 && list[0].UID == "uid-next" }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(string(w.agent.CDI), "*uid-p.json"))
		return err == nil && len(left) == 0
	}, 20*time.Second, time.Millisecond)
}

// renumber deletes the GPUNode when GPU 0 has gone for good, and has the agent publish the others by the numbers that the driver has now.
func (w *world) renumber() {
	w.t.Helper()
	w.Remove(gpuNodeKind, "", nodeName)
	w.gpus(func(s *contract.GPUNodeStatus) {
		s.GPUs = s.GPUs[1:]
		for i := range s.GPUs {
			s.GPUs[i].Index = i
		}
	})
	require.Eventually(w.t, func() bool { status, _ := w.agent.hardware(); return len(status.GPUs) == 3 }, 20*time.Second, time.Millisecond)
}

// The records of pods that run name GPUs by the numbers of before. No container gets what another pod's was given.
func TestGPUNodeThatIsMadeAgainWhilePodsRun(t *testing.T) {
	w := newWorld(t, "topology")
	w.kubelet.start()
	w.run()
	w.offers(map[string]int{gpu: 4})
	p := w.pod("p", recordOf(1, 2), container("one", amounts{gpu: 1}), container("two", amounts{gpu: 1}))
	one, two := w.kubelet.admit(p, "one", gpu, 1), w.kubelet.admit(p, "two", gpu, 1)
	require.NoError(t, w.kubelet.prestart(one))
	require.NoError(t, w.kubelet.prestart(two))
	w.renumber()
	w.offers(map[string]int{gpu: 3})
	require.ErrorContains(t, w.kubelet.prestart(one), "the pod was given GPU-1, and its allocation record names that by an index which another GPU has by now")
	next := w.pod("next", recordOf(0), container("main", amounts{gpu: 1}))
	require.ErrorContains(t, w.kubelet.prestart(w.kubelet.admit(next, "main", gpu, 1)), "GPU 0 GPU-1 is of pod default/p, too")
}

// A GPU of which a container was given a part stays in use, or its daemon would be told to quit, with the programs that run there.
func TestPartsInUseWhenGPUsAreRenumbered(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	w.kubelet.start()
	e := &enforcer{changed: make(chan struct{}, 1)}
	w.run(func(a *Agent) { a.Enforcer = e })
	w.offers(map[string]int{memory: 60, contract.ResourceGPUCount: 4})
	p := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 4}}}, container("main", amounts{memory: 4}))
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", memory, 4)))
	w.renumber()
	w.offers(map[string]int{memory: 45, contract.ResourceGPUCount: 3})
	w.pod("q", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 2, MemoryGiB: 1}}}, container("main", amounts{memory: 1}))
	want := []mps.Share{{UUID: "GPU-1", MemoryMiB: 4096}, {UUID: "GPU-3", MemoryMiB: 1024}}
	require.Eventually(t, func() bool {
		now, _ := e.told()
		now = slices.SortedFunc(slices.Values(now), func(a, b mps.Share) int { return strings.Compare(a.UUID, b.UUID) })
		return slices.Equal(want, now)
	}, 10*time.Second, 5*time.Millisecond)
}

// A pod that the watch does not show, however long it takes, has its part in use until it is gone.
func TestPartsOfAPodThatTheWatchDoesNotShow(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	e := &enforcer{changed: make(chan struct{}, 1)}
	w, watches, _ := breakable(t, "share", map[string]int{memory: 60, contract.ResourceGPUCount: 4}, func(a *Agent) { a.Enforcer = e })
	watches.Store(true)
	w.ExpireWatches()
	p := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 4}}}, container("main", amounts{memory: 4}))
	require.NoError(t, w.kubelet.prestart(w.kubelet.admit(p, "main", memory, 4)))
	w.agent.sharing.mu.Lock()
	require.Contains(t, w.agent.sharing.starting, p.UID, "the watch does not show it")
	w.agent.sharing.starting[p.UID] = starting{p, time.Now().Add(-seen)}
	w.agent.sharing.mu.Unlock()
	for range 3 {
		e.changed <- struct{}{} // two of them are taken, so that the agent has gone round once
	}
	now, _ := e.told()
	assert.Equal(t, []mps.Share{{UUID: "GPU-1", MemoryMiB: 4096}}, now)
	w.Remove(podKind, "default", "p")
	e.changed <- struct{}{}
	require.Eventually(t, func() bool { return len(w.agent.present()) == 1 }, 20*time.Second, time.Millisecond, "its containers may still run")
	w.agent.sharing.mu.Lock()
	defer w.agent.sharing.mu.Unlock()
	assert.Empty(t, w.agent.sharing.starting)
}

// A container does not start between what the enforcer is told of, and its telling: it would be told that the part is not in use.
func TestAPodThatBeginsWhileTheEnforcerIsTold(t *testing.T) {
	const memory = contract.ResourceGPUMemory
	w := newWorld(t, "share")
	w.kubelet.start()
	e := &enforcer{hangs: make(chan struct{})}
	w.run(func(a *Agent) { a.Enforcer = e })
	goOn := sync.OnceFunc(func() { close(e.hangs) })
	defer goOn()
	p := w.pod("p", &contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 1}}}, container("main", amounts{memory: 1}))
	g := w.kubelet.admitted(p, "main", memory, "gpuplan-1-0")
	given := make(chan error, 1)
	told := func(times int64) {
		require.Eventually(t, func() bool { return e.telling.Load() == times }, 20*time.Second, time.Millisecond)
	}
	told(1)
	e.hangs <- struct{}{} // the next time it hangs
	wake(w.agent.moved)
	told(2)
	go func() { given <- w.agent.start(t.Context(), memory, g.ids) }()
	require.Never(t, func() bool { return e.edited.Load() > 0 }, 300*time.Millisecond, time.Millisecond)
	goOn()
	require.NoError(t, <-given)
}
