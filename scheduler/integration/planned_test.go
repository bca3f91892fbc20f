package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// plannedOn makes the gang carry the plan that puts its workers on a node, each with four GPUs from first[i] on.
func plannedOn(j job, node string, first ...int) job {
	record := contract.PlannedPlacement{Nodes: []contract.PlannedNode{{Node: node, Members: map[string][]int{}}}}
	for i, gpu := range first {
		record.Nodes[0].Members[fmt.Sprint("worker-", i)] = []int{gpu, gpu + 1, gpu + 2, gpu + 3}
	}
	j.change = func(pod *corev1.Pod) {
		text, err := record.Text()
		if err != nil {
			panic(err)
		}
		pod.Annotations = map[string]string{contract.PlannedPlacementAnnotation: text}
	}
	return j
}

// requirePlaced checks where the workers run, and returns what their records say of the plan.
func (s *testCluster) requirePlaced(name, node string, first ...int) (notAsPlanned string) {
	s.t.Helper()
	for i, pod := range s.awaitBound(name) {
		record, _, err := contract.AllocationFrom(pod.Annotations)
		require.NoError(s.t, err)
		assert.Equal(s.t, node, pod.Spec.NodeName, pod.Name)
		assert.Equal(s.t, []int{first[i], first[i] + 1, first[i] + 2, first[i] + 3}, record.GPUs, pod.Name)
		notAsPlanned = record.NotAsPlanned
	}
	return notAsPlanned
}

// A gang gets the place that travels with it, also when another would be as good, or better.
func TestPlannedPlacement(t *testing.T) {
	s := newTestCluster(t, machine{count: 3, mode: "topology"})
	startScheduler(t)
	s.submit(plannedOn(topologyGang("there", 2, 4), s.nodes[2], 4, 0))
	assert.Empty(t, s.requirePlaced("there", s.nodes[2], 4, 0))
	s.submit(plannedOn(topologyGang("ordinal", 1, 4), s.namespace+"[1]", 4))
	assert.Empty(t, s.requirePlaced("ordinal", s.nodes[1], 4))

	s.submit(plannedOn(topologyGang("taken", 1, 4), s.nodes[2], 0))
	assert.Equal(t, "GPU 0, 1, 2, 3 of node "+s.nodes[2]+", where worker-0 was planned, cannot be had", s.requirePlaced("taken", s.nodes[1], 0))
	s.await("an event that says so", func(ctx context.Context) (bool, string) {
		events, err := api().CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=NotAsPlanned"})
		require.NoError(t, err)
		return len(events.Items) == 1 && events.Items[0].InvolvedObject.Name == "taken-worker-0", fmt.Sprint(len(events.Items))
	})
}

// A gang waits for its planned place while those that stand there are leaving, and leaves
// free nodes to others.
func TestPlannedPlacementIsWaitedFor(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	before := topologyGang("before", 1, 8)
	before.change = func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/checkpoint"} }
	s.submit(before)
	stands := s.awaitBound("before")[0]
	require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), stands.Name, metav1.DeleteOptions{}))

	s.submit(plannedOn(topologyGang("after", 2, 4), stands.Spec.NodeName, 0, 4))
	s.awaitReason("after", "before")
	s.submit(topologyGang("beside", 1, 8))
	assert.NotEqual(t, stands.Spec.NodeName, s.awaitBound("beside")[0].Spec.NodeName)

	_, err := api().CoreV1().Pods(s.namespace).Patch(t.Context(), stands.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	assert.Empty(t, s.requirePlaced("after", stands.Spec.NodeName, 0, 4))
}
