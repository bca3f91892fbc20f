package planner_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

func TestTwoGangsShareOneNode(t *testing.T) {
	v := placementtest.TopologyView(2)
	for i, want := range []gpu.Set{gpu.SetOf(0, 1, 2, 3), gpu.SetOf(4, 5, 6, 7)} {
		var own gpu.Set
		for _, a := range placementtest.Place(t, v, placementtest.Gang([]string{"ml/a", "ml/b"}[i], 4, placementtest.WholeGPUs(1))) {
			assert.Equal(t, "n0", a.Node)
			assert.Equal(t, want, a.Visible)
			assert.Equal(t, 1, a.Own.Len())
			assert.Equal(t, gpu.Ring{GBps: 50, NVLinkRings: 2}, a.Ring)
			own |= a.Own
		}
		assert.Equal(t, want, own)
	}
}

func TestTwentyWorkersNeedAThirdNode(t *testing.T) {
	result := planner.Plan(placementtest.TopologyView(2), placementtest.Gang("ml/big", 20, placementtest.WholeGPUs(1)))
	require.Nil(t, result.Placement)
	assert.Len(t, result.Verdict.Partial, 16)
	assert.Equal(t, "16 of 20 members fit: 2 nodes have no free GPU left for worker-16 (each member asks for 1 GPU, mode topology). "+
		"Nearest fix: pool size 3 (now 2) for pool v100.", result.Verdict.String())
	require.Len(t, result.Verdict.Fixes, 2)
	assert.Equal(t, placement.Fix{Kind: placement.FixPoolSize, Target: "v100", From: "2", To: "3", Text: "pool size 3 (now 2) for pool v100"}, result.Verdict.Fixes[0])
	assert.Equal(t, placement.FixMembers, result.Verdict.Fixes[1].Kind)
}

// No pool has more nodes than the service gives it, so none is told to grow beyond that.
func TestNoPoolGrowsBeyondItsBound(t *testing.T) {
	for members, want := range map[int][]placement.FixKind{
		catalog.MaxPoolSize:     {placement.FixPoolSize, placement.FixMembers},
		catalog.MaxPoolSize + 1: {placement.FixMembers},
	} {
		var kinds []placement.FixKind
		for _, fix := range planner.Plan(placementtest.TopologyView(2), placementtest.Gang("ml/big", members, placementtest.WholeGPUs(8))).Verdict.Fixes {
			kinds = append(kinds, fix.Kind)
		}
		assert.Equal(t, want, kinds, "%d members of eight GPUs", members)
	}
}

// Too little of an amount is told with how much there is, and with the most that would do.
func TestTooLittleSaysHowMuch(t *testing.T) {
	for name, test := range map[string]struct {
		asks       placement.Resources
		says, text string
	}{
		"CPU":    {placement.Resources{MilliCPU: 90000}, "2 nodes have too little CPU left (at most 80 of the 90 that it asks for)", "80 CPU per member (now 90)"},
		"memory": {placement.Resources{MemoryBytes: 400 << 30}, "2 nodes have too little memory left (at most 300 GiB of the 400 GiB that it asks for)", "300 GiB memory per member (now 400 GiB)"},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			for _, name := range v.Nodes() {
				n, _ := v.Node(name)
				n.Allocatable.MilliCPU, n.Allocatable.MemoryBytes = 80000, 300<<30
				v.SetNode(n)
			}
			g := placementtest.Gang("ml/big", 2, placementtest.WholeGPUs(1))
			g.Roles[0].Request.MilliCPU, g.Roles[0].Request.MemoryBytes = test.asks.MilliCPU, test.asks.MemoryBytes
			verdict := planner.Plan(v, g).Verdict
			assert.Contains(t, verdict.String(), test.says)
			require.NotEmpty(t, verdict.Fixes)
			assert.Equal(t, test.text, verdict.Fixes[0].Text)
		})
	}
}

// A part that no GPU holds is told with the most that one has left, and the most that would do.
func TestShareThatNoGPUHolds(t *testing.T) {
	for name, test := range map[string]struct {
		members   int
		asks      placement.Request
		says, fix string
	}{
		"one GPU":       {1, placement.Request{MemoryGiB: 17}, "1 node has no GPU with enough memory or cores left (16 GiB of the 17 GiB that it asks for)", "16 GiB GPU memory per member (now 17 GiB)"},
		"several GPUs":  {1, placement.Request{MemoryGiB: 34, GPUs: 2}, "left (16 GiB of the 17 GiB that it asks for)", "32 GiB GPU memory per member (now 34 GiB)"},
		"too few cores": {5, placement.Request{MemoryGiB: 4, CorePercent: 60}, "1 node has no GPU with enough memory or cores left for", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := snapshot.NewView()
			v.SetNode(placementtest.SharedNode(t, "n", placement.ModeCoreMem, 80_000))
			test.asks.Mode = placement.ModeCoreMem
			verdict := planner.Plan(v, placementtest.Gang("ml/a", test.members, test.asks)).Verdict
			assert.Contains(t, verdict.String(), test.says)
			if test.fix != "" {
				require.NotEmpty(t, verdict.Fixes)
				assert.Equal(t, test.fix, verdict.Fixes[len(verdict.Fixes)-1].Text)
			}
		})
	}
}

