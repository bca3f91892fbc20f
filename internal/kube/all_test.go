package kube_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	assert.Empty(t, crd.GetLabels(), "not taken over")

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

// With a namespace goes all that is in it.
func TestNamespacesWithObjectsOfOthersStay(t *testing.T) {
	kind := func(group, name string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: name}
	}
	published := []string{contract.PartOfLabel, contract.PartOfValue}
	installedBy := func(manager string) []string {
		return append(slices.Clone(published), contract.ManagedByLabel, manager)
	}
	token := map[string]any{"type": "kubernetes.io/service-account-token"}
	for name, test := range map[string]struct {
		object *unstructured.Unstructured
		stays  string // "" where the namespace goes
		others bool
	}{
		"a claim":                             {object(kind("", "PersistentVolumeClaim"), "ours", "data", nil), "what others have made would go with it, such as PersistentVolumeClaim ours/data", true},
		"a secret":                            {object(kind("", "Secret"), "ours", "password", nil), "what others have made would go with it, such as Secret ours/password", true},
		"an object of a kind of ours":         {object(widgets, "ours", "theirs", nil), "what others have made would go with it, such as Widget ours/theirs", true},
		"a program that Helm has installed":   {object(kind("", "ServiceAccount"), "ours", "agent", nil, installedBy("Helm")...), "what others have made would go with it, such as ServiceAccount ours/agent", true},
		"a program of ours that is installed": {object(kind("", "ServiceAccount"), "ours", "agent", nil, installedBy(contract.ManagedByValue)...), "ServiceAccount ours/agent is in it", false},
		"what a program has published":        {object(configMaps, "ours", "published", nil, published...), "", false},
		"certificates of the cluster":         {object(configMaps, "ours", "kube-root-ca.crt", nil), "", false},
		"the default account":                 {object(kind("", "ServiceAccount"), "ours", "default", nil), "", false},
		"the token of an account":             {object(kind("", "Secret"), "ours", "default-token-x", token), "", false},
		"an event":                            {object(kind("", "Event"), "ours", "x", nil), "", false},
		"a lease":                             {object(kind("coordination.k8s.io", "Lease"), "ours", "gpuplan-scheduler", nil), "", false},
		"a certificate of Istio's":            {object(configMaps, "ours", "istio-ca-root-cert", nil), "", false},
		"what belongs to another object":      {ownedBy(object(kind("", "Secret"), "ours", "agent-dockercfg", nil)), "", false},
		"an object elsewhere":                 {object(kind("", "Secret"), "default", "password", nil), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			server, client, ctx := start(t)
			require.NoError(t, client.ApplyAll(ctx, program(), nil))
			server.Put(test.object)
			var told []string
			require.NoError(t, client.DeleteAll(ctx, program(), func(status string) { told = append(told, status) }))
			namespace, err := client.Get(ctx, namespaces, "", "ours")
			if test.stays == "" {
				assert.True(t, kube.IsNotFound(err), "%v", err)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, told, "keeping Namespace ours: "+test.stays)
			others, err := client.OthersOf(ctx, namespace)
			require.NoError(t, err)
			assert.Equal(t, test.others, len(others) == 1)
		})
	}
}

// ownedBy has an object belong to another one.
func ownedBy(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: "agent", UID: "1"}})
	return obj
}

// A namespace in which there may be what nobody has seen stays; a kind that has gone since discovery had none.
func TestNamespacesThatCannotBeSeen(t *testing.T) {
	for name, test := range map[string]struct {
		code  int
		stays string
	}{
		"may not be listed":        {http.StatusForbidden, "what is in namespace ours is not known: secrets is forbidden"},
		"is served no more":        {http.StatusNotFound, ""},
		"is of a kind not to list": {http.StatusMethodNotAllowed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server, client, ctx := start(t)
			require.NoError(t, client.ApplyAll(ctx, program(), nil))
			config := server.Config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path != "/api/v1/namespaces/ours/secrets" {
						return next.RoundTrip(r)
					}
					answer := httptest.NewRecorder()
					answer.Header().Set("Content-Type", "application/json")
					answer.WriteHeader(test.code)
					reason := map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed}[test.code]
					require.NoError(t, json.NewEncoder(answer).Encode(metav1.Status{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
						Code: int32(test.code), Reason: reason, Message: "secrets is forbidden",
					}))
					return answer.Result(), nil
				})
			})
			restricted, err := kube.New(config)
			require.NoError(t, err)
			var told []string
			require.NoError(t, restricted.DeleteAll(ctx, program(), func(status string) { told = append(told, status) }))
			namespace, err := client.Get(ctx, namespaces, "", "ours")
			if test.stays == "" {
				assert.True(t, kube.IsNotFound(err), "%v", err)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, strings.Join(told, "\n"), "keeping Namespace ours: "+test.stays)
			_, err = restricted.OthersOf(ctx, namespace)
			unseen := (*kube.UnseenError)(nil)
			require.ErrorAs(t, err, &unseen)
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
