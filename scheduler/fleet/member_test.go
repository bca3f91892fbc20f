package fleet

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// newMember is a member cluster of one node with eight V100.
func newMember(t *testing.T) *member {
	t.Helper()
	m := &member{
		name: "m", state: clustercache.New(), held: map[string]toCome{}, reservations: map[string]*contract.GangReservation{},
	}
	list := corev1.ResourceList{
		contract.ResourceTopologyGPU: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("80"),
		corev1.ResourceMemory: resource.MustParse("300Gi"), corev1.ResourcePods: resource.MustParse("100"),
	}
	_, err := m.state.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
			contract.NodePoolNameLabel: "v100", contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge",
		}},
		Status: corev1.NodeStatus{
			Capacity: list, Allocatable: list,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	require.NoError(t, err)
	return m
}

// A place that is only asked for stays free; one that is held does not, until it is released, or the pods of the job are bound.
func TestPlacesOfJobs(t *testing.T) {
	m := newMember(t)
	podsOfB := gang(t, "b", 2, 1)
	a, b := newToCome(gang(t, "a", 2, 2)), newToCome(podsOfB)
	for range 2 {
		offer, why := m.offer(a)
		require.Empty(t, why)
		assert.Equal(t, "m", offer.Cluster)
		assert.Equal(t, 2, offer.LeftGPUs)
		require.Len(t, offer.Placements, 1)
		assert.Len(t, offer.Placements[0].Assignments, 3)
	}
	require.Empty(t, m.hold("default/a", a))
	require.Empty(t, m.hold("default/a", a), "again, beside nothing but itself")
	_, why := m.offer(b)
	assert.Contains(t, why, "2 of 3 members fit")
	m.settle()
	_, why = m.offer(b)
	assert.NotEmpty(t, why, "no pod of the job is bound")

	m.release("default/a")
	require.Empty(t, m.hold("default/b", b))
	_, why = m.offer(a)
	assert.Contains(t, why, "2 of 3 members fit")
	two := newToCome(slices.Concat(gang(t, "c", 2, 1), gang(t, "d", 0, 2)))
	offer, why := m.offer(two)
	require.Empty(t, why)
	assert.Len(t, offer.Placements, 2)
	assert.Zero(t, offer.LeftGPUs, "three are held, and five taken")
	_, why = m.offer(newToCome(slices.Concat(gang(t, "c", 2, 1), gang(t, "d", 0, 3))))
	assert.NotEmpty(t, why, "each of the gangs has a place, and both have none")

	for _, pod := range podsOfB {
		pod.UID = types.UID("live-" + pod.Name)
		m.state.SetPod(pod)
		_, why = m.offer(b)
		assert.Contains(t, why, "is there already")
		m.settle()
		assert.NotEmpty(t, m.held, "its pods are there, and have no node")
	}
}

// What is held for a job is given up when its pods are bound.
func TestPlaceOfAJobThatIsBound(t *testing.T) {
	m := newMember(t)
	pods := gang(t, "b", 2, 1)
	require.Empty(t, m.hold("default/b", newToCome(pods)))
	for i, pod := range pods {
		record, err := contract.Allocation{Node: "n", GPUs: []int{i}}.Annotations()
		require.NoError(t, err)
		pod.UID, pod.Spec.NodeName, pod.Annotations = types.UID("live-"+pod.Name), "n", record
		m.state.SetPod(pod)
	}
	m.settle()
	assert.Empty(t, m.held)
	offer, why := m.offer(newToCome(gang(t, "c", 4, 1)))
	require.Empty(t, why)
	assert.Zero(t, offer.LeftGPUs)
}

func TestResult(t *testing.T) {
	assert.Equal(t, "Binding has been scheduled successfully. Result: {m:0,[{master 1} {worker 2}]}", result("m", gang(t, "a", 2, 1)))
}
