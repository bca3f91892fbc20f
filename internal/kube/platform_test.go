package kube_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// The small API server of the other tests knows neither schemas nor controllers;
// this one is real.
func TestAgainstARealControlPlane(t *testing.T) {
	config, err := kube.ConfigFrom(kube.Access{Path: localtest.Start(t).Kubeconfig})
	require.NoError(t, err)
	client, err := kube.New(config)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()

	t.Run("a conflict names the other manager", func(t *testing.T) {
		_, err := client.Apply(ctx, configMap("shared", "ours"))
		require.NoError(t, err)
		_, err = client.Typed.CoreV1().ConfigMaps("default").Patch(ctx, "shared", types.MergePatchType,
			[]byte(`{"data":{"key":"theirs"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
		require.NoError(t, err)

		_, err = client.Apply(ctx, configMap("shared", "ours"))
		var conflict *kube.ConflictError
		require.ErrorAs(t, err, &conflict)
		assert.Equal(t, []kube.Conflict{{Manager: "kubectl-edit", Field: ".data.key"}}, conflict.Conflicts)
		key := kube.Field{"data", "key"}
		theirs, err := client.Get(ctx, configMaps, "default", "shared")
		require.NoError(t, err)
		assert.Equal(t, []string{"kubectl-edit"}, kube.Managers(theirs, key))
		taken, err := client.Apply(ctx, configMap("shared", "ours"), key)
		require.NoError(t, err)
		assert.Equal(t, []string{contract.FieldManager}, kube.Managers(taken, key))
	})
	t.Run("a field that is no longer applied goes", func(t *testing.T) {
		_, err := client.Apply(ctx, object(configMaps, "default", "fields", map[string]any{"data": map[string]any{"a": "1", "b": "2"}}))
		require.NoError(t, err)
		obj, err := client.Apply(ctx, object(configMaps, "default", "fields", map[string]any{"data": map[string]any{"a": "1"}}))
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"a": "1"}, obj.Object["data"])
	})
	t.Run("of two who create an object the second is refused", func(t *testing.T) {
		_, err := client.Create(ctx, configMap("once", "one"))
		require.NoError(t, err)
		_, err = client.Create(ctx, configMap("once", "two"))
		assert.True(t, kube.IsAlreadyExists(err), "%v", err)
		obj, err := client.Get(ctx, configMaps, "default", "once")
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"key": "one"}, obj.Object["data"])
	})
	t.Run("what was created is changed by an apply", func(t *testing.T) {
		made := object(configMaps, "default", "made", map[string]any{"data": map[string]any{"a": "1", "b": "2", "theirs": "3"}})
		require.NoError(t, client.Manage(ctx, made), "nothing is there")
		_, err := client.Create(ctx, made)
		require.NoError(t, err)
		_, err = client.Typed.CoreV1().ConfigMaps("default").Patch(ctx, "made", types.MergePatchType,
			[]byte(`{"data":{"theirs":"4"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
		require.NoError(t, err)

		for range 2 { // the second time nothing is left to do
			require.NoError(t, client.Manage(ctx, made))
		}
		obj, err := client.Apply(ctx, object(configMaps, "default", "made", map[string]any{"data": map[string]any{"a": "2"}}))
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"a": "2", "theirs": "4"}, obj.Object["data"])
		_, err = client.Apply(ctx, made)
		var conflict *kube.ConflictError
		require.ErrorAs(t, err, &conflict)
		assert.Equal(t, []kube.Conflict{{Manager: "kubectl-edit", Field: ".data.theirs"}}, conflict.Conflicts)
	})
	t.Run("what others have made is amended, and made by nobody", func(t *testing.T) {
		configMapsOf := client.Typed.CoreV1().ConfigMaps("default")
		_, err := configMapsOf.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Data: map[string]string{"theirs": "1"}}, metav1.CreateOptions{FieldManager: "kubectl"})
		require.NoError(t, err)
		data := func() map[string]string {
			live, err := configMapsOf.Get(ctx, "theirs", metav1.GetOptions{})
			require.NoError(t, err)
			return live.Data
		}
		theirs := func(value string) {
			_, err := configMapsOf.Patch(ctx, "theirs", types.MergePatchType, []byte(`{"data":{"theirs":"`+value+`"}}`), metav1.PatchOptions{FieldManager: "kubectl"})
			require.NoError(t, err)
		}
		amend := func(fields map[string]any, before func(), takes ...kube.Field) error {
			return client.Amend(ctx, configMaps, "default", "theirs", func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
				before()
				return &unstructured.Unstructured{Object: map[string]any{"data": fields}}, nil
			}, takes...)
		}
		nothing := func() {}
		require.NoError(t, amend(map[string]any{"ours": "1"}, nothing))
		assert.Equal(t, map[string]string{"theirs": "1", "ours": "1"}, data())

		times := 0
		require.NoError(t, amend(map[string]any{"ours": "2"}, func() {
			if times++; times == 1 {
				theirs("2")
			}
		}))
		assert.Equal(t, 2, times, "asked again when the object has changed")
		assert.Equal(t, map[string]string{"theirs": "2", "ours": "2"}, data())

		var conflict *kube.ConflictError
		wanted := configMap("theirs", "")
		wanted.Object["data"] = map[string]any{"theirs": "3"}
		require.ErrorAs(t, client.TryApply(ctx, wanted), &conflict)
		assert.Equal(t, []kube.Conflict{{Manager: "kubectl", Field: ".data.theirs"}}, conflict.Conflicts)
		require.NoError(t, client.TryApply(ctx, wanted, kube.Field{"data", "theirs"}))
		require.ErrorAs(t, amend(map[string]any{"theirs": "3"}, nothing), &conflict)
		assert.Equal(t, map[string]string{"theirs": "2", "ours": "2"}, data(), "nothing was written")

		require.NoError(t, amend(nil, nothing))
		assert.Equal(t, map[string]string{"theirs": "2"}, data(), "what is ours alone goes")
		err = amend(map[string]any{"ours": "3"}, func() { require.NoError(t, configMapsOf.Delete(ctx, "theirs", metav1.DeleteOptions{})) })
		assert.True(t, kube.IsNotFound(err), "%v", err)
		_, err = client.Get(ctx, configMaps, "default", "theirs")
		assert.True(t, kube.IsNotFound(err), "nor is it made again: %v", err)
	})
	t.Run("a program comes and goes", func(t *testing.T) {
		objs := realProgram()
		require.NoError(t, client.ApplyAll(ctx, objs, nil))
		version, served, err := client.Served(ctx, "example.com", "Widget")
		require.NoError(t, err)
		assert.True(t, served)
		assert.Equal(t, "v1", version)

		require.NoError(t, client.DeleteAll(ctx, objs, nil))
		for _, obj := range objs {
			_, err := client.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
			assert.Error(t, err, "%s is gone", obj.GetKind())
		}
		require.NoError(t, client.ApplyAll(ctx, objs, nil), "at once again")
		require.NoError(t, client.DeleteAll(ctx, objs, nil))
	})
	t.Run("a kind of which others have objects stays", func(t *testing.T) {
		objs := realProgram()
		require.NoError(t, client.ApplyAll(ctx, objs, nil))
		theirs := object(widgets, "default", "theirs", nil)
		_, err := client.ApplyAs(ctx, "kubectl", theirs)
		require.NoError(t, err)
		require.NoError(t, client.DeleteAll(ctx, objs, nil))
		crd, err := client.Get(ctx, crds, "", "widgets.example.com")
		require.NoError(t, err)
		others, err := client.OthersOf(ctx, crd)
		require.NoError(t, err)
		require.Len(t, others, 1)
		assert.Equal(t, "theirs", others[0].GetName())

		require.NoError(t, client.ApplyAll(ctx, objs, nil), "the next install takes it over")
		require.NoError(t, client.Delete(ctx, widgets, "default", "theirs"))
		require.NoError(t, client.DeleteAll(ctx, objs, nil))
		_, err = client.List(ctx, widgets, "default", "")
		require.ErrorIs(t, err, kube.ErrNotServed)
	})
	t.Run("a delete takes what the object owns", func(t *testing.T) {
		owner, err := client.Apply(ctx, configMap("owner", "x"))
		require.NoError(t, err)
		owned := configMap("owned", "x")
		blocks := true
		owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.GetUID(), BlockOwnerDeletion: &blocks}})
		_, err = client.Apply(ctx, owned)
		require.NoError(t, err)

		require.NoError(t, client.Delete(ctx, configMaps, "default", "owner"))
		_, err = client.Get(ctx, configMaps, "default", "owned")
		assert.True(t, kube.IsNotFound(err), "%v", err)
	})
	t.Run("a wait sees the change", func(t *testing.T) {
		_, err := client.Apply(ctx, configMap("watched", "pending"))
		require.NoError(t, err)
		applied := make(chan error, 1)
		_, err = client.WaitFor(ctx, configMaps, "default", "watched", untilValue("done"), func(status string) {
			if status == "pending" {
				go func() {
					_, err := client.Apply(ctx, configMap("watched", "done"))
					applied <- err
				}()
			}
		})
		require.NoError(t, err)
		require.NoError(t, <-applied)
	})
}

// realProgram is program with schemas that a real API server accepts.
func realProgram() []*unstructured.Unstructured {
	ours := []string{contract.ManagedByLabel, contract.ManagedByValue}
	crd := widgetCRD(ours...)
	_ = unstructured.SetNestedSlice(crd.Object, []any{map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
	}}, "spec", "versions")
	serviceAccount := schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	return []*unstructured.Unstructured{
		object(serviceAccount, "ours", "program", nil, ours...),
		crd,
		object(namespaces, "", "ours", nil, ours...),
	}
}
