package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func table(t testing.TB, m Machine) *Table {
	t.Helper()
	tab, err := NewTable(m)
	require.NoError(t, err)
	return tab
}

func TestRingsOfHybridCubeMesh(t *testing.T) {
	tab := table(t, fixtures(t)["dgx1-v100"])
	byRing := map[Ring][]string{}
	for s := Set(0); s <= Full(8); s++ {
		if s.Len() == 4 {
			r := tab.Ring(s)
			byRing[r] = append(byRing[r], s.String())
		}
	}
	assert.ElementsMatch(t, []string{"0,1,2,3", "4,5,6,7"}, byRing[Ring{GBps: 50, NVLinkRings: 2}])
	assert.ElementsMatch(t, []string{"0,1,4,5", "0,2,4,6", "0,3,4,7", "1,2,5,6", "1,3,5,7", "2,3,6,7"}, byRing[Ring{GBps: 25, NVLinkRings: 1}])
	assert.Len(t, byRing[Ring{GBps: 5}], 62)
	assert.Equal(t, Ring{GBps: 50, NVLinkRings: 2}, tab.Ring(SetOf(0, 3)))
}
