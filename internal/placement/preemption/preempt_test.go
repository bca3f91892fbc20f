package preemption_test

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

func cpu(cores int64) quota.Resources { return quota.Resources{"cpu": cores * 1000} }

// TestCapacitySchedulingDocument is the worked example of Alibaba Cloud's "Use
// Capacity Scheduling": root 40 CPU; a {a.1, a.2}, b {b.1, b.2}; each leaf min 10, max
// 20; five replicas of 5 CPU go to a.1, a.2, b.1 and b.2 in turn.
func TestCapacitySchedulingDocument(t *testing.T) {
	leaf := func(name string) quota.Spec { return quota.Spec{Name: name, Min: cpu(10), Max: cpu(20)} }
	v := snapshot.NewView()
	for i := range 5 {
		v.SetNode(placement.Node{Name: fmt.Sprint("n", i), Allocatable: placement.Resources{MilliCPU: 8_000, MemoryBytes: 1 << 30, Pods: 110}})
	}
	v.SetNode(placement.Node{Name: "n5", Allocatable: placement.Resources{MilliCPU: 20_000, MemoryBytes: 1 << 30, Pods: 110}})
	placementtest.SetQuota(t, v, quota.Spec{Min: cpu(40), Max: cpu(40), Children: []quota.Spec{
		{Name: "a", Min: cpu(20), Max: cpu(40), Children: []quota.Spec{leaf("a.1"), leaf("a.2")}},
		{Name: "b", Min: cpu(20), Max: cpu(40), Children: []quota.Spec{leaf("b.1"), leaf("b.2")}},
	}})
	running := func() map[string]int64 {
		counts := map[string]int64{}
		for _, name := range []string{"a.1", "a.2", "b.1", "b.2"} {
			counts[name] = v.Quota().Used(name)["cpu"] / 5_000
		}
		return counts
	}
	steps := []struct {
		leaf string
		want map[string]int64
	}{
		{"a.1", map[string]int64{"a.1": 4, "a.2": 0, "b.1": 0, "b.2": 0}},
		{"a.2", map[string]int64{"a.1": 4, "a.2": 4, "b.1": 0, "b.2": 0}},
		{"b.1", map[string]int64{"a.1": 3, "a.2": 3, "b.1": 2, "b.2": 0}},
		{"b.2", map[string]int64{"a.1": 2, "a.2": 2, "b.1": 2, "b.2": 2}},
	}
	for now, step := range steps {
		for i := range 5 {
			g := placementtest.Gang(fmt.Sprintf("%s/%d", step.leaf, i), 1, placement.Request{Resources: placement.Resources{MilliCPU: 5_000}})
			g.Leaf, g.Preemptible = step.leaf, true
			result := preemption.Plan(v, g)
			if result.Placement == nil {
				continue
			}
			placementtest.Evict(v, result.Victims)
			v.Apply(g, *result.Placement)
		}
		assert.Equal(t, step.want, running(), "after step %d, five replicas in %s", now+1, step.leaf)
	}
}

func TestReclaimTakesWholeGangsFewestFirst(t *testing.T) {
	v := placementtest.TopologyView(2)
	placementtest.SetQuota(t, v, placementtest.Halves())
	for i := range 4 {
		placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint("left/small", i), 2, placementtest.WholeGPUs(1)), "left", 0))
	}
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("left/big", 1, placementtest.WholeGPUs(8)), "left", 0))

	result := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("right/a", 1, placementtest.WholeGPUs(8)), "right", 0))
	require.NotNil(t, result.Placement, result.Verdict)
	assert.Equal(t, []placement.Victim{{Gang: "left/big", Leaf: "left", Pods: []string{"left/big/worker-0"}}}, result.Victims)
	assert.Equal(t, "n1", result.Placement.Assignments[0].Node)

	placementtest.Evict(v, result.Victims)
	v.Apply(placementtest.InLeaf(placementtest.Gang("right/a", 1, placementtest.WholeGPUs(8)), "right", 0), *result.Placement)
	back := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("left/big", 1, placementtest.WholeGPUs(8)), "left", 0))
	assert.Nil(t, back.Placement, "what was reclaimed stays: the victim is not entitled")
	assert.Empty(t, back.Victims)
}

