package preemption_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// elastic makes a gang of single GPUs that needs only some of its members, and of which
// those run that have room.
func elastic(tb testing.TB, v *snapshot.View, g placement.Gang, minimum int) placement.Gang {
	tb.Helper()
	g.Minimum = minimum
	result := preemption.Plan(v, g)
	require.NotNil(tb, result.Placement, result.Verdict)
	placementtest.Evict(v, result.Victims)
	v.Apply(g, *result.Placement)
	g.Running = result.Placement.Assignments
	pods := make([]string, len(g.Roles[0].Members))
	for i, member := range g.Roles[0].Members {
		pods[i] = g.ID + "/" + member
	}
	v.SetMinimum(g.ID, minimum, pods)
	return g
}

func TestVictimLosesFirstWhatItDoesNotNeed(t *testing.T) {
	cases := map[string]struct {
		members, minimum int
		victim           bool
		lost             []string
	}{
		"the last members":                 {2, 0, true, []string{"left/a/worker-6", "left/a/worker-7"}},
		"all beyond the minimum":           {6, 0, true, []string{"left/a/worker-2", "left/a/worker-3", "left/a/worker-4", "left/a/worker-5", "left/a/worker-6", "left/a/worker-7"}},
		"everything, when that is too few": {7, 0, false, []string{"left/a/worker-0", "left/a/worker-1", "left/a/worker-2", "left/a/worker-3", "left/a/worker-4", "left/a/worker-5", "left/a/worker-6", "left/a/worker-7"}},
		"as little as the preemptor needs": {7, 1, true, []string{"left/a/worker-7"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			placementtest.SetQuota(t, v, placementtest.Halves())
			elastic(t, v, placementtest.InLeaf(placementtest.Gang("left/a", 8, placementtest.WholeGPUs(1)), "left", 0), 2)
			// In one leaf, which uses its minimum, priority decides.
			preemptor := placementtest.InLeaf(placementtest.Gang("left/b", c.members, placementtest.WholeGPUs(1)), "left", 1)
			preemptor.Minimum = c.minimum
			result := preemption.Plan(v, preemptor)
			require.Len(t, result.Victims, 1)
			assert.Equal(t, c.victim, result.Victims[0].Surplus)
			assert.Equal(t, c.lost, result.Victims[0].Pods)
		})
	}
}

// TestMembersOnTheirWayOutAreNotTakenTwice: nominations in turn take other surplus members each, and
// a gang that runs on without those that go is not what is left of one.
func TestMembersOnTheirWayOutAreNotTakenTwice(t *testing.T) {
	v := placementtest.TopologyView(2)
	elastic(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 8, placementtest.WholeGPUs(1)), "", 0), 6)
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/small", 4, placementtest.WholeGPUs(2)), "", 0))
	for i, want := range []string{"ml/a/worker-7", "ml/a/worker-6"} {
		result := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint("ml/high", i), 1, placementtest.WholeGPUs(1)), "", 1))
		require.Len(t, result.Victims, 1)
		assert.True(t, result.Victims[0].Surplus)
		assert.Equal(t, []string{want}, result.Victims[0].Pods)
		v.AddReservation(*result.Reservation)
	}
	third := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/high2", 1, placementtest.WholeGPUs(1)), "", 1))
	require.Len(t, third.Victims, 1)
	assert.False(t, third.Victims[0].Surplus)
	assert.Equal(t, "ml/small", third.Victims[0].Gang, "the smaller of two that run")
}

func TestMembersThatLeaveAreWaitedForFirst(t *testing.T) {
	v := placementtest.TopologyView(1)
	elastic(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 8, placementtest.WholeGPUs(1)), "", 0), 2)
	for _, pod := range v.Pods("n0") {
		if pod.ID == "ml/a/worker-1" {
			pod.Leaving = true
			v.AddPod(pod)
		}
	}
	result := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/high", 2, placementtest.WholeGPUs(1)), "", 1))
	require.NotNil(t, result.Reservation)
	want := []placement.Victim{
		{Gang: "ml/a", Pods: []string{"ml/a/worker-1"}, Surplus: true, Leaving: true},
		{Gang: "ml/a", Pods: []string{"ml/a/worker-7"}, Surplus: true},
	}
	assert.Equal(t, want, result.Reservation.After)
	assert.Equal(t, want[1:], result.Victims)
}

