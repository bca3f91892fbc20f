package nodegpu_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// A real API server knows several owners of one label, and the device plugins of the platform follow it.
func TestNodeGPUOnTheLocalPlatform(t *testing.T) {
	acctest.ClearEnv(t)
	platform := localtest.Start(t)
	for name, value := range platform.Env {
		t.Setenv(name, value)
	}
	client, err := kube.New(platform.Config(t))
	require.NoError(t, err)
	nodes := client.Typed.CoreV1().Nodes()
	made, err := acctest.Node(acsfake.Node{Name: "own-1", InstanceType: v100, Mode: "default", Labels: map[string]string{contract.InstanceTypeLabel: v100}, Created: time.Now()})
	require.NoError(t, err)
	var node corev1.Node
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, &node))
	node.Annotations = map[string]string{"kwok.x-k8s.io/node": "fake"}
	node.Status.Capacity = node.Status.Allocatable
	_, err = nodes.Create(t.Context(), &node, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, nodes.Delete(context.Background(), "own-1", metav1.DeleteOptions{})) })

	mode := kube.Field{"metadata", "labels", contract.NodeModeLabel}
	live := func() *unstructured.Unstructured {
		obj, err := client.Get(t.Context(), kind, "", "own-1")
		require.NoError(t, err)
		return obj
	}
	config := with(`nodes = ["own-1"]`, `name = "own"`)
	cli := acctest.StartCLI(t)
	cli.Write(t, config+"output \"free\" {\n  value = gpuplan_node_gpu.x.capacity.free_gpus\n}\n")
	cli.Must(t, "apply", "-auto-approve")
	assert.Equal(t, "8", strings.TrimSpace(cli.Must(t, "output", "-raw", "free")))
	assert.Equal(t, []string{contract.FieldManager}, kube.Managers(live(), mode))
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")

	_, err = nodes.Patch(t.Context(), "own-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"ack.node.gpu.schedule":"default"}}}`), metav1.PatchOptions{FieldManager: "kubectl-label"})
	require.NoError(t, err)
	said := cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, acctest.Unwrapped(said), "own-1 (label ack.node.gpu.schedule is default, should be topology, set by kubectl-label)")
	assert.Equal(t, "topology", live().GetLabels()[contract.NodeModeLabel])
	assert.Equal(t, []string{contract.FieldManager}, kube.Managers(live(), mode))

	theirs := &unstructured.Unstructured{}
	theirs.SetGroupVersionKind(kind)
	theirs.SetName("own-1")
	theirs.SetLabels(map[string]string{contract.NodeModeLabel: "topology"})
	_, err = client.ApplyAs(t.Context(), "karpenter", theirs)
	require.NoError(t, err)
	cli.Must(t, "destroy", "-auto-approve")
	assert.Equal(t, "topology", live().GetLabels()[contract.NodeModeLabel], "someone else wants it, too")
	assert.NotContains(t, live().GetLabels(), contract.NodePoolNameLabel)
	assert.NotContains(t, live().GetAnnotations(), contract.OwnerLabel)

	cli.Write(t, with(`nodes = ["own-1"]`, `name = "own"`, `mode = "share"`))
	said, err = cli.Run("plan")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), `on node own-1 it is "topology", set by "karpenter"`)
}