// A nomination counts the victims of the one before it as gone, though they still run: so two
// leaves that borrow alike lose one gang each. The tree counts cores; that the gangs use
// GPUs as well, which it does not name, changes nothing.
func TestReclaimIsFromWhoBorrowsMost(t *testing.T) {
	v := placementtest.TopologyView(2)
	placementtest.SetQuota(t, v, quota.Spec{Min: cpu(16), Max: cpu(16), Children: []quota.Spec{
		{Name: "left", Min: cpu(4), Max: cpu(8)}, {Name: "right", Min: cpu(4), Max: cpu(8)}, {Name: "owner", Min: cpu(8), Max: cpu(8)},
	}})
	request := placementtest.WholeGPUs(1)
	request.MilliCPU = 2_000
	for _, leaf := range []string{"left", "right"} {
		for i := range 4 {
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint(leaf, "/", i), 1, request), leaf, 0))
		}
	}
	var from []string
	for i := range 2 {
		result := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint("owner/", i), 1, request), "owner", 0))
		require.NotNil(t, result.Reservation, result.Verdict)
		require.Len(t, result.Victims, 1)
		from = append(from, result.Victims[0].Leaf)
		v.AddReservation(*result.Reservation)
	}
	assert.Equal(t, []string{"left", "right"}, from)
}

func TestPreemptorWaitsForItsReservation(t *testing.T) {
	v := placementtest.TopologyView(1)
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/low", 4, placementtest.WholeGPUs(2)), "", 0))
	high := placementtest.InLeaf(placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(2)), "", 1)
	found := preemption.Plan(v, high)
	require.NotNil(t, found.Reservation, found.Verdict)
	v.AddReservation(*found.Reservation)
	own := found.Placement.Assignments[0].Own

	for _, pod := range v.Pods("n0") {
		if pod.Own != own {
			v.RemovePod(pod.ID)
		}
	}
	between := preemption.Plan(v, high)
	require.NotNil(t, between.Reservation, "it does not take what the first victims leave")
	assert.Equal(t, found.Placement, between.Placement)

	placementtest.Evict(v, found.Victims)
	done := preemption.Plan(v, high)
	assert.Nil(t, done.Reservation)
	assert.Equal(t, found.Placement, done.Placement)
}

// A place that waits for others is given up when a pod takes GPUs there of which nobody knows which they are.
func TestPlaceThatAPodWithoutRecordTakes(t *testing.T) {
	share := placement.Request{Mode: placement.ModeShare, GPUs: 1, MemoryGiB: 20}
	memory := func(gib int64) placement.Request { r := share; r.MemoryGiB = gib; return r }
	whole := placement.Request{Mode: placement.ModeDefault, GPUs: 2}
	for name, test := range map[string]struct {
		mode                    placement.Mode
		low, high, fits, breaks placement.Request
	}{
		"default":  {placement.ModeDefault, whole, placement.Request{Mode: placement.ModeDefault, GPUs: 6}, whole, placement.Request{Mode: placement.ModeDefault, GPUs: 3}},
		"topology": {placement.ModeTopology, placementtest.WholeGPUs(4), placementtest.WholeGPUs(4), placement.Request{}, placementtest.WholeGPUs(1)},
		"share":    {placement.ModeShare, memory(20), memory(25), memory(7), memory(8)},
	} {
		t.Run(name, func(t *testing.T) {
			v := snapshot.NewView()
			machine := placementtest.Machine(t, "dgx1-v100")
			for i := range machine.GPUs {
				machine.GPUs[i].MemoryMiB = 32 << 10
			}
			v.SetNode(placementtest.Node("n0", "p", test.mode, placementtest.TableOf(t, machine)))
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/low", 8/test.low.GPUs, test.low), "", 0))
			high := placementtest.InLeaf(placementtest.Gang("ml/high", 1, test.high), "", 1)
			found := preemption.Plan(v, high)
			require.NotNil(t, found.Reservation, found.Verdict)
			v.AddReservation(*found.Reservation)
			valid := func() bool { return planner.ReservationValid(v, v.ReservationOf("ml/high"), &high) }
			require.True(t, valid())
			v.AddPod(placement.Pod{ID: "foreign", Node: "n0", Request: test.fits})
			assert.True(t, valid(), "it leaves the place alone")
			v.AddPod(placement.Pod{ID: "foreign", Node: "n0", Request: test.breaks})
			assert.False(t, valid())
		})
	}
}

