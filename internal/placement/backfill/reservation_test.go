package backfill_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// TestReservationsAreNeverDelayed makes up to three reservations on random clusters, fills
// up with other gangs, and ends the gangs that run in a random order: each reserved gang
// gets exactly its place as soon as those have ended that it waits for.
func TestReservationsAreNeverDelayed(t *testing.T) {
	reserved, several, filled := 0, 0, 0
	for seed := range int64(400) {
		w := placementtest.NewWorld(t, seed)
		for range 8 {
			g := w.Gang(1)
			if p := planner.Place(w.View, g); p != nil {
				w.Apply(g, *p)
			}
		}
		held := map[string]placement.Gang{}
		for range 6 {
			head := w.Gang(1)
			head.RequiredDomain, head.Domains, head.Priority = "", nil, 0
			if len(held) == 3 || planner.Plan(w.View, head).Placement != nil {
				continue
			}
			if r, ok := backfill.Reserve(w.View, head); ok && !r.QuotaOnly {
				w.View.AddReservation(r)
				held[head.ID] = head
			}
		}
		reserved += len(held)
		if len(held) > 1 {
			several++
		}
		fill := func() {
			g := w.Gang(1)
			g.Priority = 0
			if p := planner.Plan(w.View, g).Placement; p != nil {
				filled++
				w.Apply(g, *p)
				w.CheckBooks()
			}
		}
		for range 4 {
			fill()
		}
		reservations := map[string]placement.Reservation{}
		var after []string
		for _, r := range w.View.Reservations() {
			reservations[r.Gang.ID] = r
			for _, victim := range r.After {
				after = append(after, victim.Pods...)
			}
		}
		w.Shuffle(len(after), func(i, j int) { after[i], after[j] = after[j], after[i] })
		for i := range len(after) + 1 {
			for id, g := range held {
				r := reservations[id]
				if waits(w, r) {
					continue
				}
				got := preemption.Plan(w.View, g)
				require.NotNil(t, got.Placement, "seed %d: %s is delayed: %s", seed, id, got.Verdict)
				require.Nil(t, got.Reservation, "seed %d: %s is delayed", seed, id)
				require.Equal(t, r.Placement, *got.Placement, "seed %d: %s gets another place", seed, id)
				w.View.Release(id)
				w.Apply(g, *got.Placement)
				w.CheckBooks()
				delete(held, id)
			}
			if i < len(after) {
				w.View.RemovePod(after[i])
				delete(w.Pods, after[i])
				fill()
			}
		}
		require.Empty(t, held)
	}
	t.Logf("%d reservations, several on %d clusters, %d gangs beside them", reserved, several, filled)
	assert.Greater(t, reserved, 40)
	assert.Greater(t, several, 10)
	assert.Greater(t, filled, 100)
}

// waits reports whether someone still runs for whom a reservation waits.
func waits(w *placementtest.World, r placement.Reservation) bool {
	for _, victim := range r.After {
		for _, id := range victim.Pods {
			if _, runs := w.Pods[id]; runs {
				return true
			}
		}
	}
	return false
}

func TestReservationGivesWay(t *testing.T) {
	v, big := blocked(t)
	r, ok := backfill.Reserve(v, big)
	require.True(t, ok)
	v.AddReservation(r)
	four := placementtest.Gang("ml/four", 1, placementtest.WholeGPUs(4))
	assert.Nil(t, planner.Plan(v, four).Placement)
	four.Priority = 1
	assert.NotNil(t, planner.Plan(v, four).Placement, "a gang of higher priority goes first")
	repaired := placementtest.Gang("ml/broken", 2, placementtest.WholeGPUs(4))
	repaired.Minimum = 2
	repaired.Running = []placement.Assignment{{Member: "worker-0", Node: "n1"}}
	assert.NotNil(t, planner.Plan(v, repaired).Placement, "a gang that runs gets its lost member back")

	v.Release(big.ID)
	v.Release(big.ID)
	four.Priority = 0
	assert.NotNil(t, planner.Plan(v, four).Placement)
	assert.Empty(t, v.Reservations())
}

