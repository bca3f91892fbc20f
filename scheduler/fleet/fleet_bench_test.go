package fleet

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// largeMember is a member cluster of so many nodes with eight V100, of which every other one has four in use.
func largeMember(tb testing.TB, name string, nodes int) *member {
	tb.Helper()
	m := &member{name: name, state: clustercache.New(), held: map[string]toCome{}, reservations: map[string]*contract.GangReservation{}}
	list := corev1.ResourceList{
		contract.ResourceTopologyGPU: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("80"),
		corev1.ResourceMemory: resource.MustParse("300Gi"), corev1.ResourcePods: resource.MustParse("100"),
	}
	for i := range nodes {
		node := name + "-" + strconv.Itoa(i)
		_, err := m.state.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{
				contract.NodePoolNameLabel: "v100", contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge",
			}},
			Status: corev1.NodeStatus{Capacity: list, Allocatable: list, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		require.NoError(tb, err)
		if i%2 == 1 {
			continue
		}
		record, err := contract.Allocation{Node: node, GPUs: []int{0, 1, 2, 3}}.Annotations()
		require.NoError(tb, err)
		pod := gang(tb, "runs-"+node, 0, 4)[0]
		pod.Spec.NodeName, pod.Annotations, pod.Status.Phase = node, record, corev1.PodRunning
		m.state.SetPod(pod)
	}
	return m
}

// gang are the pods of a PyTorchJob of a master and so many workers with so many GPUs each.
func gang(tb testing.TB, name string, workers, gpus int) []*corev1.Pod {
	tb.Helper()
	replica := func(count int) string {
		return fmt.Sprintf(`{replicas: %d, template: {metadata: {labels: {gpu-topology: %s, gpu-topology-replica: "%d"}}, spec: {containers: [{name: pytorch, image: i, resources: {limits: {aliyun.com/gpu: "%d"}}}]}}}`, count, name, workers+1, gpus)
	}
	pods, err := job.Expected(object(tb, `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: `+name+`, namespace: default, uid: `+name+`},
  spec: {pytorchReplicaSpecs: {Master: `+replica(1)+`, Worker: `+replica(workers)+`}}}`))
	require.NoError(tb, err)
	return pods
}

// BenchmarkDecide finds the best cluster for a gang of 512 members among twenty of 1,000 nodes each. MiB/member is what the picture of
// one cluster takes, ns/place is the time of one placement in one cluster alone, as the scheduler there takes it: the ratio is what a
// fleet costs.
func BenchmarkDecide(b *testing.B) {
	const clusters, nodes = 20, 1000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	members := make([]*member, clusters)
	for i := range members {
		members[i] = largeMember(b, fmt.Sprintf("m%d", i), nodes)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	pods := gang(b, "large", 511, 4)
	b.Run("clusters=1", func(b *testing.B) {
		for b.Loop() {
			_, why := members[0].offer(newToCome(pods))
			require.Empty(b, why)
		}
	})
	b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
		for b.Loop() {
			offers, gangs := make([]clusterchoice.Offer, clusters), newToCome(pods)
			for i, m := range members {
				var why string
				offers[i], why = m.offer(gangs)
				require.Empty(b, why)
			}
			require.GreaterOrEqual(b, clusterchoice.Best(offers), 0)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/clusters/(1<<20), "MiB/member")
	})
}