// What the API server refuses to delete is no victim, and a place that counts on it is given up. A reservation that waits
// for a gang to end goes on waiting.
func TestVictimThatCannotBeDeleted(t *testing.T) {
	view := func() *snapshot.View {
		v := placementtest.TopologyView(1)
		for i, name := range []string{"ml/low", "ml/lower"} {
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(name, 2, placementtest.WholeGPUs(2)), "", int32(2-i)))
		}
		return v
	}
	refuse := func(v *snapshot.View) {
		pod, ok := v.Pod("ml/lower/worker-1")
		require.True(t, ok)
		pod.Undeletable = true
		v.AddPod(pod)
	}
	high := placementtest.InLeaf(placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(4)), "", 3)
	v := view()
	found := preemption.Plan(v, high)
	require.Len(t, found.Victims, 1)
	require.Equal(t, "ml/lower", found.Victims[0].Gang)
	v.AddReservation(*found.Reservation)
	refuse(v)
	again := preemption.Plan(v, high)
	require.Len(t, again.Victims, 1, again.Verdict)
	assert.Equal(t, "ml/low", again.Victims[0].Gang)
	next := placementtest.InLeaf(placementtest.Gang("ml/next", 1, placementtest.WholeGPUs(8)), "", 3)
	v.Release("ml/high")
	assert.Nil(t, preemption.Plan(v, next).Placement)

	v = view()
	waits := placement.Reservation{Gang: high, Placement: *found.Placement, After: found.Reservation.After}
	v.AddReservation(waits)
	refuse(v)
	assert.True(t, planner.ReservationValid(v, v.ReservationOf("ml/high"), &high))
	waits.Evicts = true
	v.AddReservation(waits)
	assert.False(t, planner.ReservationValid(v, v.ReservationOf("ml/high"), &high))
	assert.Empty(t, v.EvictedBeside("ml/next"), "what is left of a gang stays")
}

// A gang that goes as a whole has pods that a place does not need. When one of them cannot be deleted, nobody is evicted.
func TestPodThatCannotBeDeletedOutsideThePlace(t *testing.T) {
	for _, refused := range []string{"ml/low/worker-0", "ml/low/worker-1"} {
		t.Run(refused, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/low", 2, placementtest.WholeGPUs(8)), "", 1))
			high := placementtest.InLeaf(placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(8)), "", 3)
			found := preemption.Plan(v, high)
			require.Len(t, found.Victims, 1)
			require.Len(t, found.Victims[0].Pods, 2)
			v.AddReservation(*found.Reservation)
			pod, ok := v.Pod(refused)
			require.True(t, ok)
			pod.Undeletable = true
			v.AddPod(pod)
			assert.False(t, planner.ReservationValid(v, v.ReservationOf("ml/high"), &high))
			assert.Empty(t, v.EvictedBeside("ml/next"))
			again := preemption.Plan(v, high)
			assert.Nil(t, again.Placement)
			assert.Nil(t, again.Reservation)
			v.RemovePod(found.Reservation.After[0].Pods[0])
			v.RemovePod(found.Reservation.After[0].Pods[1])
			assert.NotNil(t, preemption.Plan(v, high).Placement)
		})
	}
}

// Who was to leave a place that its gang cannot have any more is not taken for one who leaves.
func TestVictimsOfALostPlace(t *testing.T) {
	v := placementtest.TopologyView(2)
	for _, name := range []string{"ml/low", "ml/mate"} {
		placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(name, 1, placementtest.WholeGPUs(8)), "", 1))
	}
	high := placementtest.InLeaf(placementtest.Gang("ml/high", 2, placementtest.WholeGPUs(8)), "", 3)
	found := preemption.Plan(v, high)
	require.Len(t, found.Victims, 2)
	v.AddReservation(*found.Reservation)
	next, ok := v.Pod("ml/mate/worker-0")
	require.True(t, ok)
	v.RemovePod(next.ID)
	next.ID = "ml/mate/worker-0-again"
	v.AddPod(next)
	assert.Len(t, preemption.Plan(v, high).Victims, 2)
}

// Of leaves that borrow only so much may be taken, and the gangs that would go first may be
// on nodes of which the gang needs one place only.
func TestReclaimFindsVictimsWhereTheyAreNeeded(t *testing.T) {
	v := placementtest.TopologyView(3)
	gpus := func(n int64) quota.Resources { return quota.Resources{"aliyun.com/gpu": n} }
	placementtest.SetQuota(t, v, quota.Spec{Min: gpus(24), Max: gpus(24), Children: []quota.Spec{
		{Name: "left", Min: gpus(16), Max: gpus(24)}, {Name: "right", Min: gpus(8), Max: gpus(24)},
	}})
	for i := range 24 {
		g := placementtest.InLeaf(placementtest.Gang(fmt.Sprint("left/", i), 1, placementtest.WholeGPUs(1)), "left", 0)
		result := planner.Plan(v, g)
		require.NotNil(t, result.Placement, result.Verdict)
		v.Apply(g, *result.Placement)
	}
	for _, n := range v.Nodes() {
		for i, pod := range v.Pods(n) {
			v.RemovePod(pod.ID)
			pod.StartedAt = int64(i) // the youngest of every node go first
			v.AddPod(pod)
		}
	}
	whole := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("right/whole", 1, placementtest.WholeGPUs(8)), "right", 0))
	require.NotNil(t, whole.Placement, whole.Verdict)
	assert.Len(t, whole.Victims, 8, "all those of one node")
	apart := placementtest.InLeaf(placementtest.Gang("right/apart", 3, placementtest.WholeGPUs(2)), "right", 0)
	apart.Roles[0].MaxPerNode = 1
	result := preemption.Plan(v, apart)
	require.NotNil(t, result.Placement, result.Verdict)
	assert.Len(t, result.Victims, 6, "two of every node")
}

