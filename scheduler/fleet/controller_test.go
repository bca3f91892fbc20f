package fleet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// A cluster takes no new job as long as its picture lacks the place of one that was sent there before.
func TestPlacesThatAreNotKnownYet(t *testing.T) {
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	c := newController(t.Context(), client)
	for name, text := range map[string]string{
		"sent":    `{metadata: {name: sent, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}, clusters: [{name: a}]}}`,
		"known":   `{metadata: {name: known, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}, clusters: [{name: b}]}}`,
		"waiting": `{metadata: {name: waiting, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}}}`,
	} {
		c.setBinding(t.Context(), object(t, text))
		c.sent["default/"+name] = name == "known"
	}
	assert.Equal(t, map[string]bool{"a": true}, c.incomplete())
	c.sent["default/sent"] = true
	assert.Empty(t, c.incomplete())

	m := newMember(t)
	m.end = func() {}
	c.members["b"] = m
	c.forget("b", m)
	assert.Equal(t, map[string]bool{"b": true}, c.incomplete(), "the next picture of the cluster lacks it")
	c.removeBinding(object(t, `{metadata: {name: known, namespace: default}}`))
	assert.Empty(t, c.incomplete())
}

// A hub whose clusters are served by another API server than its own, as Karmada's is, has no CRD of them.
func TestClustersWithoutACRD(t *testing.T) {
	hub, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	cluster := object(t, `{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: m}}`)
	hub.Dynamic = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{clusters: "ClusterList"}, cluster)
	c := newController(t.Context(), hub)
	known, err := c.followClusters(t.Context())
	require.NoError(t, err)
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), known))
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Contains(t, c.clusters, "m")
}
