package split_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/split"
)

func container(name string, amounts map[corev1.ResourceName]int64) corev1.Container {
	c := corev1.Container{Name: name}
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for resourceName, n := range amounts {
		c.Resources.Requests[resourceName] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return c
}

func gpus(name string, n int64) corev1.Container {
	return container(name, map[corev1.ResourceName]int64{contract.ResourceTopologyGPU: n})
}

func shared(name string, memory, core int64) corev1.Container {
	return container(name, map[corev1.ResourceName]int64{contract.ResourceGPUMemory: memory, contract.ResourceCorePercent: core})
}

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func TestPod(t *testing.T) {
	type parts = map[string]split.Part
	whole := func(indexes ...int) split.Part { return split.Part{GPUs: indexes} }
	of := func(s ...contract.GPUShare) split.Part { return split.Part{Shares: s} }
	for name, test := range map[string]struct {
		init, containers []corev1.Container
		record           contract.Allocation
		want             parts
		refused          string
	}{
		"one container": {
			containers: []corev1.Container{gpus("main", 2)},
			record:     contract.Allocation{GPUs: []int{3, 5}, Visible: []int{0, 3, 5}},
			want:       parts{"main": whole(3, 5)},
		},
		"containers in their order, and one without GPUs": {
			containers: []corev1.Container{gpus("a", 1), container("log", nil), gpus("b", 2)},
			record:     contract.Allocation{GPUs: []int{1, 4, 7}},
			want:       parts{"a": whole(1), "b": whole(4, 7)},
		},
		"an init container uses what the containers get later": {
			init:       []corev1.Container{gpus("prepare", 3)},
			containers: []corev1.Container{gpus("a", 1), gpus("b", 1)},
			record:     contract.Allocation{GPUs: []int{0, 1, 2}},
			want:       parts{"prepare": whole(0, 1, 2), "a": whole(0), "b": whole(1)},
		},
		"a sidecar keeps its own": {
			init:       []corev1.Container{gpus("early", 1), sidecar(gpus("side", 1)), gpus("late", 1)},
			containers: []corev1.Container{gpus("main", 2)},
			record:     contract.Allocation{GPUs: []int{2, 3, 6}},
			want:       parts{"early": whole(6), "side": whole(2), "late": whole(6), "main": whole(3, 6)},
		},
		"parts of one GPU": {
			containers: []corev1.Container{shared("a", 2, 30), shared("b", 6, 10)},
			record:     contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 8, CorePercent: 40}}},
			want: parts{
				"a": of(contract.GPUShare{GPU: 1, MemoryGiB: 2, CorePercent: 30}),
				"b": of(contract.GPUShare{GPU: 1, MemoryGiB: 6, CorePercent: 10}),
			},
		},
		"parts of two GPUs": {
			init:       []corev1.Container{shared("prepare", 2, 0)},
			containers: []corev1.Container{shared("a", 6, 0), shared("b", 2, 0)},
			record:     contract.Allocation{Shares: []contract.GPUShare{{GPU: 0, MemoryGiB: 4}, {GPU: 2, MemoryGiB: 4}}},
			want: parts{
				"prepare": of(contract.GPUShare{GPU: 2, MemoryGiB: 2}),
				"a":       of(contract.GPUShare{GPU: 0, MemoryGiB: 4}, contract.GPUShare{GPU: 2, MemoryGiB: 2}),
				"b":       of(contract.GPUShare{GPU: 2, MemoryGiB: 2}),
			},
		},
		"too few": {
			containers: []corev1.Container{gpus("a", 2), gpus("b", 2)},
			record:     contract.Allocation{GPUs: []int{0, 1, 2}},
			refused:    "container b asks for 2 GPUs, and the allocation record has 1 GPUs left of 3 GPUs",
		},
		"too many": {
			containers: []corev1.Container{gpus("a", 2)},
			record:     contract.Allocation{GPUs: []int{0, 1, 2}},
			refused:    "the pod asks for 2 GPUs, and the allocation record has 3 GPUs",
		},
		"none": {
			containers: []corev1.Container{gpus("a", 2)},
			refused:    "container a asks for 2 GPUs, and the allocation record has 0 GPUs left of 0 GPUs",
		},
		"parts for whole GPUs": {
			containers: []corev1.Container{gpus("a", 1)},
			record:     contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 8}}},
			refused:    "the pod asks for 0 GPUs, and the allocation record has 8 GiB of GPU memory and 0 % of a GPU",
		},
		"a GPU twice": {
			containers: []corev1.Container{gpus("a", 2)},
			record:     contract.Allocation{GPUs: []int{1, 1}},
			refused:    "the allocation record names GPU 1, which is no GPU or named twice",
		},
		"no GPU": {
			containers: []corev1.Container{gpus("a", 1)},
			record:     contract.Allocation{GPUs: []int{-1}},
			refused:    "the allocation record names GPU -1",
		},
		"less than nothing": {
			containers: []corev1.Container{shared("a", 4, 0)},
			record:     contract.Allocation{Shares: []contract.GPUShare{{GPU: 0, MemoryGiB: -8}, {GPU: 1, MemoryGiB: 12}}},
			refused:    "the allocation record has -8 GiB and 0 % of GPU 0, which is no part of a GPU",
		},
		"more cores than a GPU has": {
			containers: []corev1.Container{shared("a", 4, 110)},
			record:     contract.Allocation{Shares: []contract.GPUShare{{GPU: 0, MemoryGiB: 4, CorePercent: 110}}},
			refused:    "4 GiB and 110 % of GPU 0, which is no part of a GPU",
		},
		"a container without a limit of cores": {
			containers: []corev1.Container{shared("a", 4, 30), shared("b", 4, 0)},
			record:     contract.Allocation{Shares: []contract.GPUShare{{GPU: 2, MemoryGiB: 8, CorePercent: 30}}},
			refused:    "container b asks for aliyun.com/gpu-mem and not for aliyun.com/gpu-core.percentage, as others of the pod: it would have no limit of cores",
		},
		"another core share": {
			containers: []corev1.Container{shared("a", 8, 30)},
			record:     contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 8, CorePercent: 20}}},
			refused:    "container a asks for 8 GiB of GPU memory and 30 % of a GPU",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := split.Pod(&corev1.PodSpec{InitContainers: test.init, Containers: test.containers}, test.record)
			if test.refused != "" {
				assert.ErrorContains(t, err, test.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func FuzzPod(f *testing.F) {
	f.Add([]byte{0x11, 0x42, 0x23, 0x81}, false)
	f.Add([]byte{0x02, 0x41, 0x01}, true)
	f.Add([]byte{}, false)
	f.Fuzz(property)
}

func TestAnyPod(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		data := make([]byte, random.IntN(8))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		property(t, data, random.IntN(2) == 0)
	}
}

// property makes a pod and the record that the scheduler would make for it, as package inventory counts, and
// checks every moment of the pod: who runs at the same time has no GPU twice, everybody has what it asks for, and
// a record of more than the pod needs is refused.
func property(t *testing.T, data []byte, parts bool) {
	pod := podOf(data, parts)
	asked := inventory.MemberOf(pod).Role.Request
	var record contract.Allocation
	if parts {
		for i, left := 0, asked.MemoryGiB; left > 0; i++ {
			share := contract.GPUShare{GPU: i, MemoryGiB: min(left, 3)}
			if i == 0 {
				share.CorePercent = asked.CorePercent
			}
			record.Shares, left = append(record.Shares, share), left-share.MemoryGiB
		}
	} else {
		for i := range asked.GPUs {
			record.GPUs = append(record.GPUs, 3*i+1)
		}
	}
	got, err := split.Pod(&pod.Spec, record)
	require.NoError(t, err)

	running := map[string]corev1.Container{}
	for _, c := range pod.Spec.InitContainers {
		running[c.Name] = c
		check(t, running, record, got)
		if !inventory.Sidecar(c) {
			delete(running, c.Name)
		}
	}
	for _, c := range pod.Spec.Containers {
		running[c.Name] = c
	}
	check(t, running, record, got)

	if !parts {
		record.GPUs = append(record.GPUs, 1000)
		_, err = split.Pod(&pod.Spec, record)
		require.ErrorContains(t, err, "the pod asks for", "a GPU that nobody asks for")
	}
}

// podOf makes a pod of a few containers: of each byte the low bits are what one asks for, the high ones what it is.
func podOf(data []byte, parts bool) *corev1.Pod {
	pod := &corev1.Pod{}
	for i, b := range data[:min(len(data), 8)] {
		c := gpus(fmt.Sprint("c", i), int64(b&7))
		if parts {
			c = shared(c.Name, int64(b&7), int64(b&7))
		}
		switch b >> 6 {
		case 0:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case 1:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, sidecar(c))
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// check looks at containers that run at the same time.
func check(t *testing.T, running map[string]corev1.Container, record contract.Allocation, parts map[string]split.Part) {
	t.Helper()
	whole := map[int]bool{}
	given := map[int]contract.GPUShare{}
	for name, c := range running {
		part := parts[name]
		quantity := func(resourceName corev1.ResourceName) int64 {
			q := c.Resources.Requests[resourceName]
			return q.Value()
		}
		require.EqualValues(t, quantity(contract.ResourceTopologyGPU), len(part.GPUs), name)
		for _, index := range part.GPUs {
			require.False(t, whole[index], "GPU %d is given twice", index)
			require.True(t, slices.Contains(record.GPUs, index))
			whole[index] = true
		}
		var memory, core int64
		for _, share := range part.Shares {
			memory, core = memory+share.MemoryGiB, core+share.CorePercent
			sum := given[share.GPU]
			sum.MemoryGiB, sum.CorePercent = sum.MemoryGiB+share.MemoryGiB, sum.CorePercent+share.CorePercent
			given[share.GPU] = sum
		}
		require.Equal(t, quantity(contract.ResourceGPUMemory), memory, name)
		require.Equal(t, quantity(contract.ResourceCorePercent), core, name)
	}
	for index, sum := range given {
		at := slices.IndexFunc(record.Shares, func(s contract.GPUShare) bool { return s.GPU == index })
		require.GreaterOrEqual(t, at, 0)
		require.LessOrEqual(t, sum.MemoryGiB, record.Shares[at].MemoryGiB)
		require.LessOrEqual(t, sum.CorePercent, record.Shares[at].CorePercent)
	}
}
