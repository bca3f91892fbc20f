package backfill_test

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

func reservedFor(v *snapshot.View) (ids []string) {
	for _, r := range v.Reservations() {
		ids = append(ids, r.Gang.ID)
	}
	return ids
}

func TestReserveBlocked(t *testing.T) {
	v, big := blocked(t)
	placementtest.SetQuota(t, v, placementtest.Halves())
	over := placementtest.InLeaf(placementtest.Gang("left/over", 5, placementtest.WholeGPUs(4)), "left", 0)
	huge := placementtest.Gang("ml/huge", 3, placementtest.WholeGPUs(8))
	next := placementtest.Gang("ml/next", 1, placementtest.WholeGPUs(8))
	fits := placementtest.Gang("ml/fits", 1, placementtest.WholeGPUs(1))
	for i := range 12 {
		v.AddPod(placement.Pod{ID: "left/x" + string(rune('a'+i)), Node: "elsewhere", Leaf: "left", Request: placementtest.WholeGPUs(1), Preemptible: true})
	}
	full := placementtest.InLeaf(placementtest.Gang("left/full", 5, placementtest.WholeGPUs(1)), "left", 0)
	behind := placementtest.InLeaf(placementtest.Gang("left/behind", 5, placementtest.WholeGPUs(1)), "left", 0)

	backfill.ReserveBlocked(v, []placement.Gang{huge, over, fits, big, next, full, behind})
	assert.Equal(t, []string{"ml/big", "left/full"}, reservedFor(v),
		"one place on nodes, one of quota; nothing for what never fits, for what fits, and for the second of each")
	held, _ := v.Reservation("ml/big")
	quotaOnly, _ := v.Reservation("left/full")
	assert.False(t, held.QuotaOnly)
	assert.True(t, quotaOnly.QuotaOnly)

	backfill.ReserveBlocked(v, []placement.Gang{big, full})
	again, _ := v.Reservation("ml/big")
	assert.Equal(t, held, again, "it stays where it is")
	backfill.ReserveBlocked(v, []placement.Gang{next})
	assert.Equal(t, []string{"ml/next"}, reservedFor(v))
	backfill.ReserveBlocked(v, nil)
	assert.Empty(t, v.Reservations())
}

// A place that waits for fewer gangs is better than the one that is held.
func TestReserveBlockedMoves(t *testing.T) {
	v, big := blocked(t)
	v.RemovePod("ml/a/worker-0")
	two := placementtest.Gang("ml/two", 4, placementtest.WholeGPUs(2))
	two.ExcludeNodes = map[string]bool{"n1": true}
	placementtest.Place(t, v, two)
	for _, p := range v.Pods("n0") {
		p.Gang = ""
		v.AddPod(p)
	}
	backfill.ReserveBlocked(v, []placement.Gang{big})
	r, ok := v.Reservation("ml/big")
	require.True(t, ok)
	require.Equal(t, "n1", r.Placement.Assignments[0].Node, "two gangs against four pods")
	for _, p := range v.Pods("n0")[:3] {
		v.RemovePod(p.ID)
	}
	backfill.ReserveBlocked(v, []placement.Gang{big})
	r, _ = v.Reservation("ml/big")
	assert.Equal(t, "n0", r.Placement.Assignments[0].Node)
}

// A gang that fits now is about to run: those behind it leave it its place.
func TestReserveBlockedBehindOneThatFits(t *testing.T) {
	v, big := blocked(t)
	first := placementtest.Gang("ml/first", 1, placementtest.WholeGPUs(4))
	backfill.ReserveBlocked(v, []placement.Gang{first, big})
	assert.NotNil(t, planner.Place(v, first))
	assert.Equal(t, []string{"ml/big"}, reservedFor(v))
	r, _ := v.Reservation("ml/big")
	assert.Equal(t, "n1", r.Placement.Assignments[0].Node)
}

// A gang for which a place was held has it held until it takes it, also when all have ended that
// it waited for: one that is planned before it would take a part.
func TestReserveBlockedUntilTaken(t *testing.T) {
	v, big := blocked(t)
	one := placementtest.Gang("ml/one", 1, placementtest.WholeGPUs(1))
	one.ExcludeNodes = map[string]bool{"n1": true}
	backfill.ReserveBlocked(v, []placement.Gang{big, one})
	require.Equal(t, []string{"ml/big"}, reservedFor(v))
	for _, p := range v.Pods("n0") {
		v.RemovePod(p.ID)
	}
	for range 2 {
		backfill.ReserveBlocked(v, []placement.Gang{big, one})
		assert.Equal(t, []string{"ml/big"}, reservedFor(v))
		assert.Nil(t, planner.Place(v, one))
		assert.NotNil(t, planner.Place(v, big))
	}
	backfill.ReserveBlocked(v, []placement.Gang{one})
	assert.Empty(t, reservedFor(v), "it waits no more")
	assert.NotNil(t, planner.Place(v, one))
}

