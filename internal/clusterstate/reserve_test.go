package clusterstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// A cluster that was listed gets the reservations that the scheduler makes by the age of gangs.
func TestReserveBlocked(t *testing.T) {
	now := time.Unix(100_000, 0)
	pod := func(s *State, name string, gpus int64, age time.Duration, changes ...podtest.Change) {
		s.SetPod(podtest.New(name, append([]podtest.Change{podtest.Asks(contract.ResourceTopologyGPU, gpus), func(p *corev1.Pod) {
			p.Spec.SchedulerName, p.CreationTimestamp = contract.SchedulerName, metav1.NewTime(now.Add(-age))
		}}, changes...)...))
	}
	asIs := func(state inventory.GangState) (placement.Gang, bool) { return state.Gang, true }
	for name, test := range map[string]struct {
		age, after time.Duration
		gangOf     func(inventory.GangState) (placement.Gang, bool)
		holds      bool
	}{
		"old enough": {age: time.Hour, after: time.Hour, holds: true},
		"too young":  {age: time.Hour, after: time.Hour + time.Second},
		"never":      {age: time.Hour, after: -1},
		"something else keeps it": {age: time.Hour, after: time.Minute, gangOf: func(state inventory.GangState) (placement.Gang, bool) {
			return state.Gang, false
		}},
		"its only node is refused": {age: time.Hour, after: time.Minute, gangOf: func(state inventory.GangState) (placement.Gang, bool) {
			state.Gang.ExcludeNodes = map[string]bool{"a": true}
			return state.Gang, true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, "a")
			pod(s, "runs", 4, 2*time.Hour, podtest.OnNode("a"), podtest.Recorded(contract.Allocation{GPUs: []int{0, 1, 2, 3}}))
			pod(s, "big", 8, test.age)
			pod(s, "small", 4, 0)
			if test.gangOf == nil {
				test.gangOf = asIs
			}
			listed := s.Snapshot()
			listed.ReserveBlocked(now, test.after, test.gangOf)
			small, ok := listed.Gang("pod/ns/small")
			require.True(t, ok)
			result := planner.Plan(listed.View, small.Gang)
			if !test.holds {
				assert.Empty(t, listed.View.Reservations())
				assert.NotNil(t, result.Placement)
				return
			}
			assert.Nil(t, result.Placement)
			assert.Equal(t, "ns/pod/big", result.Verdict.ReservedBy)
			assert.Empty(t, s.View.Reservations(), "the state goes on")
		})
	}
}
