package explanation_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/explanation"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

func TestCapacityByPool(t *testing.T) {
	v := placementtest.TopologyView(2)
	v.SetNode(placementtest.Node("d0", "regular", placement.ModeDefault, placementtest.V100()))
	placementtest.Place(t, v, placementtest.Gang("ns/first", 3, placementtest.WholeGPUs(4)))

	capacities := explanation.DomainCapacities(v, placementtest.Gang("ns/second", 3, placementtest.WholeGPUs(4)))

	require.Len(t, capacities, 2)
	assert.Equal(t, explanation.DomainCapacity{Where: "pool regular", Nodes: 1, GPUs: 8, Reasons: []placement.Reason{
		{Code: placement.WrongMode, Nodes: 1, Text: "1 node is in mode default"}}}, capacities[0])
	assert.Equal(t, explanation.DomainCapacity{Where: "pool v100", Nodes: 2, GPUs: 4, Fit: 1, Reasons: []placement.Reason{
		{Code: placement.NotEnoughGPUs, Nodes: 2, Text: "2 nodes have no free GPU left"}}}, capacities[1])
}

// A domain that could take the whole gang has no reasons, and the sum over domains may
// be more than the gang gets, because all of it must be in one.
func TestCapacityByDomain(t *testing.T) {
	v := placementtest.TopologyView(0)
	for i, rack := range []string{"r1", "r1", "r2"} {
		n := placementtest.Node("n"+string(rune('0'+i)), "v100", placement.ModeTopology, placementtest.V100())
		n.Labels["rack"] = rack
		v.SetNode(n)
	}
	v.SetNode(placementtest.Node("bare", "v100", placement.ModeTopology, placementtest.V100()))
	g := placementtest.Gang("ns/job", 3, placementtest.WholeGPUs(8))
	g.RequiredDomain = "rack"

	capacities := explanation.DomainCapacities(v, g)

	require.Len(t, capacities, 2)
	assert.Equal(t, "rack=r1", capacities[0].Where)
	assert.Equal(t, 2, capacities[0].Fit)
	assert.Equal(t, "2 nodes have no free GPU left", capacities[0].Reasons[0].Text)
	assert.Equal(t, 1, capacities[1].Fit)
	assert.Equal(t, planner.Plan(v, g).Verdict.Fit, max(capacities[0].Fit, capacities[1].Fit))

	g.Roles[0].Members = g.Roles[0].Members[:2]
	assert.Equal(t, explanation.DomainCapacity{Where: "rack=r1", Nodes: 2, GPUs: 16, Fit: 2}, explanation.DomainCapacities(v, g)[0])
}

// What is reserved is free for the gang that holds it and for those that go before it, and not for
// others.
func TestCapacityBesideReservations(t *testing.T) {
	v := placementtest.TopologyView(2)
	placementtest.Place(t, v, placementtest.Gang("ns/first", 3, placementtest.WholeGPUs(4)))
	big := placementtest.Gang("ns/big", 2, placementtest.WholeGPUs(8))
	r, ok := backfill.Reserve(v, big)
	require.True(t, ok)
	v.AddReservation(r)
	small, urgent := placementtest.Gang("ns/small", 1, placementtest.WholeGPUs(4)), placementtest.Gang("ns/urgent", 1, placementtest.WholeGPUs(4))
	urgent.Priority = 1
	for name, test := range map[string]struct {
		gang placement.Gang
		want explanation.DomainCapacity
	}{
		"its own": {big, explanation.DomainCapacity{GPUs: 4, Reasons: planner.Plan(v, big).Verdict.Reasons}},
		"behind":  {small, explanation.DomainCapacity{Reasons: planner.Plan(v, small).Verdict.Reasons}},
		"before":  {urgent, explanation.DomainCapacity{GPUs: 4, Fit: 1}},
	} {
		test.want.Where, test.want.Nodes = "pool v100", 2
		assert.Equal(t, []explanation.DomainCapacity{test.want}, explanation.DomainCapacities(v, test.gang), name)
	}
}

func TestCapacityOfNoGang(t *testing.T) {
	assert.Empty(t, explanation.DomainCapacities(placementtest.TopologyView(1), placementtest.Gang("ns/none", 0, placementtest.WholeGPUs(1))))
	assert.Empty(t, explanation.DomainCapacities(placementtest.TopologyView(1), placementtest.Gang("ns/odd", 1, placement.Request{Mode: placement.ModeTopology})))
	assert.Empty(t, explanation.DomainCapacities(placementtest.TopologyView(0), placementtest.Gang("ns/job", 1, placementtest.WholeGPUs(1))))
}
