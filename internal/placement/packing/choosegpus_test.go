package packing_test

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
)

// racksOfTrays returns a view of racks of 18 trays with four GB200 each.
func racksOfTrays(t *testing.T, racks int, mode placement.Mode) *snapshot.View {
	v := snapshot.NewView()
	tray := placementtest.TableOf(t, placementtest.Machine(t, "gb200-tray-4"))
	for i := range 18 * racks {
		n := placementtest.Node(fmt.Sprintf("tray%d", i), "nvl72", mode, tray)
		n.NVLinkDomain = fmt.Sprintf("rack-%d", i%racks)
		v.SetNode(n)
	}
	return v
}

func TestRackScaleNVLinkDomain(t *testing.T) {
	for _, mode := range []placement.Mode{placement.ModeTopology, placement.ModeDefault} {
		v := racksOfTrays(t, 2, mode)
		worker := placement.Request{Mode: mode, GPUs: 1}
		domains := func(p *placement.Placement) map[string]int {
			found := map[string]int{}
			for _, a := range p.Assignments {
				n, _ := v.Node(a.Node)
				found[n.NVLinkDomain]++
			}
			return found
		}

		whole := planner.Plan(v, placementtest.Gang("ml/72", 72, worker)).Placement
		require.NotNil(t, whole)
		assert.Equal(t, map[string]int{"rack-0": 72}, domains(whole), "one rack holds it, though its trays alternate with the other one's")
		for _, a := range whole.Assignments {
			assert.Equal(t, gpu.Ring{GBps: 900, NVLinkRings: 18}, a.Ring)
		}

		apart := placementtest.Gang("ml/apart", 18, worker)
		apart.Roles[0].MaxPerNode = 1
		single := planner.Plan(v, apart).Placement
		require.NotNil(t, single)
		assert.Len(t, domains(single), 1)
		assert.Equal(t, 900.0, single.Assignments[0].Ring.GBps, "one GPU on each tray: the ring is that of the rack, not of the tray")

		apart = placementtest.Gang("ml/wide", 19, worker)
		apart.Roles[0].MaxPerNode = 1
		wide := planner.Plan(v, apart).Placement
		require.NotNil(t, wide, "preferred, not required")
		assert.Len(t, domains(wide), 2)
		assert.Zero(t, wide.Assignments[0].Ring, "two racks have no ring of NVLinks")

		lone := planner.Plan(v, placementtest.Gang("ml/lone", 1, worker)).Placement
		assert.Zero(t, lone.Assignments[0].Ring, "one GPU has no ring")

		half := placementtest.Gang("ml/half", 2, worker)
		half.Running = []placement.Assignment{{Member: "worker-0", Node: "tray1", Own: gpu.SetOf(0)}}
		half.Roles[0].MaxPerNode = 1
		back := planner.Plan(v, half).Placement
		require.NotNil(t, back)
		assert.Equal(t, map[string]int{"rack-1": 1}, domains(back), "the lost member comes back into its rack")
		assert.Equal(t, 900.0, back.Assignments[0].Ring.GBps)
	}
}

func TestNodesOfNoRackHaveNoCommonRing(t *testing.T) {
	v := racksOfTrays(t, 1, placement.ModeTopology)
	for i := range 18 {
		name := fmt.Sprintf("tray%d", i)
		n, _ := v.Node(name)
		n.NVLinkDomain = ""
		v.SetNode(n)
	}
	g := placementtest.Gang("ml/a", 2, placementtest.WholeGPUs(1))
	g.Roles[0].MaxPerNode = 1
	assert.Zero(t, planner.Plan(v, g).Placement.Assignments[0].Ring)
}

// Members on several nodes get GPUs near a network device, at no loss of ring.
func TestGPUsNearNetworkDevices(t *testing.T) {
	m := placementtest.Machine(t, "dgx1-v100")
	links := make([]gpu.Link, 8)
	for i := range links {
		links[i].Class = gpu.SYS
	}
	links[5].Class, links[6].Class = gpu.PIX, gpu.PIX
	m.NICs = []gpu.NIC{{Name: "erdma_0", Links: links}}
	table := placementtest.TableOf(t, m)
	v := snapshot.NewView()
	for i := range 2 {
		name := fmt.Sprintf("n%d", i)
		v.SetNode(placementtest.Node(name, "p", placement.ModeTopology, table))
		v.AddPod(placement.Pod{ID: "other/" + name, Node: name, Request: placementtest.WholeGPUs(1), Own: gpu.SetOf(0)})
	}
	near, _ := table.BestNearNIC(gpu.Full(8)&^gpu.SetOf(0), 2)
	best, _ := table.Best(gpu.Full(8)&^gpu.SetOf(0), 2)
	require.NotEqual(t, near, best)

	g := placementtest.Gang("ml/a", 2, placementtest.WholeGPUs(2))
	assert.Equal(t, best, planner.Plan(v, placementtest.Gang("ml/b", 1, placementtest.WholeGPUs(2))).Placement.Assignments[0].Own, "one node: what is left comes first")
	g.Roles[0].MaxPerNode = 1
	for _, a := range planner.Plan(v, g).Placement.Assignments {
		assert.Equal(t, near, a.Own)
		assert.Equal(t, table.Ring(best), a.Ring)
	}
	g.Running = []placement.Assignment{{Member: "worker-0", Node: "n1", Own: near}}
	assert.Equal(t, near, planner.Plan(v, g).Placement.Assignments[0].Own, "next to members on another node too")
}

// A member that comes back gets the GPUs that make the fastest ring with those of the others.
func TestGPUsBesideRunningMembers(t *testing.T) {
	for device := range 8 {
		v := placementtest.TopologyView(1)
		running := gpu.SetOf(device)
		v.AddPod(placement.Pod{ID: "ml/a/worker-0", Node: "n0", Request: placementtest.WholeGPUs(1), Own: running, Gang: "ml/a"})
		g := placementtest.Gang("ml/a", 2, placementtest.WholeGPUs(1))
		g.Running = []placement.Assignment{{Member: "worker-0", Node: "n0", Own: running}}
		a := planner.Plan(v, g).Placement.Assignments[0]
		assert.Equal(t, 50.0, a.Ring.GBps, "two links lead from GPU %d to another one", device)
		assert.Equal(t, a.Own|running, a.Visible)
		assert.Equal(t, 1, a.Own.Len())
	}
}

// A view that does not charge what members of the gang run on: their GPUs are free in it, and
// whoever is placed beside them may get these.
func TestMembersThatTheViewDoesNotCharge(t *testing.T) {
	for gpus := 1; gpus <= 8; gpus++ {
		v := placementtest.TopologyView(1)
		g := placementtest.Gang("default/a", 1+8/gpus, placementtest.WholeGPUs(gpus))
		g.Running = []placement.Assignment{{Member: "worker-0", Node: v.Nodes()[0], Own: gpu.Full(gpus)}}
		result := planner.Plan(v, g)
		require.NotNil(t, result.Placement, result.Verdict)
		assert.Len(t, result.Placement.Assignments, 8/gpus)
		v.Apply(g, *result.Placement)
		assert.Equal(t, 8%gpus, v.FreeGPUs(v.Nodes()[0]).Len())
	}
}
