package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

var (
	headlineSeed = flag.Uint64("headline.seed", 1, "seed of the first cluster in the headline test")
	headlineRuns = flag.Int("headline.clusters", 4, "number of clusters in the headline test")
)

// gangsPerHeadline is how many gangs each cluster of the headline test gets, and one more that needs others to leave, or waits
// for a queue.
const gangsPerHeadline = 6

// The headline of an answer agrees with what the scheduler does: a gang that it has looked at
// and left out never "fits", whatever refuses it.
func TestHeadlineAgreesWithTheScheduler(t *testing.T) {
	connect(t)
	startScheduler(t)
	startQueue(t)
	said := map[explain.State]int{}
	for i := range *headlineRuns {
		seed := *headlineSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := &headlines{testCluster: newTestCluster(t, machine{count: 1 + random.IntN(2), mode: "topology"}), Rand: random}
			s.urgent = s.priority("urgent", 100, corev1.PreemptLowerPriority)
			if random.IntN(2) == 0 {
				s.leaf = s.namespace
				s.setTree(map[string]any{"name": "root", "min": gpus(64), "max": gpus(64), "children": []any{
					map[string]any{"name": s.leaf, "max": gpus(64)},
					map[string]any{"name": s.leaf + "-line", "max": map[string]any{contract.MaxJobsKey: "1"}},
				}})
			}
			t.Cleanup(func() { s.releaseAll(context.Background()) })
			for k := range gangsPerHeadline {
				said[s.try(fmt.Sprint("gang-", k), s.hindered)]++
			}
			said[s.try("last", s.beside(i))]++
		})
	}
	t.Logf("seeds from %d, %d clusters: %v", *headlineSeed, *headlineRuns, said)
	for _, state := range []explain.State{explain.Running, explain.Waiting, explain.Rejected, explain.Preempting, explain.Queued, explain.Suspended} {
		assert.NotZero(t, said[state], state)
	}
}

// headlines is a cluster of the headline test.
type headlines struct {
	*testCluster
	*rand.Rand
	// leaf is that of its gangs, "" where there is no quota tree, urgent a PriorityClass.
	leaf, urgent string
}

// hindrance is what may keep a gang from starting.
type hindrance struct {
	what string
	gang job
	// submit makes the gang, nil for its pods as they are.
	submit func()
	// settled reports whether an answer says all that it will, nil where that is always so.
	settled func(explain.Answer) bool
	// after takes the hindrance away, nil for nothing. The gang has to run then where it says so.
	after func() (runs bool)
}

// try submits a gang that something may hinder, and returns what the answer about it is.
func (s *headlines) try(name string, hinder func(name string) hindrance) explain.State {
	s.t.Helper()
	h := hinder(name)
	if h.submit == nil {
		h.submit = func() { s.submit(h.gang) }
	}
	h.submit()
	state := s.requireHeadline(name, h)
	if h.after == nil {
		return state
	}
	if h.after() {
		s.awaitBound(name)
		assert.Equal(s.t, explain.Running, s.ask(s.t, name, h.what).State, h.what)
	}
	now, those := int64(0), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name} // they want everything
	require.NoError(s.t, api().CoreV1().Pods(s.namespace).DeleteCollection(s.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, those))
	s.await("gang "+name+" to be gone", func(ctx context.Context) (bool, string) {
		n := len(s.list(ctx, name))
		return n == 0, fmt.Sprint(n)
	})
	return state
}

// releaseAll lets all pods go that have been deleted.
func (s *headlines) releaseAll(ctx context.Context) {
	pods := api().CoreV1().Pods(s.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, pod := range list.Items {
		_, err := pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
		}
	}
}

// small is a gang that may have room, and whose pods take their time when they are deleted.
func (s *headlines) small(name string) job {
	gang := topologyGang(name, 1+s.IntN(3), 1+s.IntN(3)).lingering()
	gang.labels["mark"] = s.namespace
	return s.inLeaf(gang)
}

func (s *headlines) inLeaf(gang job) job {
	if s.leaf == "" {
		return gang
	}
	return gang.in(s.leaf)
}

// whole is a gang that wants the whole cluster, before others.
func (s *headlines) whole(name string) job {
	return s.inLeaf(topologyGang(name, len(s.nodes), 8).of(s.urgent))
}

// beside is a hindrance that is not of the gang itself, another one for each number.
func (s *headlines) beside(number int) func(name string) hindrance {
	return func(name string) hindrance {
		switch number % 4 {
		case 0:
			return hindrance{what: "others that leave", gang: s.whole(name), after: func() bool {
				leaves := leaving(s.marked()) > 0
				s.releaseAll(s.t.Context())
				return leaves
			}}
		case 1:
			budget := budgetOf(s.namespace, name)
			budget.Spec.Selector.MatchLabels = map[string]string{"mark": s.namespace}
			budgets := api().PolicyV1().PodDisruptionBudgets(s.namespace)
			_, err := budgets.Create(s.t.Context(), budget, metav1.CreateOptions{})
			require.NoError(s.t, err)
			s.await("the budget to be counted", func(ctx context.Context) (bool, string) {
				now, err := budgets.Get(ctx, name, metav1.GetOptions{})
				require.NoError(s.t, err)
				return now.Status.ObservedGeneration > 0, "it is not yet"
			})
			before := leaving(s.marked())
			return hindrance{what: "others that a budget keeps", gang: s.whole(name), after: func() bool {
				assert.Equal(s.t, before, leaving(s.marked()), "a budget keeps them")
				require.NoError(s.t, budgets.Delete(s.t.Context(), name, metav1.DeleteOptions{}))
				return false
			}}
		case 2:
			return hindrance{what: "the job queue", settled: func(a explain.Answer) bool { return a.State == explain.Queued }, submit: func() {
				s.suspended(name+"-front", map[string]string{contract.QueueAnnotation: "true"})
				s.suspended(name, map[string]string{contract.QueueAnnotation: "true"})
			}}
		default:
			return hindrance{what: "a suspended job", submit: func() {
				s.suspended(name, map[string]string{contract.QueueAnnotation: "false"})
			}}
		}
	}
}

