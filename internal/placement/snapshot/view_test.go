package snapshot_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

func TestPodsOutliveTheirNode(t *testing.T) {
	v := snapshot.NewView()
	v.AddPod(placement.Pod{ID: "ml/a", Node: "n0", Request: placementtest.WholeGPUs(2), Own: gpu.SetOf(0, 1)})
	_, known := v.Node("n0")
	assert.False(t, known)
	assert.Empty(t, v.Nodes())
	assert.Zero(t, v.FreeGPUs("n0"))

	v.SetNode(placementtest.Node("n0", "v100", placement.ModeTopology, placementtest.V100()))
	assert.Equal(t, gpu.SetOf(2, 3, 4, 5, 6, 7), v.FreeGPUs("n0"), "the pod came before its node")
	v.RemoveNode("n0")
	v.RemoveNode("n0")
	v.SetNode(placementtest.Node("n0", "v100", placement.ModeTopology, placementtest.V100()))
	assert.Equal(t, gpu.SetOf(2, 3, 4, 5, 6, 7), v.FreeGPUs("n0"), "and outlived it")
	v.RemovePod("ml/a")
	v.RemovePod("ml/a")
	assert.Equal(t, gpu.Full(8), v.FreeGPUs("n0"))
}

func TestNodesAreOrderedAndReplaced(t *testing.T) {
	v := snapshot.NewView()
	for _, n := range []placement.Node{{Name: "n10", Pool: "b"}, {Name: "n9", Pool: "b"}, {Name: "z", Pool: "b", Since: -1}, {Name: "y", Pool: "a"}} {
		v.SetNode(n)
	}
	assert.Equal(t, []string{"y", "z", "n9", "n10"}, v.Nodes())
	v.SetNode(placement.Node{Name: "n10", Pool: "a"})
	assert.Equal(t, []string{"n10", "y", "z", "n9"}, v.Nodes())
	n, ok := v.Node("n10")
	assert.True(t, ok)
	assert.Equal(t, "a", n.Pool)
}

func TestAReplacedPodIsChargedOnce(t *testing.T) {
	v := placementtest.TopologyView(2)
	v.AddPod(placement.Pod{ID: "x", Node: "n0", Request: placementtest.WholeGPUs(8), Own: gpu.Full(8)})
	v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: placementtest.WholeGPUs(1), Own: gpu.SetOf(5)})
	assert.Equal(t, gpu.Full(8), v.FreeGPUs("n0"))
	assert.Equal(t, gpu.Full(8)&^gpu.SetOf(5), v.FreeGPUs("n1"))
}

func TestUndoBringsBackWhatWasReplaced(t *testing.T) {
	v := placementtest.TopologyView(1)
	v.AddPod(placement.Pod{ID: "ml/a/worker-0", Node: "n0", Request: placementtest.WholeGPUs(2), Own: gpu.SetOf(6, 7), Gang: "ml/a"})
	undo := v.Apply(placementtest.Gang("ml/a", 1, placementtest.WholeGPUs(4)), placement.Placement{Assignments: []placement.Assignment{
		{Member: "worker-0", Node: "n0", Own: gpu.SetOf(0, 1, 2, 3)}, {Member: "stranger", Node: "n0"},
	}})
	assert.Equal(t, gpu.SetOf(4, 5, 6, 7), v.FreeGPUs("n0"))
	undo()
	assert.Equal(t, gpu.SetOf(0, 1, 2, 3, 4, 5), v.FreeGPUs("n0"))
	assert.Len(t, v.Pods("n0"), 1)
}

func TestACloneIsIndependent(t *testing.T) {
	v := placementtest.TopologyView(1)
	placementtest.SetQuota(t, v, placementtest.Halves())
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 4, placementtest.WholeGPUs(1)), "left", 0))
	c := v.Clone()
	placementtest.Place(t, c, placementtest.InLeaf(placementtest.Gang("ml/b", 4, placementtest.WholeGPUs(1)), "left", 0))
	assert.Zero(t, c.FreeGPUs("n0"))
	assert.Equal(t, 4, v.FreeGPUs("n0").Len())
	assert.Equal(t, int64(4), v.Quota().Used("left")["aliyun.com/gpu"])
	assert.Equal(t, int64(8), c.Quota().Used("left")["aliyun.com/gpu"])
	c.RemoveNode("n0")
	assert.Equal(t, []string{"n0"}, v.Nodes())
}