// A gang that has to run near a pod evicts others there, and not that one.
func TestReclaimNearAnotherPod(t *testing.T) {
	v := placementtest.TopologyView(2)
	for _, name := range []string{"n0", "n1"} {
		n, _ := v.Node(name)
		n.Labels = map[string]string{"host": name}
		v.SetNode(n)
		low := placementtest.Gang("ml/on-"+name, 1, placementtest.WholeGPUs(8))
		low.Preemptible = true
		placementtest.Place(t, v, low)
	}
	where, _ := v.Pod("ml/on-n0/worker-0")
	v.AddPod(placement.Pod{ID: "ml/cache", Namespace: "ml", Node: where.Node, Labels: map[string]string{"app": "cache"}, Preemptible: true})
	g := placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(8))
	g.Priority = 10
	g.Roles[0].Neighbors = []placement.Neighbor{{Label: "host", Pods: placement.Selector{
		Requirements: []placement.Requirement{{Key: "app", Operator: "In", Values: []string{"cache"}}},
	}}}
	result := preemption.Plan(v, g)
	require.NotNil(t, result.Reservation, result.Verdict.String())
	require.Len(t, result.Victims, 1)
	assert.Equal(t, "ml/on-n0", result.Victims[0].Gang)
	assert.Equal(t, where.Node, result.Reservation.Placement.Assignments[0].Node)
}

func TestReclaimTakesLowestPriorityFirst(t *testing.T) {
	v := placementtest.TopologyView(2)
	placementtest.SetQuota(t, v, placementtest.Halves())
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("left/high", 1, placementtest.WholeGPUs(8)), "left", 10))
	for i := range 4 {
		placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint("left/low", i), 2, placementtest.WholeGPUs(1)), "left", int32(i%2)))
	}
	result := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("right/a", 3, placementtest.WholeGPUs(1)), "right", 0))
	require.NotNil(t, result.Placement, result.Verdict)
	var victims []string
	for _, victim := range result.Victims {
		victims = append(victims, victim.Gang)
	}
	assert.Equal(t, []string{"left/low0", "left/low2"}, victims)
}

func TestReclaimTakesTheYoungestFirst(t *testing.T) {
	v := placementtest.TopologyView(1)
	gpus := func(n int64) quota.Resources { return quota.Resources{"aliyun.com/gpu": n} }
	placementtest.SetQuota(t, v, quota.Spec{Min: gpus(8), Max: gpus(8), Children: []quota.Spec{
		{Name: "left", Min: gpus(2), Max: gpus(8)}, {Name: "right", Min: gpus(6), Max: gpus(8)},
	}})
	startedAt := map[string]int64{"left/old": 100, "left/young": 200, "left/bound": 0, "left/older": 50}
	for name := range startedAt {
		placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(name, 1, placementtest.WholeGPUs(2)), "left", 0))
	}
	for _, pod := range v.Pods("n0") {
		v.RemovePod(pod.ID)
		pod.StartedAt = startedAt[pod.Gang]
		v.AddPod(pod)
	}
	var victims []string
	for i := range 3 {
		g := placementtest.InLeaf(placementtest.Gang(fmt.Sprint("right/", i), 1, placementtest.WholeGPUs(2)), "right", 0)
		result := preemption.Plan(v, g)
		require.Len(t, result.Victims, 1)
		victims = append(victims, result.Victims[0].Gang)
		placementtest.Evict(v, result.Victims)
		v.Apply(g, *result.Placement)
	}
	assert.Equal(t, []string{"left/bound", "left/young", "left/old"}, victims, "one that has not started goes first")
}

func TestReclaimInOneLeafNeedsPriority(t *testing.T) {
	v := placementtest.TopologyView(1)
	placementtest.SetQuota(t, v, placementtest.Halves())
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("left/low", 8, placementtest.WholeGPUs(1)), "left", 1))
	same := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("left/same", 1, placementtest.WholeGPUs(8)), "left", 1))
	assert.Nil(t, same.Placement)
	assert.NotEmpty(t, same.Verdict.Reasons)
	higher := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("left/higher", 1, placementtest.WholeGPUs(8)), "left", 2))
	require.NotNil(t, higher.Placement, higher.Verdict)
	assert.Equal(t, "left/low", higher.Victims[0].Gang)
	assert.Len(t, higher.Victims[0].Pods, 8)
}

