package capacity_test

import (
	"math"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	k8sresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

const v100 = "ecs.gn6v-c10g1.20xlarge" // eight V100 of 16 GiB

func pool(mode string) capacity.Pool {
	return capacity.Pool{Name: "v100", InstanceType: v100, Mode: mode, Labels: map[string]string{"team": "a"},
		Taints: []capacity.Taint{{Key: "gpu", Effect: "NoSchedule"}}}
}

// live is a view with one node of the pool per list of pods.
func live(t *testing.T, mode placement.Mode, machine gpu.Machine, nodes ...[]placement.Pod) (*snapshot.View, []string) {
	t.Helper()
	table, err := gpu.NewTable(machine)
	require.NoError(t, err)
	view := snapshot.NewView()
	var names []string
	for i, pods := range nodes {
		name := []string{"n1", "n2", "n3"}[i]
		names = append(names, name)
		view.SetNode(placement.Node{
			Name: name, Pool: "v100", Since: int64(i), Mode: mode, GPUs: table,
			Allocatable: placement.Resources{MilliCPU: 80000, MemoryBytes: 300 << 30, Pods: 64},
		})
		for _, p := range pods {
			p.Node = name
			view.AddPod(p)
		}
	}
	return view, names
}

func nodes(view *snapshot.View, names []string) []placement.Node {
	var list []placement.Node
	for _, name := range names {
		if n, ok := view.Node(name); ok {
			list = append(list, n)
		}
	}
	return list
}

func machine(t *testing.T) gpu.Machine {
	t.Helper()
	m, ok := catalog.Machine(v100)
	require.True(t, ok)
	return m
}

func gang(workers, gpus int, mode placement.Mode) placement.Gang {
	role := placement.Role{Name: "worker", Request: placement.Request{Mode: mode, GPUs: gpus},
		Tolerations: []placement.Toleration{{Operator: "Exists"}}}
	for i := range workers {
		role.Members = append(role.Members, string(rune('a'+i)))
	}
	return placement.Gang{ID: "default/g", Roles: []placement.Role{role}}
}

func TestPlannedNodesComeFromTheCatalogue(t *testing.T) {
	c, err := pool("topology").Planned(capacity.Capacity{}, 2)
	require.NoError(t, err)
	assert.Equal(t, int64(16), c.GPUs)
	assert.Equal(t, int64(16), c.FreeGPUs)
	assert.Equal(t, "dgx1-v100", c.Wiring)
	require.Len(t, c.Nodes, 2)
	assert.Equal(t, "v100[0]", c.Nodes[0].Name)
	assert.Equal(t, capacity.Node{Name: "v100[1]"}, c.Nodes[1], "a node that is as planned has nothing but a name")
	assert.Equal(t, "topology", c.Labels["ack.node.gpu.schedule"])
	assert.Equal(t, "v100", c.Labels["gpuplan.dev/pool"])
	assert.Equal(t, "a", c.Labels["team"])

	view, err := capacity.ToView(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"v100[0]", "v100[1]"}, view.Nodes())
	assert.True(t, planner.Plan(view, gang(16, 1, placement.ModeTopology)).Verdict.Fits)
	over := planner.Plan(view, gang(20, 1, placement.ModeTopology))
	assert.Equal(t, 16, over.Verdict.Fit)

	_, err = capacity.Pool{Name: "x", InstanceType: "ecs.none", Mode: "topology"}.Planned(capacity.Capacity{}, 1)
	assert.ErrorContains(t, err, "ecs.none")
}

// A capacity that a configuration has written may have no labels.
func TestCapacityWithoutLabels(t *testing.T) {
	c, err := pool("topology").Planned(capacity.Capacity{}, 1)
	require.NoError(t, err)
	c.Labels = nil
	nodes, _, err := c.Planner()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"kubernetes.io/hostname": "v100[0]"}, nodes[0].Labels)
}

