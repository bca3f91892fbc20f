package snapshot_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
)

// twin is a gang that differs from another in nothing but its names.
func twin(g placement.Gang) placement.Gang {
	g.ID += "-twin"
	g.Roles = slices.Clone(g.Roles)
	for i := range g.Roles {
		g.Roles[i].Members = slices.Clone(g.Roles[i].Members)
		for j := range g.Roles[i].Members {
			g.Roles[i].Members[j] += "-twin"
		}
	}
	return g
}

// A view that remembers what it denied says the same as one that remembers nothing,
// whatever changes between.
func TestVerdictsAreCachedUntilSomethingChanges(t *testing.T) {
	cached, granted := 0, 0
	for seed := range int64(50) {
		w := placementtest.NewWorld(t, seed)
		var asked []placement.Gang
		for range 6 {
			g := w.Gang(1 + w.Intn(2))
			if w.Spec.Children != nil {
				g.Leaf = []string{"a", "b"}[w.Intn(2)]
			}
			asked = append(asked, g, twin(g))
		}
		for step := range 40 {
			for _, g := range asked {
				forgetful := w.View.Clone()
				want := preemption.Reclaim(forgetful, g)
				require.Equal(t, want, preemption.Reclaim(w.View, g), "seed %d, step %d", seed, step)
				require.Equal(t, planner.Place(forgetful.Clone(), g), planner.Place(w.View, g), "seed %d, step %d", seed, step)
				require.Equal(t, planner.Infeasible(forgetful.Clone(), g), planner.Infeasible(w.View, g), "seed %d, step %d", seed, step)
				if want.Placement == nil {
					cached++
				} else {
					granted++
				}
			}
			disturb(w)
		}
	}
	t.Logf("%d times denied, %d times granted", cached, granted)
	assert.Greater(t, cached, 1_000)
	assert.Greater(t, granted, 1_000)
}

// disturb changes something that planning can see.
func disturb(w *placementtest.World) {
	somewhere := w.View.Pods(w.Nodes[w.Intn(len(w.Nodes))].Name)
	switch w.Intn(10) {
	case 0:
		w.AddNode()
	case 1:
		n := w.Nodes[w.Intn(len(w.Nodes))]
		n.Unschedulable = !n.Unschedulable
		w.View.SetNode(n)
	case 2:
		w.View.RemoveNode(w.Nodes[w.Intn(len(w.Nodes))].Name)
	case 3:
		if w.Spec.Children != nil {
			w.Spec.Children[0].MaxJobs = int64(w.Intn(6))
			placementtest.SetQuota(w.TB, w.View, w.Spec)
		}
	case 4:
		w.View.SetBudget("some", w.Intn(3))
	case 5:
		if g := w.Gang(1); planner.Place(w.View, g) == nil {
			if r, ok := backfill.Reserve(w.View, g); ok {
				w.View.AddReservation(r)
			}
		}
	case 6:
		for _, r := range w.View.Reservations() {
			w.View.Release(r.Gang.ID)
		}
	case 7:
		for _, pod := range somewhere {
			pod.Budgets = []string{"some"}
			w.View.AddPod(pod)
		}
	case 8:
		for _, pod := range somewhere {
			w.View.RemovePod(pod.ID)
		}
	default:
		g := w.Gang(1)
		if p := planner.Place(w.View, g); p != nil {
			w.View.Apply(g, *p)
		}
	}
}

func TestCachedVerdictEndsWithTheBudgetThatMadeIt(t *testing.T) {
	v := placementtest.TopologyView(1)
	low, high := placementtest.Gang("ml/low", 1, placementtest.WholeGPUs(8)), placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(8))
	low.Preemptible, high.Priority = true, 1
	placementtest.Place(t, v, low)
	pod := v.Pods("n0")[0]
	pod.Budgets = []string{"all"}
	v.AddPod(pod)
	assert.Nil(t, preemption.Reclaim(v, high).Placement)
	v.SetBudget("all", 1)
	assert.NotNil(t, preemption.Reclaim(v, high).Placement)
	v.SetBudget("all", 0)
	assert.Nil(t, preemption.Reclaim(v, high).Placement)
	v.SetBudget("all", 1)
	v.RemoveBudget("all")
	assert.Nil(t, preemption.Reclaim(v, high).Placement)
}
