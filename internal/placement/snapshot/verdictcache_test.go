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
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
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

// called is a gang that differs from another in its ID.
func called(g placement.Gang, id string) placement.Gang {
	g.ID = id + g.ID[len("ml/g"):]
	return g
}

// beside gives roles of a gang rules about which pods, of which namespaces, run near them, at random.
func beside(w *placementtest.World, g *placement.Gang) {
	for i := range g.Roles {
		role := &g.Roles[i]
		role.Labels = map[string]string{"app": "x"}
		pods := placement.Selector{Namespaces: []string{[]string{"ml", "other"}[w.Intn(2)]}, Requirements: []placement.Requirement{{Key: "app", Operator: "In", Values: []string{"x"}}}}
		switch w.Intn(4) {
		case 0:
			role.Neighbors = []placement.Neighbor{{Label: "rack", Pods: pods, Apart: w.Intn(2) == 0}}
		case 1:
			role.Spreads = []placement.TopologySpread{{Label: "rack", Pods: pods, MaxSkew: 1}}
		}
	}
}

// A view that remembers what it denied says the same as one that remembers nothing,
// whatever changes between.
func TestVerdictsAreCachedUntilSomethingChanges(t *testing.T) {
	cached, granted := 0, 0
	for seed := range int64(50) {
		w := placementtest.NewWorld(t, seed)
		var asked []placement.Gang
		for range 3 {
			g := w.Gang(1 + w.Intn(2))
			if w.Spec.Children != nil {
				g.Leaf = []string{"a", "b"}[w.Intn(2)]
			}
			beside(w, &g)
			asked = append(asked, g, twin(g), called(g, "other/g"), called(g, "ml"+placement.OfPod+"g"))
		}
		for step := range 30 {
			for _, g := range asked {
				forgetful := w.View.Clone()
				want := preemption.Plan(forgetful, g)
				require.Equal(t, want, preemption.Plan(w.View, g), "seed %d, step %d", seed, step)
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

// Two rules read the ID of a gang: which pods its members are near, and how many jobs a leaf may run.
func TestVerdictIsNotThatOfAnotherID(t *testing.T) {
	near := placementtest.Gang("", 2, placementtest.WholeGPUs(1))
	near.Roles[0].Labels = map[string]string{"app": "x"}
	near.Roles[0].Neighbors = []placement.Neighbor{{Label: "kubernetes.io/hostname", Pods: placement.Selector{
		Namespaces: []string{"a"}, Requirements: []placement.Requirement{{Key: "app", Operator: "In", Values: []string{"x"}}},
	}}}
	job := placementtest.InLeaf(placementtest.Gang("", 1, placementtest.WholeGPUs(1)), "team", 0)
	for _, test := range []struct {
		name         string
		gang         placement.Gang
		denied, fits string
	}{
		{"another namespace", near, "b/g", "a/g"},
		{"a pod on its own", job, "ml/g", "ml" + placement.OfPod + "g"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			placementtest.SetQuota(t, v, quota.Spec{Children: []quota.Spec{{Name: "team", MaxJobs: 1}}})
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/runs", 1, placementtest.WholeGPUs(1)), "team", 0))
			test.gang.ID = test.denied
			require.Nil(t, preemption.Plan(v, test.gang).Placement)
			require.Nil(t, planner.Place(v, test.gang))
			test.gang.ID = test.fits
			assert.NotNil(t, planner.Place(v, test.gang))
			result := preemption.Plan(v, test.gang)
			assert.NotNil(t, result.Placement, result.Verdict.String())
		})
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
	assert.Nil(t, preemption.Plan(v, high).Placement)
	v.SetBudget("all", 1)
	assert.NotNil(t, preemption.Plan(v, high).Placement)
	v.SetBudget("all", 0)
	assert.Nil(t, preemption.Plan(v, high).Placement)
	v.SetBudget("all", 1)
	v.RemoveBudget("all")
	assert.Nil(t, preemption.Plan(v, high).Placement)
}
