package backfill_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// blocked returns a view of two nodes on which a gang of eight GPUs must wait:
// n0 runs ml/a on four GPUs, n1 ml/b on four and ml/c on two.
func blocked(t *testing.T) (*snapshot.View, placement.Gang) {
	v := placementtest.TopologyView(2)
	a := placementtest.Gang("ml/a", 1, placementtest.WholeGPUs(4))
	a.ExcludeNodes = map[string]bool{"n1": true}
	placementtest.Place(t, v, a)
	b, c := placementtest.Gang("ml/b", 1, placementtest.WholeGPUs(4)), placementtest.Gang("ml/c", 1, placementtest.WholeGPUs(2))
	b.ExcludeNodes = map[string]bool{"n0": true}
	c.ExcludeNodes = b.ExcludeNodes
	placementtest.Place(t, v, b)
	placementtest.Place(t, v, c)
	return v, placementtest.Gang("ml/big", 1, placementtest.WholeGPUs(8))
}

// near has the members of a gang run on a node with a pod that is no GPU job's.
func near(g placement.Gang) placement.Gang {
	g.Roles[0].Neighbors = []placement.Neighbor{{Label: "host", Pods: placement.Selector{
		Requirements: []placement.Requirement{{Key: "app", Operator: "In", Values: []string{"cache"}}},
	}}}
	return g
}

// A gang that has to run near another pod waits for others, not for that one to end, and may be admitted whatever
// runs now.
func TestReserveNearAnotherPod(t *testing.T) {
	v, big := blocked(t)
	for _, name := range []string{"n0", "n1"} {
		n, _ := v.Node(name)
		n.Labels = map[string]string{"host": name}
		v.SetNode(n)
	}
	big = near(big)
	assert.False(t, planner.Infeasible(v, big), "such a pod may come")
	_, ok := backfill.Reserve(v, big)
	assert.False(t, ok)

	v.AddPod(placement.Pod{ID: "ml/cache", Namespace: "ml", Node: "n1", Labels: map[string]string{"app": "cache"}})
	assert.False(t, planner.Infeasible(v, big))
	r, ok := backfill.Reserve(v, big)
	require.True(t, ok)
	assert.Equal(t, "n1", r.Placement.Assignments[0].Node)
	assert.Len(t, r.After, 2, "the gangs on its node")

	cache, _ := v.Pod("ml/cache")
	assert.True(t, big.DependsOn(&cache))
	big.Roles[0].Labels = map[string]string{"app": "cache"}
	assert.False(t, big.DependsOn(&cache), "it has such pods itself")
	huge := near(placementtest.Gang("ml/huge", 3, placementtest.WholeGPUs(8)))
	assert.True(t, planner.Infeasible(v, huge))
	together := near(placementtest.Gang("ml/together", 2, placementtest.WholeGPUs(8)))
	assert.False(t, planner.Infeasible(v, together))
	together.Roles[0].Labels = map[string]string{"app": "cache"}
	assert.True(t, planner.Infeasible(v, together), "all on one host, and no host has 16 GPUs")
}

func TestReserveWaitsForTheFewest(t *testing.T) {
	v, big := blocked(t)
	r, ok := backfill.Reserve(v, big)
	require.True(t, ok)
	require.Len(t, r.After, 1)
	assert.Equal(t, "ml/a", r.After[0].Gang)
	assert.Equal(t, "n0", r.Placement.Assignments[0].Node)

	_, ok = backfill.Reserve(v, placementtest.Gang("ml/huge", 3, placementtest.WholeGPUs(8)))
	assert.False(t, ok, "three nodes are more than there are")
	_, ok = backfill.Reserve(v, placementtest.Gang("ml/bad", 1, placementtest.WholeGPUs(-8)))
	assert.False(t, ok)
}

func TestReserveWaitsForWhatEndsFirst(t *testing.T) {
	v, big := blocked(t)
	for _, p := range append(v.Pods("n0"), v.Pods("n1")...) {
		p.EndsAt = map[string]int64{"ml/a": 900, "ml/b": 300, "ml/c": 500}[p.Gang]
		v.AddPod(p)
	}
	r, ok := backfill.Reserve(v, big)
	require.True(t, ok)
	assert.Equal(t, "n1", r.Placement.Assignments[0].Node)
}

