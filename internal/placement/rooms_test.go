package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func TestRoomsByPool(t *testing.T) {
	v := topologyView(2)
	v.SetNode(node("d0", "regular", placement.ModeDefault, v100()))
	place(t, v, gang("ns/first", 3, cards(4)))

	rooms := v.Rooms(gang("ns/second", 3, cards(4)))

	require.Len(t, rooms, 2)
	assert.Equal(t, placement.Room{Where: "pool regular", Nodes: 1, Cards: 8, Reasons: []placement.Reason{
		{Code: placement.WrongMode, Nodes: 1, Text: "1 node is in mode default"}}}, rooms[0])
	assert.Equal(t, placement.Room{Where: "pool v100", Nodes: 2, Cards: 4, Fit: 1, Reasons: []placement.Reason{
		{Code: placement.NotEnoughCards, Nodes: 2, Text: "2 nodes have no free card left"}}}, rooms[1])
}

// A domain that could take the whole gang has no reasons, and the sum over domains may
// be more than the gang gets, because all of it must be in one.
func TestRoomsByDomain(t *testing.T) {
	v := topologyView(0)
	for i, rack := range []string{"r1", "r1", "r2"} {
		n := node("n"+string(rune('0'+i)), "v100", placement.ModeTopology, v100())
		n.Labels["rack"] = rack
		v.SetNode(n)
	}
	v.SetNode(node("bare", "v100", placement.ModeTopology, v100()))
	g := gang("ns/job", 3, cards(8))
	g.RequiredDomain = "rack"

	rooms := v.Rooms(g)

	require.Len(t, rooms, 2)
	assert.Equal(t, "rack=r1", rooms[0].Where)
	assert.Equal(t, 2, rooms[0].Fit)
	assert.Equal(t, "2 nodes have no free card left", rooms[0].Reasons[0].Text)
	assert.Equal(t, 1, rooms[1].Fit)
	assert.Equal(t, v.Plan(g).Verdict.Fit, max(rooms[0].Fit, rooms[1].Fit))

	g.Roles[0].Members = g.Roles[0].Members[:2]
	assert.Equal(t, placement.Room{Where: "rack=r1", Nodes: 2, Cards: 16, Fit: 2}, v.Rooms(g)[0])
}

func TestRoomsOfNoGang(t *testing.T) {
	assert.Empty(t, topologyView(1).Rooms(gang("ns/none", 0, cards(1))))
	assert.Empty(t, topologyView(1).Rooms(gang("ns/odd", 1, placement.Request{Mode: placement.ModeTopology})))
	assert.Empty(t, topologyView(0).Rooms(gang("ns/job", 1, cards(1))))
}

func TestIdleCards(t *testing.T) {
	v := topologyView(2)
	mix := placement.NewMix()
	idle, unusable := mix.Idle(v)
	assert.Equal(t, []float64{16, 0}, []float64{idle, unusable}, "nothing was ever asked for")

	mix.Observe(gang("ns/big", 1, cards(8)))
	mix.Observe(gang("ns/none", 3, placement.Request{})) // no measure of cards
	_, unusable = mix.Idle(v)
	assert.Zero(t, unusable)

	place(t, v, gang("ns/one", 1, cards(2)))
	idle, unusable = mix.Idle(v)
	assert.Equal(t, []float64{14, 6}, []float64{idle, unusable}, "eight cards of one node are asked for; six of the other's are left")
}
