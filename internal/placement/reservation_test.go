package placement_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// TestReservationsAreNeverDelayed makes up to three reservations on random clusters, fills
// up with other gangs, and ends the gangs that run in a random order: each reserved gang
// gets exactly its place as soon as those have ended that it waits for.
func TestReservationsAreNeverDelayed(t *testing.T) {
	reserved, several, filled := 0, 0, 0
	for seed := range int64(400) {
		w := newWorld(t, seed)
		for range 8 {
			g := w.gang(1)
			if p := w.view.Place(g); p != nil {
				w.apply(g, *p)
			}
		}
		held := map[string]placement.Gang{}
		for range 6 {
			head := w.gang(1)
			head.RequiredDomain, head.Domains, head.Priority = "", nil, 0
			if len(held) == 3 || w.view.Plan(head).Placement != nil {
				continue
			}
			if r, ok := w.view.Reserve(head); ok && !r.QuotaOnly {
				w.view.AddReservation(r)
				held[head.ID] = head
			}
		}
		reserved += len(held)
		if len(held) > 1 {
			several++
		}
		fill := func() {
			g := w.gang(1)
			g.Priority = 0
			if p := w.view.Plan(g).Placement; p != nil {
				filled++
				w.apply(g, *p)
				w.checkBooks()
			}
		}
		for range 4 {
			fill()
		}
		reservations := map[string]placement.Reservation{}
		var after []string
		for _, r := range w.view.Reservations() {
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
				got := w.view.Reclaim(g)
				require.NotNil(t, got.Placement, "seed %d: %s is delayed: %s", seed, id, got.Verdict)
				require.Nil(t, got.Reservation, "seed %d: %s is delayed", seed, id)
				require.Equal(t, r.Placement, *got.Placement, "seed %d: %s gets another place", seed, id)
				w.view.Release(id)
				w.apply(g, *got.Placement)
				w.checkBooks()
				delete(held, id)
			}
			if i < len(after) {
				w.view.RemovePod(after[i])
				delete(w.pods, after[i])
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
func waits(w *world, r placement.Reservation) bool {
	for _, victim := range r.After {
		for _, id := range victim.Pods {
			if _, runs := w.pods[id]; runs {
				return true
			}
		}
	}
	return false
}

func TestReservationGivesWay(t *testing.T) {
	v, big := blocked(t)
	r, ok := v.Reserve(big)
	require.True(t, ok)
	v.AddReservation(r)
	four := gang("ml/four", 1, wholeGPUs(4))
	assert.Nil(t, v.Plan(four).Placement)
	four.Priority = 1
	assert.NotNil(t, v.Plan(four).Placement, "a gang of higher priority goes first")
	repaired := gang("ml/broken", 2, wholeGPUs(4))
	repaired.Minimum = 2
	repaired.Running = []placement.Assignment{{Member: "worker-0", Node: "n1"}}
	assert.NotNil(t, v.Plan(repaired).Placement, "a gang that runs gets its lost member back")

	v.Release(big.ID)
	v.Release(big.ID)
	four.Priority = 0
	assert.NotNil(t, v.Plan(four).Placement)
	assert.Empty(t, v.Reservations())
}

func TestReservationIsValid(t *testing.T) {
	cases := map[string]struct {
		change func(*placement.View, *placement.Gang)
		stands bool
	}{
		"nothing changed": {func(*placement.View, *placement.Gang) {}, true},
		"the place is free": {func(v *placement.View, _ *placement.Gang) {
			for _, p := range v.Pods("n0") {
				v.RemovePod(p.ID)
			}
		}, false},
		"its node is gone":    {func(v *placement.View, _ *placement.Gang) { v.RemoveNode("n0") }, false},
		"its node is refused": {func(_ *placement.View, g *placement.Gang) { g.ExcludeNodes = map[string]bool{"n0": true} }, false},
		"its node is cordoned": {func(v *placement.View, _ *placement.Gang) {
			n, _ := v.Node("n0")
			n.Unschedulable = true
			v.SetNode(n)
		}, false},
		"its launcher has appeared": {func(_ *placement.View, g *placement.Gang) {
			g.Roles = append(slices.Clone(g.Roles), placement.Role{Name: "launcher", Members: []string{"launcher-0"}, Late: true})
		}, true},
		"the gang asks for less": {func(_ *placement.View, g *placement.Gang) { *g = gang("ml/big", 1, wholeGPUs(7)) }, false},
		"someone else came": {func(v *placement.View, _ *placement.Gang) {
			v.AddPod(placement.Pod{ID: "x", Node: "n0", Request: wholeGPUs(1), Own: gpu.SetOf(7)})
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v, big := blocked(t)
			r, ok := v.Reserve(big)
			require.True(t, ok)
			v.AddReservation(r)
			c.change(v, &big)
			assert.Equal(t, c.stands, v.ReservationIsValid(big))
		})
	}
	v, big := blocked(t)
	assert.False(t, v.ReservationIsValid(big), "there is none")
}

// A gang that its quota stops waits for its own leaf, and no GPU idles for it.
func TestReserveQuotaOnly(t *testing.T) {
	v := topologyView(3)
	setQuota(t, v, halves())
	low := inLeaf(gang("left/low", 2, wholeGPUs(8)), "left", 0)
	low.Preemptible = false
	tree := halves()
	tree.Children[0].Min["aliyun.com/gpu"] = 8
	place(t, v, inLeaf(gang("left/a", 1, wholeGPUs(8)), "left", 0))
	place(t, v, inLeaf(gang("left/b", 1, wholeGPUs(8)), "left", 0))
	head := inLeaf(gang("left/head", 1, wholeGPUs(8)), "left", 0)
	r, ok := v.Reserve(head)
	require.True(t, ok)
	assert.True(t, r.QuotaOnly)
	v.AddReservation(r)
	assert.NotNil(t, v.Plan(gang("x/other", 1, wholeGPUs(8))).Placement, "the free node is for everybody")
	v.RemovePod("left/a/worker-0")
	assert.Nil(t, v.Plan(inLeaf(gang("left/late", 1, wholeGPUs(1)), "left", 0)).Placement, "the quota is reserved")
	got := v.Reclaim(head)
	require.NotNil(t, got.Placement, got.Verdict)
	assert.Nil(t, got.Reservation)
}