func TestInfeasible(t *testing.T) {
	v, big := blocked(t)
	assert.False(t, planner.Infeasible(v, big))
	huge := placementtest.Gang("ml/huge", 3, placementtest.WholeGPUs(8))
	assert.True(t, planner.Infeasible(v, huge))
	before := v.Version()
	v.RemovePod("ml/a/worker-0")
	assert.Equal(t, before, v.Version())
	n, _ := v.Node("n0")
	n.Name = "n2"
	v.SetNode(n)
	assert.NotEqual(t, before, v.Version())
	assert.False(t, planner.Infeasible(v, huge))
}

// inPool is a gang of one member that runs in one pool only, or anywhere.
func inPool(id, pool string, gpus int) placement.Gang {
	g := placementtest.Gang(id, 1, placementtest.WholeGPUs(gpus))
	if pool != "" {
		g.Roles[0].Pools = []string{pool}
	}
	return g
}

// pools are nodes by pool, each with a pod on half of its GPUs.
func pools(t *testing.T, names ...string) *snapshot.View {
	t.Helper()
	v := snapshot.NewView()
	for i, pool := range names {
		v.SetNode(placementtest.Node(fmt.Sprintf("n%d", i), pool, placement.ModeTopology, placementtest.V100()))
		runs := inPool(fmt.Sprintf("ml/runs-%d", i), pool, 4)
		placementtest.Place(t, v, runs)
	}
	return v
}

// Each pool's first gang that has waited too long has a place; one that may use several pools disputes all of their nodes.
func TestReserveBlockedInEachPool(t *testing.T) {
	cases := map[string]struct {
		gangs []placement.Gang
		want  []string
	}{
		"one of each pool": {
			[]placement.Gang{inPool("ml/a", "a", 8), inPool("ml/a2", "a", 8), inPool("ml/b", "b", 8), inPool("ml/b2", "b", 8)},
			[]string{"ml/a", "ml/b"},
		},
		"one that may run anywhere is first":  {[]placement.Gang{inPool("ml/any", "", 8), inPool("ml/a", "a", 8), inPool("ml/b", "b", 8)}, []string{"ml/any"}},
		"one that may run anywhere is second": {[]placement.Gang{inPool("ml/a", "a", 8), inPool("ml/any", "", 8), inPool("ml/b", "b", 8)}, []string{"ml/a", "ml/b"}},
		"one that never fits":                 {[]placement.Gang{inPool("ml/a", "a", 8), inPool("ml/huge", "b", 9), inPool("ml/b", "b", 8)}, []string{"ml/a", "ml/b"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := pools(t, "a", "b")
			for range 2 {
				backfill.ReserveBlocked(v, c.gangs)
				assert.Equal(t, c.want, reservedFor(v))
			}
		})
	}
}

// Gangs with nodes of their own have so many places at most.
func TestMostPlaces(t *testing.T) {
	var names []string
	var gangs []placement.Gang
	for i := range 12 {
		names = append(names, fmt.Sprintf("p%d", i))
		gangs = append(gangs, inPool(fmt.Sprintf("ml/g%d", i), names[i], 8))
	}
	v := pools(t, names...)
	backfill.ReserveBlocked(v, gangs)
	assert.Len(t, reservedFor(v), 4)
}

// Small jobs that come again and again pass nobody for ever who has waited too long, in whichever pool that one waits.
func TestNoPoolStarves(t *testing.T) {
	for seed := range int64(100) {
		chance := rand.New(rand.NewSource(seed))
		names := []string{"a", "b", "c"}[:2+chance.Intn(2)]
		v := pools(t, names...)
		var waiting []placement.Gang
		for _, k := range chance.Perm(len(names)) {
			waiting = append(waiting, inPool("ml/big-"+names[k], names[k], 8))
		}
		small, running := 0, map[string]placement.Gang{}
		for i := range names {
			running[fmt.Sprintf("ml/runs-%d", i)] = placement.Gang{}
		}
		for range 40 {
			backfill.ReserveBlocked(v, waiting)
			waiting = slices.DeleteFunc(waiting, func(g placement.Gang) bool {
				placed := planner.Place(v, g)
				if placed != nil {
					v.Release(g.ID)
					v.Apply(g, *placed)
				}
				return placed != nil
			})
			for _, pool := range names {
				for range 3 {
					small++
					g := inPool(fmt.Sprintf("ml/small-%d", small), pool, 1+chance.Intn(3))
					if placed := planner.Place(v, g); placed != nil {
						v.Apply(g, *placed)
						running[g.ID] = g
					}
				}
			}
			ids := slices.Sorted(maps.Keys(running))
			for range min(len(ids), 1+chance.Intn(2)) {
				at := chance.Intn(len(ids))
				v.RemovePod(ids[at] + "/worker-0")
				delete(running, ids[at])
			}
		}
		require.Empty(t, waiting, "seed %d", seed)
	}
}