func TestReclaimLeavesAlone(t *testing.T) {
	fixed := placementtest.InLeaf(placementtest.Gang("left/a", 8, placementtest.WholeGPUs(1)), "left", 0)
	fixed.Preemptible = false
	cases := map[string]struct {
		running   placement.Gang
		preemptor placement.Gang
	}{
		"what its owner is guaranteed": {placementtest.InLeaf(placementtest.Gang("left/a", 8, placementtest.WholeGPUs(1)), "left", 0), placementtest.InLeaf(placementtest.Gang("right/b", 1, placementtest.WholeGPUs(1)), "right", 9)},
		"what is not preemptible":      {fixed, placementtest.InLeaf(placementtest.Gang("left/b", 1, placementtest.WholeGPUs(1)), "left", 9)},
		"what has lost its leaf":       {placementtest.InLeaf(placementtest.Gang("gone/a", 8, placementtest.WholeGPUs(1)), "left", 0), placementtest.InLeaf(placementtest.Gang("right/b", 1, placementtest.WholeGPUs(1)), "right", 9)},
		"from an urgent gang without a leaf what a leaf borrows": {
			placementtest.InLeaf(placementtest.Gang("left/a", 8, placementtest.WholeGPUs(1)), "left", 0), placementtest.InLeaf(placementtest.Gang("x/b", 1, placementtest.WholeGPUs(1)), "", 9),
		},
		"from an urgent gang without a leaf what has none either": {
			placementtest.InLeaf(placementtest.Gang("x/a", 8, placementtest.WholeGPUs(1)), "", 0), placementtest.InLeaf(placementtest.Gang("x/b", 1, placementtest.WholeGPUs(1)), "", 9),
		},
		"from the owner of a leaf what has none": {
			placementtest.InLeaf(placementtest.Gang("x/a", 8, placementtest.WholeGPUs(1)), "", 0), placementtest.InLeaf(placementtest.Gang("left/b", 1, placementtest.WholeGPUs(1)), "left", 9),
		},
		"from an invalid request": {placementtest.InLeaf(placementtest.Gang("left/a", 8, placementtest.WholeGPUs(1)), "left", 0), placementtest.InLeaf(placementtest.Gang("left/b", 1, placementtest.WholeGPUs(-1)), "left", 9)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			placementtest.SetQuota(t, v, placementtest.Halves())
			placementtest.Place(t, v, c.running)
			if name == "what has lost its leaf" {
				renamed := placementtest.Halves()
				renamed.Children[0].Name = "other"
				placementtest.SetQuota(t, v, renamed)
			}
			result := preemption.Plan(v, c.preemptor)
			assert.Nil(t, result.Placement)
			assert.Empty(t, result.Victims)
			assert.NotEmpty(t, result.Verdict.Reasons)
		})
	}
	v := placementtest.TopologyView(1)
	result := preemption.Plan(v, placementtest.Gang("ml/a", 1, placementtest.WholeGPUs(1)))
	assert.NotNil(t, result.Placement, "nothing is taken where there is room")
	assert.Empty(t, result.Victims)
}

// TestNobodyIsEvictedForAGangThatLosesMembers: with those that leave it seems to lack one member,
// and room for one would not do.
func TestNobodyIsEvictedForAGangThatLosesMembers(t *testing.T) {
	v := placementtest.TopologyView(1)
	torn := placementtest.InLeaf(placementtest.Gang("ml/torn", 2, placementtest.WholeGPUs(2)), "", 5)
	torn.Running = planner.Plan(v, torn).Placement.Assignments[:1]
	v.Apply(torn, placement.Placement{Gang: torn.ID, Assignments: torn.Running})
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/low", 1, placementtest.WholeGPUs(2)), "", 0))
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(4)), "", 9))
	require.Len(t, preemption.Plan(v, torn).Victims, 1)

	pod := v.Pods("n0")[2]
	require.Equal(t, "ml/torn/worker-0", pod.ID)
	pod.Leaving = true
	v.AddPod(pod)
	result := preemption.Plan(v, torn)
	assert.Nil(t, result.Placement)
	assert.Empty(t, result.Victims)

	v.RemovePod(pod.ID)
	torn.Running = nil
	result = preemption.Plan(v, torn)
	require.Len(t, result.Victims, 1)
	assert.Len(t, result.Placement.Assignments, 2)
}