// What starts once a gang runs goes before a reservation that waits for that gang's end.
func TestLauncherGoesBeforeAReservation(t *testing.T) {
	worker, launch := placementtest.WholeGPUs(8), placement.Request{Mode: placement.ModeNone, Resources: placement.Resources{MilliCPU: 1000}}
	worker.MilliCPU = 4000
	v := placementtest.TopologyView(1)
	limit := quota.Resources{"cpu": 5000}
	placementtest.SetQuota(t, v, quota.Spec{Min: limit, Max: limit, Children: []quota.Spec{{Name: "left"}}})
	job := placementtest.InLeaf(placementtest.Gang("ml/job", 1, worker), "left", 0)
	launcher := placementtest.Role("launcher", 1, launch)
	launcher.Late = true
	whole := job
	whole.Roles = []placement.Role{launcher, job.Roles[0]}
	late := whole.Late(placementtest.Place(t, v, job))
	worker.MilliCPU = 5000
	r, ok := backfill.Reserve(v, placementtest.InLeaf(placementtest.Gang("ml/big", 1, worker), "left", 0))
	require.True(t, ok)
	require.True(t, r.QuotaOnly)
	v.AddReservation(r)

	assert.NotNil(t, planner.Plan(v, late).Placement)
	other := placementtest.InLeaf(placementtest.Gang("ml/other", 1, launch), "left", 0)
	assert.Contains(t, planner.Plan(v, other).Verdict.String(), "Held back by the reservation of gang ml/big.")
}

func TestBackfillLeavesTheReservationAlone(t *testing.T) {
	v, big := blocked(t)
	placementtest.SetQuota(t, v, placementtest.Halves())
	r, ok := backfill.Reserve(v, big)
	require.True(t, ok)

	v.AddReservation(r)
	two := planner.Plan(v, placementtest.Gang("ml/two", 1, placementtest.WholeGPUs(2)))
	require.NotNil(t, two.Placement)
	assert.Equal(t, "n1", two.Placement.Assignments[0].Node, "n0 would be the tightest fit, but it is reserved")
	v.Apply(placementtest.Gang("ml/two", 1, placementtest.WholeGPUs(2)), *two.Placement)

	none := planner.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/more", 1, placementtest.WholeGPUs(1)), "left", 0))
	assert.Nil(t, none.Placement, "what is free on n0 is reserved")
	assert.Equal(t, gpu.SetOf(4, 5, 6, 7), v.FreeGPUs("n0"))
	assert.Equal(t, placement.NotEnoughGPUs, none.Verdict.Reasons[0].Code)
	assert.Contains(t, none.Verdict.String(), "Held back by the reservation of gang ml/big.")

	grows := placementtest.Gang("ml/two", 2, placementtest.WholeGPUs(2))
	grows.Minimum, grows.Running = 1, two.Placement.Assignments
	for _, result := range []placement.Result{planner.Plan(v, grows), preemption.Plan(v, grows)} {
		require.NotNil(t, result.Placement)
		assert.Empty(t, result.Placement.Assignments)
		assert.Equal(t, "ml/big", result.Verdict.ReservedBy)
	}

	for _, id := range r.After[0].Pods {
		v.RemovePod(id)
	}
	again := preemption.Plan(v, big)
	require.NotNil(t, again.Placement)
	assert.Equal(t, r.Placement, *again.Placement)
}

func TestBackfillCountsTheReservedQuota(t *testing.T) {
	v, big := blocked(t)
	placementtest.SetQuota(t, v, placementtest.Halves())
	big = placementtest.InLeaf(big, "right", 0)
	r, ok := backfill.Reserve(v, big)
	require.True(t, ok)
	nine := placementtest.Gang("ml/nine", 2, placementtest.WholeGPUs(1))
	for i := range 16 {
		v.AddPod(placement.Pod{ID: string(rune('a' + i)), Node: "elsewhere", Leaf: "right", Request: placementtest.WholeGPUs(1), Preemptible: true})
		if i == 6 {
			break
		}
	}
	assert.NotNil(t, planner.Plan(v, placementtest.InLeaf(nine, "right", 0)).Placement)
	v.AddReservation(r)
	assert.Nil(t, planner.Plan(v, placementtest.InLeaf(nine, "right", 0)).Placement, "7 run, 8 are reserved, 2 would be 17 of 16")
}