// A place that was granted is kept for its gang alone, whoever else waits, and the gang gets it, also when it is another one by now.
func TestGrantedPlace(t *testing.T) {
	v := placementtest.TopologyView(2)
	granted := placementtest.Gang("ml/granted", 2, placementtest.WholeGPUs(4))
	place := planner.Place(v, granted)
	require.NotNil(t, place)
	at := place.Assignments[0].Node
	promised := granted
	for _, a := range place.Assignments {
		promised.Planned = append(promised.Planned, placement.Planned{Member: a.Member, Node: a.Node, GPUs: a.Own.GPUs()})
	}
	v.AddReservation(placement.Reservation{Gang: promised, Placement: *place, Granted: true})

	high := placementtest.Gang("ml/high", 2, placementtest.WholeGPUs(8))
	high.Priority = 1000
	assert.Nil(t, preemption.Plan(v, high).Placement, "a gang of higher priority waits")
	lost := placementtest.Gang("ml/lost", 2, placementtest.WholeGPUs(8))
	lost.Minimum, lost.Running = 2, []placement.Assignment{{Member: "worker-0", Node: at}}
	for _, a := range preemption.Plan(v, lost).Placement.Assignments {
		assert.NotEqual(t, at, a.Node, "so does one that has lost members")
	}
	backfill.ReserveBlocked(v, nil)
	backfill.ReserveBlocked(v, []placement.Gang{high})
	require.NotNil(t, v.ReservationOf(granted.ID), "others that wait take nothing of it")
	v.Release(high.ID)

	other := granted
	other.Priority = 5
	for name, g := range map[string]placement.Gang{"as it was": granted, "with a priority of its cluster": other} {
		got := preemption.Plan(v, g)
		require.NotNil(t, got.Placement, name)
		assert.Nil(t, got.Reservation, name)
		assert.Equal(t, place.Assignments, got.Placement.Assignments, name)
	}
	v.Release(granted.ID)
	assert.NotNil(t, preemption.Plan(v, high).Placement)
}

// A reservation stands while the gang is the same and gets its place once those have gone that it
// waits for, and not before.
func TestReservationStands(t *testing.T) {
	cases := map[string]struct {
		change func(*snapshot.View, *placement.Gang)
		stands bool
	}{
		"nothing changed": {func(*snapshot.View, *placement.Gang) {}, true},
		"the place is free": {func(v *snapshot.View, _ *placement.Gang) {
			for _, p := range v.Pods("n0") {
				v.RemovePod(p.ID)
			}
		}, false},
		"its node is gone":    {func(v *snapshot.View, _ *placement.Gang) { v.RemoveNode("n0") }, false},
		"its node is refused": {func(_ *snapshot.View, g *placement.Gang) { g.ExcludeNodes = map[string]bool{"n0": true} }, false},
		"its node is cordoned": {func(v *snapshot.View, _ *placement.Gang) {
			n, _ := v.Node("n0")
			n.Unschedulable = true
			v.SetNode(n)
		}, false},
		"its launcher has appeared": {func(_ *snapshot.View, g *placement.Gang) {
			g.Roles = append(slices.Clone(g.Roles), placement.Role{Name: "launcher", Members: []string{"launcher-0"}, Late: true})
		}, true},
		"the gang asks for less": {func(_ *snapshot.View, g *placement.Gang) {
			*g = placementtest.Gang("ml/big", 1, placementtest.WholeGPUs(7))
		}, false},
		"someone else came": {func(v *snapshot.View, _ *placement.Gang) {
			v.AddPod(placement.Pod{ID: "x", Node: "n0", Request: placementtest.WholeGPUs(1), Own: gpu.SetOf(7)})
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v, big := blocked(t)
			r, ok := backfill.Reserve(v, big)
			require.True(t, ok)
			v.AddReservation(r)
			c.change(v, &big)
			held := v.ReservationOf(big.ID)
			assert.Equal(t, c.stands, planner.ReservationValid(v, held, &big) && !planner.ReservationFree(v, held, &big, nil))
		})
	}
}

// A gang that its quota stops waits for its own leaf, and no GPU idles for it.
func TestReserveQuotaOnly(t *testing.T) {
	v := placementtest.TopologyView(3)
	placementtest.SetQuota(t, v, placementtest.Halves())
	low := placementtest.InLeaf(placementtest.Gang("left/low", 2, placementtest.WholeGPUs(8)), "left", 0)
	low.Preemptible = false
	tree := placementtest.Halves()
	tree.Children[0].Min["aliyun.com/gpu"] = 8
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("left/a", 1, placementtest.WholeGPUs(8)), "left", 0))
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("left/b", 1, placementtest.WholeGPUs(8)), "left", 0))
	head := placementtest.InLeaf(placementtest.Gang("left/head", 1, placementtest.WholeGPUs(8)), "left", 0)
	r, ok := backfill.Reserve(v, head)
	require.True(t, ok)
	assert.True(t, r.QuotaOnly)
	v.AddReservation(r)
	assert.NotNil(t, planner.Plan(v, placementtest.Gang("x/other", 1, placementtest.WholeGPUs(8))).Placement, "the free node is for everybody")
	v.RemovePod("left/a/worker-0")
	assert.Nil(t, planner.Plan(v, placementtest.InLeaf(placementtest.Gang("left/late", 1, placementtest.WholeGPUs(1)), "left", 0)).Placement, "the quota is reserved")
	got := preemption.Plan(v, head)
	require.NotNil(t, got.Placement, got.Verdict)
	assert.Nil(t, got.Reservation)
}