// A node that may be of several types is planned with the least of them, and with no type.
func TestFallbacks(t *testing.T) {
	const small, large, other = "ecs.gn6v-c8g1.16xlarge", "ecs.ebmgn6v.24xlarge", "ecs.gn6i-c24g1.24xlarge"
	quantities := func(name string) catalog.Quantities {
		it, ok := catalog.Lookup(name)
		require.True(t, ok)
		q, err := catalog.Allocatable(it, "topology", catalog.Setup{})
		require.NoError(t, err)
		return q
	}
	fresh := func(p capacity.Pool) placement.Node {
		c, err := p.Planned(capacity.Capacity{}, 1)
		require.NoError(t, err)
		nodes, _, err := c.Planner()
		require.NoError(t, err)
		return nodes[0]
	}
	one, both := pool("topology"), pool("topology")
	both.Fallbacks = []string{large, small}
	assert.Equal(t, quantities(v100).MilliCPU, fresh(one).Allocatable.MilliCPU)
	assert.Equal(t, v100, fresh(one).Labels["node.kubernetes.io/instance-type"])
	assert.Equal(t, quantities(small).MilliCPU, fresh(both).Allocatable.MilliCPU)
	assert.Equal(t, quantities(small).MemoryBytes/(1<<20), fresh(both).Allocatable.MemoryBytes/(1<<20))
	assert.NotContains(t, fresh(both).Labels, "node.kubernetes.io/instance-type")
	assert.Equal(t, fresh(one).GPUs.Machine(), fresh(both).GPUs.Machine())
	strange := pool("topology")
	strange.Fallbacks = []string{other, "ecs.none"}
	assert.Equal(t, fresh(one), fresh(strange), "what has other GPUs does not count")

	// What is known of nodes that exist is the same, whatever a fresh one is.
	of := func(instanceType string) *string { return &instanceType }
	cpu := int64(1000)
	for name, nodes := range map[string][]capacity.Node{
		"of the first type": {{Name: "n1"}},
		"of two types":      {{Name: "n1"}, {Name: "n2", MilliCPU: &cpu, Labels: map[string]*string{"node.kubernetes.io/instance-type": of(small)}}},
		"planned":           {{Name: "v100[0]"}},
	} {
		t.Run(name, func(t *testing.T) {
			from, err := one.Planned(capacity.Capacity{Nodes: nodes}, len(nodes))
			require.NoError(t, err)
			before, _, err := from.Planner()
			require.NoError(t, err)
			rebased, err := both.Rebased(one, from)
			require.NoError(t, err)
			changed, err := both.Planned(rebased, len(nodes))
			require.NoError(t, err)
			after, _, err := changed.Planner()
			require.NoError(t, err)
			if name == "planned" {
				assert.Equal(t, quantities(small).MilliCPU, after[0].Allocatable.MilliCPU)
				return
			}
			assert.Equal(t, before, after)
			back, err := one.Rebased(both, changed)
			require.NoError(t, err)
			assert.Equal(t, from.Nodes, back.Nodes)
		})
	}
}

func TestPlannedNodesAreAddedToLiveOnes(t *testing.T) {
	view, names := live(t, placement.ModeTopology, machine(t), nil)
	now, err := pool("topology").Live(nodes(view, names), view.Pods)
	require.NoError(t, err)
	c, err := pool("topology").Planned(now, 2)
	require.NoError(t, err)
	assert.Equal(t, "n1", c.Nodes[0].Name)
	assert.Equal(t, "v100[1]", c.Nodes[1].Name)

	back, err := capacity.ToView(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"n1", "v100[1]"}, back.Nodes(), "equal nodes are filled oldest first, planned ones last")
}

