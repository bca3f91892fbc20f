package gpu

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	graphs = flag.Int("graphs", 1000, "random degraded machines to compare with exhaustive search")
	masks  = flag.Int("masks", 5000, "random sets of free GPUs of each machine of 16 GPUs to compare with exhaustive search")
)

// fixtures returns the machines of testdata by name.
func fixtures(t testing.TB) map[string]Machine {
	t.Helper()
	paths, err := filepath.Glob("testdata/topologies/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	machines := make(map[string]Machine, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		m, err := ParseMachine(data)
		require.NoError(t, err, path)
		machines[strings.TrimSuffix(filepath.Base(path), ".json")] = m
	}
	return machines
}

// wirings returns the machines of up to eight GPUs: the fixtures, and more ways to wire eight V100.
func wirings(t testing.TB) map[string]Machine {
	t.Helper()
	machines := fixtures(t)
	machines["2x-ack-sample-4xv100"] = twice(machines["ack-sample-4xv100"])
	machines["2x-v100-4-nv2"] = twice(mesh(4, Link{Class: NVLink, Lanes: 2}))
	machines["dgx1-v100-numbered-otherwise"] = reorder(machines["dgx1-v100"], []int{0, 5, 2, 7, 4, 1, 6, 3})
	maps.DeleteFunc(machines, func(_ string, m Machine) bool { return len(m.GPUs) > 8 })
	return machines
}

func newTable(t testing.TB, m Machine) *Table {
	t.Helper()
	table, err := NewTable(m)
	require.NoError(t, err)
	return table
}

func TestRingsOfHybridCubeMesh(t *testing.T) {
	table := newTable(t, fixtures(t)["dgx1-v100"])
	byRing := map[Ring][]string{}
	subsets(Full(8), 4, func(s Set) { byRing[table.Ring(s)] = append(byRing[table.Ring(s)], s.String()) })
	assert.Equal(t, []string{"0,1,2,3", "4,5,6,7"}, byRing[Ring{GBps: 50, NVLinkRings: 2}])
	assert.Equal(t, []string{"0,1,4,5", "0,2,4,6", "0,3,4,7", "1,2,5,6", "1,3,5,7", "2,3,6,7"}, byRing[Ring{GBps: 25, NVLinkRings: 1}])
	assert.Len(t, byRing[Ring{GBps: 5}], 62)
}

// check compares every answer about k GPUs out of free with exhaustive search.
func check(t *testing.T, table *Table, r *reference, free Set, k int) {
	t.Helper()
	healthy := free & table.Machine().Healthy()
	best, ok := table.Best(free, k)
	near, okNear := table.BestNearNIC(free, k)
	worst := table.Worst(free, k)
	if healthy.Len() < k {
		if ok || okNear || best != 0 || near != 0 || worst != (Ring{}) {
			t.Fatalf("%d of %v: got %v, %v, %v of too few healthy GPUs", k, free, best, near, worst)
		}
		return
	}
	if !ok || !okNear || best.Len() != k || near.Len() != k || (best|near)&^healthy != 0 {
		t.Fatalf("%d of %v: got %v and %v, not so many free and healthy GPUs", k, free, best, near)
	}
	highest, lowest := r.bounds(healthy, k)
	if table.Ring(best).GBps != highest || table.Ring(near).GBps != highest || worst.GBps != lowest {
		t.Fatalf("%d of %v: got best %v with %v, near a network device %v with %v, worst %v; want best %v GB/s, worst %v GB/s",
			k, free, best, table.Ring(best), near, table.Ring(near), worst, highest, lowest)
	}
}

// checkAll compares every answer about a machine with exhaustive search.
func checkAll(t *testing.T, m Machine) {
	t.Helper()
	table, r := newTable(t, m), newReference(m)
	for free := range Full(len(m.GPUs)) + 1 {
		if got, want := table.Ring(free), r.ring(free); got != want {
			t.Fatalf("ring of %v is %v: want %v", free, got, want)
		}
		for k := 1; k <= len(m.GPUs)+1; k++ {
			check(t, table, r, free, k)
		}
	}
}

func TestEveryAnswerIsOptimal(t *testing.T) {
	for name, m := range wirings(t) {
		t.Run(name, func(t *testing.T) { checkAll(t, m) })
	}
}

func TestEveryAnswerIsOptimalOnDegradedMachines(t *testing.T) {
	machines := wirings(t)
	names := slices.Sorted(maps.Keys(machines))
	random := rand.New(rand.NewPCG(1, 1))
	for i := range *graphs {
		m := degraded(random, machines[names[i%len(names)]])
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%+v", m)
				}
			})
			checkAll(t, m)
		})
	}
}

func TestAnswersFor16GPUsAreOptimal(t *testing.T) {
	all := fixtures(t)
	machines := map[string]Machine{
		"dgx2-16xv100":             all["dgx2-16xv100"],
		"2x-dgx1-v100":             twice(all["dgx1-v100"]),
		"2x-pcie-8-switch-pix-phb": twice(all["pcie-8-switch-pix-phb"]),
		"2x-a100-pcie-8-bridged":   twice(all["a100-pcie-8-bridged"]),
	}
	for name, m := range machines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, r := newTable(t, m), newReference(m)
			random := rand.New(rand.NewPCG(2, 2))
			for range *masks {
				free := Set(random.Uint64()) & Full(16)
				check(t, table, r, free, 1+random.IntN(16))
			}
		})
	}
}

