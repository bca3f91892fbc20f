package clustercache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// teamTree has one leaf with a namespace; its minimum is as given, its maximum is 2.
func teamTree(low string) *unstructured.Unstructured {
	return podtest.QuotaTree(map[string]any{"name": "root", "children": []any{
		map[string]any{"name": "team", "namespaces": []any{"ns"}, "min": map[string]any{"cpu": low}, "max": map[string]any{"cpu": "2"}},
	}})
}

// What an invalid tree governs is held back, whether the tree was valid before or the
// scheduler has just started, and starts once the tree is valid.
func TestInvalidTreeHoldsBack(t *testing.T) {
	for name, before := range map[string]*unstructured.Unstructured{"it was valid": teamTree("1"), "after a restart": nil} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			if before != nil {
				_, err := c.SetQuotaTree(before)
				require.NoError(t, err)
			}
			pods := podtest.Gang(4)
			for _, p := range pods {
				c.SetPod(p)
			}
			change, err := c.SetQuotaTree(teamTree("3"))
			require.ErrorContains(t, err, "quota tree is invalid: root/team: min of cpu")
			assert.True(t, change.Rules)
			assert.Equal(t, err.Error(), c.OverQuota(podtest.New("pod")))
			assert.Equal(t, err.Error(), c.OverQuota(podtest.New("pod", podtest.InNamespace("other"), podtest.Label(contract.QuotaLabel, "team"))))
			assert.Empty(t, c.OverQuota(podtest.New("pod", podtest.InNamespace("other"))))

			assert.Equal(t, err.Error(), c.GangStatus("ns/job", pods[0].UID).MissingText)
			assert.Empty(t, c.Pending())
			d, ok, _ := c.Decide("ns/job", Limits{}, nil)
			require.True(t, ok)
			assert.Equal(t, err.Error(), d.MissingText)
			state, _ := c.Snapshot().Gang("ns/job")
			assert.Equal(t, err.Error(), state.Barred)

			change, err = c.SetQuotaTree(teamTree("2"))
			require.NoError(t, err)
			assert.True(t, change.Freed && change.Rules)
			assert.Empty(t, c.OverQuota(podtest.New("pod")))
			assert.Equal(t, []string{"ns/job"}, c.Pending())
		})
	}
}

// What names a leaf that the tree in force lacks does not start, whether it asks for GPUs or
// not, until the tree has the leaf.
func TestUnknownLeafHoldsBack(t *testing.T) {
	c := newCache(t, "a")
	named := podtest.Label(contract.QuotaLabel, "late")
	assert.Empty(t, c.OverQuota(podtest.New("pod", named)), "without a tree there are no limits")
	_, err := c.SetQuotaTree(teamTree("1"))
	require.NoError(t, err)
	missing := `the quota tree has no leaf "late"; its leaves are team`
	assert.Equal(t, missing, c.OverQuota(podtest.New("pod", named)))
	assert.Equal(t, missing, c.OverQuota(podtest.New("pod", podtest.Label(contract.KoordinatorQuotaLabel, "late"))), "its namespace has a leaf, but it names another")
	assert.Contains(t, c.OverQuota(podtest.New("pod", podtest.Label(contract.QuotaLabel, "root"))), `no leaf "root"`)
	assert.Empty(t, c.OverQuota(podtest.New("pod", podtest.InNamespace("other"))))
	for _, p := range podtest.Gang(4) {
		named(p)
		c.SetPod(p)
	}
	d, ok, err := c.Decide("ns/job", Limits{}, nil)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Contains(t, d.Result.Verdict.String(), missing)

	change, err := c.SetQuotaTree(podtest.QuotaTree(map[string]any{"name": "root", "children": []any{map[string]any{"name": "late"}}}))
	require.NoError(t, err)
	assert.True(t, change.Freed, "those who wait are looked at again")
	assert.Empty(t, c.OverQuota(podtest.New("pod", named)))
}