// TestElasticGangsDoNotEvictEachOther: two gangs of two leaves that each would fill the cluster
// share it by the minima of their leaves, whoever comes first.
func TestElasticGangsDoNotEvictEachOther(t *testing.T) {
	v := placementtest.TopologyView(2)
	placementtest.SetQuota(t, v, placementtest.Halves())
	left := elastic(t, v, placementtest.InLeaf(placementtest.Gang("left/a", 16, placementtest.WholeGPUs(1)), "left", 0), 2)
	require.Len(t, left.Running, 16)
	right := elastic(t, v, placementtest.InLeaf(placementtest.Gang("right/b", 16, placementtest.WholeGPUs(1)), "right", 0), 2)
	require.Len(t, right.Running, 2)
	left.Running = left.Running[:14]
	more := preemption.Plan(v, left)
	require.NotNil(t, more.Placement)
	assert.Empty(t, more.Victims, "nobody is evicted for a member beyond the minimum of its leaf")
	more = preemption.Plan(v, right)
	require.NotNil(t, more.Reservation, "its leaf uses less than its minimum")
	assert.Len(t, more.Placement.Assignments, 6)
	require.Len(t, more.Victims, 1)
	assert.True(t, more.Victims[0].Surplus)
	assert.Len(t, more.Victims[0].Pods, 6)
	placementtest.Evict(v, more.Victims)
	v.Apply(right, *more.Placement)
	left.Running = left.Running[:8]
	right.Running = append(right.Running, more.Placement.Assignments...)
	for _, g := range []placement.Gang{left, right} {
		again := preemption.Plan(v, g)
		require.NotNil(t, again.Placement)
		assert.Empty(t, again.Placement.Assignments)
		assert.Empty(t, again.Victims, "both leaves use their minimum")
	}
}

// TestGrowthLeavesOthersTheirMinimum: for members beyond a minimum no leaf loses what its
// own minimum covers, so that it has nothing to take back.
func TestGrowthLeavesOthersTheirMinimum(t *testing.T) {
	gpus := func(n int64) quota.Resources { return quota.Resources{"aliyun.com/gpu": n} }
	cases := map[string]struct {
		size    int
		least   int64
		minimum int // of the gangs of the other leaf
		want    int // members that the preemptor gets in the end
	}{
		"single GPUs, down to the minimum":             {size: 1, least: 10, minimum: 2, want: 6},
		"pairs that would break the minimum stay":      {size: 2, least: 11, minimum: 2, want: 4},
		"a gang as a whole, when its leaf can lose it": {size: 4, least: 8, minimum: 0, want: 8},
		"nothing, when its leaf would lose too much":   {size: 7, least: 8, minimum: 0, want: 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			placementtest.SetQuota(t, v, quota.Spec{Min: gpus(24), Max: gpus(24), Children: []quota.Spec{
				{Name: "left", Min: gpus(c.least), Max: gpus(16)}, {Name: "right", Min: gpus(8), Max: gpus(16)},
			}})
			if c.minimum > 0 {
				elastic(t, v, placementtest.InLeaf(placementtest.Gang("left/a", 14/c.size, placementtest.WholeGPUs(c.size)), "left", 0), c.minimum)
			} else {
				for i := range 14 / c.size {
					placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint("left/", i), 1, placementtest.WholeGPUs(c.size)), "left", 0))
				}
			}
			preemptor := elastic(t, v, placementtest.InLeaf(placementtest.Gang("right/b", 16, placementtest.WholeGPUs(1)), "right", 0), 2)
			for range 10 {
				result := preemption.Plan(v, preemptor)
				placementtest.Evict(v, result.Victims)
				v.Apply(preemptor, *result.Placement)
				preemptor.Running = append(preemptor.Running, result.Placement.Assignments...)
			}
			assert.Len(t, preemptor.Running, c.want)
		})
	}
}

