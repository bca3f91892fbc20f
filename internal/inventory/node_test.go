package inventory

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

func TestNode(t *testing.T) {
	n := podtest.Node("node", 8)
	n.CreationTimestamp = metav1.Unix(42, 0)
	n.Labels[contract.NodeGPUPolicyLabel] = "spread"
	n.Spec.Unschedulable = true
	n.Spec.Taints = []corev1.Taint{
		{Key: "dedicated", Value: "training", Effect: corev1.TaintEffectNoSchedule},
		{Key: "slow", Effect: corev1.TaintEffectPreferNoSchedule},
	}

	node, err := Node(n, nil)

	require.NoError(t, err)
	assert.Equal(t, "pool", node.Pool)
	assert.Equal(t, int64(42), node.Since)
	assert.Equal(t, placement.ModeTopology, node.Mode)
	assert.Equal(t, placement.Spread, node.GPUPolicy)
	assert.True(t, node.Unschedulable)
	assert.Equal(t, []placement.Taint{{Key: "dedicated", Value: "training", Effect: "NoSchedule"}}, node.Taints)
	assert.Equal(t, placement.Resources{
		MilliCPU: 82000, MemoryBytes: 1 << 30, Pods: 64, Extended: map[string]int64{contract.ResourceERDMA: 200},
	}, node.Allocatable)
	require.NotNil(t, node.GPUs)
	assert.Len(t, node.GPUs.Machine().GPUs, 8)
}

func TestNodeMode(t *testing.T) {
	tests := map[string]struct {
		label    string
		resource corev1.ResourceName
		gpus     bool
		mode     placement.Mode
	}{
		"topology":                         {"topology", contract.ResourceTopologyGPU, true, placement.ModeTopology},
		"default":                          {"default", contract.ResourceDefaultGPU, true, placement.ModeDefault},
		"no label":                         {"", contract.ResourceDefaultGPU, true, placement.ModeDefault},
		"shared":                           {"core_mem", contract.ResourceGPUMemory, true, placement.ModeCoreMem},
		"label changed, plugin not yet":    {"topology", contract.ResourceDefaultGPU, false, placement.ModeTopology},
		"mode that offers nothing planned": {"mig", "nvidia.com/mig-1g.5gb", false, "mig"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := podtest.Node("node", 8)
			n.Labels[contract.NodeModeLabel] = test.label
			n.Status.Allocatable = corev1.ResourceList{test.resource: resource.MustParse("8")}
			node, err := Node(n, nil)
			require.NoError(t, err)
			assert.Equal(t, test.mode, node.Mode)
			assert.Equal(t, test.gpus, node.GPUs != nil)
		})
	}
}

func TestNodeHardware(t *testing.T) {
	published := &contract.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: contract.GPUNodeStatus{
		Model: "Test",
		GPUs:  []contract.GPUInfo{{Index: 0, Health: contract.Healthy}, {Index: 1, Health: contract.Unhealthy, Reason: "XID 79"}},
		Links: []string{"X PIX", "PIX X"},
	}}
	node, err := Node(podtest.Node("node", 8), published)
	require.NoError(t, err)
	machine := node.GPUs.Machine()
	assert.Equal(t, "Test", machine.Model)
	require.Len(t, machine.GPUs, 2)
	assert.Equal(t, "XID 79", machine.GPUs[1].Unhealthy)

	published.Status.Links = []string{"X"}
	node, err = Node(podtest.Node("node", 8), published)
	require.ErrorContains(t, err, "node node")
	assert.Nil(t, node.GPUs)

	unknown := podtest.Node("node", 3)
	unknown.Labels[contract.InstanceTypeLabel] = "another"
	node, err = Node(unknown, nil)
	require.NoError(t, err)
	assert.Len(t, node.GPUs.Machine().GPUs, 3, "counted without links")

	for _, count := range []string{"65", "1000000000"} {
		unknown.Labels[contract.GPUCountLabel] = count
		node, err = Node(unknown, nil)
		require.ErrorContains(t, err, "it counts "+count+" GPUs")
		assert.Nil(t, node.GPUs)
	}

	without := podtest.Node("node", 0)
	without.Labels[contract.InstanceTypeLabel] = "another"
	node, err = Node(without, nil)
	require.NoError(t, err)
	assert.Nil(t, node.GPUs)
}

