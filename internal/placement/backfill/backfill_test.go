package backfill_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

func reservedFor(v *snapshot.View) (ids []string) {
	for _, r := range v.Reservations() {
		ids = append(ids, r.Gang.ID)
	}
	return ids
}

func TestReserveBlocked(t *testing.T) {
	v, big := blocked(t)
	placementtest.SetQuota(t, v, placementtest.Halves())
	over := placementtest.InLeaf(placementtest.Gang("left/over", 5, placementtest.WholeGPUs(4)), "left", 0)
	huge := placementtest.Gang("ml/huge", 3, placementtest.WholeGPUs(8))
	next := placementtest.Gang("ml/next", 1, placementtest.WholeGPUs(8))
	fits := placementtest.Gang("ml/fits", 1, placementtest.WholeGPUs(1))
	for i := range 12 {
		v.AddPod(placement.Pod{ID: "left/x" + string(rune('a'+i)), Node: "elsewhere", Leaf: "left", Request: placementtest.WholeGPUs(1), Preemptible: true})
	}
	full := placementtest.InLeaf(placementtest.Gang("left/full", 5, placementtest.WholeGPUs(1)), "left", 0)
	behind := placementtest.InLeaf(placementtest.Gang("left/behind", 5, placementtest.WholeGPUs(1)), "left", 0)

	backfill.ReserveBlocked(v, []placement.Gang{huge, over, fits, big, next, full, behind})
	assert.Equal(t, []string{"ml/big", "left/full"}, reservedFor(v),
		"one place on nodes, one of quota; nothing for what never fits, for what fits, and for the second of each")
	held, _ := v.Reservation("ml/big")
	quotaOnly, _ := v.Reservation("left/full")
	assert.False(t, held.QuotaOnly)
	assert.True(t, quotaOnly.QuotaOnly)

	backfill.ReserveBlocked(v, []placement.Gang{big, full})
	again, _ := v.Reservation("ml/big")
	assert.Equal(t, held, again, "it stays where it is")
	backfill.ReserveBlocked(v, []placement.Gang{next})
	assert.Equal(t, []string{"ml/next"}, reservedFor(v))
	backfill.ReserveBlocked(v, nil)
	assert.Empty(t, v.Reservations())
}

// A place that waits for fewer gangs is better than the one that is held.
func TestReserveBlockedMoves(t *testing.T) {
	v, big := blocked(t)
	v.RemovePod("ml/a/worker-0")
	two := placementtest.Gang("ml/two", 4, placementtest.WholeGPUs(2))
	two.ExcludeNodes = map[string]bool{"n1": true}
	placementtest.Place(t, v, two)
	for _, p := range v.Pods("n0") {
		p.Gang = ""
		v.AddPod(p)
	}
	backfill.ReserveBlocked(v, []placement.Gang{big})
	r, ok := v.Reservation("ml/big")
	require.True(t, ok)
	require.Equal(t, "n1", r.Placement.Assignments[0].Node, "two gangs against four pods")
	for _, p := range v.Pods("n0")[:3] {
		v.RemovePod(p.ID)
	}
	backfill.ReserveBlocked(v, []placement.Gang{big})
	r, _ = v.Reservation("ml/big")
	assert.Equal(t, "n0", r.Placement.Assignments[0].Node)
}

// A gang that fits now is about to run: those behind it leave it its place.
func TestReserveBlockedBehindOneThatFits(t *testing.T) {
	v, big := blocked(t)
	first := placementtest.Gang("ml/first", 1, placementtest.WholeGPUs(4))
	backfill.ReserveBlocked(v, []placement.Gang{first, big})
	assert.NotNil(t, planner.Place(v, first))
	assert.Equal(t, []string{"ml/big"}, reservedFor(v))
	r, _ := v.Reservation("ml/big")
	assert.Equal(t, "n1", r.Placement.Assignments[0].Node)
}

// A gang for which a place was held has it held until it takes it, also when all have ended that
// it waited for: one that is planned before it would take a part.
func TestReserveBlockedUntilTaken(t *testing.T) {
	v, big := blocked(t)
	one := placementtest.Gang("ml/one", 1, placementtest.WholeGPUs(1))
	one.ExcludeNodes = map[string]bool{"n1": true}
	backfill.ReserveBlocked(v, []placement.Gang{big, one})
	require.Equal(t, []string{"ml/big"}, reservedFor(v))
	for _, p := range v.Pods("n0") {
		v.RemovePod(p.ID)
	}
	for range 2 {
		backfill.ReserveBlocked(v, []placement.Gang{big, one})
		assert.Equal(t, []string{"ml/big"}, reservedFor(v))
		assert.Nil(t, planner.Place(v, one))
		assert.NotNil(t, planner.Place(v, big))
	}
	backfill.ReserveBlocked(v, []placement.Gang{one})
	assert.Empty(t, reservedFor(v), "it waits no more")
	assert.NotNil(t, planner.Place(v, one))
}

func TestInfeasible(t *testing.T) {
	v, big := blocked(t)
	assert.False(t, planner.Infeasible(v, big))
	huge := placementtest.Gang("ml/huge", 3, placementtest.WholeGPUs(8))
	assert.True(t, planner.Infeasible(v, huge))
	before := v.Version()
	v.RemovePod("ml/a/worker-0")
	assert.Equal(t, before, v.Version())
	n, _ := v.Node("n0")
	n.Name = "n2"
	v.SetNode(n)
	assert.NotEqual(t, before, v.Version())
	assert.False(t, planner.Infeasible(v, huge))
}
