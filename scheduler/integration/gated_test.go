package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A gang that needs a pod which has a scheduling gate, or which another scheduler places, cannot
// start. Meanwhile it holds nothing and evicts nobody, whatever its priority and age; once the gate
// is taken away it is a gang as any other.
func TestGatedMemberHoldsNothing(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"gate":    func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}} },
		"foreign": func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestCluster(t, machine{count: 2, mode: "topology"})
			high := s.priority("high", 1000, corev1.PreemptLowerPriority)
			runScheduler(t, impatient)
			s.submit(topologyGang("old", 1, 8))
			s.awaitBound("old")
			gang := topologyGang("gang", 2, 8)
			gang.change = func(p *corev1.Pod) {
				p.Spec.PriorityClassName = high
				if p.Name == "gang-worker-1" {
					change(p)
				}
			}
			s.submit(gang)
			s.submit(topologyGang("late", 1, 8))
			s.awaitBound("late")
			assert.Equal(t, 1, bound(s.list(t.Context(), "old")))
			assert.Zero(t, leaving(s.list(t.Context(), "old")))
			assert.Zero(t, bound(s.list(t.Context(), "gang")))
			if name == "foreign" {
				return
			}
			_, err := api().CoreV1().Pods(s.namespace).Patch(t.Context(), "gang-worker-1", types.StrategicMergePatchType,
				[]byte(`{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/hold"}]}}`), metav1.PatchOptions{})
			require.NoError(t, err)
			s.awaitBound("gang")
			s.awaitGone("old")
			s.awaitGone("late")
		})
	}
}