// The full order of sets: ring, leftovers, NUMA nodes, network devices, lowest GPUs.
func TestTiesAreBrokenInTheStatedOrder(t *testing.T) {
	machines := wirings(t)
	random := rand.New(rand.NewPCG(5, 5))
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		machines[name+" degraded"] = degraded(random, machines[name])
	}
	for name, m := range machines {
		t.Run(name, func(t *testing.T) {
			m.GPUs = slices.Clone(m.GPUs)
			for i := range m.GPUs {
				m.GPUs[i].Unhealthy = ""
			}
			table, r := newTable(t, m), newReference(m)
			for free := range Full(len(m.GPUs)) + 1 {
				for k := 1; k <= free.Len(); k++ {
					for nearNIC, choose := range map[bool]func(Set, int) (Set, bool){false: table.Best, true: table.BestNearNIC} {
						var want Set
						var highest []float64
						subsets(free, k, func(s Set) {
							if value := r.value(s, free, nearNIC); want == 0 || slices.Compare(value, highest) > 0 {
								want, highest = s, value
							}
						})
						if got, _ := choose(free, k); got != want {
							t.Fatalf("%d of %v, near a network device %v: got %v: want %v", k, free, nearNIC, got, want)
						}
					}
				}
			}
		})
	}
}

func TestNetworkDevices(t *testing.T) {
	m := sockets(8, 4)
	m.NICs = []NIC{{Name: "erdma_0", Links: []Link{{}, {Class: SYS}, {Class: SYS}, {Class: SYS}, {Class: NODE}, {Class: NODE}, {Class: PIX}, {Class: PIX}}}}
	table := newTable(t, m)
	for _, tt := range []struct {
		free       Set
		k          int
		best, near string
	}{
		{Full(8), 2, "6,7", "6,7"},
		{Full(8), 4, "4,5,6,7", "4,5,6,7"},
		{Full(8) &^ SetOf(0), 1, "1", "6"},
		{SetOf(0, 1, 2, 4), 2, "0,1", "0,1"},
	} {
		best, _ := table.Best(tt.free, tt.k)
		assert.Equal(t, tt.best, best.String(), "best %d of %v", tt.k, tt.free)
		near, _ := table.BestNearNIC(tt.free, tt.k)
		assert.Equal(t, tt.near, near.String(), "best %d of %v near a network device", tt.k, tt.free)
	}
}

func TestNUMANodesComeBeforeNetworkDevices(t *testing.T) {
	m := mesh(4, Link{Class: PIX})
	m.GPUs[2].NUMANode, m.GPUs[3].NUMANode = 1, 1
	m.NICs = []NIC{{Name: "mlx5_0", Links: []Link{{Class: SYS}, {Class: PIX}, {Class: PIX}, {Class: SYS}}}}
	table := newTable(t, m)
	best, _ := table.Best(Full(4), 2)
	assert.Equal(t, "0,1", best.String())
	near, _ := table.BestNearNIC(Full(4), 2)
	assert.Equal(t, "1,2", near.String(), "between machines the network comes first")
}

func TestQuestionsWithoutAnAnswer(t *testing.T) {
	table := newTable(t, mesh(4, Link{Class: PIX}))
	for k, want := range map[int]bool{-1: false, 0: true, 3: false} {
		best, ok := table.Best(SetOf(0, 3, 9), k)
		assert.Equal(t, want, ok, "%d GPUs", k)
		assert.Zero(t, best)
		assert.Zero(t, table.Worst(SetOf(0, 3, 9), k))
	}
	assert.Zero(t, table.Ring(SetOf(2, 60)), "one GPU of the machine")

	empty := newTable(t, Machine{})
	_, ok := empty.Best(Full(64), 1)
	assert.False(t, ok)
	assert.Zero(t, empty.Ring(Full(64)))
}

func TestNewTableRefusesWhatIsNoMachine(t *testing.T) {
	m := mesh(3, Link{Class: PIX})
	m.Links = m.Links[:2]
	_, err := NewTable(m)
	assert.ErrorContains(t, err, "links has 2 rows: want one per GPU, 3")
}

func TestEqualMachinesHaveEqualTables(t *testing.T) {
	for name, m := range wirings(t) {
		assert.Equal(t, newTable(t, m), newTable(t, m), name)
	}
}

func TestBestAllocatesNothing(t *testing.T) {
	table := newTable(t, fixtures(t)["dgx1-v100"])
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		table.Best(0xf7, 4)
		table.BestNearNIC(0xf7, 4)
		table.Worst(0xf7, 4)
		table.Ring(0xf0)
	}))
}

func FuzzBest(f *testing.F) {
	machines := wirings(f)
	names := slices.Sorted(maps.Keys(machines))
	for i := range names {
		f.Add(uint8(i), uint64(i), uint64(0xff), 4)
	}
	f.Fuzz(func(t *testing.T, machine uint8, seed, free uint64, k int) {
		m := degraded(rand.New(rand.NewPCG(seed, 0)), machines[names[int(machine)%len(names)]])
		table := newTable(t, m)
		check(t, table, newReference(m), Set(free)&Full(len(m.GPUs)), max(1, k))
	})
}
