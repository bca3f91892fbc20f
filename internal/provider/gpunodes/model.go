package gpunodes

import (
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
)

type model struct {
	Pool          types.String `tfsdk:"pool"`
	LabelSelector types.String `tfsdk:"label_selector"`
	Nodes         []nodeModel  `tfsdk:"nodes"`
}

type nodeModel struct {
	Name         string       `tfsdk:"name"`
	Pool         types.String `tfsdk:"pool"`
	InstanceType types.String `tfsdk:"instance_type"`
	Zone         types.String `tfsdk:"zone"`
	Mode         string       `tfsdk:"mode"`
	Ready        bool         `tfsdk:"ready"`
	Schedulable  bool         `tfsdk:"schedulable"`
	Taints       []string     `tfsdk:"taints"`
	Problem      types.String `tfsdk:"problem"`
	GPUs         []gpuModel   `tfsdk:"gpus"`
	Topology     topology     `tfsdk:"topology"`
	Allocatable  amounts      `tfsdk:"allocatable"`
	Free         amounts      `tfsdk:"free"`
}

type gpuModel struct {
	Index     int64        `tfsdk:"index"`
	UUID      types.String `tfsdk:"uuid"`
	Model     types.String `tfsdk:"model"`
	MemoryGiB int64        `tfsdk:"memory_gib"`
	Healthy   bool         `tfsdk:"healthy"`
	Reasons   []string     `tfsdk:"reasons"`
}

type topology struct {
	Published      bool         `tfsdk:"published"`
	Wiring         types.String `tfsdk:"wiring"`
	Links          []string     `tfsdk:"links"`
	PCIeLinks      []string     `tfsdk:"pcie_links"`
	NVLinkGBps     float64      `tfsdk:"nvlink_gbps"`
	NVSwitch       bool         `tfsdk:"nvswitch"`
	NVLinkDomain   types.String `tfsdk:"nvlink_domain"`
	PCIeGeneration int64        `tfsdk:"pcie_generation"`
	NICs           []nicModel   `tfsdk:"nics"`
	LockableKiB    types.Int64  `tfsdk:"lockable_kib"`
	DriverVersion  types.String `tfsdk:"driver_version"`
}

type nicModel struct {
	Name     string       `tfsdk:"name"`
	Links    types.String `tfsdk:"links"`
	Port     types.String `tfsdk:"port"`
	GID      types.String `tfsdk:"gid"`
	MTUBytes types.Int64  `tfsdk:"mtu_bytes"`
	Driver   types.String `tfsdk:"driver"`
	// RedirectedBy is empty where nobody knows.
	RedirectedBy []string `tfsdk:"redirected_by"`
}

// amounts are what a node offers, or has capacity.
type amounts struct {
	GPUs        int64            `tfsdk:"gpus"`
	MemoryGiB   int64            `tfsdk:"gpu_memory_gib"`
	CorePercent int64            `tfsdk:"gpu_core_percent"`
	MilliCPU    int64            `tfsdk:"milli_cpu"`
	MemoryMiB   int64            `tfsdk:"memory_mib"`
	Pods        int64            `tfsdk:"pods"`
	Extended    map[string]int64 `tfsdk:"extended"`
}

// describe says what is known of a node without its hardware.
func describe(object *corev1.Node, state *capacity.Node) nodeModel {
	n := nodeModel{
		Name: object.Name, Pool: text(state.Pool), Mode: string(state.Mode),
		InstanceType: text(object.Labels[contract.InstanceTypeLabel]),
		Zone:         text(object.Labels[corev1.LabelTopologyZone]),
		Ready: slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
		Schedulable: !state.Unschedulable,
		Taints:      []string{},
		Allocatable: amountsOf(state.WhenUsed(capacity.Usage{})),
		Free:        amountsOf(state.Free),
	}
	for _, t := range state.Taints {
		n.Taints = append(n.Taints, t.String())
	}
	n.Topology.NVLinkDomain = text(state.NVLinkDomain)
	return n
}

// setHardware fills in the GPUs and their links: of what the node agent has published, nil where it
// has published nothing, what it says beyond the planner's model.
func (n *nodeModel) setHardware(machine gpu.Machine, published *contract.GPUNode, headroomMiB int64) {
	status := contract.StatusOf(machine)
	if published != nil {
		status = published.Status
	}
	t := &n.Topology
	t.Published, t.Wiring, t.DriverVersion, t.LockableKiB = published != nil, text(status.Wiring), text(status.DriverVersion), count(status.LockableKiB)
	t.NVLinkGBps, t.NVSwitch, t.PCIeGeneration = machine.NVLinkGBps, status.NVSwitch, int64(status.PCIeGeneration)
	t.Links, t.PCIeLinks, t.NICs = orEmpty(status.Links), orEmpty(status.PCIeLinks), []nicModel{}
	for _, nic := range status.NICs {
		t.NICs = append(t.NICs, nicModel{
			Name: nic.Name, Links: text(nic.Links), Port: text(nic.Port), GID: text(nic.GID), MTUBytes: count(int64(nic.MTUBytes)), Driver: text(nic.Driver), RedirectedBy: orEmpty(nic.RedirectedBy),
		})
	}
	model := status.Model
	if model == "" {
		model = machine.Model
	}
	n.GPUs = []gpuModel{}
	for i, info := range status.GPUs {
		unhealthy := info.Reason // where nothing of what was published can be used
		healthy := info.Health == contract.Healthy && len(machine.GPUs) > 0
		if i < len(machine.GPUs) {
			unhealthy = machine.GPUs[i].Unhealthy
			healthy = unhealthy == ""
		}
		n.GPUs = append(n.GPUs, gpuModel{
			Index: int64(info.Index), UUID: text(info.UUID), Model: text(model),
			MemoryGiB: max(info.MemoryMiB-headroomMiB, 0) >> 10,
			Healthy:   healthy, Reasons: reasons(info, unhealthy),
		})
	}
}

// reasons are what speaks against a GPU, one by one: its faults, and why it is not used otherwise.
func reasons(info contract.GPUInfo, unhealthy string) []string {
	all := []string{}
	for _, f := range info.Faults {
		all = append(all, f.Message)
	}
	if unhealthy != "" && (len(all) == 0 || unhealthy != info.Reason) {
		all = append(all, unhealthy)
	}
	return all
}

// amountsOf adds up what a node has capacity. Of what is overcommitted nothing is capacity.
func amountsOf(c *capacity.Capacity) amounts {
	r := c.Resources()
	a := amounts{
		GPUs: int64(c.Whole), MilliCPU: max(r.MilliCPU, 0), MemoryMiB: max(r.MemoryBytes, 0) >> 20, Pods: max(r.Pods, 0),
		Extended: map[string]int64{},
	}
	for name, count := range r.Extended {
		a.Extended[name] = max(count, 0)
	}
	for _, room := range c.Shares {
		a.MemoryGiB += room.MemoryGiB
		if c.Mode == placement.ModeCoreMem {
			a.CorePercent += room.CorePercent
		}
	}
	return a
}

// text is null for "".
func text(s string) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(s)
}

// count is a number of which 0 is not known.
func count(n int64) types.Int64 {
	if n == 0 {
		return types.Int64Null()
	}
	return types.Int64Value(n)
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
