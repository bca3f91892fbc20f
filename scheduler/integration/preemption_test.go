package integration

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// plainPod is a pod without any label, on the nodes of the test.
func (s *testCluster) plainPod(name, cpu, class string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName:     contract.SchedulerName,
			PriorityClassName: class,
			NodeSelector:      map[string]string{contract.NodePoolNameLabel: s.namespace},

			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		},
	}
}

func (s *testCluster) awaitPlain(name string) {
	s.t.Helper()
	s.await("pod "+name+" to be bound", func(ctx context.Context) (bool, string) {
		pod, err := api().CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return pod.Spec.NodeName != "", reason([]corev1.Pod{*pod})
	})
}

// A pod that the planner does not place evicts others as with the stock scheduler, but a
// gang goes whole or not at all, and after pods on their own.
func TestPlainPodsDoNotTearGangs(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	startScheduler(t)

	wide := topologyGang("wide", 2, 8)
	wide.change = func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("50")
	}
	s.submit(wide)
	s.awaitBound("wide")
	s.create(s.plainPod("beside", "25", ""))
	s.awaitPlain("beside")
	s.create(s.plainPod("also", "25", ""))
	s.awaitPlain("also")

	s.create(s.plainPod("first", "25", high))
	s.awaitPlain("first")
	assert.Equal(t, 2, bound(s.list(t.Context(), "wide")))
	assert.Zero(t, leaving(s.list(t.Context(), "wide")), "pods on their own go first")

	s.create(s.plainPod("second", "50", high))
	s.awaitPlain("second")
	s.awaitGone("wide")
	s.clear()

	wide.name, wide.labels = "kept", topologyGang("kept", 2, 8).labels
	change := wide.change
	wide.change = func(p *corev1.Pod) {
		change(p)
		if p.Name == "kept-worker-1" {
			p.Labels[contract.PreemptibleLabel] = "false"
		}
	}
	s.submit(wide)
	s.awaitBound("kept")
	s.create(s.plainPod("third", "50", high))
	s.await("pod third to be refused", func(ctx context.Context) (bool, string) {
		pod, err := api().CoreV1().Pods(s.namespace).Get(ctx, "third", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Empty(t, pod.Status.NominatedNodeName)
		text := reason([]corev1.Pod{*pod})
		return text != "", text
	})
	assert.Equal(t, 2, bound(s.list(t.Context(), "kept")))
	assert.Zero(t, leaving(s.list(t.Context(), "kept")), "one member may not go, so nobody does")
}

// A pod whose PriorityClass never preempts waits, whoever is below it.
func TestPlainPodThatNeverPreempts(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.create(s.plainPod("low", "50", ""))
	s.awaitPlain("low")
	s.create(s.plainPod("polite", "50", s.priority("polite", 100, corev1.PreemptNever)))
	s.await("pod polite to be refused", func(ctx context.Context) (bool, string) {
		pod, err := api().CoreV1().Pods(s.namespace).Get(ctx, "polite", metav1.GetOptions{})
		require.NoError(t, err)
		require.Empty(t, pod.Status.NominatedNodeName)
		text := reason([]corev1.Pod{*pod})
		return text != "", text
	})
	low, err := api().CoreV1().Pods(s.namespace).Get(t.Context(), "low", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, low.DeletionTimestamp)
}
