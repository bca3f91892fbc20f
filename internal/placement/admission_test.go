package placement_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// What is remembered of rules is that of the nodes as they are now, whatever part of
// them a plan looks at.
func TestRulesAreCheckedAgainWhenNodesChange(t *testing.T) {
	v := topologyView(2)
	cordoned := node("a", "spare", placement.ModeTopology, v100())
	cordoned.Unschedulable = true
	v.SetNode(cordoned)
	g := gang("ml/a", 3, wholeGPUs(8))
	require.Nil(t, v.Plan(g).Placement, "the spare node is cordoned")

	capacities := v.DomainCapacities(g)
	require.Len(t, capacities, 2)
	assert.Equal(t, []int{0, 2}, []int{capacities[0].Fit, capacities[1].Fit}, "pools spare and v100")

	cordoned.Unschedulable = false
	v.SetNode(cordoned)
	require.NotNil(t, v.Plan(g).Placement)
	g.Roles[0].NodeLimits = map[string]int{"a": 0}
	require.Nil(t, v.Plan(g).Placement)
	g.Roles[0].NodeLimits = nil
	require.NotNil(t, v.Plan(g).Placement)

	g.Roles[0].Affinity = [][]placement.Requirement{{{Key: "kubernetes.io/hostname", Operator: "NotIn", Values: []string{"n1"}}}}
	require.Nil(t, v.Plan(g).Placement)
	g.Roles[0].Affinity[0][0].Values[0] = "n7"
	require.NotNil(t, v.Plan(g).Placement, "what is remembered is not what the caller changes")
	v.RemoveNode("a")
	require.Nil(t, v.Plan(g).Placement)
}
