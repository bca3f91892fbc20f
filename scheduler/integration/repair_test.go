package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	nodeagent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

const rackLabel = "topology.example.com/rack"

// submitPyTorchJob makes a PyTorchJob with a PodGroup: its operator makes pods that fail again.
func (s *testCluster) submitPyTorchJob(name string, workers, gpus int) {
	s.t.Helper()
	s.createPodGroup(name, int64(workers))
	pod := s.pods(job{name: name, workers: 1, gpus: gpus, resource: contract.ResourceTopologyGPU})[0]
	pod.Spec.Containers[0].Name = contract.PyTorchContainerName
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	require.NoError(s.t, err)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.KubeflowGroup + "/" + contract.KubeflowVersion, "kind": contract.PyTorchJobKind,
		"metadata": map[string]any{"name": name, "namespace": s.namespace},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{
			"replicas": int64(workers), "restartPolicy": "OnFailure",
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{contract.PodGroupLabel: name}},
				"spec":     spec,
			},
		}}},
	}}
	_, err = cluster.client.Dynamic.Resource(gvr(contract.KubeflowGroup, contract.KubeflowVersion, contract.PyTorchJobResource)).
		Namespace(s.namespace).Create(s.t.Context(), object, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.await("the operator to make the pods", func(ctx context.Context) (bool, string) {
		n := len(s.list(ctx, name))
		return n == workers, strconv.Itoa(n)
	})
}

// events lists the events with a reason about an object of the test.
func (s *testCluster) events(ctx context.Context, name, reason string) []string {
	s.t.Helper()
	list, err := api().EventsV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	require.NoError(s.t, err)
	var notes []string
	for _, event := range list.Items {
		if event.Regarding.Name == name {
			notes = append(notes, event.Note)
		}
	}
	return notes
}

// awaitDegraded waits until the PodGroup's condition is as wanted, "True NodeLost: text".
func (s *testCluster) awaitDegraded(name, want string) {
	s.t.Helper()
	have := ""
	require.Eventually(s.t, func() bool {
		group, err := cluster.client.Dynamic.Resource(gvr(contract.PodGroupGroup, contract.PodGroupVersion, contract.PodGroupResource)).
			Namespace(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
		require.NoError(s.t, err)
		conditions, _, err := unstructured.NestedSlice(group.Object, "status", "conditions")
		require.NoError(s.t, err)
		for _, entry := range conditions {
			if c := entry.(map[string]any); c["type"] == contract.DegradedCondition {
				have = fmt.Sprintf("%s %s: %s", c["status"], c["reason"], c["message"])
			}
		}
		return have == want
	}, settled, 100*time.Millisecond, "PodGroup %s to say: %s", name, want)
}

const recovered = "False Recovered: no member is on a lost node or an unhealthy GPU"

// A node that goes away takes its members with it at once, the others are told, and the
// successors run next to them.
func TestNodeGoesAway(t *testing.T) {
	s := newTestCluster(t, machine{count: 3, mode: "topology"})
	startScheduler(t)
	s.submitPyTorchJob("job", 2, 8)
	s.awaitRunning("job")
	pods := s.list(t.Context(), "job")
	lost, left := pods[0], pods[1]

	require.NoError(t, api().CoreV1().Nodes().Delete(t.Context(), lost.Spec.NodeName, metav1.DeleteOptions{}))
	s.await("the member to have a successor elsewhere", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, "job")
		moved := !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == lost.Spec.NodeName })
		return moved && bound(pods) == 2, fmt.Sprintf("%d pods, %d bound", len(pods), bound(pods))
	})
	text := fmt.Sprintf("node %s is gone, and with it %s of the gang", lost.Spec.NodeName,
		"worker-"+lost.Labels[contract.JobReplicaIndexLabel])
	for _, told := range []string{left.Name, "job"} { // the member that is left, and the PodGroup
		require.Eventually(t, func() bool { return slices.Equal(s.events(t.Context(), told, "NodeLost"), []string{text}) },
			settled, 100*time.Millisecond, told)
	}
	s.awaitDegraded("job", recovered)
	after, err := api().CoreV1().Pods(s.namespace).Get(t.Context(), left.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, left.UID, after.UID, "what runs is left alone")
	s.requireNoSharedGPUs()
}

