package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPackRings(t *testing.T) {
	for name, tt := range map[string]struct {
		machine Machine
		want    int
	}{
		"triangle":                     {mesh(3, Link{Class: NVLink, Lanes: 1}), 1},
		"triangle of three":            {mesh(3, Link{Class: NVLink, Lanes: 3}), 3},
		"four GPUs: three rings share": {mesh(4, Link{Class: NVLink, Lanes: 1}), 1},
		"A100 board of four":           {mesh(4, Link{Class: NVLink, Lanes: 4}), 6},
		"H100 board of four":           {mesh(4, Link{Class: NVLink, Lanes: 6}), 9},
		"eight, all to all":            {mesh(8, Link{Class: NVLink, Lanes: 1}), 3},
		"eight, all to all, twice":     {mesh(8, Link{Class: NVLink, Lanes: 2}), 7},
		"twelve, all to all":           {mesh(12, Link{Class: NVLink, Lanes: 1}), 5},
		"two boards":                   {twice(mesh(4, Link{Class: NVLink, Lanes: 2})), 0},
		"no NVLink":                    {mesh(4, Link{Class: PIX}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabric(tt.machine)
			assert.Equal(t, tt.want, newPacker(f.lanes).rings(Full(f.gpus)))
		})
	}
}

// A complete graph of n GPUs with one link each holds (n-1)/2 rings (Walecki, 1892).
func TestPackRingsOfManyGPUsIsABound(t *testing.T) {
	f := newFabric(mesh(16, Link{Class: NVLink, Lanes: 1}))
	packer := newPacker(f.lanes)
	for n := 3; n <= 16; n++ {
		rings := packer.rings(Full(n))
		assert.LessOrEqual(t, rings, (n-1)/2)
		assert.Positive(t, rings)
		if n <= 11 {
			assert.Equal(t, (n-1)/2, rings)
		}
	}
}

// Boards of directly connected GPUs with up to 6 links each, wired at random.
func TestPackRingsAgreesWithExhaustiveSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	for range 200 {
		m := mesh(4+random.IntN(4), Link{Class: SYS})
		used := make([]int, len(m.GPUs))
		for range 12 * len(m.GPUs) {
			a, b := random.IntN(len(m.GPUs)), random.IntN(len(m.GPUs))
			if a == b || used[a] == 6 || used[b] == 6 {
				continue
			}
			used[a]++
			used[b]++
			link := Link{Class: NVLink, Lanes: m.Links[a][b].Lanes + 1}
			m.Links[a][b], m.Links[b][a] = link, link
		}
		packer, r := newPacker(newFabric(m).lanes), newReference(m)
		for s := range Full(len(m.GPUs)) + 1 {
			if s.Len() > 2 {
				require.Equal(t, r.disjoint(s.GPUs()), packer.rings(s), "%v of %v", s, m.Links)
			}
		}
	}
}

func TestSwitchedFabricsAreBoundByTheirSlowestHop(t *testing.T) {
	m := mesh(4, Link{Class: NVLink, Lanes: 18})
	full := Ring{GBps: 450, NVLinkRings: 18}
	assert.Equal(t, full, newTable(t, m).Ring(Full(4)), "more links than a GPU has: a switch")

	for gpu := 1; gpu < 4; gpu++ {
		m.Links[0][gpu].Lanes = 17
	}
	table := newTable(t, m)
	assert.Equal(t, Ring{GBps: 425, NVLinkRings: 17}, table.Ring(Full(4)), "GPU 0 lost a link")
	assert.Equal(t, full, table.Ring(SetOf(1, 2, 3)))
	best, _ := table.Best(Full(4), 2)
	assert.Equal(t, SetOf(1, 2), best)

	m = mesh(4, Link{Class: NVLink, Lanes: 2})
	m.NVSwitch = true
	assert.Equal(t, Ring{GBps: 50, NVLinkRings: 2}, newTable(t, m).Ring(Full(4)), "fewer links, but a switch by declaration")
}

func TestMixedRingsCountAtTheirSlowestHop(t *testing.T) {
	m := fixtures(t)["a100-pcie-8-bridged"]
	table := newTable(t, m)
	assert.Equal(t, Ring{GBps: 300, NVLinkRings: 12}, table.Ring(SetOf(0, 1)))
	assert.Equal(t, Ring{GBps: 20}, table.Ring(SetOf(0, 1, 2)), "the third GPU is behind a host bridge")
	assert.Equal(t, Ring{GBps: 10}, table.Ring(SetOf(0, 1, 4)), "the third GPU is on the other socket")
}

func TestPCIeMayBeatASingleLink(t *testing.T) {
	m := mesh(3, Link{Class: NVLink, Lanes: 1})
	m.PCIeGeneration = 5
	for _, pair := range [][2]int{{0, 1}, {1, 2}} {
		m.Links[pair[0]][pair[1]], m.Links[pair[1]][pair[0]] = Link{Class: PIX}, Link{Class: PIX}
	}
	table := newTable(t, m)
	assert.Equal(t, Ring{GBps: 48}, table.Ring(SetOf(0, 1)))
	assert.Equal(t, Ring{GBps: 25}, table.Ring(Full(3)), "one hop of three is an NVLink")
}
