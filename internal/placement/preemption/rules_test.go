package preemption_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

const gpuResource = "aliyun.com/gpu"

func gpus(n int64) quota.Resources { return quota.Resources{gpuResource: n} }

// guarded is a small cluster in which not all gangs may go together: disruption budgets allow some
// pods, and leaves that borrow keep their minimum.
type guarded struct {
	*rand.Rand
	view    *snapshot.View
	free    []int
	budgets []int
	parts   []part
	wants   placement.Gang
	// entitled means that the gang that waits stays within the minimum of its leaf.
	entitled bool
}

// part is what goes as one: a gang, or of an elastic one a member that it does not need, or the rest,
// which goes only with these.
type part struct {
	placement.Gang
	pods    []string
	budgets []int
	gpus    int64
	rest    bool
}

func newGuarded(tb testing.TB, seed int64) *guarded {
	c := &guarded{Rand: rand.New(rand.NewSource(seed))}
	c.free = slices.Repeat([]int{8}, 2+c.Intn(3))
	c.view = placementtest.TopologyView(len(c.free))
	if c.Intn(6) > 0 {
		c.setQuota(tb)
	}
	for i := range c.Intn(4) {
		c.budgets = append(c.budgets, c.Intn(7))
		c.view.SetBudget(fmt.Sprint(i), c.budgets[i])
	}
	for i := 0; i < 30 && len(c.parts) < 7; i++ {
		c.run(c.gang(fmt.Sprint("ml/", i), []string{"a", "b", "b", "b", "c", "c"}[c.Intn(6)]))
	}
	c.wants = c.gang("ml/wants", "a")
	if c.Intn(3) == 0 {
		c.wants.ExcludeNodes = map[string]bool{"n0": true}
	}
	tree := c.view.Quota()
	c.entitled = tree != nil && tree.Entitled("a", gpus(sizeOf(c.wants)))
	return c
}

// setQuota shares the GPUs among three leaves. Some have a limit of their own, and two of them at times a parent.
func (c *guarded) setQuota(tb testing.TB) {
	total := int64(8 * len(c.free))
	if c.Intn(3) == 0 {
		total -= int64(c.Intn(9))
	}
	left := total
	leaf := func(name string) quota.Spec {
		least := left - c.Int63n(1+c.Int63n(left+1))
		left -= least
		most := total
		if c.Intn(4) == 0 {
			most -= c.Int63n(total - least + 1)
		}
		return quota.Spec{Name: name, Min: gpus(least), Max: gpus(most)}
	}
	spec := quota.Spec{Min: gpus(total), Max: gpus(total), Children: []quota.Spec{leaf("a"), leaf("b"), leaf("c")}}
	if both := spec.Children[:2]; c.Intn(3) == 0 {
		least := both[0].Min[gpuResource] + both[1].Min[gpuResource]
		most := max(least, both[0].Max[gpuResource], both[1].Max[gpuResource])
		spec.Children = []quota.Spec{{Name: "both", Min: gpus(least), Max: gpus(most), Children: slices.Clone(both)}, spec.Children[2]}
	}
	placementtest.SetQuota(tb, c.view, spec)
}

func (c *guarded) gang(id, leaf string) placement.Gang {
	if c.view.Quota() == nil {
		leaf = ""
	}
	g := placementtest.InLeaf(placementtest.Gang(id, 1+c.Intn(4), placementtest.WholeGPUs(1<<c.Intn(4))), leaf, int32(c.Intn(3)))
	g.Preemptible = c.Intn(10) > 0
	return g
}

// run starts a gang on any nodes, if there is room for it.
func (c *guarded) run(g placement.Gang) {
	if tree := c.view.Quota(); tree != nil && tree.Fits(g.Leaf, gpus(sizeOf(g)), g.Preemptible) != nil {
		return
	}
	members, size := g.Roles[0].Members, g.Roles[0].Request.GPUs
	free, budget := slices.Clone(c.free), c.Intn(len(c.budgets)+1)-1
	whole := part{Gang: g}
	var pods []placement.Pod
	for i, member := range members {
		node := c.Intn(len(free))
		for n := 0; n < len(free) && free[node] < size; n++ {
			node = (node + 1) % len(free)
		}
		if free[node] < size {
			return
		}
		pod := placement.Pod{
			ID: fmt.Sprint(g.ID, "/", member), Node: fmt.Sprint("n", node), Request: g.Roles[0].Request, Namespace: "ml",
			Gang: g.ID, Leaf: g.Leaf, Priority: g.Priority, Preemptible: g.Preemptible, StartedAt: int64(c.Intn(4)),
		}
		for range size {
			free[node]--
			pod.Own |= gpu.SetOf(free[node])
		}
		covered := -1
		if budget >= 0 && (i == 0 || c.Intn(3) > 0) {
			covered, pod.Budgets = budget, []string{fmt.Sprint(budget)}
		}
		pods, whole.pods, whole.budgets = append(pods, pod), append(whole.pods, pod.ID), append(whole.budgets, covered)
	}
	for _, pod := range pods {
		c.view.AddPod(pod)
	}
	c.free = free
	needed := len(members)
	if c.Intn(4) == 0 {
		needed = 1 + c.Intn(needed)
		c.view.SetMinimum(g.ID, needed, whole.pods)
	}
	for i := needed; i < len(members); i++ {
		c.parts = append(c.parts, part{Gang: g, pods: whole.pods[i : i+1], budgets: whole.budgets[i : i+1], gpus: int64(size)})
	}
	whole.pods, whole.budgets = whole.pods[:needed], whole.budgets[:needed]
	whole.gpus, whole.rest = int64(needed*size), needed < len(members)
	c.parts = append(c.parts, whole)
}

