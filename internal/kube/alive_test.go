package kube_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

func TestAlive(t *testing.T) {
	object := func(apiVersion, kind string, more map[string]any) *unstructured.Unstructured {
		content := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": "ns", "name": "it"}}
		for key, value := range more {
			content[key] = value
		}
		return &unstructured.Unstructured{Object: content}
	}
	deployment := func(available int64) *unstructured.Unstructured {
		return object("apps/v1", "Deployment", map[string]any{"status": map[string]any{"availableReplicas": available}})
	}
	lease := func(holder string, age time.Duration) *unstructured.Unstructured {
		renewed := time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
		return object("coordination.k8s.io/v1", "Lease", map[string]any{"spec": map[string]any{"holderIdentity": holder, "renewTime": renewed}})
	}
	for name, test := range map[string]struct {
		objects []*unstructured.Unstructured
		alive   bool
	}{
		"nothing":                     {nil, false},
		"runs":                        {[]*unstructured.Unstructured{deployment(1)}, true},
		"installed, does not run":     {[]*unstructured.Unstructured{deployment(0)}, false},
		"runs outside of the cluster": {[]*unstructured.Unstructured{lease("host", time.Second)}, true},
		"has ended":                   {[]*unstructured.Unstructured{lease("", time.Second)}, false},
		"was killed":                  {[]*unstructured.Unstructured{lease("host", time.Hour)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubetest.Start(t)
			for _, o := range test.objects {
				server.Put(o)
			}
			client, err := kube.New(server.Config())
			require.NoError(t, err)
			alive, known, err := client.Alive(t.Context(), "ns", "it")
			require.NoError(t, err)
			assert.True(t, known)
			assert.Equal(t, test.alive, alive)
		})
	}
}