// A gang of which all members must run gets fewer of them proposed, and no lower minimum.
func TestFixOfAWholeGang(t *testing.T) {
	g := placementtest.Gang("ml/set", 20, placementtest.WholeGPUs(1))
	g.Minimum = 20
	for whole, text := range map[bool]string{false: "a minimum of 16 members (now 20)", true: "16 members (now 20) for role worker"} {
		g.Whole = whole
		fixes := planner.Plan(placementtest.TopologyView(2), g).Verdict.Fixes
		require.NotEmpty(t, fixes)
		assert.Equal(t, text, fixes[len(fixes)-1].Text)
	}
}

// Roles that keep apart share one place per node, and those that run count too.
func TestRolesKeptApart(t *testing.T) {
	g := placement.Gang{ID: "ml/a", Roles: []placement.Role{placementtest.Role("master", 1, placementtest.WholeGPUs(4)), placementtest.Role("worker", 2, placementtest.WholeGPUs(4))}}
	for i := range g.Roles {
		g.Roles[i].Apart = "job-name=a"
	}
	small := planner.Plan(placementtest.TopologyView(2), g)
	require.Nil(t, small.Placement)
	assert.Equal(t, 2, small.Verdict.Fit)
	assert.Equal(t, []placement.Code{placement.PerNodeLimit}, []placement.Code{small.Verdict.Reasons[0].Code})
	assert.Equal(t, "pool size 3 (now 2) for pool v100", small.Verdict.Fixes[0].Text)

	nodes := map[string]bool{}
	big := placementtest.TopologyView(3)
	for _, a := range planner.Plan(big, g).Placement.Assignments {
		nodes[a.Node] = true
	}
	assert.Len(t, nodes, 3)

	g.Running = []placement.Assignment{{Member: "master-0", Node: "n0", Own: gpu.SetOf(0, 1, 2, 3)}}
	for _, a := range planner.Plan(big, g).Placement.Assignments {
		assert.NotEqual(t, "n0", a.Node)
	}
	for i := range g.Roles {
		g.Roles[i].Apart = g.Roles[i].Name
	}
	assert.Equal(t, "n0", planner.Plan(big, g).Placement.Assignments[0].Node, "each role by itself: a worker may join the master")
}

// A launcher that runs is no member that was asked for.
func TestLateMembersAreNotCounted(t *testing.T) {
	g := placement.Gang{ID: "ml/a", Roles: []placement.Role{placementtest.Role("launcher", 1, placement.Request{}), placementtest.Role("worker", 2, placementtest.WholeGPUs(8))}}
	g.Roles[0].Late = true
	g.Running = []placement.Assignment{{Member: "launcher-0", Node: "n0"}}
	v := planner.Plan(placementtest.TopologyView(1), g).Verdict
	assert.Equal(t, []int{2, 1}, []int{v.Asked, v.Fit})
}

