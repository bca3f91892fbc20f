package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

func TestGivenTo(t *testing.T) {
	container := func(name string, gpus int64) corev1.Container {
		c := corev1.Container{Name: name}
		if gpus > 0 {
			c.Resources.Requests = corev1.ResourceList{contract.ResourceTopologyGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
		}
		return c
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("sidecar", 1)
	sidecar.RestartPolicy = &always
	gave := func(gpus ...string) contract.ConfirmedContainer {
		return contract.ConfirmedContainer{Way: contract.WayCDI, GPUs: gpus, Indexes: map[string][]int{
			"": {}, "a": {3}, "b": {1}, "ab": {3, 1}, "?": {-1},
		}[join(gpus)]}
	}
	type given = map[string]contract.ConfirmedContainer
	for name, test := range map[string]struct {
		init, containers []corev1.Container
		node             string
		confirmed        given
		want             inventory.Given
		ok               bool
		// differs is what is said where the record has GPU 1 alone.
		differs string
	}{
		"nobody confirms":      {containers: []corev1.Container{container("main", 1)}},
		"all":                  {containers: []corev1.Container{container("main", 1), container("log", 0)}, confirmed: given{"main": gave("b")}, want: inventory.Given{GPUs: []int{1}, Whole: true}, ok: true},
		"not all yet":          {containers: []corev1.Container{container("main", 1), container("second", 1)}, confirmed: given{"main": gave("b")}, want: inventory.Given{GPUs: []int{1}}, ok: true},
		"an init container":    {init: []corev1.Container{container("load", 1)}, containers: []corev1.Container{container("main", 1)}, confirmed: given{"main": gave("b")}, want: inventory.Given{GPUs: []int{1}, Whole: true}, ok: true},
		"a sidecar":            {init: []corev1.Container{sidecar}, containers: []corev1.Container{container("main", 1)}, confirmed: given{"main": gave("b")}, want: inventory.Given{GPUs: []int{1}}, ok: true},
		"others":               {containers: []corev1.Container{container("main", 2)}, confirmed: given{"main": gave("a", "b")}, want: inventory.Given{GPUs: []int{1, 3}, Whole: true}, ok: true, differs: "its containers were given GPU 1,3, where the scheduler has recorded GPU 1"},
		"of another node":      {containers: []corev1.Container{container("main", 1)}, node: "before", confirmed: given{"main": gave("b")}},
		"one that has gone":    {containers: []corev1.Container{container("main", 1)}, confirmed: given{"main": gave("?")}},
		"an agent of before":   {containers: []corev1.Container{container("main", 1)}, confirmed: given{"main": {Way: contract.WayCDI, GPUs: []string{"b"}}}},
		"of another container": {containers: []corev1.Container{container("main", 1)}, confirmed: given{"debugger": gave("b")}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", InitContainers: test.init, Containers: test.containers}}
			if test.confirmed != nil {
				node := test.node
				if node == "" {
					node = "n"
				}
				text, err := contract.Confirmation{Node: node, Containers: test.confirmed}.Annotation()
				require.NoError(t, err)
				pod.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{contract.ConfirmedAnnotation: text}}
			}
			got, ok := inventory.GivenTo(pod)
			assert.Equal(t, test.ok, ok)
			if ok {
				assert.Equal(t, test.want, got)
				assert.Equal(t, test.differs, got.Differs(contract.Allocation{GPUs: []int{1}}))
				assert.Empty(t, got.Differs(contract.Allocation{Shares: []contract.GPUShare{{GPU: 3, MemoryGiB: 1}, {GPU: 1, MemoryGiB: 1}}}))
				assert.Empty(t, got.Differs(contract.Allocation{}), "the device plugin chooses")
			}
		})
	}
}

func join(parts []string) (text string) {
	for _, part := range parts {
		text += part
	}
	return text
}
