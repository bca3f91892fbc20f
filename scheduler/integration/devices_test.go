package integration

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// offerDevices makes a class of devices that pods ask for by an extended resource, and devices of it on each node.
func (s *testCluster) offerDevices(extended string, devices ...string) {
	s.t.Helper()
	ctx := s.t.Context()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: resourcev1.DeviceClassSpec{
		ExtendedResourceName: &extended,
		Selectors:            []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == '" + s.namespace + ".example.com'"}}},
	}}
	_, err := api().ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		assert.NoError(s.t, removeMadeClaims(context.Background(), s.namespace))
		assert.NoError(s.t, api().ResourceV1().DeviceClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}))
	})
	for _, node := range s.nodes {
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
			Driver: s.namespace + ".example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
		}}
		for _, device := range devices {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: device})
		}
		_, err := api().ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		require.NoError(s.t, err)
		s.t.Cleanup(func() {
			assert.NoError(s.t, api().ResourceV1().ResourceSlices().Delete(context.Background(), node, metav1.DeleteOptions{}))
		})
	}
}

// asking has each pod of a job ask for one of a resource, too.
func (j job) asking(name corev1.ResourceName) job {
	j.change = func(p *corev1.Pod) {
		r := &p.Spec.Containers[0].Resources
		r.Requests[name], r.Limits[name] = quantity(1), quantity(1)
	}
	return j
}

// An extended resource that a class of devices stands for is no amount of the node: the devices decide, by the name that
// the class gives and by the one that every class has.
func TestExtendedResourcesThatAreDevices(t *testing.T) {
	s := newTestCluster(t, machine{count: 3, mode: "topology"})
	startScheduler(t)
	const device = "example.com/foo"
	gang := topologyGang("gang", 6, 1).asking(device)
	s.submit(gang)
	s.awaitReason("gang", "too little "+device)
	s.offerDevices(device, "a", "b")
	on := map[string]int{}
	for _, pod := range s.awaitBound("gang") {
		on[pod.Spec.NodeName]++
	}
	for _, node := range s.nodes {
		assert.Equal(t, 2, on[node], node)
	}
	s.submit(topologyGang("more", 1, 1).asking(device))
	s.awaitReason("more", "refused by DynamicResources")
	s.remove("more")
	s.remove("gang")
	require.NoError(t, removeMadeClaims(t.Context(), s.namespace))
	s.submit(topologyGang("implicit", 6, 1).asking(corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + s.namespace)))
	s.awaitBound("implicit")
}
