package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// claim makes a volume claim, and a volume for it that every node of the pool reaches.
func (s *testCluster) claim(name string) {
	s.t.Helper()
	_, provision := s.lateClaim(name)
	provision(contract.NodePoolNameLabel, s.namespace)
}

// saysOf waits until a pod says why it waits, in words that have a text in them.
func (s *testCluster) saysOf(pod, text string) {
	s.t.Helper()
	s.await("pod "+pod+" to say "+text, func(ctx context.Context) (bool, string) {
		p, err := api().CoreV1().Pods(s.namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		said := reason([]corev1.Pod{*p})
		return strings.Contains(said, text), said
	})
}

// One member of an elastic gang has a claim that does not exist. The others run, whichever of them come after it, and again once
// they have been lost; it says itself what it lacks, and joins them once it has that.
func TestElasticGangRunsWithoutARefusedMember(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.reader("admin", "gpuplan-explain")
	gang := topologyGang("gang", 3, 1).needing(1)
	change := gang.change
	gang.change = func(p *corev1.Pod) {
		change(p)
		if p.Name == "gang-worker-1" {
			mounts(p, "data")
		}
	}
	pods := s.pods(gang)
	s.create(pods[0])
	s.awaitMembers("gang", 1)
	s.create(pods[1])
	s.saysOf("gang-worker-1", `persistentvolumeclaim "data" not found`)
	s.create(pods[2])
	s.awaitMembers("gang", 2)
	for _, lost := range []string{"gang-worker-0", "gang-worker-2"} {
		require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), lost, metav1.DeleteOptions{}))
	}
	s.awaitMembers("gang", 0)
	require.Equal(t, 2, s.restore(gang))
	s.awaitMembers("gang", 2)
	s.saysOf("gang-worker-1", `persistentvolumeclaim "data" not found`)
	assert.Contains(t, string(s.plugin("admin", "why", "gang", "-n", s.namespace)), "runs with 2 members. 1 more member waits, because volume claim data does not exist.")
	s.claim("data")
	s.awaitBound("gang")
}

// A gang that needs a member which has a claim that does not exist waits, and every member says for whom.
func TestGangWaitsForARefusedMember(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.reader("admin", "gpuplan-explain")
	gang := topologyGang("gang", 3, 1)
	gang.change = func(p *corev1.Pod) {
		if p.Name == "gang-worker-1" {
			mounts(p, "data")
		}
	}
	s.submit(gang)
	s.saysOf("gang-worker-1", `persistentvolumeclaim "data" not found`)
	for _, other := range []string{"gang-worker-0", "gang-worker-2"} {
		s.saysOf(other, `gang-worker-1: persistentvolumeclaim "data" not found`)
	}
	assert.Zero(t, bound(s.list(t.Context(), "gang")))
	assert.Contains(t, string(s.plugin("admin", "why", "gang", "-n", s.namespace)), "there is room for the 3 members that it needs: volume claim data does not exist.")
	s.claim("data")
	s.awaitBound("gang")
}

// The first member of an elastic gang names a resource claim that does not exist: the others run without it, until it does.
func TestElasticGangRunsWithoutAMemberThatHasNoDevices(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.submit(topologyGang("old", 1, 8))
	s.awaitBound("old")
	gang := topologyGang("gang", 3, 1).needing(1)
	change := gang.change
	gang.change = func(p *corev1.Pod) {
		change(p)
		if p.Name == "gang-worker-0" {
			claim := "devices"
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: &claim}}
		}
	}
	s.submit(gang)
	s.saysOf("gang-worker-1", "0 of 1")
	s.finish("old")
	s.awaitMembers("gang", 2)
	_, err := api().ResourceV1().ResourceClaims(s.namespace).Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "devices"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.awaitBound("gang")
}
