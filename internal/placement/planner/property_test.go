package planner_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
)

// live lets gangs come and go and checks every step.
func live(tb testing.TB, seed int64, steps int) *placementtest.World {
	w := placementtest.NewWorld(tb, seed)
	w.Hosts = true
	for range steps {
		g := w.Gang(1 + w.Intn(3))
		if w.Workload != nil {
			w.Workload.Count(g)
			w.View.SetWorkload(w.Workload)
		}
		before := w.View.Clone()
		result := planner.Plan(w.View, g)
		require.Equal(tb, before.Pods("n0"), w.View.Pods("n0"), "planning changes nothing")
		require.Equal(tb, result, planner.Plan(w.View.Clone(), g), "the same view and gang give the same result")
		require.Equal(tb, result.Placement == nil, !result.Verdict.Fits)
		if result.Placement == nil {
			require.NotEmpty(tb, result.Verdict.Reasons, "%+v", g)
			require.Less(tb, result.Verdict.Fit, result.Verdict.Asked)
			require.Len(tb, result.Verdict.Partial, result.Verdict.Fit)
			for _, fix := range result.Verdict.Fixes {
				w.CheckFix(g, fix)
			}
			continue
		}
		w.CheckPlacement(g, *result.Placement)
		undo := w.View.Apply(g, *result.Placement)
		undo()
		require.Equal(tb, planner.Plan(before, g), planner.Plan(w.View, g), "undoing restores the view")
		w.Apply(g, *result.Placement)
		w.CheckBooks()
		if len(w.Pods) > 0 && w.Intn(3) == 0 {
			w.RemoveGang()
		}
	}
	return w
}

func TestRandomWorlds(t *testing.T) {
	raised, grown := 0, 0
	for seed := range int64(400) {
		w := live(t, seed, 12)
		raised, grown = raised+w.Raised, grown+w.Grown
	}
	assert.Greater(t, raised, 100, "fixes that raise a maximum")
	assert.Greater(t, grown, 10, "fixes that raise a maximum and let a pool grow")
}

func FuzzWorld(f *testing.F) {
	f.Add(int64(1))
	f.Fuzz(func(t *testing.T, seed int64) { live(t, seed, 10) })
}

// TestMonotone checks that an empty node more never makes a gang of one shape not
// fit. It does not hold for several shapes: where packing is a heuristic, another node
// can lead it astray.
func TestMonotone(t *testing.T) {
	fits := 0
	for seed := range int64(400) {
		w := placementtest.NewWorld(t, seed)
		for range 6 {
			g := w.Gang(1)
			before := planner.Plan(w.View, g)
			if before.Placement != nil {
				fits++
				grown := w.View.Clone()
				n := w.Nodes[w.Intn(len(w.Nodes))]
				n.Name = "another"
				grown.SetNode(n)
				require.NotNil(t, planner.Plan(grown, g).Placement, "seed %d: %+v", seed, g)
				w.Apply(g, *before.Placement)
			}
		}
	}
	assert.Greater(t, fits, 500)
}

// TestReclaimIsNeverMutual lets gangs reclaim from each other, and grow where they are
// elastic, until nobody can, which must come to an end: a victim never takes its place back.
func TestReclaimIsNeverMutual(t *testing.T) {
	shrunk := 0
	for seed := range int64(600) {
		w := placementtest.NewWorld(t, seed)
		if w.Spec.Children == nil {
			continue
		}
		var gangs []placement.Gang
		for range 12 {
			g := w.Gang(1)
			g.Leaf, g.Preemptible = []string{"a", "b"}[w.Intn(2)], true
			if w.Intn(2) == 0 {
				g.Minimum = 1 + w.Intn(2)
			}
			gangs = append(gangs, g)
		}
		// lose ends pods and returns what is left of their gang.
		lose := func(victim placement.Victim) *placement.Gang {
			placementtest.Evict(w.View, []placement.Victim{victim})
			for _, id := range victim.Pods {
				delete(w.Pods, id)
			}
			i := slices.IndexFunc(gangs, func(g placement.Gang) bool { return g.ID == victim.Gang })
			gangs[i].Running = slices.DeleteFunc(gangs[i].Running, func(a placement.Assignment) bool {
				return slices.Contains(victim.Pods, victim.Gang+"/"+a.Member)
			})
			return &gangs[i]
		}
		for rounds, idle := 0, 0; idle < len(gangs); rounds++ {
			require.Less(t, rounds, 400, "seed %d does not come to rest", seed)
			g := &gangs[rounds%len(gangs)]
			result := preemption.Plan(w.View, *g)
			idle++
			if result.Placement == nil || len(result.Placement.Assignments) == 0 {
				continue
			}
			idle = 0
			for _, victim := range result.Victims {
				left := lose(victim)
				if victim.Surplus {
					shrunk++
					require.GreaterOrEqual(t, len(left.Running), left.Minimum)
				} else {
					require.Empty(t, left.Running)
				}
			}
			w.Apply(*g, *result.Placement)
			w.CheckBooks()
			g.Running = append(g.Running, result.Placement.Assignments...)
			for _, victim := range result.Victims {
				i := slices.IndexFunc(gangs, func(g placement.Gang) bool { return g.ID == victim.Gang })
				for _, next := range preemption.Plan(w.View, gangs[i]).Victims {
					require.True(t, next.Gang != g.ID || next.Surplus, "seed %d: %s takes its place back", seed, victim.Gang)
				}
			}
		}
	}
	t.Logf("%d times a gang shrank", shrunk)
	assert.Greater(t, shrunk, 20)
}
