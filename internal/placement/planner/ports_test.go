package planner_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
)

// Ports are named where they cost the gang nodes, and nowhere else.
func TestPortsApart(t *testing.T) {
	with := func(n int, ports ...string) placement.Request {
		request := placementtest.WholeGPUs(n)
		request.HostPorts = ports
		return request
	}
	for name, test := range map[string]struct {
		roles   []placement.Role
		running []placement.Assignment
		want    []string
	}{
		"one port for two roles":      {[]placement.Role{placementtest.Role("master", 1, with(1, "TCP/2")), placementtest.Role("worker", 1, with(1, "TCP/2"))}, nil, []string{"TCP/2"}},
		"one port for one role":       {[]placement.Role{placementtest.Role("worker", 2, with(1, "TCP/2", "TCP/1"))}, nil, []string{"TCP/1", "TCP/2"}},
		"beside one that runs":        {[]placement.Role{placementtest.Role("worker", 2, with(1, "TCP/2"))}, []placement.Assignment{{Member: "worker-0", Node: "n0"}}, []string{"TCP/2"}},
		"ports of their own":          {[]placement.Role{placementtest.Role("master", 1, with(1, "TCP/1")), placementtest.Role("worker", 1, with(1, "TCP/2"))}, nil, nil},
		"the same numbers of UDP":     {[]placement.Role{placementtest.Role("master", 1, with(1, "TCP/1")), placementtest.Role("worker", 1, with(1, "UDP/1"))}, nil, nil},
		"whole nodes":                 {[]placement.Role{placementtest.Role("worker", 2, with(8, "TCP/2"))}, nil, nil},
		"no ports, and not one node":  {[]placement.Role{placementtest.Role("worker", 2, with(8))}, nil, nil},
		"as many nodes without ports": {[]placement.Role{placementtest.Role("worker", 2, with(5, "TCP/2"))}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(2)
			g := placement.Gang{ID: "ml/a", Roles: test.roles, Running: test.running}
			for _, a := range test.running {
				v.AddPod(placement.Pod{ID: "ml/" + a.Member, Gang: g.ID, Node: a.Node, Request: test.roles[0].Request, Own: 1})
			}
			result := planner.Plan(v, g)
			require.NotNil(t, result.Placement, result.Verdict.String())
			assert.Equal(t, test.want, planner.PortsApart(v, g, *result.Placement))
		})
	}
}

// A port of one address is free beside the same one of another, and not beside that of all.
func TestPortsOfAddresses(t *testing.T) {
	const all, one, other = "TCP/80", "TCP/80@127.0.0.1", "TCP/80@127.0.0.2"
	for name, test := range map[string]struct {
		there, asks string
		fits        bool
	}{
		"all beside all":          {all, all, false},
		"one beside all":          {all, one, false},
		"all beside one":          {one, all, false},
		"one beside itself":       {one, one, false},
		"one beside another":      {one, other, true},
		"all beside another port": {"TCP/8", all, true},
		"one beside another port": {"TCP/8", "TCP/80@127.0.0.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			there, asks := placementtest.WholeGPUs(1), placementtest.WholeGPUs(1)
			there.HostPorts, asks.HostPorts = []string{test.there}, []string{test.asks}
			running := placement.Pod{ID: "there", Node: "n0", Request: there, Own: 1}
			v.AddPod(running)
			assert.Equal(t, test.fits, planner.Place(v, placement.Gang{ID: "ml/a", Roles: []placement.Role{placementtest.Role("worker", 1, asks)}}) != nil)

			together := placement.Gang{ID: "ml/b", Roles: []placement.Role{placementtest.Role("master", 1, there), placementtest.Role("worker", 1, asks)}}
			v.RemovePod("there")
			assert.Equal(t, test.fits, planner.Place(v, together) != nil)
			v.AddPod(running)
			_, reserved := backfill.Reserve(v, together)
			assert.Equal(t, test.fits, reserved, "after the other has ended")
		})
	}
}