// A node that stops to answer is given up after the grace, long before Kubernetes does.
func TestNodeIsUnreachable(t *testing.T) {
	s := newTestCluster(t, machine{count: 3, mode: "topology"})
	runScheduler(t, nil, "--unreachable-grace=1s")
	s.submitPyTorchJob("job", 2, 8)
	s.awaitRunning("job")
	lost := s.list(t.Context(), "job")[0]
	s.silence(lost.Spec.NodeName)
	s.await("the member to have a successor elsewhere", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, "job")
		moved := !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == lost.UID })
		return moved && bound(pods) == 2, fmt.Sprintf("%d pods, %d bound", len(pods), bound(pods))
	})
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		notes := s.events(t.Context(), "job", "NodeLost")
		require.Len(c, notes, 1)
		assert.Contains(c, notes[0], "node "+lost.Spec.NodeName+" has been unreachable since ")
	}, settled, 100*time.Millisecond)
	s.awaitDegraded("job", recovered)
}

// silence ends the simulation of a node and lets its control plane lose sight of it.
func (s *testCluster) silence(name string) {
	s.t.Helper()
	patch := func(subresource string, change any) {
		data, err := json.Marshal(change)
		require.NoError(s.t, err)
		_, err = api().CoreV1().Nodes().Patch(s.t.Context(), name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresource)
		require.NoError(s.t, err)
	}
	patch("", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"kwok.x-k8s.io/node": nil}}})
	s.await("node "+name+" to be unreachable", func(ctx context.Context) (bool, string) {
		node, err := api().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				// The simulation may have been writing still.
				patch("status", map[string]any{"status": map[string]any{"conditions": []map[string]any{{
					"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": metav1.Now(),
				}}}})
			}
		}
		return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute
		}), fmt.Sprint(node.Spec.Taints)
	})
}

// A member that is replaced stays in the domain of its gang, though others were there first.
func TestReplacedInItsRack(t *testing.T) {
	rack := func(name string) machine {
		return machine{count: 2, mode: "topology", labels: map[string]string{rackLabel: name}}
	}
	s := newTestCluster(t, rack("a"), rack("b"))
	startScheduler(t)
	gang := topologyGang("job", 2, 8)
	gang.change = func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey: rackLabel, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: "job"}},
			}}},
		}}
	}
	s.submit(gang)
	s.awaitRunning("job")
	pods := s.list(t.Context(), "job")
	require.ElementsMatch(t, s.nodes[:2], []string{pods[0].Spec.NodeName, pods[1].Spec.NodeName})
	young := s.addNode(machine{mode: "topology", labels: map[string]string{rackLabel: "a"}})

	require.NoError(t, api().CoreV1().Nodes().Delete(t.Context(), pods[1].Spec.NodeName, metav1.DeleteOptions{}))
	s.await("the member to fail", func(ctx context.Context) (bool, string) {
		pod, err := api().CoreV1().Pods(s.namespace).Get(ctx, pods[1].Name, metav1.GetOptions{})
		require.NoError(t, err)
		return pod.Status.Phase == corev1.PodFailed, string(pod.Status.Phase)
	})
	now := int64(0)
	require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), pods[1].Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	s.create(s.pods(gang)[1])
	for _, pod := range s.awaitBound("job") {
		if pod.Name == pods[1].Name {
			assert.Equal(t, young, pod.Spec.NodeName)
		}
	}
}