// Nodes that are added to a pool offer what its nodes do, and not what the catalogue thinks.
func TestPlannedNodesOfferWhatLiveOnesDo(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	smaller := machine(t)
	for i := range smaller.GPUs {
		smaller.GPUs[i].MemoryMiB = 16130
	}
	view, names := live(t, placement.ModeTopology, smaller, nil, nil, nil)
	joining, _ := view.Node("n3")
	joining.Allocatable = placement.Resources{}
	view.SetNode(joining)
	n, _ := view.Node("n2")
	n.Allocatable.MilliCPU, n.Allocatable.MemoryBytes, n.HeadroomMiB = 79000, 400<<30, 1024
	n.Allocatable.Extended = map[string]int64{"aliyun/erdma": 200, "ephemeral-storage": 35 << 30}
	view.SetNode(n)
	now, err := pool("topology").Live(nodes(view, names), view.Pods)
	require.NoError(t, err)
	c, err := pool("topology").Planned(now, 5)
	require.NoError(t, err)
	for i, name := range []string{"v100[3]", "v100[4]"} {
		assert.Equal(t, capacity.Node{
			Name: name, MilliCPU: number(79000), MemoryMiB: number(300 << 10), GPUMemoryMiB: number(16130), HeadroomMiB: number(1024),
			Extended: map[string]int64{"ephemeral-storage": 35 << 30},
		}, c.Nodes[3+i], "the least of each that offers something, and the devices of the instance type")
	}
	back, err := capacity.ToView(roundTrip(t, c))
	require.NoError(t, err)
	for _, name := range []string{"n1", "v100[4]"} {
		n, _ := back.Node(name)
		assert.Equal(t, int64(16130), n.GPUs.Machine().GPUs[7].MemoryMiB, name)
	}
	c, err = pool("topology").Planned(capacity.Capacity{}, 1)
	require.NoError(t, err)
	assert.Equal(t, []capacity.Node{{Name: "v100[0]"}}, c.Nodes)
}

// A new node is set up as the user says: with its disk, and with what its kubelet keeps.
func TestFreshNodesAreSetUp(t *testing.T) {
	fresh := func(reserved capacity.Reserved, diskGiB int64) placement.Resources {
		p := pool("topology")
		p.Reserved, p.SystemDiskGiB = reserved, diskGiB
		c, err := p.Planned(capacity.Capacity{}, 1)
		require.NoError(t, err)
		nodes, _, err := c.Planner()
		require.NoError(t, err)
		return nodes[0].Allocatable
	}
	const gib, disk = int64(1) << 30, "ephemeral-storage"
	plain := fresh(capacity.Reserved{}, 0)
	assert.Equal(t, int64(106), plain.Extended[disk]/gib)
	assert.Equal(t, int64(212), fresh(capacity.Reserved{}, 240).Extended[disk]/gib)
	assert.Equal(t, plain.Extended[disk]-10*gib, fresh(capacity.Reserved{EphemeralStorageBytes: 10 * gib}, 0).Extended[disk])
	assert.Zero(t, fresh(capacity.Reserved{EphemeralStorageBytes: 200 * gib}, 0).Extended[disk])

	c, err := pool("topology").Planned(capacity.Capacity{}, 1)
	require.NoError(t, err)
	view, err := capacity.ToView(roundTrip(t, c))
	require.NoError(t, err)
	for asked, fits := range map[int64]bool{100: true, 110: false} {
		g := gang(1, 1, placement.ModeTopology)
		g.Roles[0].Request.Extended = map[string]int64{disk: asked * gib}
		assert.Equal(t, fits, planner.Plan(view, g).Verdict.Fits, asked)
	}

	// ACK keeps 11 MiB for each pod.
	many := fresh(capacity.Reserved{MaxPods: 164, MilliCPU: 500}, 0)
	assert.Equal(t, int64(164), many.Pods)
	assert.Equal(t, plain.MilliCPU-500, many.MilliCPU)
	assert.Equal(t, plain.MemoryBytes-1100<<20, many.MemoryBytes)
	assert.Equal(t, plain.Extended, many.Extended)
	all := fresh(capacity.Reserved{MaxPods: math.MaxInt64, MemoryBytes: math.MaxInt64}, 0)
	assert.Zero(t, all.MemoryBytes)
}