func TestBackfillSharesAndOtherResources(t *testing.T) {
	v := snapshot.NewView()
	n := placementtest.Node("s", "s", placement.ModeCoreMem, nil)
	m := placementtest.Machine(t, "ack-sample-4xv100")
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = 16 << 10
	}
	table, err := gpu.NewTable(m)
	require.NoError(t, err)
	n.GPUs = table
	n.Allocatable.Extended = map[string]int64{"aliyun/erdma": 4}
	v.SetNode(n)
	request := placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 10, CorePercent: 60, HostPorts: []string{"TCP/1"},
		Resources: placement.Resources{Extended: map[string]int64{"aliyun/erdma": 1}}}
	placementtest.Place(t, v, placementtest.Gang("ml/a", 1, request))
	request.HostPorts = nil
	placementtest.Place(t, v, placementtest.Gang("ml/b", 2, request))
	request.MemoryGiB, request.HostPorts = 16, []string{"TCP/1", "TCP/2"}
	r, ok := backfill.Reserve(v, placementtest.Gang("ml/c", 1, request))
	require.True(t, ok)
	require.Len(t, r.After, 1)
	assert.Equal(t, "ml/a", r.After[0].Gang, "it holds the port")
	v.AddReservation(r)
	request.HostPorts = []string{"TCP/2"}
	assert.Nil(t, planner.Plan(v, placementtest.Gang("ml/d", 1, request)).Placement, "the port is reserved")
	request.HostPorts, request.MemoryGiB, request.CorePercent = nil, 6, 40
	filled := planner.Plan(v, placementtest.Gang("ml/e", 1, request))
	require.NotNil(t, filled.Placement)
}

// A gang that has waited for long gets its planned place where that is free, and else the reserved one, and says why.
func TestReservationAndThePlannedPlace(t *testing.T) {
	leave := func(v *snapshot.View, nodes ...string) {
		for _, n := range nodes {
			for _, pod := range v.Pods(n) {
				v.RemovePod(pod.ID)
			}
		}
	}
	for name, test := range map[string]struct {
		together       bool
		change         func(*snapshot.View)
		reserved, node string
		waits          bool
		why            string
	}{
		"one gang leaves both nodes": {together: true, reserved: "n1", node: "n1",
			change: func(v *snapshot.View) { leave(v, "n0", "n1") }},
		"the planned node is left as well": {reserved: "n0", node: "n1",
			change: func(v *snapshot.View) { leave(v, "n0", "n1") }},
		"the planned node is being left": {reserved: "n0", node: "n1", waits: true, change: func(v *snapshot.View) {
			leave(v, "n0")
			pod := v.Pods("n1")[0]
			pod.Leaving = true
			v.AddPod(pod)
		}},
		"the planned node is not left": {reserved: "n0", node: "n0", why: "GPU 0, 1, 2, 3, 4, 5, 6, 7 of node n1, where worker-0 was planned, cannot be had",
			change: func(v *snapshot.View) { leave(v, "n0") }},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", looked at again: ", again), func(t *testing.T) {
				v := placementtest.TopologyView(2)
				if test.together {
					placementtest.Place(t, v, placementtest.Gang("ml/both", 2, placementtest.WholeGPUs(8)))
				} else {
					placementtest.Place(t, v, placementtest.Gang("ml/a", 1, placementtest.WholeGPUs(8)))
					placementtest.Place(t, v, placementtest.Gang("ml/b", 1, placementtest.WholeGPUs(8)))
				}
				g := placementtest.Gang("ml/planned", 1, placementtest.WholeGPUs(8))
				g.Planned = []placement.Planned{{Member: "worker-0", Node: "n1", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}}
				require.Nil(t, preemption.Plan(v, g).Placement)
				backfill.ReserveBlocked(v, []placement.Gang{g})
				r, _ := v.Reservation(g.ID)
				require.Equal(t, test.reserved, r.Placement.Assignments[0].Node)
				test.change(v)
				if again {
					backfill.ReserveBlocked(v, []placement.Gang{g})
					if r, _ = v.Reservation(g.ID); !test.waits {
						require.Equal(t, test.node, r.Placement.Assignments[0].Node, "it is kept from others")
					}
				}
				got := preemption.Plan(v, g)
				require.NotNil(t, got.Placement)
				assert.Equal(t, test.node, got.Placement.Assignments[0].Node)
				assert.Equal(t, test.waits, got.Reservation != nil)
				assert.Equal(t, test.why, got.Verdict.NotAsPlanned)
			})
		}
	}
}
