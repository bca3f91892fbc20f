package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every ring visits each GPU once, and no two rings use one link.
func TestNVLinkRings(t *testing.T) {
	table := newTable(t, fixtures(t)["dgx1-v100"])
	links := table.Machine().Links
	for s := Set(1); s <= Full(8); s++ {
		rings := table.NVLinkRings(s)
		if s.Len() < 3 {
			assert.Empty(t, rings)
			continue
		}
		require.Len(t, rings, table.Ring(s).NVLinkRings, "set %s", s)
		used := map[[2]int]int{}
		for _, ring := range rings {
			require.Equal(t, s, SetOf(ring...), "set %s: ring %v", s, ring)
			require.Len(t, ring, s.Len())
			for i, a := range ring {
				b := ring[(i+1)%len(ring)]
				used[[2]int{min(a, b), max(a, b)}]++
			}
		}
		for pair, count := range used {
			assert.LessOrEqual(t, count, links[pair[0]][pair[1]].Lanes, "set %s: link %v", s, pair)
		}
	}
}