// A launcher is placed by kube-scheduler's own rules: nobody is evicted for it by those of quota.
func TestGrowthTakesNothingForLateMembers(t *testing.T) {
	v := placementtest.TopologyView(1)
	node, _ := v.Node("n0")
	node.Allocatable.MilliCPU = 10_000
	v.SetNode(node)
	cores := func(n int64) quota.Resources { return quota.Resources{"cpu": 1000 * n} }
	placementtest.SetQuota(t, v, quota.Spec{Min: cores(20), Max: cores(20), Children: []quota.Spec{
		{Name: "left", Min: cores(10), Max: cores(10)}, {Name: "right", Max: cores(10)},
	}})
	with := func(r placement.Request, cores int64) placement.Request { r.MilliCPU = 1000 * cores; return r }
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("right/borrows", 1, with(placementtest.WholeGPUs(1), 9)), "right", 0))
	gang := placementtest.InLeaf(placementtest.Gang("left/gang", 1, with(placementtest.WholeGPUs(4), 1)), "left", 0)
	launcher := placementtest.Role("launcher", 1, with(placement.Request{}, 1))
	launcher.Late = true
	gang.Roles = append(gang.Roles, launcher)
	found := preemption.Plan(v, gang)
	require.NotNil(t, found.Placement)
	assert.Empty(t, found.Victims)
	assert.Equal(t, placement.Result{}, preemption.Growth(v, gang, found))
}

// TestGrowthComesAfterLateMembers: what starts late needs room, too, and the gang is nothing without it.
func TestGrowthComesAfterLateMembers(t *testing.T) {
	v := placementtest.TopologyView(1)
	node, _ := v.Node("n0")
	node.Allocatable.MilliCPU = 10_000
	v.SetNode(node)
	gpus := func(n int64) quota.Resources { return quota.Resources{"aliyun.com/gpu": n} }
	placementtest.SetQuota(t, v, quota.Spec{Min: gpus(8), Max: gpus(8), Children: []quota.Spec{
		{Name: "left", Min: gpus(4), Max: gpus(8)}, {Name: "right", Min: gpus(2), Max: gpus(8)},
	}})
	with := func(r placement.Request, cores int64) placement.Request { r.MilliCPU = 1000 * cores; return r }
	elastic(t, v, placementtest.InLeaf(placementtest.Gang("right/borrows", 3, with(placementtest.WholeGPUs(2), 2)), "right", 0), 1)
	gang := placementtest.InLeaf(placementtest.Gang("left/gang", 2, with(placementtest.WholeGPUs(2), 2)), "left", 0)
	gang.Minimum = 1
	found := preemption.Plan(v, gang)
	require.NotNil(t, found.Placement)
	require.Empty(t, found.Victims)
	assert.Len(t, preemption.Growth(v, gang, found).Victims, 1, "without what starts late")

	launcher := placementtest.Role("launcher", 1, with(placement.Request{}, 2))
	launcher.Late = true
	gang.Roles = append(gang.Roles, launcher)
	assert.Len(t, preemption.Growth(v, gang, found).Victims, 1, "there is room for both")
	v.Apply(gang, *found.Placement)
	gang.Running = found.Placement.Assignments
	assert.Empty(t, preemption.Plan(v, gang).Victims, "the launcher does not run yet")
	gang.Running = append(gang.Running, placement.Assignment{Member: "launcher-0", Node: "n0"})
	v.Apply(gang, placement.Placement{Gang: gang.ID, Assignments: gang.Running[1:]})
	assert.Len(t, preemption.Plan(v, gang).Victims, 1, "the launcher runs")

	gang.Running, gang.Roles[1].Request.MilliCPU = nil, 4_000
	v.RemovePod("left/gang/worker-0")
	v.RemovePod("left/gang/launcher-0")
	assert.Empty(t, preemption.Growth(v, gang, found).Victims, "the launcher finds no room")
}

