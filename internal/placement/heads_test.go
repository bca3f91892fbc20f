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

func TestReserveHeads(t *testing.T) {
	v, big := blocked(t)
	setQuota(t, v, halves())
	over := inLeaf(gang("left/over", 5, cards(4)), "left", 0)
	huge := gang("ml/huge", 3, cards(8))
	next := gang("ml/next", 1, cards(8))
	fits := gang("ml/fits", 1, cards(1))
	for i := range 12 {
		v.AddPod(placement.Pod{ID: "left/x" + string(rune('a'+i)), Node: "elsewhere", Leaf: "left", Request: cards(1), Preemptible: true})
	}
	full := inLeaf(gang("left/full", 5, cards(1)), "left", 0)
	behind := inLeaf(gang("left/behind", 5, cards(1)), "left", 0)

	v.ReserveHeads([]placement.Gang{huge, over, fits, big, next, full, behind})
	assert.Equal(t, []string{"ml/big", "left/full"}, reservedFor(v),
		"one place on nodes, one of quota; nothing for what never fits, for what fits, and for the second of each")
	held, _ := v.Held("ml/big")
	quotaOnly, _ := v.Held("left/full")
	assert.False(t, held.QuotaOnly)
	assert.True(t, quotaOnly.QuotaOnly)

	v.ReserveHeads([]placement.Gang{big, full})
	again, _ := v.Held("ml/big")
	assert.Equal(t, held, again, "it stays where it is")
	v.ReserveHeads([]placement.Gang{next})
	assert.Equal(t, []string{"ml/next"}, reservedFor(v))
	v.ReserveHeads(nil)
	assert.Empty(t, v.Reservations())
}

// A place that waits for fewer gangs is better than the one that is held.
func TestReserveHeadsMoves(t *testing.T) {
	v, big := blocked(t)
	v.RemovePod("ml/a/worker-0")
	two := gang("ml/two", 4, cards(2))
	two.ExcludeNodes = map[string]bool{"n1": true}
	place(t, v, two)
	for _, p := range v.Pods("n0") {
		p.Gang = ""
		v.AddPod(p)
	}
	v.ReserveHeads([]placement.Gang{big})
	r, ok := v.Held("ml/big")
	require.True(t, ok)
	require.Equal(t, "n1", r.Placement.Assignments[0].Node, "two gangs against four pods")
	for _, p := range v.Pods("n0")[:3] {
		v.RemovePod(p.ID)
	}
	v.ReserveHeads([]placement.Gang{big})
	r, _ = v.Held("ml/big")
	assert.Equal(t, "n0", r.Placement.Assignments[0].Node)
}

// A gang that fits now is about to run: those behind it leave it its place.
func TestReserveHeadsBehindOneThatFits(t *testing.T) {
	v, big := blocked(t)
	first := gang("ml/first", 1, cards(4))
	v.ReserveHeads([]placement.Gang{first, big})
	assert.NotNil(t, v.Place(first))
	assert.Equal(t, []string{"ml/big"}, reservedFor(v))
	r, _ := v.Held("ml/big")
	assert.Equal(t, "n1", r.Placement.Assignments[0].Node)
}

func TestHopeless(t *testing.T) {
	v, big := blocked(t)
	assert.False(t, v.Hopeless(big))
	huge := gang("ml/huge", 3, cards(8))
	assert.True(t, v.Hopeless(huge))
	before := v.Version()
	v.RemovePod("ml/a/worker-0")
	assert.Equal(t, before, v.Version())
	n, _ := v.Node("n0")
	n.Name = "n2"
	v.SetNode(n)
	assert.NotEqual(t, before, v.Version())
	assert.False(t, v.Hopeless(huge))
}
