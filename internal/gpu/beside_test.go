package gpu

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A job that has GPUs already gets those that make the fastest ring with them.
func TestBestBesideIsOptimal(t *testing.T) {
	machines := wirings(t)
	random := rand.New(rand.NewPCG(9, 9))
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		machines[name+" degraded"] = degraded(random, machines[name])
	}
	better := 0
	for name, m := range machines {
		table, r := newTable(t, m), newReference(m)
		n := len(m.GPUs)
		for range 400 {
			seed := Set(random.Uint64()) & Full(n)
			free := Set(random.Uint64()) & Full(n) &^ seed
			k := 1 + random.IntN(n)
			for _, nearNIC := range []bool{false, true} {
				got, ok := table.BestBeside(free, k, seed, nearNIC)
				require.Equal(t, k <= (free&m.Healthy()).Len(), ok, name)
				if !ok {
					continue
				}
				require.Equal(t, k, got.Len())
				require.Zero(t, got&^(free&m.Healthy()))
				highest := 0.0
				subsets(free&m.Healthy(), k, func(s Set) { highest = max(highest, r.ring(s|seed).GBps) })
				require.Equal(t, highest, table.Ring(got|seed).GBps, "%s: %d of %v beside %v", name, k, free, seed)
				if alone, _ := table.Best(free, k); table.Ring(alone|seed).GBps < highest {
					better++
				}
			}
		}
	}
	assert.Positive(t, better, "the best set by itself is not always the best beside others")
}

func TestBestBesideOnBigMachines(t *testing.T) {
	table := newTable(t, twice(twice(twice(mesh(4, Link{Class: PIX})))))
	got, ok := table.BestBeside(Full(32)&^SetOf(8), 3, SetOf(8), false)
	require.True(t, ok)
	assert.Equal(t, "9,10,11", got.String(), "the rest of the seed's own group")
	got, _ = table.BestBeside(SetOf(0, 1, 2, 30), 2, SetOf(31), false)
	assert.Equal(t, 2, got.Len())
}

func TestFabric(t *testing.T) {
	m := fixtures(t)["gb200-tray-4"]
	tray := newTable(t, m)
	assert.Equal(t, Ring{GBps: 900, NVLinkRings: 18}, tray.Fabric(SetOf(2)), "one GPU of a tray has all its links to the rack")
	assert.Equal(t, tray.Ring(Full(4)), tray.Fabric(Full(4)))
	assert.Zero(t, tray.Fabric(0))
	assert.Zero(t, newTable(t, fixtures(t)["dgx1-v100"]).Fabric(Full(8)), "links between GPUs lead to no other machine")

	m.Links = slices.Clone(m.Links)
	for i := range m.Links {
		m.Links[i] = slices.Clone(m.Links[i])
		if i != 1 {
			m.Links[i][1].Lanes, m.Links[1][i] = 12, Link{Class: NVLink, Lanes: 12}
		}
	}
	assert.Equal(t, Ring{GBps: 600, NVLinkRings: 12}, newTable(t, m).Fabric(Full(4)), "a GPU that lost links is the slowest hop")
	assert.Equal(t, 900.0, newTable(t, m).Fabric(SetOf(0, 2)).GBps)
}