// What the device plugin keeps of each GPU is what the node offers less than its GPUs have.
func TestHeadroomOfSharedGPUs(t *testing.T) {
	for offered, want := range map[int64]int64{0: 0, 121: 1 << 10, 128: 0, 120: 1 << 10, 96: 4 << 10, 130: 0, 1: 16 << 10} {
		n := podtest.Node("node", 8)
		n.Labels[contract.NodeModeLabel], n.Labels[contract.GPUMemoryLabel] = "share", "16384MiB"
		offers := corev1.ResourceList{contract.ResourceGPUMemory: *resource.NewQuantity(offered, resource.DecimalSI)}
		n.Status = corev1.NodeStatus{Capacity: offers, Allocatable: offers}
		node, err := Node(n, nil)
		require.NoError(t, err)
		assert.Equal(t, want, node.HeadroomMiB, "%d GiB", offered)
	}
	machine := gpu.Machine{GPUs: []gpu.GPU{{MemoryMiB: math.MaxInt64}}} // as an agent may have published
	n := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{contract.ResourceGPUMemory: resource.MustParse("1")}}}
	assert.Equal(t, int64(math.MaxInt64>>10-1)<<10, headroom(n, machine))
}

// Where no agent has looked, what the driver reports goes before the catalogue.
func TestMemoryOfGPUsIsWhatTheDriverReports(t *testing.T) {
	for label, want := range map[string]int64{"": 16160, "16384MiB": 16384, "16130MiB": 16130, "16 GB": 16160, "999999999999MiB": 16160, "-1MiB": 16160} {
		n := podtest.Node("node", 8)
		if n.Labels[contract.GPUMemoryLabel] = label; label == "" {
			delete(n.Labels, contract.GPUMemoryLabel)
		}
		node, err := Node(n, nil)
		require.NoError(t, err)
		for _, device := range node.GPUs.Machine().GPUs {
			assert.Equal(t, want, device.MemoryMiB, label)
		}
	}
}

// Whether the agent can vouch for its GPUs decides whether they are offered.
func TestHardwareThatNobodyVouchesFor(t *testing.T) {
	heartbeat := func(age time.Duration) *contract.AgentInfo {
		return &contract.AgentInfo{Heartbeat: metav1.NewTime(time.Now().Add(-age))}
	}
	for name, test := range map[string]struct {
		spoil  func(*contract.GPUNodeStatus, *corev1.Node)
		usable int
		says   string
	}{
		"all is well":      {func(*contract.GPUNodeStatus, *corev1.Node) {}, 2, ""},
		"an old publisher": {func(s *contract.GPUNodeStatus, _ *corev1.Node) { s.Agent = nil }, 2, ""},
		"the driver is gone": {func(s *contract.GPUNodeStatus, _ *corev1.Node) {
			s.Conditions = []metav1.Condition{{Type: contract.ConditionReady, Status: metav1.ConditionUnknown, Message: "driver not loaded"}}
		}, 0, "the node agent cannot read the GPUs: driver not loaded"},
		"a heartbeat was missed": {func(s *contract.GPUNodeStatus, _ *corev1.Node) { s.Agent = heartbeat(15 * time.Minute) }, 2, ""},
		"the agent is silent":    {func(s *contract.GPUNodeStatus, _ *corev1.Node) { s.Agent = heartbeat(26 * time.Minute) }, 0, "the node agent is silent since"},
		"a GPU in MIG mode":      {func(s *contract.GPUNodeStatus, _ *corev1.Node) { s.GPUs[1].MIG = true }, 1, "split into MIG devices"},
		"a GPU in MIG mode, in ACK's default mode": {func(s *contract.GPUNodeStatus, n *corev1.Node) {
			s.GPUs[1].MIG = true
			delete(n.Labels, contract.NodeModeLabel)
			n.Status.Allocatable[contract.ResourceDefaultGPU] = resource.MustParse("2")
		}, 1, "split into MIG devices"},
		"a GPU in MIG mode, among shared ones": {func(s *contract.GPUNodeStatus, n *corev1.Node) {
			s.GPUs[1].MIG = true
			n.Labels[contract.NodeModeLabel] = "share"
		}, 1, "split into MIG devices"},
		"MIG mode where it belongs": {func(s *contract.GPUNodeStatus, n *corev1.Node) {
			s.GPUs[1].MIG = true
			n.Labels[contract.NodeModeLabel] = "mig"
		}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{contract.NodeModeLabel: "topology"}}}
			n.Status.Allocatable = corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("2"), contract.ResourceGPUMemory: resource.MustParse("2")}
			hardware := &contract.GPUNode{ObjectMeta: n.ObjectMeta, Status: contract.GPUNodeStatus{
				Links: []string{"X SYS", "SYS X"}, Agent: heartbeat(0),
				GPUs: []contract.GPUInfo{{Index: 0, Health: contract.Healthy}, {Index: 1, Health: contract.Healthy}},
			}}
			test.spoil(&hardware.Status, n)
			node, err := Node(n, hardware)
			require.NoError(t, err)
			m := node.GPUs.Machine()
			assert.Equal(t, test.usable, m.Healthy().Len())
			assert.Contains(t, m.GPUs[1].Unhealthy, test.says)
			if test.says == "" {
				assert.Empty(t, m.GPUs[1].Unhealthy)
			}
		})
	}
}

