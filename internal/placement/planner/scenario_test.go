package planner_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// scenario is a file of testdata/scenarios: a cluster, and steps with what is expected.
type scenario struct {
	About string
	Nodes []scenarioNode
	Quota *quota.Spec
	Steps []scenarioStep
}

// scenarioNode describes Count nodes called Name0, Name1, ..., or one called Name.
type scenarioNode struct {
	Name, Pool  string
	Count       int
	Mode        placement.Mode
	Policy      placement.GPUPolicy
	Machine     string
	GPUGiB      []int64
	HeadroomMiB int64
	Labels      map[string]string
	Taints      []placement.Taint
	Cordoned    bool
	CPU, GiB    int64
	Pods        int64
	Extended    map[string]int64
}

// scenarioStep submits or removes one gang.
type scenarioStep struct {
	Gang    *scenarioGang
	Remove  string
	Gone    string // a node that fails; members on it are lost
	Expect  scenarioExpect
	Comment string
}

type scenarioGang struct {
	ID, Leaf    string
	Minimum     int
	Domain      string
	Domains     []placement.Domain
	Spread      bool
	Preemptible *bool
	Exclude     []string
	Hidden      []string
	Roles       []scenarioRole
}

type scenarioRole struct {
	Name        string
	Count       int
	Mode        placement.Mode
	GPUs        int
	GiB         int64
	Core        int64
	CPU, Memory int64
	Extended    map[string]int64
	Ports       []string
	Late        bool
	Selector    map[string]string
	Affinity    [][]placement.Requirement
	Tolerations []placement.Toleration
	Pools       []string
	MaxPerNode  int
	Exclude     []string
}

// scenarioExpect is what a step must give; what is not named is not checked.
type scenarioExpect struct {
	// On has the assignments as "member": "node", "node:0,1" (own GPUs) or
	// "node:0=4GiB,1=4GiB+20%" (shares).
	On map[string]string
	// Nodes counts members per node.
	Nodes   map[string]int
	GBps    *float64
	Verdict string
	Codes   []placement.Code
	Fixes   []string
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var s scenario
			decoder := json.NewDecoder(strings.NewReader(string(data)))
			decoder.DisallowUnknownFields()
			require.NoError(t, decoder.Decode(&s))
			s.run(t)
		})
	}
}

func (s *scenario) run(t *testing.T) {
	v := snapshot.NewView()
	for _, n := range s.Nodes {
		n.add(t, v)
	}
	if s.Quota != nil {
		tree, err := quota.New(*s.Quota)
		require.NoError(t, err)
		v.SetQuota(tree)
	}
	placed := map[string][]placement.Assignment{}
	members := map[string]map[string]string{}
	for i, step := range s.Steps {
		name := fmt.Sprintf("step %d %s", i, step.Comment)
		switch {
		case step.Remove != "":
			for member := range members[step.Remove] {
				v.RemovePod(step.Remove + "/" + member)
			}
			delete(placed, step.Remove)
		case step.Gone != "":
			v.RemoveNode(step.Gone)
			for id, list := range placed {
				var rest []placement.Assignment
				for _, a := range list {
					if a.Node == step.Gone {
						v.RemovePod(id + "/" + a.Member)
					} else {
						rest = append(rest, a)
					}
				}
				placed[id] = rest
			}
		default:
			g := step.Gang.gang()
			g.Running = placed[g.ID]
			result := planner.Plan(v, g)
			if result.Placement != nil {
				v.Apply(g, *result.Placement)
				placed[g.ID] = append(placed[g.ID], result.Placement.Assignments...)
				members[g.ID] = map[string]string{}
				for _, a := range placed[g.ID] {
					members[g.ID][a.Member] = a.Node
				}
			}
			step.Expect.check(t, name, result)
		}
	}
}

