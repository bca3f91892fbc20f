package placement_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// planned writes a placement down as a plan does; ahead names nodes as if they did not exist yet.
func planned(v *placement.View, p placement.Placement, ahead bool) (list []placement.Planned) {
	var nodes []placement.Node
	for _, name := range v.Nodes() {
		n, _ := v.Node(name)
		nodes = append(nodes, n)
	}
	before := map[string]string{}
	for then, name := range placement.PlannedNames(nodes) {
		before[name] = then
	}
	for _, a := range p.Assignments {
		n, _ := v.Node(a.Node)
		own := a.Own
		for _, share := range a.Shares {
			own |= gpu.SetOf(share.GPU)
		}
		at := placement.Planned{Member: a.Member, Node: a.Node}
		for _, device := range own.GPUs() {
			at.GPUs = append(at.GPUs, n.GPUs.Machine().GPUs[device].Index)
		}
		if ahead {
			at.Node = before[a.Node]
		}
		list = append(list, at)
	}
	return list
}

// While every member has its planned place, the gang gets exactly that, whatever else has
// become free or was taken; otherwise it is planned as if there had been no plan.
func TestPlannedPlaceIsKept(t *testing.T) {
	kept, better, moved, waited := 0, 0, 0, 0
	for seed := range int64(3000) {
		w := newWorld(t, seed)
		for range w.Intn(6) {
			if g := w.gang(1 + w.Intn(2)); w.view.Plan(g).Placement != nil {
				w.apply(g, *w.view.Plan(g).Placement)
			}
		}
		g := w.gang(1 + w.Intn(3))
		first := w.view.Plan(g).Placement
		if first == nil || len(first.Assignments) == 0 {
			continue
		}
		g.Planned = planned(w.view, *first, w.Intn(2) == 0)

		// Others come that leave the place alone, and others go.
		with := w.view.Clone()
		with.Apply(g, *first)
		for range w.Intn(4) {
			other := w.gang(1)
			if placed := with.Plan(other).Placement; placed != nil {
				with.Apply(other, *placed)
				w.apply(other, *placed)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(w.pods)) {
			if w.Intn(2) == 0 {
				w.view.RemovePod(id)
				delete(w.pods, id)
			}
		}
		got := w.view.Plan(g)
		require.NotNil(t, got.Placement, "seed %d: %s", seed, got.Verdict.NotAsPlanned)
		require.Empty(t, got.Verdict.NotAsPlanned, "seed %d", seed)
		require.ElementsMatch(t, first.Assignments, got.Placement.Assignments, "seed %d", seed)
		w.checkPlacement(g, *got.Placement)
		kept++
		without := g
		without.Planned = nil
		if !reflect.DeepEqual(w.view.Plan(without).Placement, first) {
			better++
		}

		// Someone takes the place of one member.
		taken := first.Assignments[w.Intn(len(first.Assignments))]
		n, _ := w.view.Node(taken.Node)
		n.Unschedulable = true
		w.view.SetNode(n)
		want, got := w.view.Plan(without), w.view.Plan(g)
		require.NotEmpty(t, got.Verdict.NotAsPlanned, "seed %d", seed)
		require.Contains(t, got.Verdict.NotAsPlanned, taken.Node)
		got.Verdict.NotAsPlanned = ""
		require.Equal(t, want, got, "seed %d", seed)
		n.Unschedulable = false
		w.view.SetNode(n)
		moved++

		// The place is there once those have gone that are leaving.
		squatter := g
		squatter.ID, squatter.Leaf, squatter.Planned = "ml/squatter", "", nil
		w.view.Apply(squatter, *first)
		for _, a := range first.Assignments {
			pod, ok := w.view.Pod("ml/squatter/" + a.Member)
			require.True(t, ok)
			w.view.RemovePod(pod.ID)
			pod.Leaving = true
			w.view.AddPod(pod)
		}
		got = w.view.Reclaim(g)
		require.Empty(t, got.Verdict.NotAsPlanned, "seed %d", seed)
		if got.Reservation == nil { // there is room for both
			require.ElementsMatch(t, first.Assignments, got.Placement.Assignments, "seed %d", seed)
			continue
		}
		require.ElementsMatch(t, first.Assignments, got.Reservation.Placement.Assignments, "seed %d", seed)
		require.Empty(t, got.Victims, "seed %d", seed)
		require.True(t, slices.ContainsFunc(got.Reservation.After, func(v placement.Victim) bool { return v.Gang == "ml/squatter" }), "seed %d", seed)
		w.view.AddReservation(*got.Reservation)
		// Nobody waits for the end of one that should have gone long ago.
		stuck := w.view.Clone()
		for _, a := range first.Assignments {
			pod, _ := stuck.Pod("ml/squatter/" + a.Member)
			pod.Overdue = true
			stuck.AddPod(pod)
		}
		late := stuck.Reclaim(g)
		require.NotEmpty(t, late.Verdict.NotAsPlanned, "seed %d", seed)
		stuck.Release(g.ID)
		want = stuck.Reclaim(without)
		require.Equal(t, want.Placement, late.Placement, "seed %d", seed)
		if late.Reservation != nil {
			for _, after := range late.Reservation.After {
				require.NotEqual(t, "ml/squatter", after.Gang, "seed %d", seed)
			}
		}
		for _, a := range first.Assignments {
			w.view.RemovePod("ml/squatter/" + a.Member)
		}
		got = w.view.Reclaim(g)
		require.Nil(t, got.Reservation, "seed %d", seed)
		require.ElementsMatch(t, first.Assignments, got.Placement.Assignments, "seed %d", seed)
		waited++
	}
	t.Logf("%d places kept, %d though there was another by then, %d moved, %d waited for", kept, better, moved, waited)
	assert.Greater(t, min(kept, moved, waited), 300)
	assert.Greater(t, better, 40)
}

func TestNotAsPlanned(t *testing.T) {
	two := func() placement.Gang { return gang("ml/job", 2, wholeGPUs(4)) }
	whole := []placement.Planned{
		{Member: "worker-0", Node: "n1", GPUs: []int{0, 1, 2, 3}}, {Member: "worker-1", Node: "n1", GPUs: []int{4, 5, 6, 7}},
	}
	oneHasQuota := func(v *placement.View, g *placement.Gang) {
		spec := halves()
		spec.Children[0].Max = quota.Resources{"aliyun.com/gpu": 7}
		spec.Children[0].Min = quota.Resources{"aliyun.com/gpu": 7}
		setQuota(t, v, spec)
		g.Leaf, g.Minimum = "left", 1
	}
	cases := map[string]struct {
		change  func(*placement.View, *placement.Gang)
		planned []placement.Planned
		want    string
	}{
		"kept": {},
		"the i-th node of its pool": {planned: []placement.Planned{
			{Member: "worker-0", Node: "v100[1]", GPUs: []int{0, 1, 2, 3}}, {Member: "worker-1", Node: "v100[1]", GPUs: []int{4, 5, 6, 7}},
		}},
		"node gone": {func(v *placement.View, _ *placement.Gang) { v.RemoveNode("n1") }, nil,
			"node n1, where worker-0 was planned, does not exist"},
		"node is another": {func(v *placement.View, _ *placement.Gang) {
			n, _ := v.Node("n1")
			n.GPUs = tableOf(t, machine(t, "ack-sample-4xv100"))
			v.SetNode(n)
		}, nil, "node n1 has no GPU 4 5 6 7, which worker-1 was planned on"},
		"taint": {func(v *placement.View, _ *placement.Gang) {
			n, _ := v.Node("n1")
			n.Taints = []placement.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
			v.SetNode(n)
		}, nil, "node n1, where worker-0 was planned, has the taint team=a:NoSchedule, which is not tolerated"},
		"filter": {func(_ *placement.View, g *placement.Gang) { g.Roles[0].NodeLimits = map[string]int{"n1": 1} }, nil,
			"not all members fit where they were planned"},
		"GPU taken": {func(v *placement.View, _ *placement.Gang) {
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: wholeGPUs(1), Own: gpu.SetOf(5)})
		}, nil, "GPU 4, 5, 6, 7 of node n1, where worker-1 was planned, cannot be had"},
		"CPU taken": {func(v *placement.View, g *placement.Gang) {
			g.Roles[0].Request.MilliCPU = 40_000
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: placement.Request{Resources: placement.Resources{MilliCPU: 1000}}})
		}, nil, "node n1, where worker-1 was planned, has too little CPU left"},
		"another number of GPUs": {func(_ *placement.View, g *placement.Gang) { g.Roles[0].Request.GPUs = 2 }, nil,
			"GPU 0, 1, 2, 3 of node n1, where worker-0 was planned, cannot be had"},
		"one GPU twice": {planned: []placement.Planned{
			{Member: "worker-0", Node: "n1", GPUs: []int{0, 1, 2, 3}}, {Member: "worker-1", Node: "n1", GPUs: []int{3, 4, 5, 6}},
		}, want: "GPU 3, 4, 5, 6 of node n1, where worker-1 was planned, cannot be had"},
		"more members": {func(_ *placement.View, g *placement.Gang) { *g = gang("ml/job", 3, wholeGPUs(4)) }, nil, "2 of 3 members were planned"},
		"runs elsewhere": {func(_ *placement.View, g *placement.Gang) {
			g.Running = []placement.Assignment{{Member: "worker-0", Node: "n0", Own: gpu.SetOf(0, 1, 2, 3)}}
		}, nil, "worker-0 runs elsewhere than it was planned"},
		"members beyond the plan": {func(v *placement.View, g *placement.Gang) {
			*g = gang("ml/job", 4, wholeGPUs(2))
			g.Minimum, g.Running = 2, []placement.Assignment{{Member: "worker-0", Node: "n1"}, {Member: "worker-1", Node: "n1"}}
		}, nil, ""},
		"members beyond the plan, and one of those that it names": {func(v *placement.View, g *placement.Gang) {
			*g = gang("ml/job", 4, wholeGPUs(4))
			g.Minimum, g.Running = 1, []placement.Assignment{{Member: "worker-1", Node: "n1"}}
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: wholeGPUs(1), Own: gpu.SetOf(3)})
		}, nil, "GPU 0, 1, 2, 3 of node n1, where worker-0 was planned, cannot be had"},
		"a member of the minimum that is gone": {func(v *placement.View, g *placement.Gang) {
			*g = gang("ml/job", 3, wholeGPUs(2))
			g.Roles[0].Members = []string{"worker-1", "worker-2"}
			g.Minimum, g.Running = 2, []placement.Assignment{{Member: "worker-1", Node: "n1"}}
		}, nil, ""},
		"a member that has finished":                        {func(_ *placement.View, g *placement.Gang) { *g = gang("ml/job", 1, wholeGPUs(4)) }, nil, ""},
		"no member of the gang":                             {planned: []placement.Planned{{Member: "master-0", Node: "n1", GPUs: []int{0, 1, 2, 3}}}, want: "0 of 2 members were planned"},
		"quota that leaves out a member beyond the minimum": {oneHasQuota, nil, ""},
		"quota that leaves out a member beyond the minimum, and the place of the other taken": {func(v *placement.View, g *placement.Gang) {
			oneHasQuota(v, g)
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: wholeGPUs(1), Own: gpu.SetOf(3)})
		}, nil, "GPU 0, 1, 2, 3 of node n1, where worker-0 was planned, cannot be had"},
		"quota": {func(v *placement.View, g *placement.Gang) {
			setQuota(t, v, halves())
			g.Leaf = "none"
		}, nil, "not all members fit where they were planned"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			v, g := topologyView(2), two()
			if test.change != nil {
				test.change(v, &g)
			}
			g.Planned = test.planned
			if g.Planned == nil {
				g.Planned = whole
			}
			result := v.Plan(g)
			assert.Equal(t, test.want, result.Verdict.NotAsPlanned)
			if test.want == "" {
				assert.Equal(t, "n1", result.Placement.Assignments[0].Node, "n0 would come first")
			}
			assert.Equal(t, test.want, v.Reclaim(g).Verdict.NotAsPlanned)
		})
	}
	assert.Equal(t, "v100[3]", placement.PlannedName("v100", 3), "the name is part of plans")
}
