package snapshot

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
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
		v.SetNode(placement.Node{Name: name, Mode: placement.ModeTopology, GPUs: table, Allocatable: placement.Resources{Pods: 10}})
	}
	require.Len(t, v.states, 1, "three equal nodes are one state")
	before := *v.states[v.nodes["a"].Key]
	v.AddPod(placement.Pod{ID: "x", Node: "b", Own: gpu.SetOf(1), Request: placement.Request{Mode: placement.ModeTopology, GPUs: 1,
		Resources: placement.Resources{MilliCPU: 5, Extended: map[string]int64{"e": 1}}, HostPorts: []string{"TCP/1"}}})
	assert.Len(t, v.states, 2)
	assert.Same(t, v.nodes["a"].Free, v.nodes["c"].Free)
	assert.NotSame(t, v.nodes["a"].Free, v.nodes["b"].Free)
	v.RemovePod("x")
	require.Len(t, v.states, 1)
	assert.Equal(t, before, *v.states[v.nodes["b"].Key], "and the state is what it was")

	for range 50 {
		v.SetNode(placement.Node{Name: "a", Mode: placement.ModeTopology, GPUs: plainTable(t, 4), Allocatable: placement.Resources{Pods: 10}})
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
