package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// machine describes simulated nodes.
type machine struct {
	count int
	mode  string
	// extra is added to what the node offers.
	extra  corev1.ResourceList
	taints []corev1.Taint
	labels map[string]string
}

// testCluster is a test's own namespace and nodes.
type testCluster struct {
	t         *testing.T
	namespace string
	nodes     []string
}

// newTestCluster makes a namespace and nodes, and takes both away after the test.
func newTestCluster(t *testing.T, machines ...machine) *testCluster {
	t.Helper()
	connect(t)
	ctx := t.Context()
	namespace, err := api().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s := &testCluster{t: t, namespace: namespace.Name}
	for _, m := range machines {
		for range m.count {
			s.addNode(m)
		}
	}
	t.Cleanup(s.close)
	return s
}

func (s *testCluster) addNode(m machine) string {
	s.t.Helper()
	name := fmt.Sprintf("%s-%d", s.namespace, len(s.nodes))
	offers := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("80"),
		corev1.ResourceMemory: resource.MustParse("300Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	switch m.mode {
	case "topology":
		offers[contract.ResourceTopologyGPU] = resource.MustParse("8")
	case "default":
		offers[contract.ResourceDefaultGPU] = resource.MustParse("8")
	}
	for name, quantity := range m.extra {
		offers[name] = quantity
	}
	labels := map[string]string{
		contract.NodeModeLabel:     m.mode,
		contract.NodePoolNameLabel: s.namespace,
		contract.InstanceTypeLabel: instanceType,
		corev1.LabelHostname:       name,
	}
	for key, value := range m.labels {
		labels[key] = value
	}
	_, err := api().CoreV1().Nodes().Create(s.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Spec:       corev1.NodeSpec{Taints: m.taints},
		Status:     corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.nodes = append(s.nodes, name)
	s.await("node "+name+" to be ready", func(ctx context.Context) (bool, string) {
		node, err := api().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		ready := false
		for _, condition := range node.Status.Conditions {
			ready = ready || condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}
		return ready && len(node.Spec.Taints) == len(m.taints), fmt.Sprint(node.Spec.Taints)
	})
	return name
}

// close takes away what the test has made, and waits until its pods are gone: a controller may recreate
// them as long as the namespace is there, and a scheduler of the next test would place them.
func (s *testCluster) close() {
	ctx := context.Background()
	now := int64(0)
	if err := api().CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
	}
	assert.EventuallyWithT(s.t, func(c *assert.CollectT) {
		pods := api().CoreV1().Pods(s.namespace)
		assert.NoError(c, pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
		list, err := pods.List(ctx, metav1.ListOptions{})
		assert.NoError(c, err)
		assert.Empty(c, list.Items)
	}, settled, 50*time.Millisecond)
	for _, node := range s.nodes {
		if err := api().CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	}
}
