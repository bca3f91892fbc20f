package integration

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// While victims leave a place, others use what the preemptor does not need of the node.
func TestOthersRunBesideAReservation(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "default"})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	startScheduler(t)
	s.submit(countedGang("low", 2, 2).lingering())
	s.awaitBound("low")
	s.submit(countedGang("big", 6, 1).of(high))
	s.awaitLeaving("low", 2)
	s.submit(countedGang("beside", 2, 1))
	s.awaitBound("beside")
	assert.Equal(t, 2, leaving(s.list(t.Context(), "low")), "the victims are still there")
	s.submit(countedGang("more", 1, 1))
	s.awaitReason("more", "Held back by the reservation of gang "+s.namespace+"/big")
	s.release("low")
	s.awaitBound("big")
	assert.Equal(t, 2, bound(s.list(t.Context(), "beside")))
}

// A gang that has to run near a pod which is no GPU job starts when that one runs, though nothing else happens.
func TestGangStartsBesideAPodThatComesLater(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	gang := topologyGang("gang", 2, 2)
	gang.change = func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: "cache"}},
		}}}}
	}
	s.submit(gang)
	s.awaitReason("gang", "with a pod that must be near")
	s.submit(job{name: "cache", workers: 1}.onNode(s.nodes[1]))
	for _, pod := range s.awaitBound("gang") {
		assert.Equal(t, s.nodes[1], pod.Spec.NodeName)
	}
}

// countedGang is a gang whose GPUs the nodes' device plugins pick.
func countedGang(name string, workers, gpus int) job {
	j := topologyGang(name, workers, gpus)
	j.resource = contract.ResourceDefaultGPU
	return j
}

// onNode makes the pods of a job ones that nobody schedules.
func (j job) onNode(node string) job {
	change := j.change
	j.change = func(p *corev1.Pod) {
		if change != nil {
			change(p)
		}
		p.Spec.NodeName, p.Spec.NodeSelector = node, nil
	}
	return j
}

// A pod that shares a GPU of which nobody knows which takes its part of each GPU, and no more.
func TestSharedPodOfNobodyTakesItsPart(t *testing.T) {
	s := newTestCluster(t, sharedNode("binpack"))
	s.submit(sharedJob("foreign", 1, 4, 0).onNode(s.nodes[0]))
	startScheduler(t)
	s.submit(sharedJob("rest", 8, 11, 0))
	s.awaitBound("rest")
	s.submit(sharedJob("small", 1, 1, 0))
	s.awaitReason("small", "no GPU with enough memory or cores left")
	assert.Equal(t, int64(8*11+4), s.reservations(s.nodes[0]).gib)
}

// What pods have that other schedulers bound, or nobody, counts for the planner and for people.
func TestPodsOfOthersCount(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "default"})
	s.submit(job{name: "named", workers: 1, gpus: 3, resource: contract.ResourceDefaultGPU}.onNode(s.nodes[0]))
	other := s.pods(job{name: "other", workers: 1, gpus: 2, resource: contract.ResourceDefaultGPU})[0]
	other.Spec.SchedulerName = "another"
	s.create(other)
	require.NoError(t, api().CoreV1().Pods(s.namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: other.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: s.nodes[0]},
	}, metav1.CreateOptions{}))
	startScheduler(t)
	s.submit(countedGang("much", 12, 1))
	text := s.awaitReason("much", "11 of 12 members fit")
	assert.NotContains(t, text, "Held back")
	assert.Equal(t, held{gpus: 5}, s.reservations(s.nodes[0]))
	s.remove("much")
	s.submit(countedGang("all", 11, 1))
	s.awaitBound("all")
	s.await("both nodes to be full in the counts", func(context.Context) (bool, string) {
		return s.reservations(s.nodes[0]) == held{gpus: 8} && s.reservations(s.nodes[1]) == held{gpus: 8}, ""
	})
}

// held is what pods hold of a node, as people are told.
type held struct {
	gpus int
	gib  int64
}

func (s *testCluster) reservations(node string) (sum held) {
	s.t.Helper()
	snapshot, err := clusterlist.Snapshot(s.t.Context(), cluster.client)
	require.NoError(s.t, err)
	for _, pool := range explain.GPUs(snapshot).Pools {
		for _, n := range pool.Nodes {
			for _, gpu := range n.GPUs {
				for _, hold := range gpu.Holders {
					if n.Name == node && hold.MemoryGiB == 0 {
						sum.gpus++
					}
					if n.Name == node {
						sum.gib += hold.MemoryGiB
					}
				}
			}
		}
	}
	return sum
}
