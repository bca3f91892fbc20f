package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// An apply that creates several jobs counts those that the cluster does not show yet, and
// those that it shows once.
func TestJobsThatAnApplyStartsTogether(t *testing.T) {
	two := machines(t, "v100", 2)
	c := cluster{nodes: two}.runs("default/x", 4)
	l := ledger.New()
	l.StartApplying()
	start := func(c cluster, name string, gpus int) (beside, alone bool) {
		view, gang := c.live().View, job(two, name, gpus).Gang
		b, a := l.Start(view, gang, true, func(v *placement.View) placement.Result { return v.Plan(gang) })
		return b.Placement != nil, a.Placement != nil
	}
	beside, alone := start(c, "a", 8)
	require.True(t, beside && alone)
	beside, alone = start(c, "b", 6)
	assert.True(t, alone)
	assert.False(t, beside, "four are left")
	beside, _ = start(c.runs("default/a", 8), "b", 6)
	assert.False(t, beside, "it runs by now")
	beside, _ = start(c.runs("default/a", 8), "c", 4)
	assert.True(t, beside, "it is counted once")
}
