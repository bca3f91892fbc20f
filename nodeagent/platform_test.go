package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// The agent's manifests are applied to the local platform, which starts the built
// agent with the rights that the manifests give it.
func TestAgentOnTheLocalPlatform(t *testing.T) {
	platform := localtest.Start(t)
	config, err := kube.ConfigFrom(kube.Access{Path: platform.Kubeconfig})
	require.NoError(t, err)
	client, err := kube.New(config)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()

	const node = "cn-local.10.0.9.1"
	makeNode(t, ctx, client, node)
	file := filepath.Join(platform.Dir, "hardware", node+".json")
	description, err := os.ReadFile("../internal/gpu/testdata/topologies/dgx1-v100.json")
	require.NoError(t, err)
	describe(t, file, string(description))
	objs, err := deploy.Objects(deploy.Options{Image: "gpuplan-node-agent"})
	require.NoError(t, err)
	require.NoError(t, client.ApplyAll(ctx, objs, nil))

	gpuNodes := schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
	mirrors := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	ready := func(status metav1.ConditionStatus) contract.GPUNodeStatus {
		t.Helper()
		obj, err := client.WaitFor(ctx, gpuNodes, "", node, func(obj *unstructured.Unstructured) (bool, string, error) {
			n := decode(t, obj)
			return len(n.Status.Conditions) == 1 && n.Status.Conditions[0].Status == status, "", nil
		}, nil)
		require.NoError(t, err)
		return decode(t, obj).Status
	}

	status := ready(metav1.ConditionTrue)
	assert.Equal(t, "X NV1 NV1 NV2 NV2 SYS SYS SYS", status.Links[0])
	_, err = client.WaitFor(ctx, mirrors, "kube-system", contract.TopologyConfigMapPrefix+node, func(obj *unstructured.Unstructured) (bool, string, error) {
		return obj.GetLabels()[contract.TopologyConfigMapNodeLabel] == node, "", nil
	}, nil)
	require.NoError(t, err)

	describe(t, file, strings.Replace(string(description), `{"index": 3,`, `{"index": 3, "unhealthy": "marked by hand",`, 1))
	status = ready(metav1.ConditionFalse)
	assert.Equal(t, contract.Unhealthy, status.GPUs[3].Health)
	assert.Equal(t, "marked by hand", status.GPUs[3].Reason)
	assert.NotNil(t, status.GPUs[3].Since)
	assert.EventuallyWithT(t, func(t *assert.CollectT) {
		events, err := client.Typed.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + node + ",reason=GPUUnhealthy"})
		require.NoError(t, err)
		require.Len(t, events.Items, 1)
		assert.Contains(t, events.Items[0].Message, "marked by hand")
	}, time.Minute, 100*time.Millisecond)

	assert.EventuallyWithT(t, func(t *assert.CollectT) {
		n, err := client.Typed.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		require.NoError(t, err)
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == contract.GPUsReadyCondition })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, "GPU 3: marked by hand", n.Status.Conditions[i].Message)
	}, time.Minute, 100*time.Millisecond)

	// An agent of before had written back an old state of a condition of another, and owns its status.
	checked := func(manager string, status metav1.ConditionStatus, time string) {
		t.Helper()
		obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Checked", "status": string(status), "reason": "Checked", "message": "", "lastTransitionTime": time,
		}}}}}
		obj.SetGroupVersionKind(gpuNodes)
		obj.SetName(node)
		_, err := client.ApplyAs(ctx, manager, obj, "status")
		require.NoError(t, err)
	}
	checked("checker", metav1.ConditionTrue, "2026-01-02T03:04:05Z")
	checked(contract.NodeAgentName, metav1.ConditionFalse, "2026-01-02T03:04:06Z")
	_, err = client.WaitFor(ctx, gpuNodes, "", node, func(obj *unstructured.Unstructured) (bool, string, error) {
		n := decode(t, obj)
		return n.Status.Agent != nil && len(n.Status.Conditions) == 2, "", nil
	}, nil)
	require.NoError(t, err, "the heartbeat comes through")

	require.NoError(t, client.DeleteAll(ctx, objs, nil))
	require.NoError(t, deploy.RemovePublished(ctx, client))
	for _, obj := range objs {
		_, err := client.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		assert.Error(t, err, "%s %s is gone", obj.GetKind(), obj.GetName())
	}
	_, err = client.Get(ctx, mirrors, "kube-system", contract.TopologyConfigMapPrefix+node)
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

// makeNode makes a simulated node in mode topology.
func makeNode(t *testing.T, ctx context.Context, client *kube.Client, name string) {
	t.Helper()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("64"), contract.ResourceTopologyGPU: resource.MustParse("8"),
	}
	_, err := client.Typed.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{contract.NodeModeLabel: "topology"},
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// describe writes a hardware description under another name and renames it.
func describe(t *testing.T, file, text string) {
	t.Helper()
	hidden := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
	require.NoError(t, os.WriteFile(hidden, []byte(text), 0o600))
	require.NoError(t, os.Rename(hidden, file))
}

func decode(t *testing.T, obj *unstructured.Unstructured) contract.GPUNode {
	t.Helper()
	var n contract.GPUNode
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &n))
	return n
}
