package kube_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

func driftingMap(value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "default", "name": "drifting"},
		"data":     map[string]any{"key": value, "other": "same"},
	}}
}

func TestDrift(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)

	_, err = client.Drift(t.Context(), driftingMap("a"))
	assert.True(t, kube.IsNotFound(err), "%v", err)

	_, err = client.Apply(t.Context(), driftingMap("a"))
	require.NoError(t, err)
	paths, err := client.Drift(t.Context(), driftingMap("a"))
	require.NoError(t, err)
	assert.Empty(t, paths)

	server.Put(driftingMap("b")) // someone else takes the object over
	paths, err = client.Drift(t.Context(), driftingMap("a"))
	require.NoError(t, err)
	assert.Equal(t, []string{".data.key"}, paths)
	live, err := client.Get(t.Context(), driftingMap("").GroupVersionKind(), "default", "drifting")
	require.NoError(t, err)
	assert.Equal(t, "b", live.Object["data"].(map[string]any)["key"], "looking at drift changes nothing")

	_, err = client.Apply(t.Context(), driftingMap("a"))
	assert.ErrorAs(t, err, new(*kube.ConflictError))
	_, err = client.TakeOver(t.Context(), driftingMap("a"))
	require.NoError(t, err)
	paths, err = client.Drift(t.Context(), driftingMap("a"))
	require.NoError(t, err)
	assert.Empty(t, paths)
}

// What the API server counts itself, by what it is asked, is no drift.
func TestGenerationOfATemplateIsNoDrift(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	counted := func(value, generation string) *unstructured.Unstructured {
		obj := driftingMap(value)
		obj.SetAnnotations(map[string]string{appsv1.DeprecatedTemplateGeneration: generation})
		return obj
	}
	server.Put(counted("a", "1"))
	paths, err := client.Drift(t.Context(), counted("b", "2"))
	require.NoError(t, err)
	assert.Equal(t, []string{".data.key"}, paths)
}
