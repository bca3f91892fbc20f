package clustercache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// oneTeam is a quota tree with one leaf, for the namespace of the tests.
var oneTeam = podtest.QuotaTree(map[string]any{"name": "root", "children": []any{
	map[string]any{"name": "team", "namespaces": []any{"ns"}, "max": map[string]any{"cpu": "2"}},
}})

func TestManage(t *testing.T) {
	controller := true
	ofDaemon := podtest.New("pod", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "daemon", Controller: &controller}}
	})
	tests := map[string]struct {
		pod  *corev1.Pod
		tree bool
		want bool
	}{
		"in a leaf":            {podtest.New("pod"), true, true},
		"without a tree":       {podtest.New("pod"), false, false},
		"in an unknown leaf":   {podtest.New("pod", podtest.Label(contract.QuotaLabel, "nobody")), true, false},
		"bound":                {podtest.New("pod", podtest.OnNode("a")), true, false},
		"of a DaemonSet":       {ofDaemon, true, false},
		"planned in any case":  {podtest.New("pod", podtest.Asks(contract.ResourceTopologyGPU, 1)), true, false},
		"a gang without a GPU": {podtest.New("pod", podtest.Label(contract.TopologyGroupLabel, "job")), true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			if test.tree {
				_, err := c.SetQuotaTree(oneTeam)
				require.NoError(t, err)
			}
			key, _ := c.Manage(test.pod)
			assert.Empty(t, key, "the cache has not seen it")
			c.SetPod(test.pod)
			_, before := c.PlanKey(test.pod)
			key, ok := c.Manage(test.pod)
			assert.Equal(t, test.want, ok)
			_, after := c.PlanKey(test.pod)
			assert.Equal(t, before || test.want, after)
			if test.want {
				assert.Equal(t, "pod/ns/pod", key)
				assert.True(t, c.Planned(test.pod))
				assert.Equal(t, []string{key}, c.Pending())
			}
		})
	}
}

func TestManagedUntilBound(t *testing.T) {
	c := newCache(t, "a")
	_, err := c.SetQuotaTree(oneTeam)
	require.NoError(t, err)
	c.SetPod(podtest.New("pod"))
	key, ok := c.Manage(podtest.New("pod"))
	require.True(t, ok)
	d, _, err := c.Decide(key, Limits{}, func(*Decision) bool { return true })
	require.NoError(t, err)
	require.Len(t, d.Assumed, 1)
	assert.True(t, c.Planned(podtest.New("pod")), "while it is being bound")
	bound := podtest.New("pod", podtest.OnNode("a"))
	assert.Equal(t, clusterstate.Change{Bound: key, Placed: true}, c.SetPod(bound))
	assert.False(t, c.Planned(bound))
	assert.NotEmpty(t, c.OverQuota(podtest.New("other", podtest.Asks("cpu", 2))), "charged still")
	assert.Equal(t, clusterstate.Change{Freed: true, Departed: true}, c.RemovePod(bound.UID))
}

// A scheduler that starts knows by the nomination whom the one before had managed, in
// whichever order it learns of pod and tree.
func TestManagedBefore(t *testing.T) {
	nominated := podtest.New("pod", func(p *corev1.Pod) { p.Status.NominatedNodeName = "a" })
	for _, treeFirst := range []bool{true, false} {
		c := newCache(t, "a")
		if treeFirst {
			_, err := c.SetQuotaTree(oneTeam)
			require.NoError(t, err)
		}
		c.SetPod(nominated)
		if !treeFirst {
			assert.Empty(t, c.Nominated(), "without a tree it is kube-scheduler's own preemption")
			_, err := c.SetQuotaTree(oneTeam)
			require.NoError(t, err)
		}
		assert.Equal(t, []string{"pod/ns/pod"}, c.Nominated())
	}
}