func TestQuotaCountsPodsAndJobs(t *testing.T) {
	v := placementtest.TopologyView(1)
	assert.Nil(t, v.Quota())
	a := placementtest.InLeaf(placementtest.Gang("ml/a", 2, placementtest.WholeGPUs(1)), "left", 0)
	placementtest.Place(t, v, a)
	spec := placementtest.Halves()
	spec.Children[0].MaxJobs = 1
	placementtest.SetQuota(t, v, spec)
	assert.Equal(t, int64(2), v.Quota().Used("root")["aliyun.com/gpu"], "pods that were there before the tree")
	second := planner.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/b", 1, placementtest.WholeGPUs(1)), "left", 0))
	assert.Equal(t, "0 of 1 members fit: quota root/left: max of jobs is 1, 1 is used and 1 is asked for by 1 member. Nearest fix: quota max_jobs 2 (now 1) for root/left.", second.Verdict.String())
	assert.NotNil(t, planner.Plan(v, placementtest.InLeaf(placementtest.Gang("ml"+placement.OfPod+"b", 1, placementtest.WholeGPUs(1)), "left", 0)).Placement, "a pod on its own is no job")
	more := placementtest.InLeaf(placementtest.Gang("ml/a", 3, placementtest.WholeGPUs(1)), "left", 0)
	more.Running = planner.Plan(v, a).Placement.Assignments
	assert.NotNil(t, planner.Plan(v, more).Placement, "a gang that runs is no further job")
	for _, p := range v.Pods("n0") {
		v.RemovePod(p.ID)
	}
	assert.Empty(t, v.Quota().Used("root"))
	assert.NotNil(t, planner.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/b", 1, placementtest.WholeGPUs(1)), "left", 0)).Placement)
	v.SetQuota(nil)
	assert.Nil(t, v.Quota())
}

// What runs under a leaf that has gone keeps what it uses of the root, until it ends.
func TestLeafIsRenamed(t *testing.T) {
	gang := func(id, leaf string) placement.Gang {
		return placementtest.InLeaf(placementtest.Gang(id, 4, placementtest.WholeGPUs(1)), leaf, 0)
	}
	tree := func(leaves ...string) quota.Spec {
		amounts := quota.Resources{"aliyun.com/gpu": 4}
		root := quota.Spec{Min: amounts, Max: amounts, MaxJobs: 2}
		for _, leaf := range leaves {
			root.Children = append(root.Children, quota.Spec{Name: leaf, Max: amounts})
		}
		return root
	}
	nested := tree("c")
	nested.Children[0].Children = tree("b").Children
	nested.Children[0].Name = "a"
	for name, after := range map[string]quota.Spec{"another has its place": tree("b"), "it is an inner node": nested} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			placementtest.SetQuota(t, v, tree("a"))
			placementtest.Place(t, v, gang("ml/a", "a"))
			placementtest.SetQuota(t, v, after)
			planned := planner.Plan(v, gang("ml/b", "b"))
			require.Nil(t, planned.Placement)
			assert.Contains(t, planned.Verdict.String(), "quota root: max of aliyun.com/gpu is 4, 4 is used and 4 is asked for")
			assert.Contains(t, v.OverQuota(&placement.Gang{ID: "ml/pod/x", Leaf: "b", Preemptible: true}, quota.Resources{"aliyun.com/gpu": 1}, nil), "quota root: max")
			assert.Equal(t, quota.Resources{"aliyun.com/gpu": 4}, v.Quota().Used("root"))
			assert.Empty(t, v.Quota().Used("a"))
			running, _ := v.Quota().JobsOf("root")
			assert.Equal(t, int64(1), running)
			missing := planner.Plan(v, gang("ml/c", "a"))
			assert.Contains(t, missing.Verdict.String(), `the quota tree has no leaf "a"`, "what waits goes on waiting")
			for _, p := range v.Pods("n0") {
				v.RemovePod(p.ID)
			}
			assert.Empty(t, v.Quota().Used("root"))
			assert.NotNil(t, planner.Plan(v, gang("ml/b", "b")).Placement)
		})
	}
}

