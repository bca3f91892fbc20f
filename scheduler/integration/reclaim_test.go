package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// lend is a leaf of a quota tree of GPUs.
type lend struct {
	name     string
	min, max int
	limit    string // what of min may be lent, "" for all
}

// setLeaves makes a quota tree of GPUs.
func (s *testCluster) setLeaves(total int, leaves ...lend) {
	s.t.Helper()
	gpus := func(n int) map[string]any { return map[string]any{contract.ResourceTopologyGPU: fmt.Sprint(n)} }
	var children []any
	for _, l := range leaves {
		child := map[string]any{"name": l.name, "min": gpus(l.min), "max": gpus(l.max)}
		if l.limit != "" {
			child["attributes"] = map[string]any{contract.LendLimitAttribute: fmt.Sprintf(`{%q: %q}`, contract.ResourceTopologyGPU, l.limit)}
		}
		children = append(children, child)
	}
	s.setTree(map[string]any{"name": "root", "min": gpus(total), "max": gpus(total), "children": children})
}

// in puts a job into a quota leaf.
func (j job) in(leaf string) job {
	change := j.change
	j.change = func(p *corev1.Pod) {
		if change != nil {
			change(p)
		}
		p.Labels[contract.QuotaLabel] = leaf
	}
	return j
}

// lingering makes the pods of a job stay until the test lets them go.
func (j job) lingering() job {
	change := j.change
	j.change = func(p *corev1.Pod) {
		if change != nil {
			change(p)
		}
		p.Finalizers = []string{"test.gpuplan.dev/lingers"}
	}
	return j
}

// release ends the lingering of a job's pods.
func (s *testCluster) release(name string) {
	s.t.Helper()
	for _, pod := range s.list(s.t.Context(), name) {
		_, err := api().CoreV1().Pods(s.namespace).Patch(s.t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(s.t, err)
	}
}

// awaitLeaving waits until n pods of a job are being deleted.
func (s *testCluster) awaitLeaving(name string, n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d pods of %s to leave", n, name), func(ctx context.Context) (bool, string) {
		have := leaving(s.list(ctx, name))
		return have == n, fmt.Sprint(have)
	})
}

func leaving(pods []corev1.Pod) int {
	n := 0
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			n++
		}
	}
	return n
}

// awaitGone waits until all pods of a job are gone.
func (s *testCluster) awaitGone(name string) {
	s.t.Helper()
	s.await("job "+name+" to be gone", func(ctx context.Context) (bool, string) {
		n := len(s.list(ctx, name))
		return n == 0, fmt.Sprint(n)
	})
}

// priority makes a PriorityClass for the test.
func (s *testCluster) priority(name string, value int32, policy corev1.PreemptionPolicy) string {
	s.t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name}, Value: value, PreemptionPolicy: &policy}
	localtest.CreatePriorityClass(s.t, api(), class)
	return class.Name
}

func (j job) of(class string) job {
	change := j.change
	j.change = func(p *corev1.Pod) {
		if change != nil {
			change(p)
		}
		p.Spec.PriorityClassName = class
	}
	return j
}

// Idle guaranteed GPUs are lent, and are back as soon as their owner asks: the fewest
// gangs go, whole ones, and what was evicted does not come back.
func TestBorrowedGPUsAreReclaimed(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	s.setLeaves(16, lend{name: "left", min: 8, max: 16}, lend{name: "right", min: 8, max: 16})
	scheduler := startAnswering(t, nil)
	s.submit(topologyGang("one", 4, 2).in("left"))
	s.awaitBound("one")
	s.submit(topologyGang("two", 2, 2).in("left"))
	s.awaitBound("two")
	s.submit(topologyGang("three", 2, 2).in("left"))
	s.awaitBound("three")

	s.submit(topologyGang("owner", 2, 2).in("right"))
	s.awaitBound("owner")
	left := len(s.list(t.Context(), "one")) + len(s.list(t.Context(), "two")) + len(s.list(t.Context(), "three"))
	assert.Equal(t, 6, left, "one gang of two is enough")
	require.Len(t, s.list(t.Context(), "one"), 4)
	token := s.reader("prometheus", "gpuplan-metrics")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the API server tells of a binding before the scheduler counts it
		status, measured := scheduler.get(scheduler.metrics+"/metrics", token)
		require.Equal(c, http.StatusOK, status, measured)
		for _, line := range []string{
			`gpuplan_evictions_total{reason="reclaim"} 2`, `gpuplan_evictions_total{reason="priority"} 0`,
			`gpuplan_nominations_given_up_total 0`, `gpuplan_reservations{kind="nomination"} 0`,
		} {
			assert.Contains(c, measured, line+"\n")
		}
	}, settled, 200*time.Millisecond)
	s.requireNoSharedGPUs()

	victim := "three"
	if len(s.list(t.Context(), "three")) > 0 {
		victim = "two"
	}
	s.submit(topologyGang(victim, 2, 2).in("left"))
	text := s.awaitReason(victim, "0 of 2")
	t.Log(text)
	assert.Equal(t, 2, bound(s.list(t.Context(), "owner")))
}

