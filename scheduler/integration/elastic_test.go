package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// needing makes a gang run with fewer members than it has.
func (j job) needing(minimum int) job {
	change := j.change
	j.change = func(p *corev1.Pod) {
		if change != nil {
			change(p)
		}
		p.Labels[contract.LightGangLabel], p.Labels[contract.LightGangMinLabel] = j.name, fmt.Sprint(minimum)
	}
	return j
}

// awaitMembers waits until exactly n pods of a job are bound and stay.
func (s *testCluster) awaitMembers(name string, n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d pods of %s to be bound", n, name), func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, name)
		have := bound(pods) - leaving(pods)
		return have == n, fmt.Sprintf("%d of %d; %s", have, len(pods), reason(pods))
	})
}

// restore makes the pods of a job again that are gone, as its operator does, and returns how many.
func (s *testCluster) restore(j job) (made int) {
	s.t.Helper()
	there := map[string]bool{}
	for _, pod := range s.list(s.t.Context(), j.name) {
		there[pod.Name] = true
	}
	for _, pod := range s.pods(j) {
		if !there[pod.Name] {
			s.create(pod)
			made++
		}
	}
	return made
}

// Two elastic gangs of two leaves share the cluster by the minima of their leaves, whoever
// comes first, and neither takes anything back.
func TestElasticGangsShareByTheirMinima(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	s.setLeaves(16, lend{name: "left", min: 8, max: 16}, lend{name: "right", min: 8, max: 16})
	startScheduler(t)
	first := topologyGang("first", 16, 1).needing(2).in("left")
	s.submit(first)
	s.awaitBound("first")
	s.submit(topologyGang("second", 16, 1).needing(2).in("right"))
	s.awaitMembers("second", 8)
	s.awaitMembers("first", 8)
	require.Equal(t, 8, s.restore(first))
	s.await("the lost members to say why they wait", func(ctx context.Context) (bool, string) {
		text := reason(s.list(ctx, "first"))
		return strings.HasPrefix(text, fmt.Sprintf("gang %s/first runs with 8 members; there is no room for more.", s.namespace)), text
	})
	for _, name := range []string{"first", "second"} {
		pods := s.list(t.Context(), name)
		assert.Equal(t, 8, bound(pods), name)
		assert.Zero(t, leaving(pods), name)
	}
	s.requireNoSharedGPUs()
}

// A gang that has lost a member, and finds no place for its successor for too long, is evicted
// whole: its GPUs go to others, and it starts as a whole once there is room for all of it.
func TestStaleGangIsEvictedWhole(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	runScheduler(t, map[string]string{"staleAfter: 0s": "staleAfter: 1s"})
	stale := topologyGang("stale", 2, 8)
	s.submit(stale)
	lost := s.awaitBound("stale")[1]
	kept := s.list(t.Context(), "stale")[0]
	s.cordon(lost.Spec.NodeName, true)
	require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), lost.Name, metav1.DeleteOptions{}))
	s.awaitDeleted(lost)
	// Times of objects have whole seconds: what is made in the second of the binding may be as old.
	since := scheduledAt(kept)
	require.Eventually(t, func() bool { return time.Now().Unix() > since.Unix() }, settled, 10*time.Millisecond)
	require.Equal(t, 1, s.restore(stale))
	s.awaitDeleted(kept)
	require.Eventually(t, func() bool { return len(s.events(t.Context(), kept.Name, "GangStale")) > 0 }, settled, 10*time.Millisecond)

	s.submit(topologyGang("other", 1, 8))
	assert.Equal(t, kept.Spec.NodeName, s.awaitBound("other")[0].Spec.NodeName)
	require.Equal(t, 1, s.restore(stale))
	s.awaitReason("stale", "0 of 2 members fit")
	s.cordon(lost.Spec.NodeName, false)
	s.finish("other")
	s.awaitBound("stale")
	s.requireNoSharedGPUs()
}

// scheduledAt is when a pod was bound.
func scheduledAt(pod corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// awaitDeleted waits until a pod is gone, or another has its name.
func (s *testCluster) awaitDeleted(pod corev1.Pod) {
	s.t.Helper()
	s.await("pod "+pod.Name+" to be gone", func(ctx context.Context) (bool, string) {
		for _, other := range s.list(ctx, pod.Labels[contract.JobNameLabel]) {
			if other.UID == pod.UID {
				return false, reason([]corev1.Pod{other})
			}
		}
		return true, ""
	})
}

// A gang whose roles have minima of their own starts with as many of each as it needs, and loses
// none of them to others before it loses all.
func TestRolesHaveMinimaOfTheirOwn(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	startScheduler(t)
	s.submit(topologyGang("other", 1, 5))
	s.awaitBound("other")
	role := func(name string, workers, least int) job {
		j := topologyGang("roles", 8, 1).needing(3)
		j.workers = workers
		change := j.change
		j.change = func(p *corev1.Pod) {
			change(p)
			p.Name = "roles-" + name + "-" + p.Labels[contract.JobReplicaIndexLabel]
			p.Labels[contract.JobReplicaTypeLabel], p.Labels[contract.RoleMinLabel] = name, fmt.Sprint(least)
		}
		return j
	}
	running := func() map[string]int {
		count := map[string]int{}
		for _, pod := range s.list(t.Context(), "roles") {
			if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
				count[pod.Labels[contract.JobReplicaTypeLabel]]++
			}
		}
		return count
	}
	s.submit(role("master", 4, 1))
	s.submit(role("worker", 4, 2))
	s.awaitMembers("roles", 3)
	assert.Equal(t, map[string]int{"master": 1, "worker": 2}, running(), "what the roles need goes before more of the first")
	s.finish("other")
	s.awaitBound("roles")

	s.submit(topologyGang("big", 5, 1).of(high))
	s.awaitBound("big")
	assert.Equal(t, map[string]int{"master": 1, "worker": 2}, running(), "five that it does not need are gone")
	s.submit(topologyGang("whole", 1, 3).of(high))
	s.awaitBound("whole")
	assert.Empty(t, running(), "a role that would lack members takes the gang with it")
	s.requireNoSharedGPUs()
}
