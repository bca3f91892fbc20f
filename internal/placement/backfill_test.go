package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func reservedFor(v *placement.View) (ids []string) {
	for _, r := range v.Reservations() {
		ids = append(ids, r.Gang.ID)
	}
	return ids
}

func TestReserveBlocked(t *testing.T) {
	v, big := blocked(t)
	setQuota(t, v, halves())
	over := inLeaf(gang("left/over", 5, wholeGPUs(4)), "left", 0)
	huge := gang("ml/huge", 3, wholeGPUs(8))
	next := gang("ml/next", 1, wholeGPUs(8))
	fits := gang("ml/fits", 1, wholeGPUs(1))
	for i := range 12 {
		v.AddPod(placement.Pod{ID: "left/x" + string(rune('a'+i)), Node: "elsewhere", Leaf: "left", Request: wholeGPUs(1), Preemptible: true})
	}
	full := inLeaf(gang("left/full", 5, wholeGPUs(1)), "left", 0)
	behind := inLeaf(gang("left/behind", 5, wholeGPUs(1)), "left", 0)

	v.ReserveBlocked([]placement.Gang{huge, over, fits, big, next, full, behind})
	assert.Equal(t, []string{"ml/big", "left/full"}, reservedFor(v),
		"one place on nodes, one of quota; nothing for what never fits, for what fits, and for the second of each")
	held, _ := v.Reservation("ml/big")
	quotaOnly, _ := v.Reservation("left/full")
	assert.False(t, held.QuotaOnly)
	assert.True(t, quotaOnly.QuotaOnly)

	v.ReserveBlocked([]placement.Gang{big, full})
	again, _ := v.Reservation("ml/big")
	assert.Equal(t, held, again, "it stays where it is")
	v.ReserveBlocked([]placement.Gang{next})
	assert.Equal(t, []string{"ml/next"}, reservedFor(v))
	v.ReserveBlocked(nil)
	assert.Empty(t, v.Reservations())
}

// A place that waits for fewer gangs is better than the one that is held.
func TestReserveBlockedMoves(t *testing.T) {
	v, big := blocked(t)
	v.RemovePod("ml/a/worker-0")
	two := gang("ml/two", 4, wholeGPUs(2))
	two.ExcludeNodes = map[string]bool{"n1": true}
	place(t, v, two)
	for _, p := range v.Pods("n0") {
		p.Gang = ""
		v.AddPod(p)
	}
	v.ReserveBlocked([]placement.Gang{big})
	r, ok := v.Reservation("ml/big")
	require.True(t, ok)
	require.Equal(t, "n1", r.Placement.Assignments[0].Node, "two gangs against four pods")
	for _, p := range v.Pods("n0")[:3] {
		v.RemovePod(p.ID)
	}
	v.ReserveBlocked([]placement.Gang{big})
	r, _ = v.Reservation("ml/big")
	assert.Equal(t, "n0", r.Placement.Assignments[0].Node)
}

// A gang that fits now is about to run: those behind it leave it its place.
func TestReserveBlockedBehindOneThatFits(t *testing.T) {
	v, big := blocked(t)
	first := gang("ml/first", 1, wholeGPUs(4))
	v.ReserveBlocked([]placement.Gang{first, big})
	assert.NotNil(t, v.Place(first))
	assert.Equal(t, []string{"ml/big"}, reservedFor(v))
	r, _ := v.Reservation("ml/big")
	assert.Equal(t, "n1", r.Placement.Assignments[0].Node)
}

func TestInfeasible(t *testing.T) {
	v, big := blocked(t)
	assert.False(t, v.Infeasible(big))
	huge := gang("ml/huge", 3, wholeGPUs(8))
	assert.True(t, v.Infeasible(huge))
	before := v.Version()
	v.RemovePod("ml/a/worker-0")
	assert.Equal(t, before, v.Version())
	n, _ := v.Node("n0")
	n.Name = "n2"
	v.SetNode(n)
	assert.NotEqual(t, before, v.Version())
	assert.False(t, v.Infeasible(huge))
}
