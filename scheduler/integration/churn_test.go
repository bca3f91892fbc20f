package integration

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

var (
	churnSeed  = flag.Uint64("churn.seed", 1, "seed of the churn test")
	churnSteps = flag.Int("churn.steps", 60, "number of changes in the churn test")
)

// What is written of gangs that wait does not grow with what happens in the cluster: jobs
// come and go, nodes are cordoned, and every change changes the numbers.
func TestChurnIsNotWrittenOut(t *testing.T) {
	s := newTestCluster(t, machine{count: 3, mode: "topology"})
	writes := s.watchTexts()
	startScheduler(t)
	s.submit(topologyGang("first", 1, 8))
	s.awaitBound("first")
	s.createPodGroup("group", 4)
	waiting := []job{
		{name: "group", workers: 4, gpus: 8, resource: contract.ResourceTopologyGPU, labels: map[string]string{contract.PodGroupLabel: "group"}},
		topologyGang("labels", 5, 8),
		topologyGang("elastic", 24, 8),
	}
	for _, gang := range waiting {
		s.submit(gang)
		s.awaitReason(gang.name, "members fit")
	}

	random := rand.New(rand.NewPCG(*churnSeed, 0))
	var running []string
	cordoned := ""
	for i := range *churnSteps {
		switch n := random.IntN(5); {
		case n == 0 && cordoned != "":
			s.cordon(cordoned, false)
			cordoned = ""
		case n == 0:
			cordoned = s.nodes[random.IntN(len(s.nodes))]
			s.cordon(cordoned, true)
		case n < 3 && len(running) > 0:
			k := random.IntN(len(running))
			s.remove(running[k])
			running = slices.Delete(running, k, k+1)
		case len(running) < 3:
			name := fmt.Sprint("job-", i)
			s.submit(topologyGang(name, 1, 1+random.IntN(2)))
			s.awaitBound(name)
			running = append(running, name)
		}
	}
	texts, since := writes()
	counted := map[string]int{}
	for name, said := range texts {
		counted[name] = len(said)
	}
	// Five causes at once, then what changes in 30 seconds; each pod is made and told once besides.
	most := 5 + 2*int(since/(30*time.Second)+1)
	events, err := api().EventsV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	notes := map[string]int{}
	for _, event := range events.Items {
		notes[event.Regarding.Name]++
		if event.Series != nil {
			notes[event.Regarding.Name] += int(event.Series.Count) - 1
		}
	}
	for _, gang := range waiting {
		for i, pod := range s.list(t.Context(), gang.name) {
			assert.LessOrEqual(t, counted[pod.Name], most, "%s said: %q", pod.Name, texts[pod.Name])
			assert.NotZero(t, notes[pod.Name], "kubectl describe of %s says why it waits", pod.Name)
			assert.LessOrEqual(t, notes[pod.Name], most, pod.Name)
			if i > 0 {
				assert.LessOrEqual(t, notes[pod.Name], 1, pod.Name)
			}
		}
		assert.LessOrEqual(t, notes[gang.name], most, gang.name)
	}
	t.Logf("seed %d, %d changes in %s: writes of pods %v, events %v", *churnSeed, *churnSteps, since.Round(time.Second), busiest(counted), busiest(notes))
}

// watchTexts notes what each pod of the test says of its node each time that it changes, until the returned
// function is called, which also says for how long that was.
func (s *testCluster) watchTexts() func() (map[string][]string, time.Duration) {
	s.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(api(), 0, informers.WithNamespace(s.namespace))
	informer := factory.Core().V1().Pods().Informer()
	changed := make(chan *corev1.Pod, 10000)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if before.(*corev1.Pod).ResourceVersion != after.(*corev1.Pod).ResourceVersion {
			changed <- after.(*corev1.Pod)
		}
	}})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	begin := time.Now()
	return func() (map[string][]string, time.Duration) {
		since := time.Since(begin)
		cancel()
		factory.Shutdown()
		close(changed)
		all := map[string][]string{}
		for pod := range changed {
			text := ""
			if _, said := apipod.GetPodCondition(&pod.Status, corev1.PodScheduled); said != nil {
				text = said.Message
			}
			all[pod.Name] = append(all[pod.Name], text)
		}
		return all, since
	}
}

// cordon closes a node for pods, or opens it.
func (s *testCluster) cordon(node string, closed bool) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"spec": {"unschedulable": %v}}`, closed)
	_, err := api().CoreV1().Nodes().Patch(s.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// busiest are the three names with the highest counts.
func busiest(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return counts[b] - counts[a] })
	var out []string
	for _, name := range names[:min(3, len(names))] {
		out = append(out, fmt.Sprint(name, " ", counts[name]))
	}
	return strings.Join(out, ", ")
}
