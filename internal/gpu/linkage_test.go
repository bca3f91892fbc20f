package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sockets returns a machine of PCIe GPUs: pairs on a switch, pairs of pairs on a
// host bridge, and so on up to sockets of the given size.
func sockets(gpus, perSocket int) Machine {
	m := Machine{Name: "sockets", PCIeGeneration: 4}
	for i := range gpus {
		m.GPUs = append(m.GPUs, GPU{Index: i, NUMANode: i / perSocket})
		row := make([]Link, gpus)
		for j := range row {
			switch {
			case i == j:
				row[j] = Link{Class: Self}
			case i/2 == j/2 && i/perSocket == j/perSocket:
				row[j] = Link{Class: PIX}
			case i/perSocket == j/perSocket:
				row[j] = Link{Class: NODE}
			default:
				row[j] = Link{Class: SYS}
			}
		}
		m.Links = append(m.Links, row)
	}
	return m
}

// On machines whose links form a tree the linkage is exact.
func TestLinkageAgreesWithExhaustiveSearchOnTrees(t *testing.T) {
	all := wirings(t)
	machines := map[string]Machine{"sockets": sockets(8, 4), "three sockets": sockets(9, 3)}
	for _, name := range []string{"dgx-a100", "hgx-h100", "gb200-tray-4", "pcie-8-2x4-node", "pcie-8-switch-pix-phb", "rtx4090-8-all-sys", "a100-pcie-8-bridged"} {
		machines[name] = all[name]
	}
	for name, m := range machines {
		t.Run(name, func(t *testing.T) {
			f := newFabric(m)
			exact, tree := newExact(m, f), newLinkage(m, f)
			for free := range Full(f.gpus) + 1 {
				require.Equal(t, exact.ring(free), tree.ring(free), "ring of %v", free)
				for k := 1; k <= free.Len(); k++ {
					best := tree.best(free, k, false)
					require.Equal(t, k, best.Len())
					require.Zero(t, best&^free)
					require.Equal(t, exact.ring(exact.best(free, k, false)), exact.ring(best), "best %d of %v", k, free)
					require.Equal(t, exact.worst(free, k), tree.worst(free, k), "worst %d of %v", k, free)
				}
			}
		})
	}
}

// On other machines it never promises more than there is.
func TestLinkageNeverPromisesTooMuch(t *testing.T) {
	for _, m := range wirings(t) {
		random := rand.New(rand.NewPCG(3, 3))
		for range 5 {
			m := degraded(random, m)
			f := newFabric(m)
			exact, tree := newExact(m, f), newLinkage(m, f)
			for free := range Full(f.gpus) + 1 {
				require.LessOrEqual(t, tree.ring(free).GBps, exact.ring(free).GBps)
				for k := 1; k <= free.Len(); k++ {
					best := tree.best(free, k, false)
					require.Equal(t, k, best.Len())
					require.Zero(t, best&^free)
					require.LessOrEqual(t, tree.worst(free, k).GBps, exact.worst(free, k).GBps)
				}
			}
		}
	}
}

func TestTableOf64GPUs(t *testing.T) {
	m := sockets(64, 8)
	m.GPUs[9].Unhealthy = "fell off the bus"
	table := newTable(t, m)

	best, ok := table.Best(Full(64), 8)
	require.True(t, ok)
	assert.Equal(t, "0,1,2,3,4,5,6,7", best.String(), "one socket")
	best, ok = table.Best(Full(64)&^SetOf(0, 2, 4, 6, 17, 21, 30), 2)
	require.True(t, ok)
	assert.Equal(t, 24.0, table.Ring(best).GBps, "a pair on one switch: %v", best)
	best, ok = table.Best(SetOf(8, 9, 10, 11), 3)
	require.True(t, ok)
	assert.Equal(t, "8,10,11", best.String(), "without the lost GPU")
	_, ok = table.Best(SetOf(8, 9, 10, 11), 4)
	assert.False(t, ok)
	assert.Equal(t, 10.0, table.Ring(Full(64)).GBps)
	assert.Equal(t, 10.0, table.Worst(Full(64), 2).GBps)
	assert.Zero(t, table.Worst(Full(64), 1))
	assert.Zero(t, table.Worst(Full(64), 64), "63 GPUs are healthy")

	switched := newTable(t, mesh(36, Link{Class: NVLink, Lanes: 18}))
	assert.Equal(t, Ring{GBps: 450, NVLinkRings: 18}, switched.Ring(Full(36)))
	members := switched.Carve(Full(36), []int{4, 8, 24})
	assert.Equal(t, []int{4, 8, 24}, []int{members[0].Len(), members[1].Len(), members[2].Len()})
	assert.Equal(t, Full(36), members[0]|members[1]|members[2])
}

func TestLinkageStaysOnOneNUMANode(t *testing.T) {
	m := mesh(20, Link{Class: NVLink, Lanes: 18})
	for i := range m.GPUs {
		m.GPUs[i].NUMANode = i % 2
	}
	table := newTable(t, m)
	best, _ := table.Best(Full(20)&^SetOf(0), 10)
	assert.Equal(t, "1,3,5,7,9,11,13,15,17,19", best.String())
	best, _ = table.Best(SetOf(0, 1, 2, 4, 5), 3)
	assert.Equal(t, "0,2,4", best.String())
}

func BenchmarkNewTableOf64GPUs(b *testing.B) {
	m := sockets(64, 8)
	for b.Loop() {
		newTable(b, m)
	}
}

func BenchmarkBestOf64GPUs(b *testing.B) {
	table := newTable(b, sockets(64, 8))
	b.ReportAllocs()
	for b.Loop() {
		table.Best(0xfedcba9876543210, 8)
	}
}
