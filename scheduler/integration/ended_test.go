package integration

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A Job makes no pods again that have succeeded. Its gang goes on without them when they have gone, too: where a
// member is lost after them, where the Job is suspended meanwhile, and under a scheduler that starts later.
func TestJobWhosePodsThatHaveSucceededAreGone(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	scheduler := startScheduler(t)
	jobs, pods := api().BatchV1().Jobs(s.namespace), api().CoreV1().Pods(s.namespace)
	gang := s.pods(topologyGang("part", 4, 4))[0]
	gang.Spec.RestartPolicy = corev1.RestartPolicyNever
	delete(gang.Labels, contract.JobReplicaIndexLabel)
	_, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "part"}, Spec: batchv1.JobSpec{
		Parallelism: new(int32(4)), Completions: new(int32(4)), CompletionMode: new(batchv1.IndexedCompletion),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: gang.Labels}, Spec: gang.Spec},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.await("the pods to be made", func(ctx context.Context) (bool, string) {
		n := len(s.list(ctx, "part"))
		return n == 4, fmt.Sprint(n)
	})
	s.awaitRunning("part")

	remove := func(indexes ...string) {
		for _, pod := range s.list(t.Context(), "part") {
			if slices.Contains(indexes, pod.Labels[batchv1.JobCompletionIndexAnnotation]) {
				require.NoError(t, pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
			}
		}
	}
	for _, pod := range s.list(t.Context(), "part") {
		if index := pod.Labels[batchv1.JobCompletionIndexAnnotation]; index < "2" {
			pod.Status.Phase = corev1.PodSucceeded
			_, err := pods.UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	}
	s.await("the Job to have seen who has succeeded", func(ctx context.Context) (bool, string) {
		job, err := jobs.Get(ctx, "part", metav1.GetOptions{})
		require.NoError(t, err)
		return job.Status.CompletedIndexes == "0,1" && job.Status.UncountedTerminatedPods.Failed == nil && job.Status.UncountedTerminatedPods.Succeeded == nil, job.Status.String()
	})
	remove("0", "1")
	rest := func(n int) {
		s.t.Helper()
		s.await(fmt.Sprintf("%d pods to be left", n), func(ctx context.Context) (bool, string) {
			have := len(s.list(ctx, "part"))
			return have == n, fmt.Sprint(have)
		})
	}
	rest(2)
	bound := func() {
		s.t.Helper()
		rest(2)
		s.awaitBound("part")
		s.requireNoSharedGPUs()
	}
	lose := func() {
		before := s.list(t.Context(), "part")
		remove("2")
		s.await("the member to be made again", func(ctx context.Context) (bool, string) {
			now := s.list(ctx, "part")
			fresh := slices.ContainsFunc(now, func(p corev1.Pod) bool {
				return !slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == p.UID })
			})
			return len(now) == 2 && fresh, fmt.Sprint(len(now))
		})
		bound()
	}
	suspend := func(held bool) {
		_, err := jobs.Patch(t.Context(), "part", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, held), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	lose()
	suspend(true)
	rest(0)
	suspend(false)
	bound()

	scheduler.End(syscall.SIGKILL)
	startScheduler(t)
	lose()
}
