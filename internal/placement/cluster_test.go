package placement_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// machine reads a machine of the fixtures of package gpu.
func machine(tb testing.TB, name string) gpu.Machine {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "gpu", "testdata", "topologies", name+".json"))
	require.NoError(tb, err)
	m, err := gpu.ParseMachine(data)
	require.NoError(tb, err)
	return m
}

// v100 is a machine of eight V100 in a hybrid cube mesh.
var v100 = sync.OnceValue(func() *gpu.Table {
	data, err := os.ReadFile(filepath.Join("..", "gpu", "testdata", "topologies", "dgx1-v100.json"))
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

// node returns an empty node of a pool with the given GPUs.
func node(name, pool string, mode placement.Mode, table *gpu.Table) placement.Node {
	return placement.Node{
		Name: name, Pool: pool, Mode: mode, GPUs: table,
		Labels: map[string]string{"kubernetes.io/hostname": name},
		Allocatable: placement.Resources{
			MilliCPU: 80_000, MemoryBytes: 320 << 30, Pods: 110,
		},
	}
}

// topologyView returns a view of n empty 8-GPU nodes in mode topology of pool v100.
func topologyView(n int) *placement.View {
	v := placement.NewView()
	for i := range n {
		v.SetNode(node(fmt.Sprintf("n%d", i), "v100", placement.ModeTopology, v100()))
	}
	return v
}

// wholeGPUs asks for whole GPUs in mode topology.
func wholeGPUs(n int) placement.Request {
	return placement.Request{Mode: placement.ModeTopology, GPUs: n}
}

// role returns a role with n members called name-0, name-1, ...
func role(name string, n int, r placement.Request) placement.Role {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return placement.Role{Name: name, Members: members, Request: r}
}

// gang returns a gang of workers.
func gang(id string, n int, r placement.Request) placement.Gang {
	return placement.Gang{ID: id, Roles: []placement.Role{role("worker", n, r)}}
}

// place plans a gang that must fit and charges it to the view.
func place(tb testing.TB, v *placement.View, g placement.Gang) []placement.Assignment {
	tb.Helper()
	result := v.Plan(g)
	require.NotNil(tb, result.Placement, result.Verdict.String())
	v.Apply(g, *result.Placement)
	return result.Placement.Assignments
}

// tableOf makes the table of a machine.
func tableOf(tb testing.TB, m gpu.Machine) *gpu.Table {
	tb.Helper()
	table, err := gpu.NewTable(m)
	require.NoError(tb, err)
	return table
}

// sharedNode is a node of four GPUs of 16 GiB.
func sharedNode(t *testing.T, name string, mode placement.Mode, milliCPU int64) placement.Node {
	t.Helper()
	m := machine(t, "ack-sample-4xv100")
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = 16 << 10
	}
	table, err := gpu.NewTable(m)
	require.NoError(t, err)
	n := node(name, "p", mode, table)
	n.Allocatable.MilliCPU = milliCPU
	return n
}
