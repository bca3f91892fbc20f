package integration

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// withDevice asks for a slot of the RDMA device, and for a node of its own.
func withDevice(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		list := pod.Spec.Containers[0].Resources.Requests
		list[contract.ResourceERDMA] = resource.MustParse("1")
		pod.Spec.Containers[0].Resources.Limits = list
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: name}},
			}},
		}}
	}
}

// Members of a gang that spans nodes get GPUs near the RDMA device, which is behind the
// upper four GPUs here, as long as there are any. Devices are shared by slots.
func TestGPUsNearTheDevice(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology", extra: corev1.ResourceList{contract.ResourceERDMA: resource.MustParse("2")}})
	serveGPUNodes(t)
	wiring, ok := catalog.Machine(instanceType)
	require.True(t, ok)
	far, near := gpu.Link{Class: gpu.SYS}, gpu.Link{Class: gpu.PIX}
	wiring.NICs = []gpu.NIC{{Name: "erdma_0", Links: slices.Concat(slices.Repeat([]gpu.Link{far}, 4), slices.Repeat([]gpu.Link{near}, 4))}}
	for _, node := range s.nodes {
		s.publish(node, wiring)
	}
	t.Cleanup(func() { s.withdraw(context.Background()) })
	startScheduler(t)

	for _, name := range []string{"wide", "second"} {
		gang := topologyGang(name, 2, 2)
		gang.change = withDevice(name)
		s.submit(gang)
		pods := s.awaitBound(name)
		assert.NotEqual(t, pods[0].Spec.NodeName, pods[1].Spec.NodeName)
		for _, pod := range pods {
			for _, device := range s.allocation(pod).GPUs {
				assert.GreaterOrEqual(t, device, 4, "%s: GPUs %v", name, s.allocation(pod).GPUs)
			}
		}
	}
	s.requireNoSharedGPUs()
	third := topologyGang("third", 2, 1)
	third.change = withDevice("third")
	s.submit(third)
	s.awaitReason("third", "aliyun/erdma")
}
