package main

import (
	"context"
	"log/slog"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/topology"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
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

	nodeIsLabelled(t, ctx, config, client)

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

// The API server takes the labels from the agent's account, which may change the status of Nodes alone, keeps them apart from
// others' labels, and takes them back.
func nodeIsLabelled(t *testing.T, ctx context.Context, config *rest.Config, client *kube.Client) {
	t.Helper()
	const node = "cn-local.10.0.9.2"
	makeNode(t, ctx, client, node)
	// Someone has written a label of his own, and one of these with another value.
	update := func(change func(labels map[string]string)) {
		t.Helper()
		require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			n, err := client.Typed.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			require.NoError(t, err)
			change(n.Labels)
			_, err = client.Typed.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{FieldManager: "someone"})
			return err
		}))
	}
	update(func(labels map[string]string) {
		labels["example.com/rack"], labels[contract.GFDMachineLabel] = "7", "theirs"
	})
	labels := func(has func(labels map[string]string) bool) map[string]string {
		t.Helper()
		var labels map[string]string
		require.Eventually(t, func() bool {
			n, err := client.Typed.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			require.NoError(t, err)
			labels = n.Labels
			return has(labels)
		}, time.Minute, 50*time.Millisecond)
		return labels
	}

	account := rest.CopyConfig(config)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + contract.SystemNamespace + ":" + contract.NodeAgentName, Groups: []string{"system:authenticated"},
	}
	limited, err := kube.New(account)
	require.NoError(t, err)
	_, err = limited.ApplyBeside(ctx, "x", &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node}}})
	require.ErrorContains(t, err, "forbidden", "the account has no right to change Nodes")
	serving, stop := context.WithCancel(ctx)
	defer stop()
	nodes, err := cluster.Start(serving, limited.Dynamic, node)
	require.NoError(t, err)
	agent := &topology.Agent{
		Client: limited, Nodes: nodes, Events: record.NewFakeRecorder(100), Metrics: metrics.New(), Alive: new(watchdog.Alive),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Interval: 100 * time.Millisecond, Instance: "labels", Started: time.Now(), FeatureLabels: true,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		agent.Serve(serving, node, h100{})
	}()

	have := labels(func(labels map[string]string) bool { return labels[contract.GFDProductLabel] != "" })
	assert.Equal(t, "NVIDIA-H100-80GB-HBM3", have[contract.GFDProductLabel])
	assert.Equal(t, "1", have[contract.GFDCountLabel])
	assert.Equal(t, "theirs", have[contract.GFDMachineLabel])
	assert.Equal(t, "7", have["example.com/rack"])
	update(func(labels map[string]string) { delete(labels, contract.GFDMachineLabel) })
	labels(func(labels map[string]string) bool { return labels[contract.GFDMachineLabel] == "unknown" })
	update(func(labels map[string]string) { labels[contract.GFDProductLabel] = "theirs" })
	update(func(labels map[string]string) { delete(labels, contract.GFDCountLabel) })
	have = labels(func(labels map[string]string) bool { return labels[contract.GFDCountLabel] == "1" })
	assert.Equal(t, "theirs", have[contract.GFDProductLabel])
	stop()
	<-done

	require.NoError(t, deploy.RemovePublished(ctx, client))
	have = labels(func(labels map[string]string) bool { return labels[contract.GFDCountLabel] == "" })
	assert.NotContains(t, have, contract.GFDMachineLabel)
	assert.Equal(t, "theirs", have[contract.GFDProductLabel])
	assert.Equal(t, "7", have["example.com/rack"])
	assert.Equal(t, "topology", have[contract.NodeModeLabel])
}

// h100 is a machine with one GPU.
type h100 struct{}

func (h100) Read(context.Context) (hardware.Reading, error) {
	return hardware.Reading{
		Machine: gpu.Machine{Model: "NVIDIA H100 80GB HBM3", GPUs: []gpu.GPU{{UUID: "GPU-0", MemoryMiB: 81559}}, Links: [][]gpu.Link{{{Class: gpu.Self}}}},
		GPUs:    []hardware.GPU{{}},
	}, nil
}
func (h100) Events() []hardware.Signal { return nil }
func (h100) Changed() <-chan struct{}  { return nil }

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