// TestGrowthGetsWhatItsVictimsLeave: victims go for the members that a gang needs;
// the others get what these leave, in the place that is promised.
func TestGrowthGetsWhatItsVictimsLeave(t *testing.T) {
	v := placementtest.TopologyView(1)
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/low", 3, placementtest.WholeGPUs(2)), "", 0))
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(2)), "", 9))
	elastic := placementtest.InLeaf(placementtest.Gang("ml/elastic", 4, placementtest.WholeGPUs(2)), "", 5)
	elastic.Minimum = 2
	found := preemption.Plan(v, elastic)
	require.NotNil(t, found.Reservation)
	require.Len(t, found.Victims, 1)
	assert.Equal(t, "ml/low", found.Victims[0].Gang, "nobody is evicted for the fourth member")
	require.Len(t, found.Placement.Assignments, 3)
	v.AddReservation(*found.Reservation)
	assert.Equal(t, found, preemption.Plan(v, elastic), "as long as the victim is there")

	placementtest.Evict(v, found.Victims)
	other := preemption.Plan(v, placementtest.InLeaf(placementtest.Gang("ml/other", 1, placementtest.WholeGPUs(2)), "", 5))
	assert.Nil(t, other.Placement)
	assert.Equal(t, "ml/elastic", other.Verdict.ReservedBy)
	got := preemption.Plan(v, elastic)
	assert.Nil(t, got.Reservation)
	require.NotNil(t, got.Placement)
	assert.Equal(t, *found.Placement, *got.Placement)
}

// TestGrowthStaysWithinItsQuota: when the tree is lowered, a reservation that has become
// too big is not had; the members that are needed are placed again.
func TestGrowthStaysWithinItsQuota(t *testing.T) {
	v := placementtest.TopologyView(1)
	placementtest.SetQuota(t, v, placementtest.Halves())
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("left/low", 4, placementtest.WholeGPUs(2)), "left", 0))
	elastic := placementtest.InLeaf(placementtest.Gang("left/elastic", 4, placementtest.WholeGPUs(2)), "left", 5)
	elastic.Minimum = 2
	found := preemption.Plan(v, elastic)
	require.NotNil(t, found.Reservation)
	require.Len(t, found.Placement.Assignments, 4)
	v.AddReservation(*found.Reservation)
	lowered := placementtest.Halves()
	for i := range lowered.Children {
		lowered.Children[i].Min, lowered.Children[i].Max = quota.Resources{"aliyun.com/gpu": 4}, quota.Resources{"aliyun.com/gpu": 4}
	}
	placementtest.Evict(v, found.Victims)
	placementtest.SetQuota(t, v, lowered)
	got := preemption.Plan(v, elastic)
	require.NotNil(t, got.Placement, got.Verdict)
	assert.Len(t, got.Placement.Assignments, 2)
}

// TestReservationAndTheQuotaOfTheLauncher: what starts once a gang runs has no place in its reservation, and has its
// quota there: the gang would hold its GPUs and wait for it.
func TestReservationAndTheQuotaOfTheLauncher(t *testing.T) {
	request := func(gpus int, cores int64) placement.Request {
		r := placement.Request{Resources: placement.Resources{MilliCPU: 1000 * cores}}
		if gpus > 0 {
			r.Mode, r.GPUs = placement.ModeTopology, gpus
		}
		return r
	}
	limit := quota.Resources{"cpu": 11_000}
	for name, evicts := range map[string]bool{"evicts": true, "waits": false} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			placementtest.SetQuota(t, v, quota.Spec{Min: limit, Max: limit, Children: []quota.Spec{{Name: "team", Max: limit}}})
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/old", 1, request(8, 1)), "team", 0))
			g := placementtest.InLeaf(placementtest.Gang("ml/mpi", 2, request(4, 3)), "team", 10)
			launcher := placementtest.Role("launcher", 1, request(0, 4))
			launcher.Late = true
			g.Roles = []placement.Role{launcher, g.Roles[0]}
			if evicts {
				found := preemption.Plan(v, g)
				require.NotNil(t, found.Reservation, found.Verdict)
				v.AddReservation(*found.Reservation)
			} else {
				backfill.ReserveBlocked(v, []placement.Gang{g})
			}
			held := v.ReservationOf(g.ID)
			require.NotNil(t, held)
			pod := func(cores int64) string {
				p := request(0, cores)
				return v.OverQuota(&placement.Gang{ID: "ml/pod/cpu", Leaf: "team", Preemptible: true, Priority: 10}, p.Charge(), v.Held())
			}
			assert.Empty(t, pod(1))
			assert.Equal(t, "quota root/team: max of cpu is 11, 1 is used (10 once reservations are taken) and 2 is asked for", pod(2))

			placementtest.Evict(v, held.After)
			assert.True(t, planner.ReservationFree(v, held, &g, nil))
			more := launcher
			more.Request = request(0, 6)
			greedy := g
			greedy.Roles = []placement.Role{more, g.Roles[1]}
			assert.False(t, planner.ReservationFree(v, held, &greedy, nil), "its launcher has appeared, and asks for more than is left")
			assert.Nil(t, preemption.Plan(v, greedy).Placement)
			assert.NotNil(t, preemption.Plan(v, g).Placement)
		})
	}
}

