package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// Who lists the cluster answers with the reservations of the scheduler: a gang that is held back
// waits for room, and is not one that something refuses. What cannot start holds nothing.
func TestReserve(t *testing.T) {
	read := time.Unix(10_000, 0)
	held := "0 of 1 members fit: 2 nodes have no free GPU left. Held back by the reservation of gang ns/big."
	for name, test := range map[string]struct {
		age    time.Duration
		change func(*corev1.Pod)
		around Around
		state  State
		by     string
		awaits string
	}{
		"blocked":   {age: time.Hour, state: Waiting, by: "ns/big", awaits: "pod ns/old-a"},
		"young":     {age: time.Second, state: Rejected},
		"no volume": {age: time.Hour, change: mounts("data"), around: unbound("data", "early", ""), state: Rejected},
		"volume elsewhere": {age: time.Hour, change: mounts("data"), state: Rejected, around: Around{
			claims: byKey([]corev1.PersistentVolumeClaim{*bound("data", "far")}), volumes: byKey([]corev1.PersistentVolume{*volumeOn("far", "c")})}},
	} {
		t.Run(name, func(t *testing.T) {
			cache := clustercache.New()
			set := func(name, node string, gpus []int, age time.Duration, change func(*corev1.Pod)) {
				p := &corev1.Pod{ObjectMeta: named(name), Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, NodeName: node, Containers: []corev1.Container{{
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{contract.ResourceTopologyGPU: *resource.NewQuantity(int64(len(gpus)), resource.DecimalSI)}},
				}}}}
				p.UID, p.CreationTimestamp = types.UID(name), metav1.NewTime(read.Add(-age))
				if node != "" {
					annotations, err := contract.Allocation{Node: node, GPUs: gpus}.Annotations()
					require.NoError(t, err)
					p.Annotations = annotations
				}
				change(p)
				cache.SetPod(p)
			}
			offers := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80"), corev1.ResourcePods: resource.MustParse("10"), contract.ResourceTopologyGPU: resource.MustParse("8")}
			for _, node := range []string{"a", "b"} {
				_, err := cache.SetNode(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{
						contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge", corev1.LabelHostname: node,
					}},
					Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers},
				})
				require.NoError(t, err)
			}
			asIs := func(*corev1.Pod) {}
			if test.change == nil {
				test.change = asIs
			}
			low, high := []int{0, 1, 2, 3}, []int{4, 5, 6, 7}
			set("old-a", "a", low, time.Hour, asIs)
			set("old-b", "b", low, time.Hour, asIs)
			set("old-c", "b", high, time.Hour, asIs)
			set("big", "", slices.Concat(low, high), test.age, test.change)
			set("small", "", low, 0, saying(held))
			snapshot := cache.Snapshot()
			test.around.read = read
			test.around.Reserve(snapshot, 5*time.Minute)

			answers := Find(snapshot, test.around, "ns", "small")
			require.Len(t, answers, 1)
			assert.Equal(t, test.state, answers[0].State)
			assert.Equal(t, test.by, answers[0].ReservedBy)
			answers = Find(snapshot, test.around, "ns", "big")
			require.Len(t, answers, 1)
			assert.Equal(t, test.awaits, answers[0].Awaits)
		})
	}
}
