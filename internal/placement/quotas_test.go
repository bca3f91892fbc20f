package placement_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// setQuota gives a view the tree of a specification.
func setQuota(tb testing.TB, v *placement.View, s quota.Spec) {
	tb.Helper()
	tree, err := quota.New(s)
	require.NoError(tb, err)
	v.SetQuota(tree)
}

// halves is a tree of two leaves with half of 16 GPUs each.
func halves() quota.Spec {
	gpus := func(n int64) quota.Resources { return quota.Resources{"aliyun.com/gpu": n} }
	return quota.Spec{Min: gpus(16), Max: gpus(16), Children: []quota.Spec{
		{Name: "left", Min: gpus(8), Max: gpus(16)}, {Name: "right", Min: gpus(8), Max: gpus(16)},
	}}
}

// inLeaf returns a gang in a leaf, which may be preempted.
func inLeaf(g placement.Gang, leaf string, priority int32) placement.Gang {
	g.Leaf, g.Priority, g.Preemptible = leaf, priority, true
	return g
}

// evict removes the pods of victims from the view.
func evict(v *placement.View, victims []placement.Victim) {
	for _, victim := range victims {
		for _, id := range victim.Pods {
			v.RemovePod(id)
		}
	}
}