// marked are the pods of gangs that others may evict.
func (s *headlines) marked() []corev1.Pod {
	list, err := api().CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "mark=" + s.namespace})
	require.NoError(s.t, err)
	return list.Items
}

// suspended makes a suspended Job of a gang, in the leaf with few jobs.
func (s *headlines) suspended(name string, annotations map[string]string) {
	s.t.Helper()
	pod := s.pods(topologyGang(name, 2, 1))[0]
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if s.leaf != "" {
		pod.Labels[contract.QuotaLabel] = s.leaf + "-line"
	}
	suspend, two := true, int32(2)
	_, err := api().BatchV1().Jobs(s.namespace).Create(s.t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: batchv1.JobSpec{
			Suspend: &suspend, Parallelism: &two, Completions: &two,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// hindered is a gang that something may keep from starting.
func (s *headlines) hindered(name string) hindrance {
	if s.IntN(4) == 0 {
		return s.beside(s.IntN(4))(name)
	}
	gang := s.small(name)
	node := s.nodes[s.IntN(len(s.nodes))]
	hindrances := []struct {
		what   string
		change func(*corev1.Pod)
	}{
		{"nothing", func(*corev1.Pod) {}},
		{"a gate", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}} }},
		{"another scheduler", func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }},
		{"a claim that does not exist", topologyGang(name, 1, 1).with("missing").change},
		{"a claim without a volume", topologyGang(name, 1, 1).with("unbound").change},
		{"a volume on one node", topologyGang(name, 1, 1).with("local-" + name).change},
		{"a resource claim that does not exist", func(p *corev1.Pod) {
			device := "missing"
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &device}}
		}},
		{"pods that keep it away", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"mark": s.namespace}},
			}}}}
		}},
		{"spread over zones that do not exist", func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "example.com/rack", WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"mark": s.namespace}},
			}}
		}},
		{"too many GPUs", func(p *corev1.Pod) {
			list := p.Spec.Containers[0].Resources.Requests
			list[contract.ResourceTopologyGPU] = quantity(9)
			p.Spec.Containers[0].Resources.Limits = list
		}},
	}
	chosen := hindrances[s.IntN(len(hindrances))]
	switch chosen.what {
	case "a claim without a volume":
		s.unboundVolumeClaim("unbound")
	case "a volume on one node":
		s.volumeOn("local-"+name, node)
	}
	also := gang.change
	gang.change = func(p *corev1.Pod) {
		also(p)
		chosen.change(p)
	}
	return hindrance{what: chosen.what, gang: gang}
}

// unboundVolumeClaim makes a claim for which nobody makes a volume, if there is none yet.
func (s *testCluster) unboundVolumeClaim(name string) {
	s.t.Helper()
	class := ""
	_, err := api().CoreV1().PersistentVolumeClaims(s.namespace).Create(s.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity(1)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		require.ErrorContains(s.t, err, "already exists")
	}
}

// ask is the answer about a gang.
func (s *headlines) ask(t require.TestingT, name, what string) explain.Answer {
	snapshot, err := clusterlist.Snapshot(s.t.Context(), cluster.client)
	require.NoError(t, err)
	around, err := explain.ReadAround(s.t.Context(), cluster.client, s.namespace)
	require.NoError(t, err)
	require.NoError(t, around.FindScheduler(s.t.Context(), cluster.client))
	answers := explain.Find(snapshot, around, s.namespace, name)
	require.Len(t, answers, 1, what)
	return answers[0]
}

// requireHeadline waits until the answer about a gang is final, and checks that it tells
// whether the gang runs.
func (s *headlines) requireHeadline(name string, h hindrance) (state explain.State) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		answer := s.ask(c, name, h.what)
		assert.NotContains(c, []explain.State{explain.Fits, explain.Incomplete}, answer.State, h.what)
		assert.True(c, h.settled == nil || h.settled(answer), h.what)
	}, settled, 100*time.Millisecond, "%s: %s", name, h.what)
	// The scheduler has looked at everything before it binds a pod that comes later.
	probe := s.inLeaf(job{name: name + "-probe", workers: 1})
	s.submit(probe)
	s.awaitBound(probe.name)
	s.await("gang "+name+" to run or wait as a whole", func(ctx context.Context) (bool, string) {
		n := bound(s.list(ctx, name))
		return n == 0 || n == len(s.list(ctx, name)), fmt.Sprint(n)
	})
	runs := bound(s.list(s.t.Context(), name)) > 0
	answer := s.ask(s.t, name, h.what)
	assert.Equal(s.t, runs, answer.State == explain.Running, "%s with %s: %+v", name, h.what, answer)
	assert.NotEqual(s.t, explain.Fits, answer.State, "%s with %s", name, h.what)
	state = answer.State
	require.EventuallyWithT(s.t, func(c *assert.CollectT) { // what the scheduler has decided is written a moment later
		evicts := slices.ContainsFunc(s.marked(), func(p corev1.Pod) bool {
			preemptor, _ := preemptorOf(&p)
			return preemptor == name
		})
		answer = s.ask(c, name, h.what)
		assert.Equal(c, evicts, answer.State == explain.Preempting)
	}, settled, 100*time.Millisecond, "%s with %s: %+v", name, h.what, answer)
	s.t.Logf("%s with %s: %s", name, h.what, state)
	return state
}
