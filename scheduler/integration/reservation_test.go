package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// impatient makes gangs wait only a moment before capacity is reserved for them.
var impatient = map[string]string{"reserveAfter: 5m0s": "reserveAfter: 10ms"}

// A gang of a whole node gets its turn while small jobs flow, across a restart, and
// those that leave its place alone run beside it.
func TestBlockedGangIsBackfilledAround(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	scheduler := runScheduler(t, impatient)
	for i := range 4 {
		s.submit(topologyGang(fmt.Sprintf("old-%d", i), 1, 4))
		s.awaitBound(fmt.Sprintf("old-%d", i))
	}
	s.submit(topologyGang("big", 1, 8))
	s.awaitReason("big", "Reserved: waits for gang ")
	s.submit(topologyGang("huge", 3, 8))
	s.awaitReason("huge", "0 of 3")

	// One job of each node ends; the next small job may only have the node that is not reserved.
	reserved := s.reservedNode("big")
	var ended []string
	for i := range 4 {
		name := fmt.Sprintf("old-%d", i)
		if node := s.list(t.Context(), name)[0].Spec.NodeName; len(ended) == 0 || s.list(t.Context(), ended[0])[0].Spec.NodeName != node {
			s.finish(name)
			ended = append(ended, name)
		}
		if len(ended) == 2 {
			break
		}
	}
	scheduler.End(syscall.SIGKILL)
	s.submit(topologyGang("small", 1, 4))
	runScheduler(t, impatient)
	assert.NotEqual(t, reserved, s.awaitBound("small")[0].Spec.NodeName)
	s.submit(topologyGang("late", 1, 1))
	s.awaitReason("late", "Held back by the reservation of gang "+s.namespace+"/big")
	for i := range 4 {
		if pod := s.list(t.Context(), fmt.Sprintf("old-%d", i))[0]; pod.Spec.NodeName == reserved && pod.Status.Phase != corev1.PodSucceeded {
			s.finish(fmt.Sprintf("old-%d", i))
		}
	}
	assert.Equal(t, reserved, s.awaitBound("big")[0].Spec.NodeName)
	require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), "small-worker-0", metav1.DeleteOptions{}))
	s.awaitBound("late")
	s.requireNoSharedGPUs()
}

// reservedNode is the node of the gangs that a waiting one waits for.
func (s *testCluster) reservedNode(name string) string {
	s.t.Helper()
	text := reason(s.list(s.t.Context(), name))
	for i := range 4 {
		old := fmt.Sprintf("old-%d", i)
		if strings.Contains(text, "gang "+s.namespace+"/"+old) {
			return s.list(s.t.Context(), old)[0].Spec.NodeName
		}
	}
	require.Fail(s.t, "no gang is named", text)
	return ""
}
