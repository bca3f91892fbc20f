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
	masks  = flag.Int("masks", 2000, "random sets of free cards of each machine of 16 cards to compare with exhaustive search")
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

// wirings returns the machines of up to eight cards: the fixtures, and more ways to wire eight V100.
func wirings(t testing.TB) map[string]Machine {
	t.Helper()
	machines := fixtures(t)
	machines["2x-ack-sample-4xv100"] = twice(machines["ack-sample-4xv100"])
	machines["2x-v100-4-nv2"] = twice(mesh(4, Link{Class: NVLink, Lanes: 2}))
	machines["dgx1-v100-numbered-otherwise"] = reorder(machines["dgx1-v100"], []int{0, 5, 2, 7, 4, 1, 6, 3})
	maps.DeleteFunc(machines, func(_ string, m Machine) bool { return len(m.Cards) > 8 })
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

// check compares every answer about k cards out of free with exhaustive search.
func check(t *testing.T, table *Table, r *reference, free Set, k int) {
	t.Helper()
	healthy := free & table.Machine().Healthy()
	best, ok := table.Best(free, k)
	near, okNear := table.BestNearNIC(free, k)
	worst := table.Worst(free, k)
	if healthy.Len() < k {
		if ok || okNear || best != 0 || near != 0 || worst != (Ring{}) {
			t.Fatalf("%d of %v: got %v, %v, %v of too few healthy cards", k, free, best, near, worst)
		}
		return
	}
	if !ok || !okNear || best.Len() != k || near.Len() != k || (best|near)&^healthy != 0 {
		t.Fatalf("%d of %v: got %v and %v, not so many free and healthy cards", k, free, best, near)
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
	for free := range Full(len(m.Cards)) + 1 {
		if got, want := table.Ring(free), r.ring(free); got != want {
			t.Fatalf("ring of %v is %v: want %v", free, got, want)
		}
		for k := 1; k <= len(m.Cards)+1; k++ {
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

func TestAnswersFor16CardsAreOptimal(t *testing.T) {
	all := fixtures(t)
	machines := map[string]Machine{
		"dgx2-16xv100":             all["dgx2-16xv100"],
		"2x-dgx1-v100":             twice(all["dgx1-v100"]),
		"2x-pcie-8-switch-pix-phb": twice(all["pcie-8-switch-pix-phb"]),
		"2x-a100-pcie-8-bridged":   twice(all["a100-pcie-8-bridged"]),
	}
	for name, m := range machines {
		t.Run(name, func(t *testing.T) {
			table, r := newTable(t, m), newReference(m)
			random := rand.New(rand.NewPCG(2, 2))
			for range *masks {
				free := Set(random.Uint64()) & Full(16)
				check(t, table, r, free, 1+random.IntN(16))
			}
		})
	}
}