// publish writes a node's hardware as its agent would.
func (s *testCluster) publish(node string, machine gpu.Machine) {
	s.t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&contract.GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: contract.GPUNodeGroup + "/" + contract.GPUNodeVersion, Kind: contract.GPUNodeKind},
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status:     contract.StatusOf(machine),
	})
	require.NoError(s.t, err)
	gpuNodes := cluster.client.Dynamic.Resource(gvr(contract.GPUNodeGroup, contract.GPUNodeVersion, contract.GPUNodeResource))
	options := metav1.ApplyOptions{FieldManager: "test", Force: true}
	published := &unstructured.Unstructured{Object: object}
	unstructured.RemoveNestedField(published.Object, "metadata", "creationTimestamp")
	status := published.Object["status"]
	delete(published.Object, "status")
	_, err = gpuNodes.Apply(s.t.Context(), node, published, options)
	require.NoError(s.t, err)
	published.Object["status"] = status
	_, err = gpuNodes.ApplyStatus(s.t.Context(), node, published, options)
	require.NoError(s.t, err)
}

// withdraw deletes what was published of the test's nodes.
func (s *testCluster) withdraw(ctx context.Context) {
	s.t.Helper()
	gpuNodes := cluster.client.Dynamic.Resource(gvr(contract.GPUNodeGroup, contract.GPUNodeVersion, contract.GPUNodeResource))
	for _, node := range s.nodes {
		assert.NoError(s.t, gpuNodes.Delete(ctx, node, metav1.DeleteOptions{}))
	}
}

// serveGPUNodes gives the cluster the custom resource of the node agent.
func serveGPUNodes(t *testing.T) {
	t.Helper()
	objects, err := nodeagent.Objects(nodeagent.Options{Image: "test"})
	require.NoError(t, err)
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" })
	require.NoError(t, cluster.client.ApplyAll(t.Context(), objects, nil))
}

// A GPU that turns unhealthy is not given to anybody; the gang that has it runs on and is told.
func TestGPUTurnsUnhealthy(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	serveGPUNodes(t)
	t.Cleanup(func() { s.withdraw(context.Background()) })
	machine, ok := catalog.Machine(instanceType)
	require.True(t, ok)
	machine.GPUs = slices.Clone(machine.GPUs)
	s.publish(s.nodes[0], machine)
	startScheduler(t)
	s.createPodGroup("job", 2)
	s.submit(job{name: "job", workers: 2, gpus: 2, resource: contract.ResourceTopologyGPU, labels: map[string]string{contract.PodGroupLabel: "job"}})
	pods := s.awaitBound("job")
	device := s.allocation(pods[0]).GPUs[0]

	machine.GPUs[device].Unhealthy = "XID 79: the GPU has fallen off the bus"
	s.publish(s.nodes[0], machine)
	text := fmt.Sprintf("GPU %d of node %s, which worker-0 has, is unhealthy: XID 79: the GPU has fallen off the bus", device, s.nodes[0])
	s.awaitDegraded("job", "True GPUUnhealthy: "+text)
	for _, name := range []string{pods[0].Name, pods[1].Name, "job"} {
		require.Eventually(t, func() bool { return slices.Equal(s.events(t.Context(), name, "GPUUnhealthy"), []string{text}) },
			settled, 100*time.Millisecond, name)
	}

	machine.GPUs[7].Unhealthy = "XID 48: double bit error"
	s.publish(s.nodes[0], machine)
	s.submit(topologyGang("three", 3, 1))
	for _, pod := range s.awaitBound("three") {
		assert.NotContains(t, s.allocation(pod).GPUs, 7)
	}
	s.submit(topologyGang("one", 1, 1))
	s.awaitReason("one", "0 of 1")

	machine.GPUs[device].Unhealthy, machine.GPUs[7].Unhealthy = "", ""
	s.publish(s.nodes[0], machine)
	s.awaitDegraded("job", recovered)
	assert.Equal(t, []int{7}, s.allocation(s.awaitBound("one")[0]).GPUs)
	s.requireNoSharedGPUs()
}
