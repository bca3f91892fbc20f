package fleet

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// newMember is a member cluster of one node with eight V100.
func newMember(t *testing.T) *member {
	t.Helper()
	m := &member{
		name: "m", state: clustercache.New(), held: map[string][]*corev1.Pod{}, reservations: map[string]*contract.GangReservation{},
		pods: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
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

// jobOf are the pods of a gang of three with so many GPUs each.
func jobOf(t *testing.T, name string, gpus int) []*corev1.Pod {
	t.Helper()
	replica := func(count int) string {
		return fmt.Sprintf(`{replicas: %d, template: {metadata: {labels: {gpu-topology: %s, gpu-topology-replica: "3"}}, spec: {containers: [{name: pytorch, image: i, resources: {limits: {aliyun.com/gpu: "%d"}}}]}}}`, count, name, gpus)
	}
	pods, err := podsOf(object(t, `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: `+name+`, namespace: default, uid: `+name+`},
  spec: {pytorchReplicaSpecs: {Master: `+replica(1)+`, Worker: `+replica(2)+`}}}`))
	require.NoError(t, err)
	require.Len(t, pods, 3)
	return pods
}

// A place that is only asked for stays free; one that is held does not, until it is released, or the pods of the job are bound.
func TestPlacesOfJobs(t *testing.T) {
	m := newMember(t)
	a, b := jobOf(t, "a", 2), jobOf(t, "b", 1)
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
	for _, pod := range b {
		live := pod.DeepCopy()
		live.UID, live.Spec.NodeName = "live-"+pod.UID, "n"
		require.NoError(t, m.pods.Add(live))
	}
	m.settle()
	offer, why := m.offer(a)
	require.Empty(t, why, "here the picture itself shows nothing of the live pods")
	assert.Equal(t, 2, offer.LeftGPUs)
}

func TestResult(t *testing.T) {
	assert.Equal(t, "Binding has been scheduled successfully. Result: {m:0,[{master 1} {worker 2}]}", result("m", jobOf(t, "a", 1)))
}
