package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
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
		at := l.Start(view, gang, true, func(v *snapshot.View) placement.Result { return planner.Plan(v, gang) }, always)
		return at.Beside.Placement != nil, at.Alone.Placement != nil
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

// A job counts where it was placed until the cluster has shown all of its pods, and from then on
// where it runs; those that wait for it learn which these are.
func TestJobsWhosePodsAppear(t *testing.T) {
	two := machines(t, "v100", 2)
	c := cluster{nodes: two}
	l := ledger.New()
	l.StartApplying()
	start := func(c cluster, name string, workers int) (starts bool, pending []string) {
		view, gang := c.live().View, job(two, name, workers).Gang
		at := l.Start(view, gang, true, func(v *snapshot.View) placement.Result { return planner.Plan(v, gang) }, always)
		return at.Beside.Placement != nil, at.Pending
	}
	starts, pending := start(c, "a", 12)
	require.True(t, starts)
	require.Empty(t, pending)

	launcher := func(p *placement.Pod) { p.Request, p.Own = placement.Request{}, 0 }
	part := c.runs("default/a", 10).runs("default/a", 2, launcher)
	starts, pending = start(part, "b", 6)
	assert.False(t, starts, "two pods are about to appear")
	assert.Equal(t, []string{"default/a"}, pending)
	starts, pending = start(part, "b", 4)
	assert.True(t, starts)
	assert.Equal(t, []string{"default/a"}, pending)
	starts, pending = start(part, "b", 4)
	assert.True(t, starts, "it is not in its own way")
	assert.Equal(t, []string{"default/a"}, pending, "and does not wait for itself")
	l.Withdraw("default/b")

	starts, pending = start(c.runs("default/a", 12), "c", 4)
	assert.True(t, starts)
	assert.Empty(t, pending)
	l.Withdraw("default/c")
	starts, pending = start(part, "d", 6)
	assert.True(t, starts, "pods that were shown have ended")
	assert.Empty(t, pending)
}

func always(ledger.Prospect) bool { return true }

// A job that waits for the pods of others is no such other: of two that want one place, each would
// wait for the other.
func TestJobsThatWaitAreNotWaitedFor(t *testing.T) {
	two := machines(t, "v100", 2)
	c := cluster{nodes: two}
	l := ledger.New()
	l.StartApplying()
	start := func(c cluster, name string, goes func(ledger.Prospect) bool) ledger.Prospect {
		view, gang := c.live().View, job(two, name, 4).Gang
		return l.Start(view, gang, true, func(v *snapshot.View) placement.Result { return planner.Plan(v, gang) }, goes)
	}
	patient := func(at ledger.Prospect) bool { return len(at.Pending) == 0 }
	require.Empty(t, start(c, "a", patient).Pending)
	for _, name := range []string{"b", "c", "b"} {
		require.Equal(t, []string{"default/a"}, start(c, name, patient).Pending, name)
	}
	c = c.runs("default/a", 4)
	require.Empty(t, start(c, "c", patient).Pending, "b waits, too")
	assert.Equal(t, []string{"default/c"}, start(c, "b", patient).Pending)
}