// What a leaf does not lend is free for it at once.
func TestLendLimitKeepsGPUs(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	s.setLeaves(8, lend{name: "left", min: 4, max: 8}, lend{name: "right", min: 4, max: 8, limit: "2"})
	startScheduler(t)
	s.submit(topologyGang("most", 6, 1).in("left"))
	s.awaitBound("most")
	s.submit(topologyGang("more", 1, 1).in("left"))
	t.Log(s.awaitReason("more", "lend limits"))
	s.submit(topologyGang("owner", 2, 1).in("right"))
	s.awaitBound("owner")
	assert.Equal(t, 6, bound(s.list(t.Context(), "most")))
}

// A job that is deleted loses its pods one by one, and may make more room than who waits needs:
// nobody is evicted in between.
func TestNobodyIsEvictedWhileAJobIsDeleted(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	high := s.priority("high", 1000, corev1.PreemptLowerPriority)
	middle := s.priority("middle", 100, corev1.PreemptLowerPriority)
	startScheduler(t)
	for round := 1; ; round++ {
		for name, j := range map[string]job{"deleted": topologyGang("deleted", 8, 1).of(high), "high": topologyGang("high", 4, 1).of(high), "low": topologyGang("low", 4, 1)} {
			s.submit(j)
			s.awaitBound(name)
		}
		s.submit(topologyGang("waiting", 8, 1).of(middle))
		s.awaitReason("waiting", "0 of 8")

		pause, last := time.Duration(0), time.Now()
		for _, pod := range s.list(t.Context(), "deleted") {
			require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
			pause, last = max(pause, time.Since(last)), time.Now()
			time.Sleep(100 * time.Millisecond)
		}
		s.awaitBound("waiting")
		// A second after a deletion others may be evicted: on a machine that stood still this shows nothing.
		if pause > 800*time.Millisecond && round < 10 {
			t.Logf("%s between two deletions: once more", pause)
			s.clear()
			continue
		}
		assert.Equal(t, 4, bound(s.list(t.Context(), "low")))
		assert.Zero(t, leaving(s.list(t.Context(), "low")))
		return
	}
}

// While victims leave, nobody else gets the place, and then the preemptor does.
func TestReservationIsKept(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	startScheduler(t)
	s.submit(topologyGang("low", 2, 2).lingering())
	s.awaitBound("low")
	s.submit(topologyGang("small", 2, 1))
	s.awaitBound("small")
	s.submit(topologyGang("big", 6, 1).of(high))
	s.awaitLeaving("low", 2)
	assert.Zero(t, leaving(s.list(t.Context(), "small")), "superfluous")
	s.awaitReason("big", "Reserved: waits for gang "+s.namespace+"/low")
	for _, pod := range s.list(t.Context(), "big") {
		assert.Equal(t, s.nodes[0], pod.Status.NominatedNodeName)
	}
	for _, pod := range s.list(t.Context(), "low") {
		var reason, message string
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				reason, message = c.Reason, c.Message
			}
		}
		assert.Equal(t, corev1.PodReasonPreemptionByScheduler, reason)
		assert.Contains(t, message, s.namespace+"/big")
	}
	s.submit(topologyGang("thief", 1, 1))
	t.Log(s.awaitReason("thief", "Held back by the reservation of gang "+s.namespace+"/big"))
	s.release("low")
	s.awaitBound("big")
	assert.Equal(t, 2, bound(s.list(t.Context(), "small")))
	s.requireNoSharedGPUs()
}

