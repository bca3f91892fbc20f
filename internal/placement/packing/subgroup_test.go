package packing_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
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

// camp is a small cluster and a gang whose roles have minima of their own, with a slow model of
// what fits.
type camp struct {
	free map[string]int
	// pool keeps the nodes that only some roles may use apart.
	pool map[string]string
	gang placement.Gang
}

// newCamp makes a camp; restricted roles may use one pool only.
func newCamp(seed int64, restricted bool) (*camp, *snapshot.View) {
	random := rand.New(rand.NewSource(seed))
	c := &camp{free: map[string]int{}, pool: map[string]string{}}
	v := snapshot.NewView()
	for i := range 1 + random.Intn(3) {
		name := fmt.Sprint("n", i)
		c.pool[name] = string(rune('p' + random.Intn(2)))
		v.SetNode(placementtest.Node(name, c.pool[name], placement.ModeTopology, placementtest.V100()))
		c.free[name] = 8
		if used := random.Intn(8); used > 0 {
			c.free[name] -= used
			own, _ := placementtest.V100().Best(v.FreeGPUs(name), used)
			v.AddPod(placement.Pod{ID: "other/" + name, Node: name, Request: placementtest.WholeGPUs(used), Own: own})
		}
	}
	total, together := 0, 0
	c.gang = placement.Gang{ID: "ns/job"}
	for i := range 2 + random.Intn(2) {
		r := placementtest.Role(fmt.Sprint("role", i), 1+random.Intn(5), placementtest.WholeGPUs(1<<random.Intn(3)))
		if restricted && random.Intn(3) == 0 {
			r.Pools = []string{"p"}
		}
		total += len(r.Members)
		if restricted && random.Intn(3) == 0 { // members of one role that are not alike
			c.gang.Roles = append(c.gang.Roles, r)
			r = placementtest.Role(fmt.Sprint("unlike", i), 1+random.Intn(2), r.Request)
			if random.Intn(2) == 0 {
				r.Pools = []string{"p"}
			}
			total += len(r.Members)
			both := len(c.gang.Roles[len(c.gang.Roles)-1].Members) + len(r.Members)
			if minimum := random.Intn(both + 1); minimum > 0 {
				together += minimum
				first := c.gang.Roles[len(c.gang.Roles)-1].Name
				c.gang.Subgroups = append(c.gang.Subgroups, placement.Subgroup{Name: first, Roles: []string{first, r.Name}, Minimum: minimum})
			}
			c.gang.Roles = append(c.gang.Roles, r)
			continue
		}
		c.gang.Roles = append(c.gang.Roles, r)
		if minimum := random.Intn(len(r.Members) + 1); minimum > 0 {
			together += minimum
			c.gang.Subgroups = append(c.gang.Subgroups, placement.Subgroup{Name: r.Name, Roles: []string{r.Name}, Minimum: minimum})
		}
	}
	c.gang.Minimum = max(1, together+random.Intn(total-together+1))
	return c, v
}

// minimum is how many members of a role must run, where so many of the role before it do.
func (c *camp) minimum(role string, before int) int {
	for _, s := range c.gang.Subgroups {
		switch slices.Index(s.Roles, role) {
		case len(s.Roles) - 1:
			return max(s.Minimum-before*(len(s.Roles)-1), 0)
		case 0:
			return 0 // the next role may have them
		}
	}
	return 0
}

// fits tries out all ways to give the roles, from the given one on, places on nodes, of which
// so many are still needed. before is how many the role before has.
func (c *camp) fits(role, needed, before int) bool {
	if role == len(c.gang.Roles) {
		return needed <= 0
	}
	r := &c.gang.Roles[role]
	for n := c.minimum(r.Name, before); n <= len(r.Members); n++ {
		if c.spread(role, 0, n, needed-n, n) {
			return true
		}
	}
	return false
}

// spread tries out all ways to put n members of a role, of which all are so many, on the nodes from the given one on.
func (c *camp) spread(role, at, n, needed, all int) bool {
	if n == 0 {
		return c.fits(role+1, needed, all)
	}
	name := fmt.Sprint("n", at)
	if _, ok := c.free[name]; !ok {
		return false
	}
	r := &c.gang.Roles[role]
	most := min(n, c.free[name]/r.Request.GPUs)
	if r.Pools != nil && c.pool[name] != "p" {
		most = 0
	}
	for here := range most + 1 {
		c.free[name] -= here * r.Request.GPUs
		ok := c.spread(role, at+1, n-here, needed, all)
		c.free[name] += here * r.Request.GPUs
		if ok {
			return true
		}
	}
	return false
}