// TestReclaimBesideABudget: who stays for a disruption budget does not count as gone, so that the others of its leaf go,
// whatever their priority, and the leaf keeps its minimum.
func TestReclaimBesideABudget(t *testing.T) {
	for name, test := range map[string]struct {
		allowed  int
		priority []int32
		nodes    map[string]bool
		victims  []string
	}{
		"none of one gang":                    {allowed: 0, priority: []int32{0, 0, 0}, victims: []string{"b/1", "b/2"}},
		"none of the lowest priority":         {allowed: 0, priority: []int32{0, 9, 9}, victims: []string{"b/1", "b/2"}},
		"all of one gang":                     {allowed: 4, priority: []int32{0, 1, 2}, victims: []string{"b/0", "b/1"}},
		"too few of one gang":                 {allowed: 3, priority: []int32{0, 1, 2}, victims: []string{"b/1", "b/2"}},
		"all, where the leaf keeps its place": {allowed: 4, priority: []int32{0, 1, 2}, nodes: map[string]bool{"n0": true}, victims: []string{"b/1", "b/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(3)
			placementtest.SetQuota(t, v, quota.Spec{Min: gpus(24), Max: gpus(24), Children: []quota.Spec{
				{Name: "a", Min: gpus(16), Max: gpus(24)}, {Name: "b", Min: gpus(8), Max: gpus(24)},
			}})
			v.SetBudget("b/budget", test.allowed)
			for i, priority := range test.priority {
				placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint("b/", i), 4, placementtest.WholeGPUs(2)), "b", priority))
			}
			for _, pod := range v.Pods("n0") {
				require.Equal(t, "b/0", pod.Gang)
				pod.Budgets = []string{"b/budget"}
				v.AddPod(pod)
			}
			g := placementtest.InLeaf(placementtest.Gang("a/0", 8, placementtest.WholeGPUs(2)), "a", 0)
			g.ExcludeNodes = test.nodes
			result := preemption.Plan(v, g)
			require.NotNil(t, result.Placement, result.Verdict)
			var victims []string
			for _, victim := range result.Victims {
				victims = append(victims, victim.Gang)
			}
			assert.ElementsMatch(t, test.victims, victims)
		})
	}
}

// TestBudgetAndTheOwnReservation: a gang whose place does not do any more is planned again. Whom it would have evicted
// for that place stays, and counts in no budget, unless it is going already.
func TestBudgetAndTheOwnReservation(t *testing.T) {
	for name, test := range map[string]struct {
		allowed int
		going   bool
		victims int
	}{
		"stays":                              {allowed: 1, victims: 1},
		"goes, and the budget allows no two": {allowed: 1, going: true},
		"goes, and the budget allows two":    {allowed: 2, going: true, victims: 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			for i := range 2 {
				placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang(fmt.Sprint("ml/low-", i), 1, placementtest.WholeGPUs(8)), "", 0))
			}
			v.SetBudget("ml/budget", test.allowed)
			for _, pod := range append(v.Pods("n0"), v.Pods("n1")...) {
				pod.Budgets = []string{"ml/budget"}
				v.AddPod(pod)
			}
			g := placementtest.InLeaf(placementtest.Gang("ml/high", 1, placementtest.WholeGPUs(8)), "", 5)
			found := preemption.Plan(v, g)
			require.Len(t, found.Victims, 1)
			v.AddReservation(*found.Reservation)
			if test.going {
				pod, _ := v.Pod(found.Victims[0].Pods[0])
				pod.Leaving = true
				v.AddPod(pod)
			}
			g.ExcludeNodes = map[string]bool{found.Placement.Assignments[0].Node: true} // another plugin refuses it
			assert.Len(t, preemption.Plan(v, g).Victims, test.victims)
		})
	}
}

