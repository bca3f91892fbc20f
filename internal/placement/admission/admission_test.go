package admission_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/explanation"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// What is remembered of rules is that of the nodes as they are now, whatever part of
// them a plan looks at.
func TestRulesAreCheckedAgainWhenNodesChange(t *testing.T) {
	v := placementtest.TopologyView(2)
	cordoned := placementtest.Node("a", "spare", placement.ModeTopology, placementtest.V100())
	cordoned.Unschedulable = true
	v.SetNode(cordoned)
	g := placementtest.Gang("ml/a", 3, placementtest.WholeGPUs(8))
	require.Nil(t, planner.Plan(v, g).Placement, "the spare node is cordoned")

	capacities := explanation.DomainCapacities(v, g)
	require.Len(t, capacities, 2)
	assert.Equal(t, []int{0, 2}, []int{capacities[0].Fit, capacities[1].Fit}, "pools spare and v100")

	cordoned.Unschedulable = false
	v.SetNode(cordoned)
	require.NotNil(t, planner.Plan(v, g).Placement)
	g.Roles[0].NodeLimits = map[string]int{"a": 0}
	require.Nil(t, planner.Plan(v, g).Placement)
	g.Roles[0].NodeLimits, g.Roles[0].LimitedOnly = map[string]int{"n0": 1, "n1": 1}, true
	require.Nil(t, planner.Plan(v, g).Placement, "node a has no limit")
	g.Roles[0].NodeLimits["a"] = 1
	require.NotNil(t, planner.Plan(v, g).Placement)
	g.Roles[0].NodeLimits, g.Roles[0].LimitedOnly = nil, false
	require.NotNil(t, planner.Plan(v, g).Placement)

	g.Roles[0].Affinity = [][]placement.Requirement{{{Key: "kubernetes.io/hostname", Operator: "NotIn", Values: []string{"n1"}}}}
	require.Nil(t, planner.Plan(v, g).Placement)
	g.Roles[0].Affinity[0][0].Values[0] = "n7"
	require.NotNil(t, planner.Plan(v, g).Placement, "what is remembered is not what the caller changes")
	v.RemoveNode("a")
	require.Nil(t, planner.Plan(v, g).Placement)
}
