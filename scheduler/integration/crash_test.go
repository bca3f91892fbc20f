package integration

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKilledWhileBinding kills the scheduler with SIGKILL while it binds a gang of
// eight, and makes other gangs want the same GPUs before it starts again. Every gang
// ends all running or all pending, and no GPU is given twice.
func TestKilledWhileBinding(t *testing.T) {
	const rounds = 20
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	for round := range rounds {
		victim := fmt.Sprintf("victim-%d", round)
		some := 1 + round%7
		scheduler := startStuckScheduler(t, some, bindsPod)
		s.submit(topologyGang(victim, 8, 1))
		s.awaitSome(victim, some)
		scheduler.End(syscall.SIGKILL)
		require.Equal(t, some, bound(s.list(t.Context(), victim)))
		s.requireNoSharedGPUs()

		rivals := []string{fmt.Sprintf("rival-%d-a", round), fmt.Sprintf("rival-%d-b", round)}
		for _, rival := range rivals {
			s.submit(topologyGang(rival, 8, 1))
		}
		scheduler = startScheduler(t)
		s.awaitBound(victim)
		s.await("one rival to run and the other to wait", func(ctx context.Context) (bool, string) {
			a, b := bound(s.list(ctx, rivals[0])), bound(s.list(ctx, rivals[1]))
			return a+b == 8 && (a == 0 || b == 0), fmt.Sprintf("%d and %d members bound", a, b)
		})
		s.requireNoSharedGPUs()
		for _, name := range append(rivals, victim) {
			s.requireWholeOnOneNode(name)
		}
		scheduler.End(syscall.SIGTERM)
		s.clear()
	}
}

// awaitSome waits until at least n pods of a job are bound.
func (s *testCluster) awaitSome(name string, n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d pods of %s to be bound", n, name), func(ctx context.Context) (bool, string) {
		have := bound(s.list(ctx, name))
		return have >= n, fmt.Sprint(have)
	})
}

// requireWholeOnOneNode checks the records of a gang that is bound: one node, one
// visible set, and GPUs that make it up.
func (s *testCluster) requireWholeOnOneNode(name string) {
	s.t.Helper()
	pods := s.list(s.t.Context(), name)
	if bound(pods) == 0 {
		return
	}
	require.Equal(s.t, len(pods), bound(pods))
	var gpus []int
	for _, pod := range pods {
		record := s.allocation(pod)
		require.Equal(s.t, pods[0].Spec.NodeName, record.Node)
		gpus = append(gpus, record.GPUs...)
	}
	require.ElementsMatch(s.t, []int{0, 1, 2, 3, 4, 5, 6, 7}, gpus)
}

// clear deletes all pods of the test and waits until they are gone.
func (s *testCluster) clear() {
	s.t.Helper()
	now := int64(0)
	require.NoError(s.t, api().CoreV1().Pods(s.namespace).DeleteCollection(s.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
	s.await("all pods to be gone", func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		return len(list.Items) == 0, fmt.Sprint(len(list.Items))
	})
}

// TestPartialGangIsEvictedWhenTheRestIsLost kills the scheduler while it binds a gang and takes
// away the GPUs that the rest would need: the gang as a whole is pending then.
func TestPartialGangIsEvictedWhenTheRestIsLost(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	scheduler := startStuckScheduler(t, 1, bindsPod)
	gang := topologyGang("cut", 2, 8)
	s.submit(gang)
	s.awaitSome("cut", 1)
	scheduler.End(syscall.SIGKILL)
	pods := s.list(t.Context(), "cut")
	require.Equal(t, 1, bound(pods))
	for _, node := range s.nodes {
		if node != pods[0].Spec.NodeName && node != pods[1].Spec.NodeName {
			require.NoError(t, api().CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
		}
	}

	startScheduler(t)
	s.await("the bound member to be deleted", func(ctx context.Context) (bool, string) {
		left := s.list(ctx, "cut")
		return bound(left) == 0 && len(left) == 1, fmt.Sprintf("%d pods, %d bound", len(left), bound(left))
	})
	// The job recreates it.
	for _, pod := range s.pods(gang) {
		if _, err := api().CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil {
			s.create(pod)
		}
	}
	s.awaitReason("cut", "1 of 2")
	s.addNode(machine{mode: "topology"})
	s.awaitBound("cut")
}
