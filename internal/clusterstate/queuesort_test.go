package clusterstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// Gangs wait in the order of the queue: what runs in part, then priority, then arrival. Who
// runs, is not there yet, or waits for something else than room, is not among them.
func TestWaiting(t *testing.T) {
	s := newState(t, "a")
	member := func(gang, name string, second int64, changes ...podtest.Change) {
		s.SetPod(podtest.New(name, append([]podtest.Change{
			podtest.Label(contract.LightGangLabel, gang), podtest.Label(contract.LightGangMinLabel, "2"), podtest.Asks(contract.ResourceTopologyGPU, 1),
			func(p *corev1.Pod) {
				p.Spec.SchedulerName, p.CreationTimestamp = contract.SchedulerName, metav1.NewTime(time.Unix(second, 0))
			},
		}, changes...)...))
	}
	gang := func(name string, second int64, changes ...podtest.Change) {
		member(name, name+"-0", second, changes...)
		member(name, name+"-1", second+1, changes...)
	}
	high := int32(10)
	gang("second", 5)
	gang("first", 3)
	gang("urgent", 8, func(p *corev1.Pod) { p.Spec.Priority = &high })
	member("partial", "partial-0", 1, podtest.OnNode("a"))
	member("partial", "partial-1", 9)
	gang("runs", 1, podtest.OnNode("a"))
	member("incomplete", "incomplete-0", 1)
	gang("gated", 1, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}} })
	gang("elsewhere", 1, func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })

	assert.Equal(t, []string{"ns/partial", "ns/urgent", "ns/first", "ns/second"}, s.Snapshot().Waiting())
}