// TestPlannedPlaceNamesWhoIsWaitedFor: a planned place waits for those that leave its nodes, and for the others where these
// leave quota for it.
func TestPlannedPlaceNamesWhoIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		quota   int64
		leaving map[string]string // gangs by node
		members int
		minimum int
		after   []string
	}{
		"for the place": {quota: 24, leaving: map[string]string{"n0": "ml/else", "n1": "ml/here"}, members: 1, after: []string{"ml/here"}},
		"for quota":     {quota: 8, leaving: map[string]string{"n0": "ml/else"}, members: 1, after: []string{"ml/else"}},
		"for both":      {quota: 16, leaving: map[string]string{"n0": "ml/else", "n1": "ml/here"}, members: 2, after: []string{"ml/else", "ml/here"}},
		"for the quota of members beyond a minimum": {quota: 16, leaving: map[string]string{"n0": "ml/else", "n1": "ml/here"}, members: 2, minimum: 1, after: []string{"ml/else", "ml/here"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(3)
			limit := quota.Resources{"aliyun.com/gpu": test.quota}
			placementtest.SetQuota(t, v, quota.Spec{Min: limit, Max: limit, Children: []quota.Spec{{Name: "team", Max: limit}}})
			for node, id := range test.leaving {
				v.AddPod(placement.Pod{ID: id + "/worker-0", Gang: id, Node: node, Leaf: "team", Preemptible: true, Leaving: true,
					Request: placementtest.WholeGPUs(8), Own: gpu.SetOf(0, 1, 2, 3, 4, 5, 6, 7)})
			}
			g := placementtest.InLeaf(placementtest.Gang("ml/g", test.members, placementtest.WholeGPUs(8)), "team", 0)
			g.Minimum = test.minimum
			for i := range test.members {
				g.Planned = append(g.Planned, placement.Planned{Member: fmt.Sprint("worker-", i), Node: fmt.Sprint("n", i+1), GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}})
			}
			got := preemption.Plan(v, g)
			require.NotNil(t, got.Reservation)
			var after []string
			for _, gone := range got.Reservation.After {
				after = append(after, gone.Gang)
			}
			assert.Equal(t, test.after, after)
			assert.Len(t, got.Placement.Assignments, test.members)
			v.AddReservation(*got.Reservation)
			assert.True(t, planner.ReservationValid(v, v.ReservationOf(g.ID), &g))
		})
	}
}

// TestPreemptorSaysWhyItIsNotWhereItWasPlanned: it says so when it gets its place, as when others are to leave it.
func TestPreemptorSaysWhyItIsNotWhereItWasPlanned(t *testing.T) {
	const why = "GPU 0, 1, 2, 3, 4, 5, 6, 7 of node n0, where worker-0 was planned, cannot be had"
	v := placementtest.TopologyView(2)
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/stays", 1, placementtest.WholeGPUs(8)), "", 100))
	placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/low", 1, placementtest.WholeGPUs(8)), "", 0))
	g := placementtest.InLeaf(placementtest.Gang("ml/planned", 1, placementtest.WholeGPUs(8)), "", 10)
	g.Planned = []placement.Planned{{Member: "worker-0", Node: "n0", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}}
	found := preemption.Plan(v, g)
	require.NotNil(t, found.Reservation)
	assert.Equal(t, why, found.Verdict.NotAsPlanned)
	v.AddReservation(*found.Reservation)
	assert.Equal(t, found, preemption.Plan(v, g), "as long as the victim is there")
	placementtest.Evict(v, found.Victims)
	got := preemption.Plan(v, g)
	require.NotNil(t, got.Placement)
	assert.Nil(t, got.Reservation)
	assert.Equal(t, "n1", got.Placement.Assignments[0].Node)
	assert.Equal(t, why, got.Verdict.NotAsPlanned)
}

// A launcher that appears once the place of its gang is reserved has its quota from then on.
func TestReservationAndALauncherThatAppearsLater(t *testing.T) {
	request := func(gpus int, cores int64) placement.Request {
		r := placement.Request{Resources: placement.Resources{MilliCPU: 1000 * cores}}
		if gpus > 0 {
			r.Mode, r.GPUs = placement.ModeTopology, gpus
		}
		return r
	}
	limit := quota.Resources{"cpu": 11_000}
	for name, reserve := range map[string]func(*snapshot.View, placement.Gang){
		"evicts": func(v *snapshot.View, g placement.Gang) { v.AddReservation(*preemption.Plan(v, g).Reservation) },
		"waits":  func(v *snapshot.View, g placement.Gang) { backfill.ReserveBlocked(v, []placement.Gang{g}) },
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			placementtest.SetQuota(t, v, quota.Spec{Min: limit, Max: limit, Children: []quota.Spec{{Name: "team", Max: limit}}})
			placementtest.Place(t, v, placementtest.InLeaf(placementtest.Gang("ml/old", 1, request(8, 1)), "team", 0))
			g := placementtest.InLeaf(placementtest.Gang("ml/mpi", 2, request(4, 3)), "team", 10)
			reserve(v, g)
			launcher := placementtest.Role("launcher", 1, request(0, 4))
			launcher.Late = true
			g.Roles = []placement.Role{launcher, g.Roles[0]}
			reserve(v, g)
			held := v.ReservationOf(g.ID)
			require.NotNil(t, held)
			other := placement.Gang{ID: "ml/pod/cpu", Leaf: "team", Preemptible: true, Priority: 10}
			two, one := request(0, 2), request(0, 1)
			assert.NotEmpty(t, v.OverQuota(&other, two.Charge(), v.Held()))
			assert.Empty(t, v.OverQuota(&other, one.Charge(), v.Held()))
			placementtest.Evict(v, held.After)
			assert.NotNil(t, preemption.Plan(v, g).Placement)
		})
	}
}
