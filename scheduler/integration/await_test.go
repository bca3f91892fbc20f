package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// list returns the pods of a job by worker index.
func (s *testCluster) list(ctx context.Context, name string) []corev1.Pod {
	s.t.Helper()
	list, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name})
	require.NoError(s.t, err)
	return list.Items
}

// awaitBound waits until all pods of a job are bound, and returns them.
func (s *testCluster) awaitBound(name string) []corev1.Pod {
	s.t.Helper()
	s.await("job "+name+" to be bound", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, name)
		return len(pods) > 0 && bound(pods) == len(pods), fmt.Sprintf("%d of %d bound; %s", bound(pods), len(pods), reason(pods))
	})
	return s.list(s.t.Context(), name)
}

// awaitRunning waits until all pods of a job run. Who lets them fail waits for it: a simulated
// pod that has not started yet would start whatever its phase.
func (s *testCluster) awaitRunning(name string) {
	s.t.Helper()
	s.await("job "+name+" to run", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, name)
		waiting := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		return len(pods) > 0 && len(waiting) == 0, fmt.Sprintf("%d of %d do not; %s", len(waiting), len(pods), reason(waiting))
	})
}

// awaitReason waits until all pods of a job are pending and say why, and the first one with a
// text, which it returns: that one has the latest numbers.
func (s *testCluster) awaitReason(name, part string) string {
	s.t.Helper()
	s.await("job "+name+" to wait because of "+part, func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, name)
		first := reason(pods[:1])
		for i := range pods {
			if reason(pods[i:i+1]) == "" {
				return false, pods[i].Name + " says nothing"
			}
		}
		return bound(pods) == 0 && strings.Contains(first, part), first
	})
	return reason(s.list(s.t.Context(), name))
}

func bound(pods []corev1.Pod) int {
	n := 0
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// reason is the message of the first pod that is not scheduled.
func reason(pods []corev1.Pod) string {
	for _, pod := range pods {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return condition.Message
			}
		}
	}
	return ""
}

// await checks until the check holds: whenever a pod of the namespace or a node changes, and
// now and then, for what else a check looks at.
func (s *testCluster) await(what string, check func(context.Context) (bool, string)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), settled)
	defer cancel()
	var changes []watch.Interface
	pods, err := api().CoreV1().Pods(s.namespace).Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	nodes, err := api().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	changes = append(changes, pods, nodes)
	for _, w := range changes {
		defer w.Stop()
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		done, status := check(ctx)
		if done {
			return
		}
		select {
		case <-pods.ResultChan():
		case <-nodes.ResultChan():
		case <-again.C:
		case <-ctx.Done():
			require.FailNowf(s.t, "timed out", "waiting for %s: %s", what, status)
		}
	}
}
