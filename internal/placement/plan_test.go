package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func TestTwoGangsShareOneNode(t *testing.T) {
	v := topologyView(2)
	for i, want := range []gpu.Set{gpu.SetOf(0, 1, 2, 3), gpu.SetOf(4, 5, 6, 7)} {
		var own gpu.Set
		for _, a := range place(t, v, gang([]string{"ml/a", "ml/b"}[i], 4, cards(1))) {
			assert.Equal(t, "n0", a.Node)
			assert.Equal(t, want, a.Visible)
			assert.Equal(t, 1, a.Own.Len())
			assert.Equal(t, gpu.Ring{GBps: 50, NVLinkRings: 2}, a.Ring)
			own |= a.Own
		}
		assert.Equal(t, want, own)
	}
}

func TestTwentyWorkersNeedAThirdNode(t *testing.T) {
	result := topologyView(2).Plan(gang("ml/big", 20, cards(1)))
	require.Nil(t, result.Placement)
	assert.Len(t, result.Verdict.Partial, 16)
	assert.Equal(t, "16 of 20 members fit: 2 nodes have no free card left for worker-16 (each member asks for 1 card, mode topology). "+
		"Nearest fix: pool size 3 (now 2) for pool v100.", result.Verdict.String())
	require.Len(t, result.Verdict.Fixes, 2)
	assert.Equal(t, placement.Fix{Kind: placement.FixPoolSize, Target: "v100", From: "2", To: "3", Text: "pool size 3 (now 2) for pool v100"}, result.Verdict.Fixes[0])
	assert.Equal(t, placement.FixMembers, result.Verdict.Fixes[1].Kind)
}