func TestPriorityIsNotTakenAdvantageOf(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	startScheduler(t)
	fixed := topologyGang("fixed", 1, 4)
	fixed.change = func(p *corev1.Pod) { p.Labels[contract.PreemptibleLabel] = "false" }
	s.submit(fixed)
	s.awaitBound("fixed")
	s.submit(topologyGang("low", 2, 2))
	s.awaitBound("low")
	s.submit(topologyGang("polite", 1, 4).of(s.priority("polite", 100, corev1.PreemptNever)))
	s.awaitReason("polite", "0 of 1")
	s.remove("polite")
	s.submit(topologyGang("whole", 1, 8).of(high))
	s.awaitReason("whole", "0 of 1")
	assert.Equal(t, 2, bound(s.list(t.Context(), "low")), "nobody is evicted when the whole gang does not fit after that")
	s.remove("whole")
	s.submit(topologyGang("half", 1, 4).of(high))
	s.awaitBound("half")
	s.awaitGone("low")
	assert.Equal(t, 1, bound(s.list(t.Context(), "fixed")))
}

func TestDisruptionBudgetsAreRespected(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	startScheduler(t)
	s.submit(topologyGang("guarded", 2, 2))
	s.awaitBound("guarded")
	s.guard("guarded")
	s.submit(topologyGang("other", 2, 2))
	s.awaitBound("other")
	s.submit(topologyGang("big", 1, 4).of(high))
	s.awaitBound("big")
	s.awaitGone("other")
	assert.Equal(t, 2, bound(s.list(t.Context(), "guarded")))
	s.submit(topologyGang("bigger", 1, 4).of(high))
	s.awaitReason("bigger", "0 of 1")
	require.NoError(t, api().PolicyV1().PodDisruptionBudgets(s.namespace).Delete(t.Context(), "guard", metav1.DeleteOptions{}))
	s.awaitBound("bigger")
}

// guard lets none of a gang's pods be evicted, by a disruption budget.
func (s *testCluster) guard(gang string) {
	s.t.Helper()
	all := intstr.FromString("100%")
	_, err := api().PolicyV1().PodDisruptionBudgets(s.namespace).Create(s.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: gang}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// A leaf gets its min from those of a leaf that borrows which may go, whatever their priority, where a budget keeps
// another one that would go first. That one is the min of its leaf then.
func TestReclaimBesideADisruptionBudget(t *testing.T) {
	s := newTestCluster(t, machine{count: 3, mode: "topology"})
	s.setLeaves(24, lend{name: "left", min: 8, max: 24}, lend{name: "right", min: 16, max: 24})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	startScheduler(t)
	for _, name := range []string{"guarded", "one", "two"} {
		s.submit(topologyGang(name, 4, 2).in("left"))
		s.awaitBound(name)
	}
	s.guard("guarded")
	s.submit(topologyGang("over", 4, 2).in("left").of(high))
	s.awaitBound("over")
	s.submit(topologyGang("owner", 8, 2).in("right"))
	s.awaitBound("owner")
	for _, name := range []string{"one", "two", "over"} {
		s.awaitGone(name)
	}
	assert.Equal(t, 4, bound(s.list(t.Context(), "guarded")))
	s.requireNoSharedGPUs()
}

// A scheduler that is killed between the first and the last eviction, or while victims
// leave, comes to the same decision again.
func TestKilledWhileEvicting(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	for round := range 6 {
		first := 1 + round%4*2
		scheduler := startStuckScheduler(t, first, deletesPod)
		s.submit(topologyGang("low", 8, 1).lingering())
		s.awaitBound("low")
		s.submit(topologyGang("also", 8, 1).lingering())
		s.awaitBound("also")
		s.submit(topologyGang("big", 8, 1).of(high))
		victim := "low"
		s.await("some victims to leave", func(ctx context.Context) (bool, string) {
			for _, name := range []string{"low", "also"} {
				if n := leaving(s.list(ctx, name)); n >= first {
					victim = name
					return true, ""
				}
			}
			return false, ""
		})
		scheduler.End(syscall.SIGKILL)
		require.Equal(t, first, leaving(s.list(t.Context(), victim)))
		s.submit(topologyGang("thief", 1, 1))
		scheduler = startScheduler(t)
		s.awaitLeaving(victim, 8)
		s.awaitReason("thief", "0 of 1")
		s.release(victim)
		s.awaitBound("big")
		other := strings.Replace("lowalso", victim, "", 1)
		assert.Zero(t, leaving(s.list(t.Context(), other)), "one gang is enough")
		assert.Equal(t, 8, bound(s.list(t.Context(), other)))
		s.requireNoSharedGPUs()
		scheduler.End(syscall.SIGTERM)
		s.release(other)
		s.clear()
	}
}