// check tells what is wrong with a placement.
func (c *camp) check(tb testing.TB, p placement.Placement) {
	tb.Helper()
	placed, taken := map[string]int{}, map[string]int{}
	var order []string
	before := 0
	for _, r := range c.gang.Roles {
		order = append(order, r.Members...)
		for _, a := range p.Assignments {
			if slices.Contains(r.Members, a.Member) {
				placed[r.Name]++
				taken[a.Node] += r.Request.GPUs
				require.True(tb, r.Pools == nil || c.pool[a.Node] == "p")
			}
		}
		require.GreaterOrEqual(tb, placed[r.Name], c.minimum(r.Name, before), r.Name)
		before = placed[r.Name]
	}
	require.GreaterOrEqual(tb, len(p.Assignments), c.gang.Minimum)
	for name, n := range taken {
		require.LessOrEqual(tb, n, c.free[name], name)
	}
	for _, r := range c.gang.Roles {
		for name, free := range c.free {
			room := (r.Pools == nil || c.pool[name] == "p") && free-taken[name] >= r.Request.GPUs
			require.False(tb, room && placed[r.Name] < len(r.Members), "%s has room for another of %s", name, r.Name)
		}
	}
	require.True(tb, slices.IsSortedFunc(p.Assignments, func(a, b placement.Assignment) int {
		return slices.Index(order, a.Member) - slices.Index(order, b.Member)
	}), "members are in the gang's order")
}

// A gang whose roles have minima is placed exactly when an exhaustive search finds places for
// as many members as it needs, of each role, too. Where roles are restricted to nodes as well,
// packing is a heuristic that hardly ever misses one.
func TestSubgroupsAgainstExhaustiveSearch(t *testing.T) {
	for _, restricted := range []bool{false, true} {
		fits, missed, waits := 0, 0, 0
		for seed := range int64(3000) {
			c, v := newCamp(seed, restricted)
			result, can := planner.Plan(v, c.gang), c.fits(0, c.gang.Minimum, 0)
			switch {
			case result.Placement != nil:
				fits++
				require.True(t, can, "seed %d", seed)
				c.check(t, *result.Placement)
			case can:
				missed++
				require.True(t, restricted, "seed %d: %+v\n%v", seed, c.gang, result.Verdict)
			default:
				waits++
				require.Less(t, result.Verdict.Fit, result.Verdict.Asked, "seed %d: %v", seed, result.Verdict)
				for _, fix := range result.Verdict.Fixes {
					require.NotEmpty(t, fix.Text)
				}
			}
		}
		assert.Greater(t, fits, 500)
		assert.Greater(t, waits, 500)
		assert.LessOrEqual(t, missed, fits/100, "of %d that fit", fits+missed)
	}
}

// workersAndMasters is a gang of single GPUs that needs so many of each role.
func workersAndMasters(workers, masters, leastWorkers, leastMasters int) placement.Gang {
	return placement.Gang{
		ID: "ml/job", Preemptible: true, Minimum: leastWorkers + leastMasters,
		Roles: []placement.Role{placementtest.Role("master", masters, placementtest.WholeGPUs(1)), placementtest.Role("worker", workers, placementtest.WholeGPUs(1))},
		Subgroups: []placement.Subgroup{
			{Name: "master", Roles: []string{"master"}, Minimum: leastMasters},
			{Name: "worker", Roles: []string{"worker"}, Minimum: leastWorkers},
		},
	}
}

func names(p *placement.Placement) []string {
	var list []string
	for _, a := range p.Assignments {
		list = append(list, a.Member)
	}
	return list
}

// Members that a role needs come before others that it does not, also when a role before it
// would take all the room.
func TestSubgroupsComeFirst(t *testing.T) {
	v := placementtest.TopologyView(1)
	placementtest.Place(t, v, placementtest.Gang("ml/other", 4, placementtest.WholeGPUs(1)))
	g := workersAndMasters(4, 4, 2, 1)
	result := planner.Plan(v, g)
	require.NotNil(t, result.Placement, result.Verdict)
	assert.Equal(t, []string{"master-0", "master-1", "worker-0", "worker-1"}, names(result.Placement))

	// A member that its role needs is lost: only one of this role replaces it.
	g.Running = slices.DeleteFunc(slices.Clone(result.Placement.Assignments), func(a placement.Assignment) bool { return a.Member == "worker-1" })
	assert.Equal(t, 1, g.Missing())
	v.Apply(g, placement.Placement{Gang: g.ID, Assignments: g.Running})
	again := planner.Plan(v, g)
	require.NotNil(t, again.Placement, again.Verdict)
	assert.Equal(t, []string{"worker-1"}, names(again.Placement))
}

// Of members of a subgroup that are not alike those run that have room.
func TestSubgroupOfMembersThatAreNotAlike(t *testing.T) {
	v := placementtest.TopologyView(1)
	elsewhere := placementtest.Role("worker", 2, placementtest.WholeGPUs(1))
	elsewhere.Pools = []string{"none"}
	g := placement.Gang{
		ID: "ml/job", Preemptible: true, Minimum: 2,
		Roles:     []placement.Role{elsewhere, placementtest.Role("worker.2", 3, placementtest.WholeGPUs(2))},
		Subgroups: []placement.Subgroup{{Name: "worker", Roles: []string{"worker", "worker.2"}, Minimum: 2}},
	}
	result := planner.Plan(v, g)
	require.NotNil(t, result.Placement, result.Verdict)
	assert.Equal(t, []string{"worker.2-0", "worker.2-1", "worker.2-2"}, names(result.Placement))

	// They evict others for themselves.
	other := placementtest.Gang("ml/other", 5, placementtest.WholeGPUs(1))
	other.Preemptible = true
	placementtest.Place(t, v, other)
	urgent := preemption.Plan(v, placementtest.InLeaf(g, "", 1))
	require.Len(t, urgent.Victims, 1)
}