func TestShort(t *testing.T) {
	for name, test := range map[string]struct {
		cpu, memory, pods, disk, label string
		want                           string
	}{
		"as the catalogue says": {"81725m", "340000Mi", "64", "107Gi", "", ""},
		"more of everything":    {"82", "336Gi", "110", "500Gi", "16384MiB", ""},
		"less of everything": {"80", "300Gi", "13", "35Gi", "16130MiB",
			"80000m CPU instead of 81725m, 307200 MiB memory instead of 331201, room for 13 pods instead of 64, 16130 MiB memory per GPU instead of 16160, 35 GiB disk instead of 106"},
		"less CPU": {"81", "340000Mi", "64", "0", "16160MiB", "81000m CPU instead of 81725m"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: pool("topology").NodeLabels()}}
			if test.label != "" {
				node.Labels["aliyun.accelerator/nvidia_mem"] = test.label
			}
			node.Status.Allocatable = corev1.ResourceList{
				"cpu": k8sresource.MustParse(test.cpu), "memory": k8sresource.MustParse(test.memory), "pods": k8sresource.MustParse(test.pods),
				"aliyun.com/gpu": k8sresource.MustParse("8"), "ephemeral-storage": k8sresource.MustParse(test.disk),
			}
			text, err := pool("topology").Short(node)
			require.NoError(t, err)
			assert.Equal(t, test.want, text)
		})
	}
}

// What a job is planned on is what the scheduler would see: the same gang gets the same
// GPUs from the capacity as from the cluster.
func TestLiveCapacityPlansLikeTheCluster(t *testing.T) {
	whole := func(id string, gpus ...int) placement.Pod {
		return placement.Pod{ID: id, Own: gpu.SetOf(gpus...), Request: placement.Request{
			Mode: placement.ModeTopology, GPUs: len(gpus), Resources: placement.Resources{MilliCPU: 1000}}}
	}
	counted := func(id string, gpus int) placement.Pod {
		return placement.Pod{ID: id, Request: placement.Request{Mode: placement.ModeDefault, GPUs: gpus}}
	}
	share := func(id string, device int, gib, percent int64) placement.Pod {
		return placement.Pod{ID: id, Shares: []placement.GPUShare{{GPU: device, MemoryGiB: gib, CorePercent: percent}},
			Request: placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: gib, CorePercent: percent}}
	}
	broken := machine(t)
	broken.GPUs[2].Unhealthy = "Xid 79"
	unlinked := machine(t)
	unlinked.Links[0][3], unlinked.Links[3][0] = gpu.Link{Class: gpu.PHB}, gpu.Link{Class: gpu.PHB}
	port := whole("p")
	port.Request.HostPorts, port.Request.Mode = []string{"TCP/23456"}, placement.ModeNone

	shared := placement.Request{Mode: placement.ModeCoreMem, MemoryGiB: 8, CorePercent: 50}
	memory := placement.Request{Mode: placement.ModeShare, MemoryGiB: 8}
	withPort := placement.Request{Mode: placement.ModeTopology, GPUs: 1, HostPorts: []string{"TCP/23456"}}

	for name, test := range map[string]struct {
		mode    placement.Mode
		machine gpu.Machine
		pods    [][]placement.Pod
		request placement.Request
	}{
		"empty":                  {"topology", machine(t), [][]placement.Pod{nil, nil}, placement.Request{Mode: "topology", GPUs: 1}},
		"some GPUs taken":        {"topology", machine(t), [][]placement.Pod{{whole("a", 0, 1, 2)}, {whole("b", 4)}}, placement.Request{Mode: "topology", GPUs: 1}},
		"all taken on one":       {"topology", machine(t), [][]placement.Pod{{whole("a", 0, 1, 2, 3, 4, 5, 6, 7)}, nil}, placement.Request{Mode: "topology", GPUs: 2}},
		"a broken GPU":           {"topology", broken, [][]placement.Pod{nil, {whole("b", 4)}}, placement.Request{Mode: "topology", GPUs: 1}},
		"a link that dropped":    {"topology", unlinked, [][]placement.Pod{nil}, placement.Request{Mode: "topology", GPUs: 1}},
		"a port that is taken":   {"topology", machine(t), [][]placement.Pod{{port}, nil}, withPort},
		"counted GPUs":           {"default", machine(t), [][]placement.Pod{{counted("a", 3)}, {counted("b", 8)}}, placement.Request{Mode: "default", GPUs: 1}},
		"shares":                 {"core_mem", machine(t), [][]placement.Pod{{share("a", 0, 8, 50), share("b", 1, 12, 80)}}, shared},
		"shares of another sort": {"core_mem", machine(t), [][]placement.Pod{{share("a", 0, 8, 50)}, nil}, memory},
		"shares and broken GPUs": {"core_mem", broken, [][]placement.Pod{{share("a", 0, 8, 50)}}, shared},
	} {
		t.Run(name, func(t *testing.T) {
			view, names := live(t, test.mode, test.machine, test.pods...)
			requireSamePlans(t, view, names, test.mode, test.request)
		})
	}
}