// Who waits for a port is told which, and whether it is the gang itself that has it.
func TestPortInTheWay(t *testing.T) {
	request := placementtest.WholeGPUs(1)
	request.HostPorts = []string{"TCP/23456"}
	g := placement.Gang{ID: "ml/a", Roles: []placement.Role{placementtest.Role("master", 1, request), placementtest.Role("worker", 1, request)}}
	v := placementtest.TopologyView(1)
	verdict := planner.Plan(v, g).Verdict
	assert.Equal(t, placement.HostPortShared, verdict.Reasons[0].Code)
	assert.Contains(t, verdict.String(), "1 of 2 members fit: 1 node has the host port TCP/23456 taken by another member of the gang for worker-0")
	assert.Equal(t, "pool size 2 (now 1) for pool v100", verdict.Fixes[0].Text)

	v.AddPod(placement.Pod{ID: "other", Node: "n0", Request: request, Own: 1})
	verdict = planner.Plan(v, g).Verdict
	assert.Equal(t, placement.HostPortTaken, verdict.Reasons[0].Code)
	assert.Contains(t, verdict.String(), "0 of 2 members fit: 1 node has the host port TCP/23456 taken for master-0")

	alone := placementtest.Gang("ml/b", 1, request)
	assert.Contains(t, planner.Plan(v, alone).Verdict.String(), "Nearest fix: host port 23457 (now 23456).")
	alone.Roles[0].Request.HostPorts = []string{"TCP/23456@10.0.0.1"}
	next := placement.Pod{ID: "next", Node: "n0", Request: placement.Request{HostPorts: []string{"TCP/23457"}}}
	v.AddPod(next)
	fix := planner.Plan(v, alone).Verdict.Fixes[0]
	assert.Equal(t, [2]string{"TCP/23456@10.0.0.1", "TCP/23458@10.0.0.1"}, [2]string{fix.From, fix.To})
}

// Who is kept from nodes by a selector, its volumes or its devices is told which labels they lack, and what would help.
func TestLabelsInTheWay(t *testing.T) {
	v := placementtest.TopologyView(2)
	n, _ := v.Node("n0")
	n.Labels = map[string]string{"team": "b", "zone": "z"}
	v.SetNode(n)
	g := placementtest.Gang("ml/a", 1, placementtest.WholeGPUs(1))
	g.Roles[0].NodeSelector = map[string]string{"team": "a", "zone": "z"}
	verdict := planner.Plan(v, g).Verdict
	assert.Contains(t, verdict.String(), "1 node does not match the node selector team=a; 1 node does not match the node selector team=a, zone=z; no node is left for worker-0")
	assert.Contains(t, verdict.String(), "Nearest fix: a node selector without team=a (1 node).")
	g.Roles[0].NodeSelector = nil
	g.Roles[0].Volumes = [][]placement.Requirement{{{Key: "zone", Operator: "In", Values: []string{"y", "x"}}}}
	assert.Contains(t, planner.Plan(v, g).Verdict.String(), "2 nodes do not reach the volumes, which are for nodes with zone In (y, x) for ")
	g.Roles[0].Volumes = nil
	g.Roles[0].Devices = [][]placement.Requirement{{{Key: placement.FieldName, Operator: "In", Values: []string{"n1"}}}}
	assert.Equal(t, "n1", planner.Plan(v, g).Placement.Assignments[0].Node)
	g.Roles[0].Devices[0][0].Values = []string{"n2"}
	assert.Contains(t, planner.Plan(v, g).Verdict.String(), "2 nodes do not reach the devices of the resource claims, which are for nodes with field:metadata.name In (n2) for ")
}

// A node more helps nobody whom each node's own pods keep out: those of DaemonSets run on the new one too.
func TestNewNodesHaveWhatIsPinned(t *testing.T) {
	port := placement.Request{HostPorts: []string{"TCP/80"}}
	cpu := func(n int64) placement.Request {
		return placement.Request{Resources: placement.Resources{MilliCPU: n * 1000}}
	}
	const sizes = "pool size 2 (now 1) for pool v100"
	for name, test := range map[string]struct {
		takes, asks placement.Request
		members     int
		pinned      bool
		fix         string
	}{
		"a port":              {port, port, 1, true, ""},
		"the port of a pod":   {port, port, 1, false, "host port 81 (now 80)"},
		"CPU":                 {cpu(4), cpu(77), 1, true, "76 CPU per member (now 77)"},
		"CPU of a pod":        {cpu(4), cpu(77), 1, false, sizes},
		"CPU, with room left": {cpu(4), cpu(40), 2, true, sizes},
	} {
		t.Run(name, func(t *testing.T) {
			v := placementtest.TopologyView(1)
			n, _ := v.Node("n0")
			n.Allocatable.MilliCPU = 80000
			v.SetNode(n)
			v.AddPod(placement.Pod{ID: "there", Node: "n0", Request: test.takes, Pinned: test.pinned})
			asks := test.asks
			asks.Mode, asks.GPUs = placement.ModeTopology, 1
			verdict := planner.Plan(v, placementtest.Gang("ml/a", test.members, asks)).Verdict
			first := ""
			if len(verdict.Fixes) > 0 {
				first = verdict.Fixes[0].Text
			}
			if test.fix == "" {
				assert.NotContains(t, first, "pool size")
				return
			}
			assert.Equal(t, test.fix, first)
		})
	}
}
