package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A job is deleted and made again under its name while a pod of the first one still ends. That
// pod is no member of the second, which waits for all of its own and then starts whole.
func TestJobMadeAgainWhileAPodEnds(t *testing.T) {
	for _, owned := range []bool{false, true} {
		t.Run(fmt.Sprintf("owned=%t", owned), func(t *testing.T) {
			s := newTestCluster(t, machine{count: 2, mode: "topology"})
			startScheduler(t)
			first, second := s.run(owned, "first"), s.run(owned, "second")
			for i, pod := range s.pods(first) {
				if i == 3 {
					pod.Finalizers = []string{"test.gpuplan.dev/lingers"}
				}
				s.create(pod)
			}
			s.awaitBound("train")
			now := int64(0)
			require.NoError(t, api().CoreV1().Pods(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
			s.await("all but one to be gone", func(ctx context.Context) (bool, string) {
				n := len(s.list(ctx, "train"))
				return n == 1, fmt.Sprint(n)
			})
			again := s.pods(second)
			for _, pod := range again[:3] {
				s.create(pod)
			}
			s.awaitFresh("1 more pod of gang")
			steal := s.plainPod("steal", "1", "")
			steal.Spec.Containers[0].Resources = s.pods(topologyGang("steal", 1, 4))[0].Spec.Containers[0].Resources
			s.create(steal)
			s.awaitPlain("steal")
			s.release("train")
			s.await("the last of the first run to be gone", func(ctx context.Context) (bool, string) {
				n := len(s.list(ctx, "train"))
				return n == 3, fmt.Sprint(n)
			})
			s.create(again[3])
			s.awaitFresh("3 of 4 members fit")
			require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), "steal", metav1.DeleteOptions{GracePeriodSeconds: &now}))
			assert.Len(t, s.awaitBound("train"), 4)
		})
	}
}

// run is a gang named train, of one of its runs.
func (s *testCluster) run(owned bool, name string) job {
	s.t.Helper()
	gang := topologyGang("train", 4, 4)
	if !owned {
		return gang
	}
	owner, err := api().CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	reference := metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	gang.change = func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{*reference} }
	return gang
}

// awaitFresh waits until all pods of the gang train that are not being deleted wait, and say why.
func (s *testCluster) awaitFresh(why string) {
	s.t.Helper()
	s.await("the gang to wait: "+why, func(ctx context.Context) (bool, string) {
		pods := slices.DeleteFunc(s.list(ctx, "train"), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		for _, p := range pods {
			require.Empty(s.t, p.Spec.NodeName, "%s has started without the others", p.Name)
			if !strings.Contains(reason([]corev1.Pod{p}), why) {
				return false, p.Name + ": " + reason([]corev1.Pod{p})
			}
		}
		return true, ""
	})
}

// A gang is charged to one leaf. One whose pods name several waits, and says so, until they agree.
func TestGangOfSeveralLeaves(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	s.setLeaves(8, lend{name: "large", min: 4, max: 8}, lend{name: "small", min: 2, max: 2})
	startScheduler(t)
	gang := topologyGang("train", 4, 1)
	gang.change = func(p *corev1.Pod) {
		p.Labels[contract.QuotaLabel] = "small"
		if p.Name == "train-worker-0" {
			p.Labels[contract.QuotaLabel] = "large"
		}
	}
	s.submit(gang)
	s.awaitReason("train", "different quota leaves (large, small)")
	for _, pod := range s.list(t.Context(), "train") {
		_, err := api().CoreV1().Pods(s.namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:"large"}}}`, contract.QuotaLabel), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	s.awaitBound("train")
}

// A gang and a pod on its own may have the same name: each has a place of its own.
func TestGangAndPodOfOneName(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	high, middle := s.priority("high", 100, corev1.PreemptLowerPriority), s.priority("middle", 50, corev1.PreemptLowerPriority)
	startScheduler(t)
	s.submit(topologyGang("low-a", 1, 8).lingering())
	s.submit(topologyGang("low-b", 1, 8).lingering())
	s.awaitBound("low-a")
	s.awaitBound("low-b")
	gang := topologyGang("x", 2, 4)
	gang.change = func(p *corev1.Pod) { p.Spec.PriorityClassName = high }
	s.submit(gang)
	alone := s.plainPod("x", "1", middle)
	alone.Spec.Containers[0].Resources = s.pods(topologyGang("x", 1, 8))[0].Spec.Containers[0].Resources
	s.create(alone)
	s.await("both victims to go", func(ctx context.Context) (bool, string) {
		n := leaving(append(s.list(ctx, "low-a"), s.list(ctx, "low-b")...))
		return n == 2, fmt.Sprint(n)
	})
	s.release("low-a")
	s.release("low-b")
	s.awaitBound("x")
	s.awaitPlain("x")
	s.requireNoSharedGPUs()
}