// A gang is charged from the begin for what starts once its members run: it would hold GPUs and
// wait for the quota of its launcher.
func TestQuotaOfWhatStartsLate(t *testing.T) {
	worker := placementtest.WholeGPUs(2)
	worker.MilliCPU = 4000
	launcher := placement.Role{Name: "launcher", Members: []string{"launcher-0"}, Late: true}
	launcher.Request.Mode, launcher.Request.MilliCPU = placement.ModeNone, 1000
	for name, test := range map[string]struct {
		cores             int64
		workers, minimum  int
		running, launched bool
		places            int
		text              string
	}{
		"too little for the launcher":            {cores: 8, workers: 2, text: "quota root/left: max of cpu is 8, 0 is used and 9 is asked for by 2 members together, with what starts once they run"},
		"enough for all":                         {cores: 9, workers: 2, places: 2},
		"elastic":                                {cores: 12, workers: 3, minimum: 1, places: 2},
		"the members run":                        {cores: 9, workers: 2, running: true, places: 1},
		"the members run, and little is left":    {cores: 8, workers: 2, running: true, text: "quota root/left: max of cpu is 8, 8 is used and 1 is asked for by 1 member"},
		"one more while the launcher is to come": {cores: 12, workers: 3, minimum: 2, running: true},
		"one more beside the launcher":           {cores: 13, workers: 3, minimum: 2, running: true, launched: true, places: 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			limit := func(cores int64) quota.Resources {
				return quota.Resources{"cpu": 1000 * cores, "aliyun.com/gpu": 8}
			}
			placementtest.SetQuota(t, v, quota.Spec{Min: limit(100), Max: limit(100), Children: []quota.Spec{{Name: "left", Max: limit(test.cores)}}})
			g := placementtest.InLeaf(placementtest.Gang("ml/job", test.workers, worker), "left", 0)
			g.Minimum = test.minimum
			if test.running {
				first := g
				first.Minimum, first.Roles = 0, []placement.Role{placementtest.Role("worker", 2, worker)}
				g.Running = placementtest.Place(t, v, first)
			}
			g.Roles = append(slices.Clone(g.Roles), launcher)
			if test.launched {
				v.AddPod(placement.Pod{ID: "ml/job/launcher-0", Gang: "ml/job", Node: "n0", Leaf: "left", Request: launcher.Request, Preemptible: true})
				g.Running = append(g.Running, placement.Assignment{Member: "launcher-0", Node: "n0"})
			}
			result := planner.Plan(v, g)
			if test.text != "" {
				require.Nil(t, result.Placement)
				assert.Contains(t, result.Verdict.String(), test.text)
				return
			}
			require.NotNil(t, result.Placement, result.Verdict.String())
			assert.Len(t, result.Placement.Assignments, test.places)
		})
	}
}

// A leaf that has a minimum of GPUs and none of the CPU that its gang asks for takes nothing back, and the verdict says so.
func TestMinimumThatIsMissing(t *testing.T) {
	of := func(cores, gpus int64) quota.Resources {
		return quota.Resources{"cpu": 1000 * cores, "aliyun.com/gpu": gpus}
	}
	const says = "quota root: max of aliyun.com/gpu is 16, 12 is used and 8 is asked for by 2 members together"
	const why = "; others borrow of it, and root/right takes nothing back, because it has no min of cpu (0.1 is asked for)."
	for name, test := range map[string]struct {
		least         quota.Resources
		neverPreempts bool
		want          string
	}{
		"cpu is not guaranteed":  {quota.Resources{"aliyun.com/gpu": 8}, false, says + why},
		"it preempts nobody":     {quota.Resources{"aliyun.com/gpu": 8}, true, says + "."},
		"cpu is guaranteed, too": {of(10, 8), false, says + "."},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			placementtest.SetQuota(t, v, quota.Spec{Min: of(100, 16), Max: of(100, 16), Children: []quota.Spec{
				{Name: "left", Min: of(10, 8), Max: of(100, 16)}, {Name: "right", Min: test.least, Max: of(100, 16)},
			}})
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/borrows", 3, placementtest.WholeGPUs(4)), "left", 0))
			request := placementtest.WholeGPUs(4)
			request.MilliCPU = 50
			gang := placementtest.InLeaf(placementtest.Gang("ml/job", 2, request), "right", 0)
			gang.NeverPreempts = test.neverPreempts
			verdict := planner.Plan(v, gang).Verdict
			require.NotEmpty(t, verdict.Reasons)
			assert.Equal(t, test.want, verdict.Reasons[0].Text+".")
		})
	}
}

// What is not preemptible is capped by the minima of its quota, which is no limit of a gang that may be preempted.
func TestMinimumThatCaps(t *testing.T) {
	for name, test := range map[string]struct {
		gpus int
		want string
	}{
		"the minimum":     {2, "2 of 3 members fit: quota root/left: min, which caps what is not preemptible, of aliyun.com/gpu is 4, 0 is used and 6 is asked for by 3 members together. Nearest fix: preemptible true (now false)."},
		"the maximum too": {4, "1 of 3 members fit: quota root/left: min, which caps what is not preemptible, of aliyun.com/gpu is 4, 0 is used and 12 is asked for by 3 members together. Nearest fix: 1 GPU per member (now 4)."},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			gpus := func(n int64) quota.Resources { return quota.Resources{"aliyun.com/gpu": n} }
			placementtest.SetQuota(t, v, quota.Spec{Min: gpus(16), Max: gpus(16), Children: []quota.Spec{{Name: "left", Min: gpus(4), Max: gpus(8)}}})
			gang := placementtest.InLeaf(placementtest.Gang("ml/job", 3, placementtest.WholeGPUs(test.gpus)), "left", 0)
			gang.Preemptible = false
			verdict := planner.Plan(v, gang).Verdict
			assert.Equal(t, test.want, verdict.String())
			world := placementtest.World{TB: t, View: v}
			for _, fix := range verdict.Fixes {
				world.CheckFix(gang, fix)
			}
		})
	}
}
