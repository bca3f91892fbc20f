package planner_test

import (
	"maps"
	"reflect"
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

// planned writes a placement down as a plan does; ahead names nodes as if they did not exist yet.
func planned(v *snapshot.View, p placement.Placement, ahead bool) (list []placement.Planned) {
	var nodes []placement.Node
	for _, name := range v.Nodes() {
		n, _ := v.Node(name)
		nodes = append(nodes, n)
	}
	before := map[string]string{}
	for then, name := range placement.PlannedNames(nodes) {
		before[name] = then
	}
	rings := map[string]float64{} // the record has one for each node
	for _, a := range p.Assignments {
		rings[a.Node] = max(rings[a.Node], a.Ring.GBps)
	}
	for _, a := range p.Assignments {
		n, _ := v.Node(a.Node)
		own := a.Own
		for _, share := range a.Shares {
			own |= gpu.SetOf(share.GPU)
		}
		at := placement.Planned{Member: a.Member, Node: a.Node, RingGBps: rings[a.Node]}
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
		w := placementtest.NewWorld(t, seed)
		for range w.Intn(6) {
			if g := w.Gang(1 + w.Intn(2)); planner.Plan(w.View, g).Placement != nil {
				w.Apply(g, *planner.Plan(w.View, g).Placement)
			}
		}
		g := w.Gang(1 + w.Intn(3))
		first := planner.Plan(w.View, g).Placement
		if first == nil || len(first.Assignments) == 0 {
			continue
		}
		g.Planned = planned(w.View, *first, w.Intn(2) == 0)

		// Others come that leave the place alone, and others go.
		with := w.View.Clone()
		with.Apply(g, *first)
		for range w.Intn(4) {
			other := w.Gang(1)
			if placed := planner.Plan(with, other).Placement; placed != nil {
				with.Apply(other, *placed)
				w.Apply(other, *placed)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(w.Pods)) {
			if w.Intn(2) == 0 {
				w.View.RemovePod(id)
				delete(w.Pods, id)
			}
		}
		learned := placement.Workload{} // by the scheduler, since then
		for range w.Intn(4) {
			learned.Count(w.Gang(1))
		}
		w.View.SetWorkload(learned)
		got := planner.Plan(w.View, g)
		require.NotNil(t, got.Placement, "seed %d: %s", seed, got.Verdict.NotAsPlanned)
		require.Empty(t, got.Verdict.NotAsPlanned, "seed %d", seed)
		require.ElementsMatch(t, first.Assignments, got.Placement.Assignments, "seed %d", seed)
		w.CheckPlacement(g, *got.Placement)
		kept++
		without := g
		without.Planned = nil
		if !reflect.DeepEqual(planner.Plan(w.View, without).Placement, first) {
			better++
		}

		// Someone takes the place of one member.
		taken := first.Assignments[w.Intn(len(first.Assignments))]
		n, _ := w.View.Node(taken.Node)
		n.Unschedulable = true
		w.View.SetNode(n)
		want, got := planner.Plan(w.View, without), planner.Plan(w.View, g)
		require.NotEmpty(t, got.Verdict.NotAsPlanned, "seed %d", seed)
		require.Contains(t, got.Verdict.NotAsPlanned, taken.Node)
		got.Verdict.NotAsPlanned = ""
		require.Equal(t, want, got, "seed %d", seed)
		n.Unschedulable = false
		w.View.SetNode(n)
		moved++

		// The place is there once those have gone that are leaving.
		squatter := g
		squatter.ID, squatter.Leaf, squatter.Planned = "ml/squatter", "", nil
		w.View.Apply(squatter, *first)
		for _, a := range first.Assignments {
			pod, ok := w.View.Pod("ml/squatter/" + a.Member)
			require.True(t, ok)
			w.View.RemovePod(pod.ID)
			pod.Leaving = true
			w.View.AddPod(pod)
		}
		got = preemption.Plan(w.View, g)
		require.Empty(t, got.Verdict.NotAsPlanned, "seed %d", seed)
		if got.Reservation == nil { // there is room for both
			require.ElementsMatch(t, first.Assignments, got.Placement.Assignments, "seed %d", seed)
			continue
		}
		require.ElementsMatch(t, first.Assignments, got.Reservation.Placement.Assignments, "seed %d", seed)
		require.Empty(t, got.Victims, "seed %d", seed)
		require.True(t, slices.ContainsFunc(got.Reservation.After, func(v placement.Victim) bool { return v.Gang == "ml/squatter" }), "seed %d", seed)
		w.View.AddReservation(*got.Reservation)
		// Nobody waits for the end of one that should have gone long ago.
		stuck := w.View.Clone()
		for _, a := range first.Assignments {
			pod, _ := stuck.Pod("ml/squatter/" + a.Member)
			pod.Overdue = true
			stuck.AddPod(pod)
		}
		late := preemption.Plan(stuck, g)
		require.NotEmpty(t, late.Verdict.NotAsPlanned, "seed %d", seed)
		stuck.Release(g.ID)
		want = preemption.Plan(stuck, without)
		require.Equal(t, want.Placement, late.Placement, "seed %d", seed)
		if late.Reservation != nil {
			for _, after := range late.Reservation.After {
				require.NotEqual(t, "ml/squatter", after.Gang, "seed %d", seed)
			}
		}
		for _, a := range first.Assignments {
			w.View.RemovePod("ml/squatter/" + a.Member)
		}
		got = preemption.Plan(w.View, g)
		require.Nil(t, got.Reservation, "seed %d", seed)
		require.ElementsMatch(t, first.Assignments, got.Placement.Assignments, "seed %d", seed)
		waited++
	}
	t.Logf("%d places kept, %d though there was another by then, %d moved, %d waited for", kept, better, moved, waited)
	assert.Greater(t, min(kept, moved, waited), 300)
	assert.Greater(t, better, 40)
}

func TestNotAsPlanned(t *testing.T) {
	two := func() placement.Gang { return placementtest.Gang("ml/job", 2, placementtest.WholeGPUs(4)) }
	whole := []placement.Planned{
		{Member: "worker-0", Node: "n1", GPUs: []int{0, 1, 2, 3}}, {Member: "worker-1", Node: "n1", GPUs: []int{4, 5, 6, 7}},
	}
	oneHasQuota := func(v *snapshot.View, g *placement.Gang) {
		spec := placementtest.Halves()
		spec.Children[0].Max = quota.Resources{"aliyun.com/gpu": 7}
		spec.Children[0].Min = quota.Resources{"aliyun.com/gpu": 7}
		placementtest.SetQuota(t, v, spec)
		g.Leaf, g.Minimum = "left", 1
	}
	cases := map[string]struct {
		change  func(*snapshot.View, *placement.Gang)
		planned []placement.Planned
		want    string
	}{
		"kept": {},
		"the i-th node of its pool": {planned: []placement.Planned{
			{Member: "worker-0", Node: "v100[1]", GPUs: []int{0, 1, 2, 3}}, {Member: "worker-1", Node: "v100[1]", GPUs: []int{4, 5, 6, 7}},
		}},
		"node gone": {func(v *snapshot.View, _ *placement.Gang) { v.RemoveNode("n1") }, nil,
			"node n1, where worker-0 was planned, does not exist"},
		"node is another": {func(v *snapshot.View, _ *placement.Gang) {
			n, _ := v.Node("n1")
			n.GPUs = placementtest.TableOf(t, placementtest.Machine(t, "ack-sample-4xv100"))
			v.SetNode(n)
		}, nil, "node n1 has no GPU 4 5 6 7, which worker-1 was planned on"},
		"taint": {func(v *snapshot.View, _ *placement.Gang) {
			n, _ := v.Node("n1")
			n.Taints = []placement.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
			v.SetNode(n)
		}, nil, "node n1, where worker-0 was planned, has the taint team=a:NoSchedule, which is not tolerated"},
		"filter": {func(_ *snapshot.View, g *placement.Gang) { g.Roles[0].NodeLimits = map[string]int{"n1": 1} }, nil,
			"not all members fit where they were planned"},
		"GPU taken": {func(v *snapshot.View, _ *placement.Gang) {
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: placementtest.WholeGPUs(1), Own: gpu.SetOf(5)})
		}, nil, "GPU 5 of node n1, where worker-1 was planned, cannot be had"},
		"CPU taken": {func(v *snapshot.View, g *placement.Gang) {
			g.Roles[0].Request.MilliCPU = 40_000
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: placement.Request{Resources: placement.Resources{MilliCPU: 1000}}})
		}, nil, "node n1, where worker-1 was planned, has too little CPU left"},
		"GPUs taken that the device plugin picks": {func(v *snapshot.View, g *placement.Gang) {
			for _, name := range []string{"n0", "n1"} {
				n, _ := v.Node(name)
				n.Mode = placement.ModeDefault
				v.SetNode(n)
			}
			whole := placement.Request{Mode: placement.ModeDefault, GPUs: 4}
			g.Roles[0].Request = whole
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: whole})
		}, []placement.Planned{{Member: "worker-0", Node: "n1"}, {Member: "worker-1", Node: "n1"}},
			"not all members fit where they were planned"},
		"another number of GPUs": {func(_ *snapshot.View, g *placement.Gang) { g.Roles[0].Request.GPUs = 2 }, nil,
			"GPU 0, 1, 2, 3 of node n1, where worker-0 was planned, cannot be had"},
		"one GPU twice": {planned: []placement.Planned{
			{Member: "worker-0", Node: "n1", GPUs: []int{0, 1, 2, 3}}, {Member: "worker-1", Node: "n1", GPUs: []int{3, 4, 5, 6}},
		}, want: "GPU 3 of node n1, where worker-1 was planned, cannot be had"},
		"more members": {func(_ *snapshot.View, g *placement.Gang) {
			*g = placementtest.Gang("ml/job", 3, placementtest.WholeGPUs(4))
		}, nil, "2 of 3 members were planned"},
		"runs elsewhere": {func(_ *snapshot.View, g *placement.Gang) {
			g.Running = []placement.Assignment{{Member: "worker-0", Node: "n0", Own: gpu.SetOf(0, 1, 2, 3)}}
		}, nil, "worker-0 runs on node n0, and was planned on n1"},
		"runs where it was planned by a name that another node has now": {func(v *snapshot.View, g *placement.Gang) {
			g.Running = []placement.Assignment{{Member: "worker-0", Node: "n1", Own: gpu.SetOf(0, 1, 2, 3)}}
			v.RemoveNode("n0")
		}, []placement.Planned{
			{Member: "worker-0", Node: "v100[1]", GPUs: []int{0, 1, 2, 3}}, {Member: "worker-1", Node: "v100[0]", GPUs: []int{4, 5, 6, 7}},
		}, "worker-0 runs on node n1, and was planned on v100[1], which does not exist"},
		"GPUs that have lost links": {func(v *snapshot.View, g *placement.Gang) {
			m := placementtest.Machine(t, "dgx1-v100")
			for i := range 4 {
				for j := range 4 {
					m.Links[i][j] = gpu.Link{Class: gpu.PHB}
				}
			}
			v.SetNode(placementtest.Node("n1", "v100", placement.ModeTopology, placementtest.TableOf(t, m)))
		}, []placement.Planned{
			{Member: "worker-0", Node: "n1", GPUs: []int{0, 1, 2, 3}, RingGBps: 50}, {Member: "worker-1", Node: "n1", GPUs: []int{4, 5, 6, 7}, RingGBps: 50},
		}, "the GPUs of node n1, where worker-0 was planned, have a ring of 10 GB/s, not of 50 as planned"},
		"members beyond the plan": {func(v *snapshot.View, g *placement.Gang) {
			*g = placementtest.Gang("ml/job", 4, placementtest.WholeGPUs(2))
			g.Minimum, g.Running = 2, []placement.Assignment{{Member: "worker-0", Node: "n1"}, {Member: "worker-1", Node: "n1"}}
		}, nil, ""},
		"members beyond the plan, and one of those that it names": {func(v *snapshot.View, g *placement.Gang) {
			*g = placementtest.Gang("ml/job", 4, placementtest.WholeGPUs(4))
			g.Minimum, g.Running = 1, []placement.Assignment{{Member: "worker-1", Node: "n1"}}
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: placementtest.WholeGPUs(1), Own: gpu.SetOf(3)})
		}, nil, "GPU 3 of node n1, where worker-0 was planned, cannot be had"},
		"a member of the minimum that is gone": {func(v *snapshot.View, g *placement.Gang) {
			*g = placementtest.Gang("ml/job", 3, placementtest.WholeGPUs(2))
			g.Roles[0].Members = []string{"worker-1", "worker-2"}
			g.Minimum, g.Running = 2, []placement.Assignment{{Member: "worker-1", Node: "n1"}}
		}, nil, ""},
		"a member that has finished": {func(_ *snapshot.View, g *placement.Gang) {
			*g = placementtest.Gang("ml/job", 1, placementtest.WholeGPUs(4))
		}, nil, ""},
		"no member of the gang":                             {planned: []placement.Planned{{Member: "master-0", Node: "n1", GPUs: []int{0, 1, 2, 3}}}, want: "0 of 2 members were planned"},
		"quota that leaves out a member beyond the minimum": {oneHasQuota, nil, ""},
		"quota that leaves out a member beyond the minimum, and the place of the other taken": {func(v *snapshot.View, g *placement.Gang) {
			oneHasQuota(v, g)
			v.AddPod(placement.Pod{ID: "x", Node: "n1", Request: placementtest.WholeGPUs(1), Own: gpu.SetOf(3)})
		}, nil, "GPU 3 of node n1, where worker-0 was planned, cannot be had"},
		"quota": {func(v *snapshot.View, g *placement.Gang) {
			placementtest.SetQuota(t, v, placementtest.Halves())
			g.Leaf = "none"
		}, nil, `the quota tree has no leaf "none"; its leaves are left, right`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			v, g := placementtest.TopologyView(2), two()
			if test.change != nil {
				test.change(v, &g)
			}
			g.Planned = test.planned
			if g.Planned == nil {
				g.Planned = whole
			}
			result := planner.Plan(v, g)
			assert.Equal(t, test.want, result.Verdict.NotAsPlanned)
			if test.want == "" {
				assert.Equal(t, "n1", result.Placement.Assignments[0].Node, "n0 would come first")
			}
			assert.Equal(t, test.want, preemption.Plan(v, g).Verdict.NotAsPlanned)
		})
	}
	assert.Equal(t, "v100[3]", placement.PlannedName("v100", 3), "the name is part of plans")
}