func (n scenarioNode) add(t *testing.T, v *snapshot.View) {
	var table *gpu.Table
	if n.Machine != "" {
		m := placementtest.Machine(t, n.Machine)
		for i := range m.GPUs {
			switch {
			case i < len(n.GPUGiB) && n.GPUGiB[i] < 0:
				m.GPUs[i].Unhealthy = "XID 79"
			case i < len(n.GPUGiB):
				m.GPUs[i].MemoryMiB = n.GPUGiB[i] * 1024
			}
		}
		var err error
		table, err = gpu.NewTable(m)
		require.NoError(t, err)
	}
	for i := range max(n.Count, 1) {
		name := n.Name
		if n.Count > 0 {
			name += fmt.Sprint(i)
		}
		made := placementtest.Node(name, n.Pool, n.Mode, table)
		for key, value := range n.Labels {
			made.Labels[key] = value
		}
		made.GPUPolicy, made.HeadroomMiB, made.Taints, made.Unschedulable = n.Policy, n.HeadroomMiB, n.Taints, n.Cordoned
		made.Allocatable.Extended = n.Extended
		if n.CPU > 0 {
			made.Allocatable.MilliCPU = n.CPU * 1000
		}
		if n.GiB > 0 {
			made.Allocatable.MemoryBytes = n.GiB << 30
		}
		if n.Pods > 0 {
			made.Allocatable.Pods = n.Pods
		}
		v.SetNode(made)
	}
}

func (s *scenarioGang) gang() placement.Gang {
	g := placement.Gang{
		ID: s.ID, Leaf: s.Leaf, Minimum: s.Minimum, RequiredDomain: s.Domain, Domains: s.Domains,
		Spread: s.Spread, Preemptible: s.Preemptible == nil || *s.Preemptible,
	}
	g.ExcludeNodes, g.HiddenNodes = set(s.Exclude), set(s.Hidden)
	for _, r := range s.Roles {
		made := placementtest.Role(r.Name, r.Count, placement.Request{
			Resources: placement.Resources{MilliCPU: r.CPU * 1000, MemoryBytes: r.Memory << 30, Extended: r.Extended},
			Mode:      r.Mode, GPUs: r.GPUs, MemoryGiB: r.GiB, CorePercent: r.Core, HostPorts: r.Ports,
		})
		made.Late, made.NodeSelector, made.Affinity, made.Tolerations = r.Late, r.Selector, r.Affinity, r.Tolerations
		made.Pools, made.MaxPerNode = r.Pools, r.MaxPerNode
		for _, node := range r.Exclude {
			if made.NodeLimits == nil {
				made.NodeLimits = map[string]int{}
			}
			made.NodeLimits[node] = 0
		}
		g.Roles = append(g.Roles, made)
	}
	return g
}

func set(names []string) map[string]bool {
	s := map[string]bool{}
	for _, name := range names {
		s[name] = true
	}
	return s
}

func (e *scenarioExpect) check(t *testing.T, step string, got placement.Result) {
	t.Helper()
	if e.Verdict != "" {
		assert.Equal(t, e.Verdict, got.Verdict.String(), step)
	}
	if e.Codes != nil {
		var codes []placement.Code
		for _, r := range got.Verdict.Reasons {
			codes = append(codes, r.Code)
		}
		assert.Equal(t, e.Codes, codes, step)
	}
	if e.Fixes != nil {
		fixes := []string{}
		for _, f := range got.Verdict.Fixes {
			fixes = append(fixes, f.Text)
		}
		assert.Equal(t, e.Fixes, fixes, step)
	}
	if e.On == nil && e.Nodes == nil && e.GBps == nil {
		return
	}
	if !assert.NotNil(t, got.Placement, "%s: %s", step, got.Verdict) {
		return
	}
	on := map[string]string{}
	nodes := map[string]int{}
	for _, a := range got.Placement.Assignments {
		on[a.Member] = a.Node
		nodes[a.Node]++
		if a.Own != 0 {
			on[a.Member] += ":" + a.Own.String()
		}
		if a.Shares != nil {
			on[a.Member] += ":" + shareText(a.Shares)
		}
		if e.GBps != nil {
			assert.InDelta(t, *e.GBps, a.Ring.GBps, 0.01, step)
		}
	}
	if e.On != nil {
		assert.Equal(t, e.On, on, step)
	}
	if e.Nodes != nil {
		assert.Equal(t, e.Nodes, nodes, step)
	}
}

func shareText(shares []placement.GPUShare) string {
	var parts []string
	for _, s := range shares {
		text := fmt.Sprintf("%d=%dGiB", s.GPU, s.MemoryGiB)
		if s.CorePercent > 0 {
			text += fmt.Sprintf("+%d%%", s.CorePercent)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}