func TestBudgetCoversMembersBeyondTheMinimum(t *testing.T) {
	v := placementtest.TopologyView(1)
	elastic(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 8, placementtest.WholeGPUs(1)), "", 0), 2)
	for _, pod := range v.Pods("n0") {
		pod.Budgets = []string{"ml/budget"}
		v.AddPod(pod)
	}
	preemptor := placementtest.InLeaf(placementtest.Gang("ml/high", 3, placementtest.WholeGPUs(1)), "", 1)
	for allowed, want := range map[int]int{2: 0, 3: 3, 8: 3} {
		v.SetBudget("ml/budget", allowed)
		lost := 0
		for _, victim := range preemption.Plan(v, preemptor).Victims {
			lost += len(victim.Pods)
		}
		assert.Equal(t, want, lost, "%d allowed", allowed)
	}
}

// TestGangStaysWhenItsSurplusMembersMustStay: a gang that loses what it needs loses all.
func TestGangStaysWhenItsSurplusMembersMustStay(t *testing.T) {
	v := placementtest.TopologyView(1)
	elastic(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 8, placementtest.WholeGPUs(1)), "", 0), 2)
	for _, pod := range v.Pods("n0") {
		if pod.ID == "ml/a/worker-7" {
			pod.Budgets = []string{"ml/budget"}
			v.AddPod(pod)
		}
	}
	preemptor := placementtest.InLeaf(placementtest.Gang("ml/high", 7, placementtest.WholeGPUs(1)), "", 1)
	assert.Empty(t, preemption.Plan(v, preemptor).Victims)
	v.SetBudget("ml/budget", 1)
	require.Len(t, preemption.Plan(v, preemptor).Victims, 1)
	assert.Len(t, preemption.Plan(v, preemptor).Victims[0].Pods, 8)
}

// TestGangLosesSurplusMembersElsewhere: when victims are sought on the nodes of one place, a gang
// that goes for it goes with its members on other nodes.
func TestGangLosesSurplusMembersElsewhere(t *testing.T) {
	v := placementtest.TopologyView(3)
	elastic(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 2, placementtest.WholeGPUs(8)), "", 1), 1)
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/low", 1, placementtest.WholeGPUs(8)), "", 0))
	v.SetBudget("ml/budget", 1)
	for _, pod := range append(v.Pods("n0"), v.Pods("n2")...) {
		pod.Budgets = []string{"ml/budget"}
		v.AddPod(pod)
	}
	preemptor := placementtest.InLeaf(placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(8)), "", 5)
	preemptor.ExcludeNodes = map[string]bool{"n1": true, "n2": true}
	result := preemption.Plan(v, preemptor)
	require.Len(t, result.Victims, 1)
	assert.Equal(t, []string{"ml/a/worker-0", "ml/a/worker-1"}, result.Victims[0].Pods)
}

// The verdict of an elastic gang counts members beyond the minimum, so it names all there are:
// a user read that "4 of 2 members fit".
func TestVerdictOfAnElasticGang(t *testing.T) {
	for name, test := range map[string]struct {
		members, minimum int
		want             string
	}{
		"more than are needed":  {8, 2, "4 of 8 members fit, and 2 are needed."},
		"no more than needed":   {8, 4, "4 of 8 members fit, and 4 are needed."},
		"one is needed":         {8, 1, "4 of 8 members fit, and 1 is needed."},
		"all":                   {3, 1, "3 of 3 members fit, and 1 is needed."},
		"without a minimum":     {4, 0, "4 of 4 members fit."},
		"fewer than are needed": {8, 6, "4 of 6 members fit: "},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			placementtest.SetQuota(t, v, quota.Spec{Name: "root", Children: []quota.Spec{{Name: "vision", Max: quota.Resources{"aliyun.com/gpu": 4}}}})
			g := placementtest.InLeaf(placementtest.Gang("ml/a", test.members, placementtest.WholeGPUs(1)), "vision", 0)
			g.Minimum = test.minimum
			assert.True(t, strings.HasPrefix(planner.Plan(v, g).Verdict.String(), test.want), planner.Plan(v, g).Verdict)
		})
	}
}