// Members with parts of GPUs take the planned ones, also where by now the planner would choose others, so that not all would fit.
func TestPlannedPartsOfGPUs(t *testing.T) {
	v := snapshot.NewView()
	v.SetNode(placementtest.SharedNode(t, "n", placement.ModeShare, 80_000))
	share := func(gib int64) placement.Request { return placement.Request{Mode: placement.ModeShare, MemoryGiB: gib} }
	for device, gib := range map[int]int64{0: 6, 2: 16, 3: 16} {
		v.AddPod(placement.Pod{ID: string(rune('a' + device)), Node: "n", Request: share(gib), Shares: []placement.GPUShare{{GPU: device, MemoryGiB: gib}}})
	}
	g := placement.Gang{ID: "ml/g", Roles: []placement.Role{placementtest.Role("big", 1, share(6)), placementtest.Role("small", 5, share(4))}}
	first := planner.Plan(v, g)
	require.NotNil(t, first.Placement, first.Verdict.String())
	g.Planned = planned(v, *first.Placement, false)
	v.SetWorkload(placement.Workload{placement.Demand{Mode: placement.ModeShare, GPUs: 1, MemoryGiB: 10}: 100})
	got := preemption.Plan(v, g)
	require.NotNil(t, got.Placement, "%s; %s", got.Verdict, got.Verdict.NotAsPlanned)
	assert.ElementsMatch(t, first.Placement.Assignments, got.Placement.Assignments)
	assert.Empty(t, got.Verdict.NotAsPlanned)
}

