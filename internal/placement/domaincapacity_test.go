package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func TestCapacityByPool(t *testing.T) {
	v := topologyView(2)
	v.SetNode(node("d0", "regular", placement.ModeDefault, v100()))
	place(t, v, gang("ns/first", 3, wholeGPUs(4)))

	capacities := v.DomainCapacities(gang("ns/second", 3, wholeGPUs(4)))

	require.Len(t, capacities, 2)
	assert.Equal(t, placement.DomainCapacity{Where: "pool regular", Nodes: 1, GPUs: 8, Reasons: []placement.Reason{
		{Code: placement.WrongMode, Nodes: 1, Text: "1 node is in mode default"}}}, capacities[0])
	assert.Equal(t, placement.DomainCapacity{Where: "pool v100", Nodes: 2, GPUs: 4, Fit: 1, Reasons: []placement.Reason{
		{Code: placement.NotEnoughGPUs, Nodes: 2, Text: "2 nodes have no free GPU left"}}}, capacities[1])
}

// A domain that could take the whole gang has no reasons, and the sum over domains may
// be more than the gang gets, because all of it must be in one.
func TestCapacityByDomain(t *testing.T) {
	v := topologyView(0)
	for i, rack := range []string{"r1", "r1", "r2"} {
		n := node("n"+string(rune('0'+i)), "v100", placement.ModeTopology, v100())
		n.Labels["rack"] = rack
		v.SetNode(n)
	}
	v.SetNode(node("bare", "v100", placement.ModeTopology, v100()))
	g := gang("ns/job", 3, wholeGPUs(8))
	g.RequiredDomain = "rack"

	capacities := v.DomainCapacities(g)

	require.Len(t, capacities, 2)
	assert.Equal(t, "rack=r1", capacities[0].Where)
	assert.Equal(t, 2, capacities[0].Fit)
	assert.Equal(t, "2 nodes have no free GPU left", capacities[0].Reasons[0].Text)
	assert.Equal(t, 1, capacities[1].Fit)
	assert.Equal(t, v.Plan(g).Verdict.Fit, max(capacities[0].Fit, capacities[1].Fit))

	g.Roles[0].Members = g.Roles[0].Members[:2]
	assert.Equal(t, placement.DomainCapacity{Where: "rack=r1", Nodes: 2, GPUs: 16, Fit: 2}, v.DomainCapacities(g)[0])
}

func TestCapacityOfNoGang(t *testing.T) {
	assert.Empty(t, topologyView(1).DomainCapacities(gang("ns/none", 0, wholeGPUs(1))))
	assert.Empty(t, topologyView(1).DomainCapacities(gang("ns/odd", 1, placement.Request{Mode: placement.ModeTopology})))
	assert.Empty(t, topologyView(0).DomainCapacities(gang("ns/job", 1, wholeGPUs(1))))
}
