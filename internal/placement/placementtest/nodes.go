// Package placementtest makes nodes, gangs and whole random clusters for tests of the planner.
package placementtest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Machine reads a machine of the fixtures of package gpu.
func Machine(tb testing.TB, name string) gpu.Machine {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "gpu", "testdata", "topologies", name+".json"))
	require.NoError(tb, err)
	m, err := gpu.ParseMachine(data)
	require.NoError(tb, err)
	return m
}

// V100 is a machine of eight V100 in a hybrid cube mesh.
var V100 = sync.OnceValue(func() *gpu.Table {
	data, err := os.ReadFile(filepath.Join("..", "..", "gpu", "testdata", "topologies", "dgx1-v100.json"))
	if err != nil {
		panic(err)
	}
	m, err := gpu.ParseMachine(data)
	if err != nil {
		panic(err)
	}
	table, err := gpu.NewTable(m)
	if err != nil {
		panic(err)
	}
	return table
})

// Node returns an empty node of a pool with the given GPUs.
func Node(name, pool string, mode placement.Mode, table *gpu.Table) placement.Node {
	return placement.Node{
		Name: name, Pool: pool, Mode: mode, GPUs: table,
		Labels: map[string]string{"kubernetes.io/hostname": name},
		Allocatable: placement.Resources{
			MilliCPU: 80_000, MemoryBytes: 320 << 30, Pods: 110,
		},
	}
}

// TopologyView returns a view of n empty 8-GPU nodes in mode topology of pool v100.
func TopologyView(n int) *snapshot.View {
	v := snapshot.NewView()
	for i := range n {
		v.SetNode(Node(fmt.Sprintf("n%d", i), "v100", placement.ModeTopology, V100()))
	}
	return v
}

// WholeGPUs asks for whole GPUs in mode topology.
func WholeGPUs(n int) placement.Request {
	return placement.Request{Mode: placement.ModeTopology, GPUs: n}
}

// Role returns a role with n members called name-0, name-1, ...
func Role(name string, n int, r placement.Request) placement.Role {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return placement.Role{Name: name, Members: members, Request: r}
}

// Gang returns a gang of workers.
func Gang(id string, n int, r placement.Request) placement.Gang {
	return placement.Gang{ID: id, Roles: []placement.Role{Role("worker", n, r)}}
}

// Place plans a gang that must fit and charges it to the view.
func Place(tb testing.TB, v *snapshot.View, g placement.Gang) []placement.Assignment {
	tb.Helper()
	result := planner.Plan(v, g)
	require.NotNil(tb, result.Placement, result.Verdict.String())
	v.Apply(g, *result.Placement)
	return result.Placement.Assignments
}

// TableOf makes the table of a machine.
func TableOf(tb testing.TB, m gpu.Machine) *gpu.Table {
	tb.Helper()
	table, err := gpu.NewTable(m)
	require.NoError(tb, err)
	return table
}

// SharedNode is a node of four GPUs of 16 GiB.
func SharedNode(t *testing.T, name string, mode placement.Mode, milliCPU int64) placement.Node {
	t.Helper()
	m := Machine(t, "ack-sample-4xv100")
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = 16 << 10
	}
	table, err := gpu.NewTable(m)
	require.NoError(t, err)
	n := Node(name, "p", mode, table)
	n.Allocatable.MilliCPU = milliCPU
	return n
}