func sizeOf(g placement.Gang) int64 {
	return int64(len(g.Roles[0].Members) * g.Roles[0].Request.GPUs)
}

// permits reports whether budgets, priorities and minimums let some go for the gang that waits, in whatever order:
// none of them is entitled to its place when the others have gone. Or, in one order, it is so for one of each leaf.
func (c *guarded) permits(going []part, inOneOrder bool) bool {
	evicted, gone, of := make([]int, len(c.budgets)), map[string]int64{}, map[string]int{}
	for _, p := range going {
		for _, budget := range p.budgets {
			if budget >= 0 {
				evicted[budget]++
			}
		}
		gone[p.Leaf] += p.gpus
		of[p.ID] += len(p.pods)
	}
	for budget, n := range evicted {
		if n > c.budgets[budget] {
			return false
		}
	}
	borrows := map[string]bool{}
	for _, p := range going {
		switch {
		case !p.Preemptible, p.rest && of[p.ID] < len(p.Roles[0].Members):
			return false
		case !c.entitled:
			if p.Priority >= c.wants.Priority || p.Leaf != c.wants.Leaf {
				return false
			}
		case p.Leaf == c.wants.Leaf:
			return false
		default:
			tree := c.view.Quota()
			after := tree.Used(p.Leaf)[gpuResource] - gone[p.Leaf] + p.gpus
			switch {
			case after > tree.Min(p.Leaf)[gpuResource]:
				borrows[p.Leaf] = true
			case !inOneOrder:
				return false
			}
		}
	}
	return !c.entitled || len(borrows) == len(gone)
}

// without is the cluster after some have gone.
func (c *guarded) without(going []part) *snapshot.View {
	v := c.view.Clone()
	for _, p := range going {
		for _, id := range p.pods {
			v.RemovePod(id)
		}
	}
	return v
}

// victims says whether some may go together without which the gang that waits has its place.
func (c *guarded) victims() bool {
	for set := 1; set < 1<<len(c.parts); set++ {
		var going []part
		for i, p := range c.parts {
			if set&(1<<i) != 0 {
				going = append(going, p)
			}
		}
		if c.permits(going, false) && planner.Plan(c.without(going), c.wants).Placement != nil {
			return true
		}
	}
	return false
}

// TestVictimsThatMayGoTogether: whenever some may go together, and the gang that waits has its place without them, such
// ones are found.
func TestVictimsThatMayGoTogether(t *testing.T) {
	found, limited, none := 0, 0, 0
	for seed := range int64(4000) {
		c := newGuarded(t, seed)
		if planner.Plan(c.view.Clone(), c.wants).Placement != nil {
			continue
		}
		result := preemption.Plan(c.view.Clone(), c.wants)
		if result.Placement == nil {
			require.False(t, c.victims(), "seed %d: %+v", seed, c.wants)
			none++
			continue
		}
		found++
		limited += count(!c.permits(slices.DeleteFunc(slices.Clone(c.parts), func(p part) bool {
			return !p.Preemptible || c.entitled == (p.Leaf == c.wants.Leaf)
		}), false))
		var going []part
		for _, p := range c.parts {
			if slices.ContainsFunc(result.Victims, func(v placement.Victim) bool { return slices.Contains(v.Pods, p.pods[0]) }) {
				going = append(going, p)
			}
		}
		require.True(t, c.permits(going, true), "seed %d: %+v", seed, result.Victims)
		require.NotNil(t, planner.Plan(c.without(going), c.wants).Placement, "seed %d: %+v", seed, result.Victims)
	}
	t.Logf("%d nominations, %d where not all may go together, %d without", found, limited, none)
	assert.Greater(t, limited, 500)
	assert.Greater(t, none, 500)
}
