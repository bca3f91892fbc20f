package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func TestRequest(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(cpu string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	tests := map[string]struct {
		change podtest.Change
		want   placement.Request
	}{
		"no GPUs": {func(*corev1.Pod) {}, placement.Request{Resources: placement.Resources{MilliCPU: 1000}}},
		"topology GPUs": {podtest.Asks(contract.ResourceTopologyGPU, 2),
			placement.Request{Resources: placement.Resources{MilliCPU: 1000}, Mode: placement.ModeTopology, GPUs: 2}},
		"default GPUs": {podtest.Asks(contract.ResourceDefaultGPU, 2),
			placement.Request{Resources: placement.Resources{MilliCPU: 1000}, Mode: placement.ModeDefault, GPUs: 2}},
		"GPU memory": {podtest.Asks(contract.ResourceGPUMemory, 8),
			placement.Request{Resources: placement.Resources{MilliCPU: 1000}, Mode: placement.ModeShare, MemoryGiB: 8}},
		"GPU memory over several GPUs": {func(p *corev1.Pod) {
			podtest.Asks(contract.ResourceGPUMemory, 8)(p)
			podtest.Label(contract.ResourceGPUCount, "2")(p)
		}, placement.Request{Resources: placement.Resources{MilliCPU: 1000}, Mode: placement.ModeShare, MemoryGiB: 8, GPUs: 2}},
		"GPU memory and cores": {func(p *corev1.Pod) {
			podtest.Asks(contract.ResourceGPUMemory, 8)(p)
			podtest.Asks(contract.ResourceCorePercent, 30)(p)
		}, placement.Request{Resources: placement.Resources{MilliCPU: 1000}, Mode: placement.ModeCoreMem, MemoryGiB: 8, CorePercent: 30}},
		"network device": {podtest.Asks(contract.ResourceERDMA, 1),
			placement.Request{Resources: placement.Resources{MilliCPU: 1000, Extended: map[string]int64{contract.ResourceERDMA: 1}}}},
		"init containers, sidecars and overhead": {func(p *corev1.Pod) {
			sidecar := container("500m")
			sidecar.RestartPolicy = &always
			p.Spec.InitContainers = []corev1.Container{sidecar, container("4")}
			p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Ki")}
		}, placement.Request{Resources: placement.Resources{MilliCPU: 4500, MemoryBytes: 1024}}},
		"more than there is, and than int64 holds": {func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("9223372036854775807"), container("1")}
			for i, text := range []string{"9223372036854775807", "1"} {
				p.Spec.Containers[i].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(text)
				p.Spec.Containers[i].Resources.Requests[contract.ResourceTopologyGPU] = resource.MustParse(text)
			}
		}, placement.Request{Resources: placement.Resources{MilliCPU: placement.MostAsked, MemoryBytes: placement.MostAsked}, Mode: placement.ModeTopology, GPUs: placement.MostAsked}},
		"host ports": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 8081, Protocol: corev1.ProtocolUDP}}
		}, placement.Request{Resources: placement.Resources{MilliCPU: 1000}, HostPorts: []string{"UDP/8081"}}},
		"host ports of addresses": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, HostIP: "127.0.0.1"}, {ContainerPort: 81, HostPort: 81, HostIP: "0.0.0.0"}}
		}, placement.Request{Resources: placement.Resources{MilliCPU: 1000}, HostPorts: []string{"TCP/80@127.0.0.1", "TCP/81"}}},
		"host network": {func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 23456}}
		}, placement.Request{Resources: placement.Resources{MilliCPU: 1000}, HostPorts: []string{"TCP/23456"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, problems := requestOf(podtest.New("pod", test.change))
			assert.Equal(t, test.want, got)
			assert.Empty(t, problems)
		})
	}
}

func TestRequestWithInvalidGPUCount(t *testing.T) {
	request, problems := requestOf(podtest.New("pod", podtest.Asks(contract.ResourceGPUMemory, 8), podtest.Label(contract.ResourceGPUCount, "two")))
	assert.Equal(t, 1, request.GPUs)
	require.Len(t, problems, 1)
	assert.Equal(t, ReasonInvalidGPUCount, problems[0].Reason)
}

