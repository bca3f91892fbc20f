package placement

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

func plainTable(t *testing.T, gpus int) *gpu.Table {
	t.Helper()
	m := gpu.Machine{Name: "plain"}
	for i := range gpus {
		m.GPUs = append(m.GPUs, gpu.GPU{Index: i, NUMANode: -1})
		row := make([]gpu.Link, gpus)
		for j := range row {
			row[j].Class = gpu.SYS
		}
		row[i].Class = gpu.Self
		m.Links = append(m.Links, row)
	}
	table, err := gpu.NewTable(m)
	require.NoError(t, err)
	return table
}

func TestStatesAreSharedAndFreed(t *testing.T) {
	v := NewView()
	table := plainTable(t, 4)
	for _, name := range []string{"a", "b", "c"} {
		v.SetNode(Node{Name: name, Mode: ModeTopology, GPUs: table, Allocatable: Resources{Pods: 10}})
	}
	require.Len(t, v.states, 1, "three equal nodes are one state")
	before := *v.states[v.nodes["a"].key]
	v.AddPod(Pod{ID: "x", Node: "b", Own: gpu.SetOf(1), Request: Request{Mode: ModeTopology, GPUs: 1,
		Resources: Resources{MilliCPU: 5, Extended: map[string]int64{"e": 1}}, HostPorts: []string{"TCP/1"}}})
	assert.Len(t, v.states, 2)
	assert.Same(t, v.nodes["a"].free, v.nodes["c"].free)
	assert.NotSame(t, v.nodes["a"].free, v.nodes["b"].free)
	v.RemovePod("x")
	require.Len(t, v.states, 1)
	assert.Equal(t, before, *v.states[v.nodes["b"].key], "and the state is what it was")

	for range 50 {
		v.SetNode(Node{Name: "a", Mode: ModeTopology, GPUs: plainTable(t, 4), Allocatable: Resources{Pods: 10}})
		v.Clone().RemoveNode("b")
	}
	assert.Len(t, v.tables, 2, "tables that no node has any more are let go")
	for _, name := range []string{"a", "b", "c"} {
		v.RemoveNode(name)
	}
	assert.Empty(t, v.states)
	assert.Empty(t, v.tables)
	assert.Empty(t, v.nodes)
}
