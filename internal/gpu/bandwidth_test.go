package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNVLinkGBps(t *testing.T) {
	for generation, want := range map[int]float64{-1: 0, 0: 0, 1: 20, 2: 25, 3: 25, 4: 25, 5: 50, 6: 0} {
		assert.Equal(t, want, NVLinkGBps(generation), "generation %d", generation)
	}
}

// The figures that the model is made to reproduce.
func TestPublishedBandwidth(t *testing.T) {
	for name, tt := range map[string]struct{ got, want float64 }{
		"generation 3 through a switch (NVIDIA/nccl#814: 10 to 12.5)":         {pcieGBps(PIX, 3), 12},
		"generation 3 through a host bridge (NVIDIA/nccl#814: 10 to 12.5)":    {pcieGBps(PHB, 3), 10},
		"generation 4 through a switch (NVIDIA/nccl#814: 20 to 25)":           {pcieGBps(PXB, 4), 24},
		"generation 4 across host bridges (NVIDIA/nccl-tests#178: 20)":        {pcieGBps(NODE, 4), 20},
		"V100 across sockets (NVIDIA/nccl#179: 5)":                            {pcieGBps(SYS, 3), 5},
		"V100 through host memory (NVIDIA/nccl#179: 5)":                       {stagedGBps(true, 3), 5},
		"unknown generation counts as 3":                                      {pcieGBps(PIX, 0), 12},
		"generation 1 is bound by its slot":                                   {pcieGBps(SYS, 1), 2.5},
		"generation 5 across sockets (SRP_QPI_BW in NCCL's src/graph/topo.h)": {pcieGBps(SYS, 5), 22},
	} {
		assert.InDelta(t, tt.want, tt.got, 1e-9, name)
	}
}

func TestShorterPathsAreNeverSlower(t *testing.T) {
	for generation := range MaxPCIeGeneration + 1 {
		staged, across := stagedGBps(true, generation), stagedGBps(false, generation)
		assert.GreaterOrEqual(t, staged, across)
		assert.GreaterOrEqual(t, pcieGBps(NODE, generation), staged)
		for class := SYS; class < PIX; class++ {
			assert.GreaterOrEqual(t, pcieGBps(class+1, generation), pcieGBps(class, generation))
		}
	}
}

func TestGPUsThatCannotReachEachOther(t *testing.T) {
	consumer := fixtures(t)["rtx4090-8-all-sys"]
	for i := range consumer.Links {
		consumer.Links[i][i^1] = Link{Class: PIX}
	}
	table := newTable(t, consumer)
	assert.Equal(t, table.Ring(SetOf(0, 3)), table.Ring(SetOf(0, 1)), "without peer-to-peer a switch does not help")
	assert.Greater(t, table.Ring(SetOf(0, 3)).GBps, table.Ring(SetOf(3, 4)).GBps, "one socket is better than two")

	pairs := mesh(3, Link{Class: PIX})
	pairs.P2P = NoP2P(3)
	for way, want := range map[P2PStatus]float64{P2POK: 12, P2PUnknown: 12, P2PChipset: 12, P2PTopology: 12, P2PGPU: 5, P2PDisabled: 5, P2PNotSupported: 5} {
		pairs.P2P.Read[0][1], pairs.P2P.Read[1][0] = P2POK, P2POK
		pairs.P2P.Write[0][1], pairs.P2P.Write[1][0] = P2POK, way
		table = newTable(t, pairs)
		assert.Equal(t, Ring{GBps: want}, table.Ring(SetOf(0, 1)), "GPU 1 writes to GPU 0: %v", way)
		assert.Equal(t, Ring{GBps: 5}, table.Ring(SetOf(0, 2)), "another pair")
	}
	bridged := mesh(2, Link{Class: NVLink, Lanes: 2})
	bridged.NVLinkGBps, bridged.P2P = 25, NoP2P(2)
	assert.Equal(t, 50.0, newTable(t, bridged).Ring(SetOf(0, 1)).GBps, "NVLink is not PCIe")
	assert.False(t, bridged.RefusesP2P(), "there is no pair without")

	m := mesh(3, Link{Class: PIX})
	m.GPUs[2].NUMANode = -1
	m.Links[0][1] = Link{}
	m.Links[1][2] = Link{}
	table = newTable(t, m)
	assert.Equal(t, Ring{GBps: 5}, table.Ring(SetOf(0, 1)), "through host memory")
	assert.Equal(t, Ring{GBps: 2.5}, table.Ring(SetOf(1, 2)), "through host memory, perhaps of another socket")
	assert.Equal(t, Ring{GBps: 12}, table.Ring(SetOf(0, 2)))

	m.GPUs[1].NUMANode = -1
	assert.Equal(t, Ring{GBps: 2.5}, newTable(t, m).Ring(SetOf(1, 2)), "two unknown sockets may be two")
}
