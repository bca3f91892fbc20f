package capacity

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// A job that is replaced is planned on what it gives back, and on nothing else.
func TestWithoutAJob(t *testing.T) {
	p := Pool{Name: "v100", InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: "topology"}
	template, err := p.template()
	require.NoError(t, err)
	template.Name = "n1"
	on := func(id, gang string, cpu int64, port string, cards ...int) placement.Pod {
		return placement.Pod{ID: id, Node: "n1", Gang: gang, Own: gpu.SetOf(cards...), Request: placement.Request{
			Resources: placement.Resources{MilliCPU: cpu}, Mode: placement.ModeTopology, Cards: len(cards), HostPorts: []string{port},
		}}
	}
	node := live(template, template, []placement.Pod{
		on("a-0", "default/a", 1000, "TCP/1", 0, 1), on("a-1", "default/a", 1000, "TCP/2", 2),
		on("b-0", "default/b", 500, "TCP/3", 3),
	})
	assert.Equal(t, []int64{4, 5, 6, 7}, node.FreeCards)
	c := Capacity{Pool: "v100", Nodes: []Node{node}}

	without := c.Without("default/a").Nodes[0]
	assert.Equal(t, []int64{0, 1, 2, 4, 5, 6, 7}, without.FreeCards)
	assert.Equal(t, template.Allocatable.MilliCPU-500, without.FreeMilliCPU)
	assert.Equal(t, node.FreePods+2, without.FreePods)
	assert.Equal(t, []string{"TCP/3"}, without.HostPorts)
	assert.Equal(t, node, c.Without("default/c").Nodes[0], "a job that is not there gives nothing back")
	assert.Equal(t, []int64{4, 5, 6, 7}, c.Nodes[0].FreeCards, "the capacity itself stays")
}