// A node in another mode offers what it has offered before, unless it offers nothing, or nobody knows what.
func TestRelabelled(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string // "" without the label
		offers   corev1.ResourceName
		gpus     bool // whether it offers any afterwards
	}{
		"to parts of GPUs":      {"topology", "share", contract.ResourceTopologyGPU, true},
		"to whole GPUs":         {"", "topology", contract.ResourceDefaultGPU, true},
		"the same":              {"", "default", contract.ResourceDefaultGPU, true},
		"it offers nothing yet": {"topology", "default", contract.ResourceDefaultGPU, false},
		"the label is taken":    {"topology", "", contract.ResourceTopologyGPU, false},
		"of the default":        {"default", "", contract.ResourceDefaultGPU, true},
		"nobody knows":          {"topology", "mig", contract.ResourceTopologyGPU, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := podtest.Node("node", 8)
			labels := func(mode string) map[string]string {
				all := map[string]string{contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge"}
				if mode != "" {
					all[contract.NodeModeLabel] = mode
				}
				return all
			}
			n.Labels = labels(test.from)
			n.Status.Allocatable = corev1.ResourceList{test.offers: resource.MustParse("8")}
			before := n.DeepCopy()

			relabelled := Relabelled(n, nil, labels(test.to))
			node, err := Node(relabelled, nil)

			require.NoError(t, err)
			assert.Equal(t, before, n, "the node itself is as it was")
			assert.Equal(t, test.gpus, node.GPUs != nil)
			assert.Equal(t, test.gpus, OffersGPUs(relabelled))
			if test.to != "" {
				assert.Equal(t, placement.Mode(test.to), node.Mode)
			}
		})
	}
}

// Tables are big, and a cluster that lives long sees many wirings.
func TestTablesOfNodesThatHaveGone(t *testing.T) {
	var tables Tables
	wiring := func(link, health string) *contract.GPUNode {
		return &contract.GPUNode{Status: contract.GPUNodeStatus{
			GPUs: []contract.GPUInfo{{Index: 0, Health: health}, {Index: 1, Health: contract.Healthy}}, Links: []string{"X " + link, link + " X"},
		}}
	}
	node := func(link, health string) placement.Node {
		n, err := tables.Node(podtest.Node("a", 2), wiring(link, health))
		require.NoError(t, err)
		return n
	}
	sick := node("PIX", contract.Unhealthy)
	for _, link := range []string{"PXB", "PHB", "NODE"} {
		node(link, contract.Healthy)
		runtime.GC()
	}
	last := node("SYS", contract.Healthy)
	assert.Len(t, tables.known, 2, "one has a sick GPU, and its wiring, the other is new")
	assert.Same(t, last.GPUs, node("SYS", contract.Healthy).GPUs)
	healed := node("PIX", contract.Healthy)
	assert.Same(t, healed.GPUs, node("PIX", contract.Healthy).GPUs)
	runtime.KeepAlive(sick)
}

// What a wiring offers is computed once: neither an agent that is silent since then, nor another reason of
// ill health, is another wiring.
func TestHealthIsNoOtherWiring(t *testing.T) {
	var tables Tables
	hardware := func(reason string, heartbeat time.Time) *contract.GPUNode {
		health := contract.Healthy
		if reason != "" {
			health = contract.Unhealthy
		}
		return &contract.GPUNode{Status: contract.GPUNodeStatus{
			GPUs:  []contract.GPUInfo{{Index: 0, Health: health, Reason: reason}, {Index: 1, Health: contract.Healthy}},
			Links: []string{"X PIX", "PIX X"},
			Agent: &contract.AgentInfo{Heartbeat: metav1.NewTime(heartbeat)},
		}}
	}
	for _, test := range []struct {
		hardware *contract.GPUNode
		healthy  gpu.Set
	}{
		{hardware("", time.Now()), gpu.Full(2)},
		{hardware("", time.Now().Add(-24*time.Hour)), 0},
		{hardware("", time.Now().Add(-25*time.Hour)), 0},
		{hardware("XID 79", time.Now()), gpu.SetOf(1)},
		{hardware("XID 48", time.Now()), gpu.SetOf(1)},
	} {
		node, err := tables.Node(podtest.Node("a", 2), test.hardware)
		require.NoError(t, err)
		assert.Equal(t, test.healthy, node.GPUs.Healthy())
		if reason := test.hardware.Status.GPUs[0].Reason; reason != "" {
			assert.Equal(t, reason, node.GPUs.Machine().GPUs[0].Unhealthy)
		}
		assert.Len(t, tables.known, 1)
	}
}