// The rack that joins nodes by NVLink decides for a gang that needs two nodes.
func TestNVLinkDomainsAreCarried(t *testing.T) {
	view, names := live(t, placement.ModeTopology, machine(t), nil, nil, nil)
	for i, rack := range []string{"a", "b", "a"} {
		n, _ := view.Node(names[i])
		n.NVLinkDomain = rack
		view.SetNode(n)
	}
	on := map[string]bool{}
	for _, a := range planner.Plan(view, gang(16, 1, placement.ModeTopology)).Placement.Assignments {
		on[a.Node] = true
	}
	require.Equal(t, map[string]bool{"n1": true, "n3": true}, on)
	requireSamePlans(t, view, names, placement.ModeTopology, placement.Request{Mode: placement.ModeTopology, GPUs: 1})
}

// requireSamePlans plans gangs of 1 to 16 workers on a view and on the capacity of its nodes.
func requireSamePlans(t *testing.T, view *snapshot.View, names []string, mode placement.Mode, request placement.Request) {
	t.Helper()
	p := pool(string(mode))
	p.Labels, p.Taints = nil, nil
	c, err := p.Live(nodes(view, names), view.Pods)
	require.NoError(t, err)
	back, err := capacity.ToView(roundTrip(t, c))
	require.NoError(t, err)
	for workers := 1; workers <= 16; workers++ {
		g := gang(workers, 0, mode)
		g.Roles[0].Request = request
		want, got := planner.Plan(view, g), planner.Plan(back, g)
		require.Equal(t, want.Verdict.Fits, got.Verdict.Fits, "%d workers: %s / %s", workers, want.Verdict, got.Verdict)
		assert.Equal(t, want.Verdict.Fit, got.Verdict.Fit)
		assert.Equal(t, want.Placement, got.Placement, "%d workers", workers)
	}
}

func roundTrip(t *testing.T, c capacity.Capacity) capacity.Capacity {
	t.Helper()
	value, diags := c.Value(t.Context())
	require.False(t, diags.HasError(), "%v", diags)
	assert.Equal(t, capacity.Type, capacity.Attribute().GetType(), "the attribute and the type of a job's pools agree")
	back, diags := capacity.From(t.Context(), value)
	require.False(t, diags.HasError(), "%v", diags)
	again, diags := back.Value(t.Context())
	require.False(t, diags.HasError(), "%v", diags)
	assert.True(t, value.Equal(again))
	return back
}