// A gang gets its planned place only with quota for what starts once it runs: it would hold its GPUs and wait for the
// quota of its launcher.
func TestPlannedPlaceLeavesQuotaToTheLauncher(t *testing.T) {
	request := func(gpus int, cores int64) placement.Request {
		r := placement.Request{Resources: placement.Resources{MilliCPU: 1000 * cores}}
		if gpus > 0 {
			r.Mode, r.GPUs = placement.ModeTopology, gpus
		}
		return r
	}
	for name, test := range map[string]struct {
		cores     int64
		minimum   int
		evaluator bool
		places    []string
		want      string
	}{
		"too little for the launcher": {cores: 8,
			want: "quota root/left: max of cpu is 8, 0 is used and 10 is asked for by 2 members together, with what starts once they run"},
		"enough for all":                   {cores: 10, places: []string{"worker-0", "worker-1"}},
		"a member beyond the minimum":      {cores: 8, minimum: 1, places: []string{"worker-0"}},
		"one that is not planned is first": {cores: 9, minimum: 2, evaluator: true, places: []string{"evaluator-0", "worker-0"}, want: "not all members fit where they were planned"},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			limit := func(cores int64) quota.Resources { return quota.Resources{"cpu": 1000 * cores} }
			placementtest.SetQuota(t, v, quota.Spec{Min: limit(100), Max: limit(100), Children: []quota.Spec{{Name: "left", Max: limit(test.cores)}}})
			g := placementtest.InLeaf(placementtest.Gang("ml/mpi", 2, request(1, 3)), "left", 0)
			launcher := placementtest.Role("launcher", 1, request(0, 4))
			launcher.Late = true
			g.Roles, g.Minimum = []placement.Role{launcher, g.Roles[0]}, test.minimum
			if test.evaluator {
				g.Roles = slices.Insert(g.Roles, 0, placementtest.Role("evaluator", 1, request(1, 1)))
			}
			g.Planned = []placement.Planned{{Member: "worker-0", Node: "n1", GPUs: []int{2}}, {Member: "worker-1", Node: "n1", GPUs: []int{3}}}
			for _, result := range []placement.Result{planner.Plan(v, g), preemption.Plan(v, g)} {
				assert.Equal(t, test.want, result.Verdict.NotAsPlanned)
				var places []string
				if result.Placement != nil {
					for _, a := range result.Placement.Assignments {
						places = append(places, a.Member)
						assert.Equal(t, test.want == "", a.Node == "n1", "n0 would come first")
					}
				}
				assert.ElementsMatch(t, test.places, places)
			}
		})
	}
}

