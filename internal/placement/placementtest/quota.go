package placementtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// SetQuota gives a view the tree of a specification.
func SetQuota(tb testing.TB, v *snapshot.View, s quota.Spec) {
	tb.Helper()
	tree, err := quota.New(s)
	require.NoError(tb, err)
	v.SetQuota(tree)
}

// Halves is a tree of two leaves with half of 16 GPUs each.
func Halves() quota.Spec {
	gpus := func(n int64) quota.Resources { return quota.Resources{"aliyun.com/gpu": n} }
	return quota.Spec{Min: gpus(16), Max: gpus(16), Children: []quota.Spec{
		{Name: "left", Min: gpus(8), Max: gpus(16)}, {Name: "right", Min: gpus(8), Max: gpus(16)},
	}}
}

// InLeaf returns a gang in a leaf, which may be preempted.
func InLeaf(g placement.Gang, leaf string, priority int32) placement.Gang {
	g.Leaf, g.Priority, g.Preemptible = leaf, priority, true
	return g
}

// Evict removes the pods of victims from the view.
func Evict(v *snapshot.View, victims []placement.Victim) {
	for _, victim := range victims {
		for _, id := range victim.Pods {
			v.RemovePod(id)
		}
	}
}
