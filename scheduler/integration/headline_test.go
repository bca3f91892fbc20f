package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

var (
	headlineSeed = flag.Uint64("headline.seed", 1, "seed of the first cluster in the headline test")
	headlineRuns = flag.Int("headline.clusters", 4, "number of clusters in the headline test")
)

// gangsPerHeadline is how many gangs each cluster of the headline test gets.
const gangsPerHeadline = 6

// The headline of an answer agrees with what the scheduler does: a gang that it has looked at
// and left out never "fits", whatever refuses it.
func TestHeadlineAgreesWithTheScheduler(t *testing.T) {
	connect(t)
	startScheduler(t)
	said := map[explain.State]int{}
	for i := range *headlineRuns {
		seed := *headlineSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := newTestCluster(t, machine{count: 1 + random.IntN(2), mode: "topology"})
			for k := range gangsPerHeadline {
				gang, what := s.hindered(random, fmt.Sprint("gang-", k))
				s.submit(gang)
				state := s.requireHeadline(gang.name, what)
				said[state]++
			}
		})
	}
	t.Logf("seeds from %d, %d clusters: %v", *headlineSeed, *headlineRuns, said)
	assert.NotZero(t, said[explain.Running])
	assert.NotZero(t, said[explain.Waiting])
	assert.NotZero(t, said[explain.Rejected])
}

// hindered is a gang that something may keep from starting.
func (s *testCluster) hindered(random *rand.Rand, name string) (gang job, what string) {
	gang = topologyGang(name, 1+random.IntN(3), 1+random.IntN(3))
	gang.labels["mark"] = s.namespace
	node := s.nodes[random.IntN(len(s.nodes))]
	hindrances := []struct {
		what   string
		change func(*corev1.Pod)
	}{
		{"nothing", func(*corev1.Pod) {}},
		{"a gate", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}} }},
		{"another scheduler", func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }},
		{"a claim that does not exist", gang.with("missing").change},
		{"a claim without a volume", gang.with("unbound").change},
		{"a volume on one node", gang.with("local-" + name).change},
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
	chosen := hindrances[random.IntN(len(hindrances))]
	switch chosen.what {
	case "a claim without a volume":
		s.unboundVolumeClaim("unbound")
	case "a volume on one node":
		s.volumeOn("local-"+name, node)
	}
	gang.change = chosen.change
	return gang, chosen.what
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

// requireHeadline waits until the answer about a gang is final, and checks that it tells
// whether the gang runs.
func (s *testCluster) requireHeadline(name, what string) (state explain.State) {
	s.t.Helper()
	ask := func(c require.TestingT) explain.Answer {
		snapshot, err := clusterlist.Snapshot(s.t.Context(), cluster.client)
		require.NoError(c, err)
		around, err := explain.ReadAround(s.t.Context(), cluster.client, s.namespace)
		require.NoError(c, err)
		require.NoError(c, around.FindScheduler(s.t.Context(), cluster.client))
		answers := explain.Find(snapshot, around, s.namespace, name)
		require.Len(c, answers, 1, what)
		return answers[0]
	}
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.NotContains(c, []explain.State{explain.Fits, explain.Incomplete}, ask(c).State, what)
	}, settled, 100*time.Millisecond, "%s: %s", name, what)
	// The scheduler has looked at everything before it binds a pod that comes later.
	probe := job{name: name + "-probe", workers: 1}
	s.submit(probe)
	s.awaitBound(probe.name)
	s.await("gang "+name+" to run or wait as a whole", func(ctx context.Context) (bool, string) {
		n := bound(s.list(ctx, name))
		return n == 0 || n == len(s.list(ctx, name)), fmt.Sprint(n)
	})
	runs := bound(s.list(s.t.Context(), name)) > 0
	answer := ask(s.t)
	assert.Equal(s.t, runs, answer.State == explain.Running, "%s with %s: %+v", name, what, answer)
	assert.NotEqual(s.t, explain.Fits, answer.State, "%s with %s", name, what)
	return answer.State
}
