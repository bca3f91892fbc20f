package kube_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// program is a set of objects in the order in which a person would write them.
func program() []*unstructured.Unstructured {
	ours := []string{contract.ManagedByLabel, contract.ManagedByValue}
	return []*unstructured.Unstructured{
		object(deployments, "ours", "program", map[string]any{"spec": map[string]any{"replicas": int64(1)}}, ours...),
		object(widgets, "ours", "w", nil, ours...),
		widgetCRD(ours...),
		object(namespaces, "", "ours", nil, ours...),
	}
}

func TestApplyAllAndDeleteAll(t *testing.T) {
	server, client, ctx := start(t)
	var told []string
	tell := func(status string) { told = append(told, status) }

	require.NoError(t, client.ApplyAll(ctx, program(), tell))
	assert.Equal(t, []string{
		"applying Namespace ours",
		"applying CustomResourceDefinition widgets.example.com",
		"applying Deployment ours/program",
		"applying Widget ours/w",
	}, told)

	before := server.Writes()
	require.NoError(t, client.ApplyAll(ctx, program(), nil))
	assert.Equal(t, before, server.Writes(), "a second apply changes nothing")

	require.NoError(t, client.DeleteAll(ctx, program(), nil))
	for _, obj := range program() {
		_, err := client.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		assert.Error(t, err, "%s %s is gone", obj.GetKind(), obj.GetName())
	}
	require.NoError(t, client.DeleteAll(ctx, program(), nil), "deleting again is success")
}

func TestNamespacesAreDeletedTogether(t *testing.T) {
	_, client, ctx := start(t)
	ours := []string{contract.ManagedByLabel, contract.ManagedByValue}
	objs := []*unstructured.Unstructured{object(namespaces, "", "one", nil, ours...), object(namespaces, "", "two", nil, ours...)}
	require.NoError(t, client.ApplyAll(ctx, objs, nil))

	var told []string
	require.NoError(t, client.DeleteAll(ctx, objs, func(status string) { told = append(told, status) }))
	require.GreaterOrEqual(t, len(told), 2)
	assert.Equal(t, []string{"deleting Namespace two", "deleting Namespace one"}, told[:2], "neither waits for the other")
	for _, obj := range objs {
		_, err := client.Get(ctx, namespaces, "", obj.GetName())
		assert.True(t, kube.IsNotFound(err), "%v", err)
	}
}

func TestNamespacesAndCRDsOfOthersStay(t *testing.T) {
	server, client, ctx := start(t)
	server.Put(object(namespaces, "", "ours", nil))
	server.Put(widgetCRD())

	require.NoError(t, client.ApplyAll(ctx, program(), nil))
	crd, err := client.Get(ctx, crds, "", "widgets.example.com")
	require.NoError(t, err)
	assert.Empty(t, crd.GetLabels(), "not adopted")

	var told []string
	require.NoError(t, client.DeleteAll(ctx, program(), func(status string) { told = append(told, status) }))
	assert.Contains(t, told, "keeping CustomResourceDefinition widgets.example.com: it was not created by "+contract.ManagedByValue)
	for _, kept := range program()[2:] {
		_, err := client.Get(ctx, kept.GroupVersionKind(), "", kept.GetName())
		assert.NoError(t, err)
	}
	_, err = client.Get(ctx, deployments, "ours", "program")
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

func TestDeleteAllKeepsWhatOthersStillUse(t *testing.T) {
	server, client, ctx := start(t)
	require.NoError(t, client.ApplyAll(ctx, program(), nil))
	server.Put(object(deployments, "ours", "another-program", nil))
	server.Put(object(widgets, "default", "someone's", nil))

	require.NoError(t, client.DeleteAll(ctx, program(), nil))
	for _, kept := range program()[2:] {
		_, err := client.Get(ctx, kept.GroupVersionKind(), "", kept.GetName())
		assert.NoError(t, err, "%s is still in use", kept.GetKind())
	}

	server.Remove(deployments, "ours", "another-program")
	server.Remove(widgets, "default", "someone's")
	server.Put(object(widgets, "default", "published", nil, contract.PartOfLabel, contract.PartOfValue))
	require.NoError(t, client.DeleteAll(ctx, program(), nil))
	for _, gone := range program()[2:] {
		_, err := client.Get(ctx, gone.GroupVersionKind(), "", gone.GetName())
		assert.True(t, kube.IsNotFound(err), "%s: %v", gone.GetKind(), err)
	}
}