// Beside the members that a subgroup needs, as many others are placed as have room.
func TestSubgroupsLeaveNoRoomIdle(t *testing.T) {
	for free := 1; free <= 8; free++ {
		v := placementtest.TopologyView(1)
		if used := 8 - free; used > 0 {
			own, _ := placementtest.V100().Best(gpu.Full(8), used)
			v.AddPod(placement.Pod{ID: "other", Node: "n0", Request: placementtest.WholeGPUs(used), Own: own})
		}
		g := placement.Gang{ID: "ml/a", Minimum: 3, Roles: []placement.Role{placementtest.Role("worker", 6, placementtest.WholeGPUs(1)), placementtest.Role("master", 1, placementtest.WholeGPUs(1))}}
		g.Subgroups = []placement.Subgroup{{Name: "master", Roles: []string{"master"}, Minimum: 1}}
		placed := planner.Place(v, g)
		if free < 3 {
			assert.Nil(t, placed)
			continue
		}
		require.NotNil(t, placed)
		assert.Len(t, placed.Assignments, min(free, 7))
		assert.True(t, slices.ContainsFunc(placed.Assignments, func(a placement.Assignment) bool { return strings.HasPrefix(a.Member, "master") }))
	}
}

func TestVerdictAboutARole(t *testing.T) {
	v := placementtest.TopologyView(1)
	placementtest.Place(t, v, placementtest.Gang("ml/other", 5, placementtest.WholeGPUs(1)))
	result := planner.Plan(v, workersAndMasters(4, 2, 3, 1))
	require.Nil(t, result.Placement)
	assert.Equal(t, 3, result.Verdict.Fit)
	assert.Equal(t, 4, result.Verdict.Asked)
	assert.Equal(t, "worker-2", result.Verdict.Next)
	var fixes []string
	for _, fix := range result.Verdict.Fixes {
		fixes = append(fixes, fix.Text)
	}
	assert.Contains(t, fixes, "a minimum of 2 members (now 3) for role worker")
}

// Who preempts a gang leaves each role what it needs, or takes all of it.
func TestVictimKeepsWhatItsRolesNeed(t *testing.T) {
	for name, c := range map[string]struct {
		members int
		lost    []string
	}{
		"the last of all":          {2, []string{"ml/job/worker-2", "ml/job/worker-3"}},
		"not the last worker":      {5, []string{"ml/job/master-1", "ml/job/master-2", "ml/job/master-3", "ml/job/worker-2", "ml/job/worker-3"}},
		"everything, if more must": {6, []string{"ml/job/master-0", "ml/job/master-1", "ml/job/master-2", "ml/job/master-3", "ml/job/worker-0", "ml/job/worker-1", "ml/job/worker-2", "ml/job/worker-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			g := workersAndMasters(4, 4, 2, 1)
			placementtest.Place(t, v, g)
			var all, masters, workers []string
			for i := range 4 {
				masters = append(masters, fmt.Sprintf("ml/job/master-%d", i))
				workers = append(workers, fmt.Sprintf("ml/job/worker-%d", i))
			}
			all = append(append(all, masters...), workers...)
			v.SetMinimum(g.ID, 3, all, snapshot.Part{Minimum: 1, Pods: masters}, snapshot.Part{Minimum: 2, Pods: workers})
			result := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/high", c.members, placementtest.WholeGPUs(1)), "", 1))
			require.Len(t, result.Victims, 1)
			assert.Equal(t, c.lost, result.Victims[0].Pods)
			assert.Equal(t, len(c.lost) < 8, result.Victims[0].Surplus)
		})
	}
}

// What is charged to the quota tree at least is what the roles need.
func TestSubgroupsWithinQuota(t *testing.T) {
	v := placementtest.TopologyView(1)
	gpus := quota.Resources{"aliyun.com/gpu": 8}
	placementtest.SetQuota(t, v, quota.Spec{Min: gpus, Max: gpus, Children: []quota.Spec{{Name: "a", Max: quota.Resources{"aliyun.com/gpu": 3}}}})
	g := placementtest.InLeaf(workersAndMasters(4, 4, 2, 1), "a", 0)
	result := planner.Plan(v, g)
	require.NotNil(t, result.Placement, result.Verdict)
	assert.Equal(t, []string{"master-0", "worker-0", "worker-1"}, names(result.Placement))
	g.Subgroups[1].Minimum = 3
	assert.Nil(t, planner.Plan(v, g).Placement)
}