// A job counts in each leaf that its pods are charged to, in whichever order they come there.
func TestJobsOfLeaves(t *testing.T) {
	pod := func(i int, leaf string) placement.Pod {
		return placement.Pod{ID: fmt.Sprint("a-", i), Gang: "ml/a", Node: "n0", Leaf: leaf, Request: placementtest.WholeGPUs(1), Own: gpu.SetOf(i), Preemptible: true}
	}
	spec := placementtest.Halves()
	spec.Children[0].MaxJobs, spec.Children[1].MaxJobs = 1, 1
	full := func(v *snapshot.View, leaf string) bool {
		return planner.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/b", 1, placementtest.WholeGPUs(1)), leaf, 0)).Placement == nil
	}
	for name, treeLast := range map[string]bool{"the tree is there before": false, "the tree comes later": true} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			if !treeLast {
				placementtest.SetQuota(t, v, spec)
			}
			for i := range 3 {
				v.AddPod(pod(i, "left"))
			}
			for i := range 3 {
				v.AddPod(pod(i, "right"))
				if treeLast {
					placementtest.SetQuota(t, v, spec)
				}
				assert.Equal(t, i < 2, full(v, "left"), "%d of 3 have moved", i+1)
				assert.True(t, full(v, "right"), "%d of 3 have moved", i+1)
			}
			for i := range 3 {
				v.RemovePod(fmt.Sprint("a-", i))
			}
			assert.False(t, full(v, "left"))
			assert.False(t, full(v, "right"))
		})
	}
}

func TestGPUsThatNobodyCanTell(t *testing.T) {
	for _, mode := range []placement.Mode{placement.ModeTopology, placement.ModeShare} {
		v := snapshot.NewView()
		v.SetNode(placementtest.Node("n", "p", mode, placementtest.V100()))
		v.AddPod(placement.Pod{ID: "old", Node: "n", Request: placement.Request{Mode: placement.ModeDefault, GPUs: 1}})
		request := placement.Request{Mode: mode, GPUs: 1}
		if mode == placement.ModeShare {
			request.MemoryGiB = 1
		}
		result := planner.Plan(v, placementtest.Gang("ml/a", 1, request))
		require.Nil(t, result.Placement, "the device plugin gave a GPU away before the node changed its mode; nobody knows which")
	}
}

func TestTreesAreCopied(t *testing.T) {
	tree, err := quota.New(placementtest.Halves())
	require.NoError(t, err)
	v := placementtest.TopologyView(1)
	v.SetQuota(tree)
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/a", 2, placementtest.WholeGPUs(1)), "left", 0))
	assert.Empty(t, tree.Used("root"))
}

func TestTooManySetsOfRules(t *testing.T) {
	g := placement.Gang{ID: "ml/many"}
	for i := range 65 {
		r := placementtest.Role(string(rune('A'+i)), 1, placementtest.WholeGPUs(1))
		r.NodeSelector = map[string]string{"n": r.Name}
		g.Roles = append(g.Roles, r)
	}
	v := placementtest.TopologyView(1)
	assert.Equal(t, placement.InvalidRequest, planner.Plan(v, g).Verdict.Reasons[0].Code)
	assert.Nil(t, planner.Place(v, g))
}

func TestIdleGPUs(t *testing.T) {
	v := placementtest.TopologyView(2)
	workload := placement.Workload{}
	idle, unusable := v.Idle(workload)
	assert.Equal(t, []float64{16, 0}, []float64{idle, unusable}, "nothing was ever asked for")

	workload.Count(placementtest.Gang("ns/big", 1, placementtest.WholeGPUs(8)))
	workload.Count(placementtest.Gang("ns/none", 3, placement.Request{})) // no measure of GPUs
	_, unusable = v.Idle(workload)
	assert.Zero(t, unusable)

	placementtest.Place(t, v, placementtest.Gang("ns/one", 1, placementtest.WholeGPUs(2)))
	idle, unusable = v.Idle(workload)
	assert.Equal(t, []float64{14, 6}, []float64{idle, unusable}, "eight GPUs of one node are asked for; six of the other's are left")
}