// What runs under a leaf that has gone is charged to the root.
func TestLeafThatGoesIsChargedToTheRoot(t *testing.T) {
	tree := func(leaf string) *unstructured.Unstructured {
		all := map[string]any{"cpu": "2"}
		return podtest.QuotaTree(map[string]any{"name": "root", "min": all, "max": all, "children": []any{map[string]any{"name": leaf, "max": all}}})
	}
	named := func(leaf string) podtest.Change { return podtest.Label(contract.QuotaLabel, leaf) }
	c := newCache(t, "a")
	_, err := c.SetQuotaTree(tree("a"))
	require.NoError(t, err)
	for _, name := range []string{"x", "y"} {
		c.SetPod(podtest.New(name, podtest.OnNode("a"), named("a")))
	}
	_, err = c.SetQuotaTree(tree("b"))
	require.NoError(t, err)
	const full = "quota root: max of cpu is 2, 2 is used and 1 is asked for"
	assert.Equal(t, full, c.OverQuota(podtest.New("pod", named("b"))))
	c.SetPod(podtest.New("outside", podtest.OnNode("a")))
	assert.Equal(t, full, c.OverQuota(podtest.New("pod", named("b"))), "a pod that names no leaf stays outside of the tree")
	c.RemovePod(podtest.New("x").UID)
	assert.Empty(t, c.OverQuota(podtest.New("pod", named("b"))))
}

// Of several trees the oldest is in force, valid or not, and the next one after it.
func TestOldestTreeIsInForce(t *testing.T) {
	c := newCache(t, "a")
	named := func(name string, second int64, tree *unstructured.Unstructured) *unstructured.Unstructured {
		tree.SetName(name)
		tree.SetCreationTimestamp(metav1.Unix(second, 0))
		return tree
	}
	_, err := c.SetQuotaTree(named("young", 2, podtest.QuotaTree(map[string]any{"name": "root"})))
	require.NoError(t, err)
	assert.Empty(t, c.Leaf(podtest.New("pod")))
	_, err = c.SetQuotaTree(named("old", 1, teamTree("1")))
	require.NoError(t, err)
	assert.Equal(t, "team", c.Leaf(podtest.New("pod")))
	change, err := c.SetQuotaTree(named("young", 2, teamTree("3")))
	require.NoError(t, err)
	assert.Zero(t, change, "it is not in force")
	_, err = c.RemoveQuotaTree("old")
	require.Error(t, err)
	assert.NotEmpty(t, c.OverQuota(podtest.New("pod")))
	_, err = c.RemoveQuotaTree("young")
	require.NoError(t, err)
	assert.Empty(t, c.OverQuota(podtest.New("pod")))
}

// TestBrokenTreesHold breaks trees at random places. Whatever cannot be used holds back
// every namespace that the tree named, and no other unless parts cannot be read.
func TestBrokenTreesHold(t *testing.T) {
	invalid := 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 13))
		var nodes []map[string]any
		var namespaces []string
		var node func(depth int) map[string]any
		node = func(depth int) map[string]any {
			n := map[string]any{"name": fmt.Sprint("n", len(nodes)), "min": map[string]any{"cpu": "1"}, "max": map[string]any{"cpu": "1"}}
			nodes = append(nodes, n)
			var children []any
			for range random.IntN(3) * (3 - depth) / 2 {
				children = append(children, node(depth+1))
			}
			if len(children) > 0 {
				n["children"] = children
			} else if random.IntN(3) > 0 {
				namespaces = append(namespaces, fmt.Sprint("ns", len(namespaces)))
				n["namespaces"] = []any{namespaces[len(namespaces)-1]}
			}
			return n
		}
		tree := podtest.QuotaTree(node(0))
		broken := nodes[random.IntN(len(nodes))]
		field := []string{"name", "min", "max", "namespaces", "children", "attributes"}[random.IntN(6)]
		broken[field] = []any{
			"", "root", "n0", int64(7), true, nil, map[string]any{"cpu": "2"}, map[string]any{"cpu": "x"}, map[string]any{"cpu": "-1"},
			[]any{int64(1)}, []any{"ns0"}, []any{[]any{}}, map[string]any{contract.LendLimitAttribute: `{"cpu": 5}`}, map[string]any{contract.LendLimitAttribute: `{`},
		}[random.IntN(14)]
		c := newCache(t, "a")
		_, err := c.SetQuotaTree(tree)
		if err == nil {
			continue
		}
		invalid++
		if field == "namespaces" || field == "children" {
			require.NotEmpty(t, c.OverQuota(podtest.New("pod", podtest.Label(contract.QuotaLabel, "n1"))), "seed %d", seed)
			continue // what the field said is nobody's to know
		}
		for _, namespace := range namespaces {
			require.Equal(t, err.Error(), c.OverQuota(podtest.New("pod", podtest.InNamespace(namespace))), "seed %d", seed)
		}
		require.Empty(t, c.OverQuota(podtest.New("pod", podtest.InNamespace("free"))), "seed %d", seed)
	}
	assert.Greater(t, invalid, 500)
}
