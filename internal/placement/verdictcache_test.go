package placement_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
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
		w := newWorld(t, seed)
		var asked []placement.Gang
		for range 6 {
			g := w.gang(1 + w.Intn(2))
			if w.spec.Children != nil {
				g.Leaf = []string{"a", "b"}[w.Intn(2)]
			}
			asked = append(asked, g, twin(g))
		}
		for step := range 40 {
			for _, g := range asked {
				forgetful := w.view.Clone()
				want := forgetful.Reclaim(g)
				require.Equal(t, want, w.view.Reclaim(g), "seed %d, step %d", seed, step)
				require.Equal(t, forgetful.Clone().Place(g), w.view.Place(g), "seed %d, step %d", seed, step)
				require.Equal(t, forgetful.Clone().Infeasible(g), w.view.Infeasible(g), "seed %d, step %d", seed, step)
				if want.Placement == nil {
					cached++
				} else {
					granted++
				}
			}
			w.disturb()
		}
	}
	t.Logf("%d times denied, %d times granted", cached, granted)
	assert.Greater(t, cached, 1_000)
	assert.Greater(t, granted, 1_000)
}

// disturb changes something that planning can see.
func (w *world) disturb() {
	somewhere := w.view.Pods(w.nodes[w.Intn(len(w.nodes))].Name)
	switch w.Intn(10) {
	case 0:
		w.addNode()
	case 1:
		n := w.nodes[w.Intn(len(w.nodes))]
		n.Unschedulable = !n.Unschedulable
		w.view.SetNode(n)
	case 2:
		w.view.RemoveNode(w.nodes[w.Intn(len(w.nodes))].Name)
	case 3:
		if w.spec.Children != nil {
			w.spec.Children[0].MaxJobs = int64(w.Intn(6))
			setQuota(w.tb, w.view, w.spec)
		}
	case 4:
		w.view.SetBudget("some", w.Intn(3))
	case 5:
		if g := w.gang(1); w.view.Place(g) == nil {
			if r, ok := w.view.Reserve(g); ok {
				w.view.AddReservation(r)
			}
		}
	case 6:
		for _, r := range w.view.Reservations() {
			w.view.Release(r.Gang.ID)
		}
	case 7:
		for _, pod := range somewhere {
			pod.Budgets = []string{"some"}
			w.view.AddPod(pod)
		}
	case 8:
		for _, pod := range somewhere {
			w.view.RemovePod(pod.ID)
		}
	default:
		g := w.gang(1)
		if p := w.view.Place(g); p != nil {
			w.view.Apply(g, *p)
		}
	}
}

func TestCachedVerdictEndsWithTheBudgetThatMadeIt(t *testing.T) {
	v := topologyView(1)
	low, high := gang("ml/low", 1, wholeGPUs(8)), gang("ml/high", 1, wholeGPUs(8))
	low.Preemptible, high.Priority = true, 1
	place(t, v, low)
	pod := v.Pods("n0")[0]
	pod.Budgets = []string{"all"}
	v.AddPod(pod)
	assert.Nil(t, v.Reclaim(high).Placement)
	v.SetBudget("all", 1)
	assert.NotNil(t, v.Reclaim(high).Placement)
	v.SetBudget("all", 0)
	assert.Nil(t, v.Reclaim(high).Placement)
	v.SetBudget("all", 1)
	v.RemoveBudget("all")
	assert.Nil(t, v.Reclaim(high).Placement)
}