// The ring of a node is that of all GPUs which the gang has there. Who has none is not compared with it, nor members that are
// placed beside others which run.
func TestPlannedRing(t *testing.T) {
	whole := func(mode placement.Mode, gpus int) placement.Request {
		return placement.Request{Mode: mode, GPUs: gpus}
	}
	for name, test := range map[string]struct {
		mode    placement.Mode
		roles   []placement.Role
		minimum int
		runs    int  // members that run where they were planned
		alone   bool // and were placed when there were no others
	}{
		"a member without GPUs": {mode: placement.ModeTopology, roles: []placement.Role{
			placementtest.Role("trainer", 1, whole(placement.ModeTopology, 4)),
			placementtest.Role("writer", 1, placement.Request{Resources: placement.Resources{MilliCPU: 1000}}),
		}},
		"a member comes beside one that ran alone": {mode: placement.ModeTopology, minimum: 1, runs: 1, alone: true,
			roles: []placement.Role{placementtest.Role("worker", 2, whole(placement.ModeTopology, 4))}},
		"a member comes back": {mode: placement.ModeTopology, runs: 1,
			roles: []placement.Role{placementtest.Role("worker", 2, whole(placement.ModeTopology, 4))}},
		"one comes back of which the device plugin picks the GPUs": {mode: placement.ModeDefault, runs: 1,
			roles: []placement.Role{placementtest.Role("worker", 2, whole(placement.ModeDefault, 4))}},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			for _, node := range []string{"n0", "n1"} {
				n, _ := v.Node(node)
				n.Mode = test.mode
				v.SetNode(n)
			}
			g := placement.Gang{ID: "ml/job", Roles: test.roles, Minimum: test.minimum}
			first := planner.Plan(v, g)
			require.NotNil(t, first.Placement, first.Verdict.String())
			g.Planned = planned(v, *first.Placement, false)
			run := g
			if test.alone {
				run.Roles = []placement.Role{placementtest.Role("worker", test.runs, test.roles[0].Request)}
			}
			placed := planner.Plan(v, run)
			require.Empty(t, placed.Verdict.NotAsPlanned)
			g.Running = placed.Placement.Assignments[:test.runs]
			v.Apply(g, placement.Placement{Gang: g.ID, Assignments: g.Running})
			got := planner.Plan(v, g)
			require.NotNil(t, got.Placement, got.Verdict.String())
			assert.Empty(t, got.Verdict.NotAsPlanned)
		})
	}
}
