package capacity

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func v100(t *testing.T) (Pool, placement.Node) {
	t.Helper()
	p := Pool{Name: "v100", InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: "topology", Labels: map[string]string{"team": "a"},
		Taints: []Taint{{Key: "gpu", Effect: "NoSchedule"}}}
	template, err := p.template()
	require.NoError(t, err)
	return p, template
}

// fresh is a node that exists and is as planned.
func fresh(template placement.Node, name string) placement.Node {
	template.Name = name
	labels := map[string]string{corev1.LabelHostname: name}
	for key, value := range template.Labels {
		labels[key] = value
	}
	template.Labels = labels
	return template
}

func none(string) []placement.Pod { return nil }

func TestANodeThatIsAsPlannedHasOnlyAName(t *testing.T) {
	p, template := v100(t)
	n := fresh(template, "n1")
	delete(n.Labels, "team") // the next apply gives it back
	n.Taints = nil           // this too
	n.Labels["gpuplan.dev/pool"] = "other"
	c, err := p.Live([]placement.Node{n}, none)
	require.NoError(t, err)
	assert.Equal(t, []Node{{Name: "n1"}}, c.Nodes)
	assert.Nil(t, c.LiveLabels)
}

// Whatever is different about a live node comes back out of the capacity.
func TestWhatIsDifferentTravels(t *testing.T) {
	p, template := v100(t)
	random := rand.New(rand.NewPCG(11, 3))
	for round := range 200 {
		machine := template.GPUs.Machine()
		machine.GPUs = append([]gpu.GPU(nil), machine.GPUs...)
		for i := range machine.GPUs {
			if random.IntN(8) == 0 {
				machine.GPUs[i].Unhealthy = "Xid 79"
			}
		}
		table, err := gpu.NewTable(machine)
		require.NoError(t, err)
		var nodes []placement.Node
		for i := range 1 + random.IntN(3) {
			n := fresh(template, fmt.Sprintf("n%d", i))
			n.Since = int64(i)
			n.Taints = append([]placement.Taint(nil), n.Taints...)
			if random.IntN(2) == 0 {
				n.GPUs = table
			}
			if random.IntN(2) == 0 {
				n.Labels["topology.kubernetes.io/zone"] = []string{"b", "c"}[random.IntN(2)]
			}
			n.Labels["region"] = "hangzhou" // like all others
			if random.IntN(4) == 0 {
				delete(n.Labels, "kubernetes.io/arch")
			}
			if random.IntN(3) == 0 {
				n.Taints = append(n.Taints, placement.Taint{Key: "example.com/repair", Value: "x", Effect: "NoExecute"})
			}
			n.Unschedulable = random.IntN(4) == 0
			if random.IntN(4) == 0 {
				n.Allocatable.MilliCPU -= 1000
				n.Allocatable.Extended = map[string]int64{"aliyun/erdma": 200}
				n.NVLinkDomain, n.HeadroomMiB = "rack", 1<<10
			}
			nodes = append(nodes, n)
		}
		c, err := p.Live(nodes, none)
		require.NoError(t, err)
		if len(nodes) > 1 {
			assert.Contains(t, c.LiveLabels, "region")
			assert.NotContains(t, c.Nodes[0].Labels, "region")
		}
		grown, err := p.Planned(c, len(nodes)+1)
		require.NoError(t, err)
		back, pods, err := grown.Planner()
		require.NoError(t, err)
		require.Empty(t, pods)
		for i, want := range nodes {
			got := back[i]
			require.Equal(t, want.Labels, got.Labels, "round %d", round)
			require.Equal(t, want.Taints, got.Taints)
			require.Equal(t, want.Unschedulable, got.Unschedulable)
			require.Equal(t, want.GPUs.Healthy(), got.GPUs.Healthy())
			require.Equal(t, want.Allocatable.MilliCPU, got.Allocatable.MilliCPU)
			require.Equal(t, want.Allocatable.Extended, got.Allocatable.Extended)
			require.Equal(t, want.NVLinkDomain, got.NVLinkDomain)
			require.Equal(t, want.HeadroomMiB, got.HeadroomMiB)
		}
		added := back[len(nodes)]
		assert.NotContains(t, added.Labels, "region", "nobody promises it of a new node")
		assert.Equal(t, "amd64", added.Labels["kubernetes.io/arch"])
		assert.Equal(t, template.Taints, added.Taints)
	}
}

// A GPU that a node has lost is sick in the plan, and the others keep their links.
func TestLostGPU(t *testing.T) {
	p, template := v100(t)
	machine := template.GPUs.Machine()
	left := machine
	left.GPUs, left.Links, left.PCIeLinks = nil, nil, nil
	for i := range machine.GPUs {
		if i == 2 {
			continue
		}
		left.GPUs = append(left.GPUs, machine.GPUs[i])
		row := append(append([]gpu.Link(nil), machine.Links[i][:2]...), machine.Links[i][3:]...)
		left.Links = append(left.Links, row)
	}
	table, err := gpu.NewTable(left)
	require.NoError(t, err)
	n := fresh(template, "n1")
	n.GPUs = table
	taken := placement.Pod{ID: "p", Node: "n1", Own: gpu.SetOf(2), Request: placement.Request{Mode: placement.ModeTopology, GPUs: 1}} // NVML index 3
	c, err := p.Live([]placement.Node{n}, func(string) []placement.Pod { return []placement.Pod{taken} })
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"2": lost}, c.Nodes[0].SickGPUs)
	assert.Empty(t, c.Nodes[0].Links)
	assert.Equal(t, "3", *c.Nodes[0].Held[0].GPUs)
	assert.Equal(t, int64(6), c.FreeGPUs)
	view, err := ToView(c)
	require.NoError(t, err)
	assert.Equal(t, gpu.SetOf(0, 1, 4, 5, 6, 7), view.FreeGPUs("n1"))
}
