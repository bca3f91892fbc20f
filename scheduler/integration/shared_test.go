package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// sharedNode offers parts of eight GPUs with 15 GiB each, in mode core_mem.
func sharedNode(policy string) machine {
	return machine{
		count: 1, mode: "core_mem", labels: map[string]string{contract.NodeGPUPolicyLabel: policy},
		extra: corev1.ResourceList{
			contract.ResourceGPUMemory:   resource.MustParse("120"),
			contract.ResourceCorePercent: resource.MustParse("800"),
			contract.ResourceGPUCount:    resource.MustParse("8"),
		},
	}
}

// sharedJob asks for parts of a GPU per pod.
func sharedJob(name string, workers int, memoryGiB, corePercent int64) job {
	return job{name: name, workers: workers, change: func(pod *corev1.Pod) {
		list := pod.Spec.Containers[0].Resources.Requests
		list[contract.ResourceGPUMemory] = *resource.NewQuantity(memoryGiB, resource.DecimalSI)
		if corePercent > 0 {
			list[contract.ResourceCorePercent] = *resource.NewQuantity(corePercent, resource.DecimalSI)
		}
		pod.Spec.Containers[0].Resources.Limits = list
	}}
}

// gpusOf lists the GPU of each pod's share.
func (s *testCluster) gpusOf(pods []corev1.Pod) (gpus []int) {
	s.t.Helper()
	for _, pod := range pods {
		record := s.allocation(pod)
		for _, share := range record.Shares {
			gpus = append(gpus, share.GPU)
		}
	}
	return gpus
}

// Four pods of 2 GiB and 30 % each: three of them share a GPU.
func TestSharedGPUsBinpack(t *testing.T) {
	s := newTestCluster(t, sharedNode("binpack"))
	startScheduler(t)
	s.submit(sharedJob("cuda", 4, 2, 30))
	pods := s.awaitBound("cuda")
	perGPU := map[int]int{}
	for _, gpu := range s.gpusOf(pods) {
		perGPU[gpu]++
	}
	assert.Equal(t, map[int]int{0: 3, 1: 1}, perGPU)
	for _, pod := range pods {
		share := s.allocation(pod).Shares[0]
		assert.Equal(t, contract.GPUShare{GPU: share.GPU, MemoryGiB: 2, CorePercent: 30}, share)
		assert.JSONEq(t, fmt.Sprintf(`{"0":{"%d":2}}`, share.GPU), pod.Annotations[contract.ShareMemoryAnnotation])
		assert.JSONEq(t, fmt.Sprintf(`{"0":{"%d":30}}`, share.GPU), pod.Annotations[contract.ShareCoreAnnotation])
	}

	// Memory without cores must not share a node with memory and cores.
	s.submit(sharedJob("memory", 1, 2, 0))
	s.awaitReason("memory", "0 of 1")
	s.finish("cuda")
	s.awaitBound("memory")
}

func TestSharedGPUsSpread(t *testing.T) {
	s := newTestCluster(t, sharedNode("spread"))
	startScheduler(t)
	s.submit(sharedJob("cuda", 4, 2, 30))
	assert.ElementsMatch(t, []int{0, 1, 2, 3}, s.gpusOf(s.awaitBound("cuda")))
}

// Four GiB on each of two GPUs.
func TestSharedOverSeveralGPUs(t *testing.T) {
	s := newTestCluster(t, sharedNode("binpack"))
	startScheduler(t)
	j := sharedJob("wide", 1, 8, 0)
	j.labels = map[string]string{contract.ResourceGPUCount: "2"}
	s.submit(j)
	shares := s.allocation(s.awaitBound("wide")[0]).Shares
	assert.Equal(t, []contract.GPUShare{{GPU: 0, MemoryGiB: 4}, {GPU: 1, MemoryGiB: 4}}, shares)
}

// Where admission was bypassed, the scheduler says what is wrong.
func TestInvalidShareWaits(t *testing.T) {
	s := newTestCluster(t, sharedNode("binpack"))
	startScheduler(t)
	s.submit(sharedJob("odd", 1, 2, 7))
	s.await("the reason", func(ctx context.Context) (bool, string) {
		text := reason(s.list(ctx, "odd"))
		return text != "", text
	})
	s.awaitReason("odd", "multiple of 5")
}
