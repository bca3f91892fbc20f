package integration

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// documents are manifests that the vendor's documents print.
//
//go:embed testdata/*.yaml
var documents embed.FS

// apply applies a document's manifest as it is printed, but for the namespace and the
// name: it names no scheduler.
func (s *testCluster) apply(file, name string) {
	s.t.Helper()
	text, err := documents.ReadFile("testdata/" + file)
	require.NoError(s.t, err)
	object := &unstructured.Unstructured{}
	require.NoError(s.t, yaml.Unmarshal(text, &object.Object))
	object.SetNamespace(s.namespace)
	object.SetName(name)
	_, err = cluster.client.Apply(s.t.Context(), object)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		assert.NoError(s.t, cluster.client.DeleteAll(context.Background(), []*unstructured.Unstructured{object}, nil))
	})
}

// awaitPods waits until as many pods of the namespace are bound, and returns all of them.
func (s *testCluster) awaitPods(n int) (pods []corev1.Pod) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d pods to be bound", n), func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		pods = list.Items
		return bound(pods) == n, fmt.Sprintf("%d of %d; %s", bound(pods), len(pods), reason(pods))
	})
	return pods
}

// The labels form: a master and a worker are one gang. Both have the operator's port on
// the host's network, so each has a node of its own.
func TestDocumentTopologyLabels(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	s.routePods()
	s.apply("topology.yaml", "pytorch-dist-nccl")
	pods := s.awaitPods(2)
	for _, pod := range pods {
		record := s.allocation(pod)
		assert.Equal(t, s.namespace+"/pytorch-dist-nccl", record.Gang)
		assert.Len(t, record.GPUs, 1)
		assert.Equal(t, contract.IndexList(record.GPUs), pod.Annotations[contract.GPUsAnnotation])
	}
	assert.NotEqual(t, pods[0].Spec.NodeName, pods[1].Spec.NodeName)
	s.await("an event to name the port", func(ctx context.Context) (bool, string) {
		said := slices.Concat(s.events(ctx, pods[0].Name, "HostPortConflict"), s.events(ctx, pods[1].Name, "HostPortConflict"))
		return len(said) == 1 && strings.Contains(said[0], "gang "+s.namespace+"/pytorch-dist-nccl ") && strings.Contains(said[0], "host port TCP/23456"), fmt.Sprint(said)
	})
}

// The same job on a single node waits, and its pods and their events name the port.
func TestPortThatIsWaitedForIsNamed(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.routePods()
	s.apply("topology.yaml", "pytorch-dist-nccl")
	named := "1 node has the host port TCP/23456 taken by another member of the gang"
	s.await("pods and events to name the port", func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			why, events := reason(list.Items[i:i+1]), s.events(ctx, list.Items[i].Name, "FailedScheduling")
			if !strings.Contains(why, named) || !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "host port TCP/23456") }) {
				return false, fmt.Sprint(why, events)
			}
		}
		return len(list.Items) == 2, fmt.Sprintf("%d pods", len(list.Items))
	})
	s.addNode(machine{mode: "topology"})
	s.awaitPods(2)
}

// Members on the host's network that have ports of their own share a node; those that have one keep apart.
func TestPortsOnOneNode(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	for name, test := range map[string]struct {
		ports []int32
		nodes int
	}{"own": {[]int32{23456, 23457}, 1}, "one": {[]int32{24000, 24000}, 2}} {
		gang := topologyGang(name, 2, 1)
		gang.change = func(p *corev1.Pod) {
			port := test.ports[0]
			if p.Labels[contract.JobReplicaIndexLabel] == "1" {
				port = test.ports[1]
			}
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: port, HostPort: port}}
		}
		s.submit(gang)
		nodes := map[string]bool{}
		for _, pod := range s.awaitBound(name) {
			nodes[pod.Spec.NodeName] = true
		}
		assert.Len(t, nodes, test.nodes, name)
	}
}

// The same job without topology: the operator's port keeps nothing apart, for it is not
// on the host's network, and the device plugin picks the GPUs.
func TestDocumentRegular(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "default"})
	startScheduler(t)
	s.routePods()
	s.apply("regular.yaml", "pytorch-dist-nccl")
	for _, pod := range s.awaitPods(2) {
		assert.Equal(t, contract.SchedulerName, pod.Spec.SchedulerName)
		assert.Empty(t, s.allocation(pod).GPUs)
	}
}

// The same job of four workers with a GPU each, topology-aware and regular, on nodes
// with eight V100: the first is given four GPUs that NVLink joins in rings, the second
// a node, whose device plugin picks the GPUs.
func TestDocumentTopologyAndRegular(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"}, machine{count: 1, mode: "default"})
	startScheduler(t)
	s.submit(topologyGang("pytorch-topo-4-vgg16", 4, 1))
	regular := topologyGang("pytorch-4-vgg16", 4, 1)
	regular.resource, regular.labels = contract.ResourceDefaultGPU, nil
	s.submit(regular)
	for _, pod := range s.awaitBound("pytorch-topo-4-vgg16") {
		record := s.allocation(pod)
		assert.Positive(t, record.NVLinkRings)
		assert.Len(t, record.Visible, 4)
	}
	for _, pod := range s.awaitBound("pytorch-4-vgg16") {
		record := s.allocation(pod)
		assert.Equal(t, s.nodes[1], record.Node)
		assert.Empty(t, record.GPUs)
		assert.Zero(t, record.NVLinkRings, "nothing is promised of GPUs that the device plugin picks")
	}
}

// Jobs of 2 GiB and 30 % on a node with one GPU: three fit, the fourth waits until one of them is deleted.
func TestDocumentShareOneGPU(t *testing.T) {
	s := newTestCluster(t, machine{
		count: 1, mode: "core_mem",
		labels: map[string]string{contract.InstanceTypeLabel: "example.unknown", contract.GPUCountLabel: "1", contract.GPUMemoryLabel: "15360MiB"},
		extra:  corev1.ResourceList{contract.ResourceGPUMemory: quantity(15), contract.ResourceCorePercent: quantity(100), contract.ResourceGPUCount: quantity(1)},
	})
	startScheduler(t)
	s.routePods()
	for i := range 4 {
		s.apply("share.yaml", fmt.Sprintf("cuda-sample-%d", i))
	}
	var runs string // the job of a pod that has a place
	for _, pod := range s.awaitPods(3) {
		if pod.Spec.NodeName == "" {
			continue
		}
		runs = pod.Labels[batchv1.JobNameLabel]
		assert.Equal(t, []contract.GPUShare{{GPU: 0, MemoryGiB: 2, CorePercent: 30}}, s.allocation(pod).Shares)
		assert.JSONEq(t, `{"0":{"0":30}}`, pod.Annotations[contract.ShareCoreAnnotation])
	}
	s.await("the fourth pod to wait", func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		why := reason(list.Items)
		return len(list.Items) == 4 && bound(list.Items) == 3 && strings.HasPrefix(why, "0 of 1"), why
	})

	background := metav1.DeletePropagationBackground
	require.NoError(t, api().BatchV1().Jobs(s.namespace).Delete(t.Context(), runs, metav1.DeleteOptions{PropagationPolicy: &background}))
	s.await("the fourth pod to take the place of the one that is deleted", func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items) == 3 && bound(list.Items) == 3, fmt.Sprintf("%d of %d; %s", bound(list.Items), len(list.Items), reason(list.Items))
	})
}