func TestPod(t *testing.T) {
	record := contract.Allocation{GPUs: []int{0, 3}, Shares: []contract.GPUShare{{GPU: 3, MemoryGiB: 4, CorePercent: 20}}}
	pod, ok := Pod(podtest.New("pod", podtest.Asks(contract.ResourceTopologyGPU, 2), podtest.OnNode("node"), podtest.Recorded(record),
		podtest.Label(contract.LightGangLabel, "gang"), podtest.Label(contract.QuotaLabel, "leaf")))
	require.True(t, ok)
	assert.Equal(t, "uid-pod", pod.ID)
	assert.Equal(t, "node", pod.Node)
	assert.Equal(t, gpu.SetOf(0, 3), pod.Own)
	assert.Equal(t, []placement.GPUShare{{GPU: 3, MemoryGiB: 4, CorePercent: 20}}, pod.Shares)
	assert.Equal(t, "ns/gang", pod.Gang)
	assert.Equal(t, "leaf", pod.Leaf)
	assert.True(t, pod.Preemptible)

	for name, changes := range map[string][]podtest.Change{
		"pending":   nil,
		"succeeded": {podtest.OnNode("node"), podtest.InPhase(corev1.PodSucceeded)},
		"failed":    {podtest.OnNode("node"), podtest.InPhase(corev1.PodFailed)},
	} {
		_, ok := Pod(podtest.New("pod", changes...))
		assert.False(t, ok, name)
	}
}

// A machine that lost a GPU numbers the others on without it: indexes and positions differ.
func TestPodOnMachineWithAGap(t *testing.T) {
	table, err := gpu.NewTable(gpu.Machine{
		GPUs:  []gpu.GPU{{Index: 0}, {Index: 2}},
		Links: [][]gpu.Link{{{Class: gpu.Self}, {Class: gpu.SYS}}, {{Class: gpu.SYS}, {Class: gpu.Self}}},
	})
	require.NoError(t, err)
	pod := PodOn(podtest.New("pod", podtest.OnNode("node")), &placement.Request{}, &contract.Allocation{GPUs: []int{1, 2}}, table, nil)
	assert.Equal(t, gpu.SetOf(1), pod.Own)
	assert.Equal(t, []int{2}, Indexes(pod.Own, table))
}

// Whether a pod asks for GPUs is what its request says.
func TestAsksForGPUs(t *testing.T) {
	list := func(name corev1.ResourceName, amount string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(amount), corev1.ResourceCPU: resource.MustParse("1")}
	}
	container := func(requests corev1.ResourceList) []corev1.Container {
		return []corev1.Container{{}, {Resources: corev1.ResourceRequirements{Requests: requests}}}
	}
	specs := map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"nothing":          {corev1.PodSpec{}, false},
		"CPU":              {corev1.PodSpec{Containers: container(list(corev1.ResourceMemory, "1Gi"))}, false},
		"no GPU":           {corev1.PodSpec{Containers: container(list(contract.ResourceTopologyGPU, "0"))}, false},
		"part of a GPU":    {corev1.PodSpec{Containers: container(list(contract.ResourceDefaultGPU, "500m"))}, true},
		"init container":   {corev1.PodSpec{InitContainers: container(list(contract.ResourceDefaultGPU, "1"))}, true},
		"overhead":         {corev1.PodSpec{Overhead: list(contract.ResourceTopologyGPU, "1")}, true},
		"GPU memory":       {corev1.PodSpec{Containers: container(list(contract.ResourceGPUMemory, "4"))}, true},
		"core percentage":  {corev1.PodSpec{Containers: container(list(contract.ResourceCorePercent, "10"))}, true},
		"count, no memory": {corev1.PodSpec{Containers: container(list(contract.ResourceGPUCount, "1"))}, false},
	}
	for name, test := range specs {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: test.spec}
			assert.Equal(t, test.want, AsksForGPUs(pod))
			request, _ := requestOf(pod)
			assert.Equal(t, test.want, request.Mode != placement.ModeNone)
		})
	}
}