func TestListTellsUnknownFromKnown(t *testing.T) {
	c, err := pool("topology").Planned(capacity.Capacity{}, 1)
	require.NoError(t, err)
	value, diags := c.Value(t.Context())
	require.False(t, diags.HasError())

	known, diags := types.ListValueFrom(t.Context(), capacity.Type, []types.Object{value})
	require.False(t, diags.HasError())
	list, ok, diags := capacity.List(t.Context(), known)
	require.False(t, diags.HasError())
	assert.True(t, ok)
	require.Len(t, list, 1)
	assert.Equal(t, "v100", list[0].Pool)

	for _, unknown := range []types.List{
		types.ListUnknown(capacity.Type),
		types.ListValueMust(capacity.Type, []attr.Value{types.ObjectUnknown(capacity.Type.AttrTypes)}),
	} {
		_, ok, diags := capacity.List(t.Context(), unknown)
		assert.False(t, diags.HasError())
		assert.False(t, ok)
		_, ok = capacity.Pools(unknown)
		assert.False(t, ok)
	}
	named := types.ListValueMust(capacity.Type, []attr.Value{value, capacity.NameOnly("a10")})
	_, ok, diags = capacity.List(t.Context(), named)
	require.False(t, diags.HasError())
	assert.False(t, ok)
	names, ok := capacity.Pools(named)
	assert.True(t, ok)
	assert.Equal(t, []string{"v100", "a10"}, names)
}

// What a node's device plugin keeps for the driver is kept in the plan, too.
func TestHeadroomOfLiveNodes(t *testing.T) {
	view, names := live(t, placement.ModeShare, machine(t), nil)
	node, ok := view.Node(names[0])
	require.True(t, ok)
	node.HeadroomMiB = 2 << 10
	view.SetNode(node)
	c, err := pool("share").Live(nodes(view, names), view.Pods)
	require.NoError(t, err)
	back, err := capacity.ToView(roundTrip(t, c))
	require.NoError(t, err)
	planned, ok := back.Node(names[0])
	require.True(t, ok)
	assert.Equal(t, int64(2<<10), planned.HeadroomMiB)
}

// Someone else chooses which nodes go: what stays is known when that makes no difference.
func TestRemaining(t *testing.T) {
	zone := func(n *placement.Node, zone string) { n.Labels = map[string]string{"zone": zone} }
	job := func(gang string) placement.Pod {
		return placement.Pod{ID: "p-" + gang, Gang: gang, Own: gpu.SetOf(0), Request: placement.Request{Mode: placement.ModeTopology, GPUs: 1}}
	}
	for name, test := range map[string]struct {
		pods      [][]placement.Pod
		zones     []string
		size      int
		jobsLeave bool
		nodes     []string
	}{
		"alike":                 {[][]placement.Pod{nil, nil, nil}, []string{"a", "a", "a"}, 2, false, []string{"v100[0]", "v100[1]"}},
		"not alike":             {[][]placement.Pod{nil, nil, nil}, []string{"a", "b", "a"}, 2, false, nil},
		"not alike, none stays": {[][]placement.Pod{nil, nil, nil}, []string{"a", "b", "a"}, 0, false, []string{}},
		"not alike, all stay":   {[][]placement.Pod{nil, nil, nil}, []string{"a", "b", "a"}, 3, false, []string{"n1", "n2", "n3"}},
		"a job that may stay":   {[][]placement.Pod{nil, {job("default/a")}, nil}, []string{"a", "a", "a"}, 2, false, nil},
		"a job that leaves":     {[][]placement.Pod{nil, {job("default/a")}, nil}, []string{"a", "a", "a"}, 2, true, []string{"v100[0]", "v100[1]"}},
		"someone else's pod":    {[][]placement.Pod{nil, {job("")}, nil}, []string{"a", "a", "a"}, 2, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			view, names := live(t, placement.ModeTopology, machine(t), test.pods...)
			list := nodes(view, names)
			for i := range list {
				zone(&list[i], test.zones[i])
			}
			now, err := pool("topology").Live(list, view.Pods)
			require.NoError(t, err)
			c, known, err := pool("topology").Remaining(now, test.size, test.jobsLeave)
			require.NoError(t, err)
			require.Equal(t, test.nodes != nil, known)
			if !known {
				return
			}
			back, err := capacity.ToView(roundTrip(t, c))
			require.NoError(t, err)
			assert.Equal(t, test.nodes, append([]string{}, back.Nodes()...))
			for i, name := range back.Nodes() {
				n, _ := back.Node(name)
				assert.Equal(t, test.zones[i], n.Labels["zone"], "what the nodes have alike stays")
			}
		})
	}
}
