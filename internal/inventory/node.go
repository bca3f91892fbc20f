package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Node translates a node. hw is what the node agent published; while it is nil, the
// GPUs come from the catalogue by instance type, or else from the counts on the
// node itself, without links. The error says why the hardware cannot be used; the
// node is complete apart from its GPUs then.
func Node(n *corev1.Node, hw *contract.GPUNode) (placement.Node, error) {
	return new(Tables).Node(n, hw)
}

// Tables shares what is computed of a wiring between nodes with equal hardware. It knows one table
// for each hardware, whatever becomes of the health of its GPUs, as long as someone uses it.
type Tables struct {
	known map[string]weak.Pointer[gpu.Table]
}

// Node is [Node] with the table that nodes with equal hardware share.
func (t *Tables) Node(n *corev1.Node, hw *contract.GPUNode) (placement.Node, error) {
	node := placement.Node{
		Name:          n.Name,
		Pool:          poolOf(n),
		Since:         n.CreationTimestamp.Unix(),
		Labels:        n.Labels,
		Unschedulable: n.Spec.Unschedulable,
		Mode:          modeOf(n),
		GPUPolicy:     placement.Binpack,
		NVLinkDomain:  n.Labels[contract.NVLinkDomainLabel],
		Allocatable:   amounts(n.Status.Allocatable, math.MaxInt64),
	}
	if n.Labels[contract.NodeGPUPolicyLabel] == string(placement.Spread) {
		node.GPUPolicy = placement.Spread
	}
	for _, name := range gpuResources {
		delete(node.Allocatable.Extended, name)
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			node.Taints = append(node.Taints, placement.Taint{Key: taint.Key, Value: taint.Value, Effect: string(taint.Effect)})
		}
	}
	machine, ok, err := Machine(n, hw)
	if err != nil {
		return node, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if !ok || !offersGPUs(n, node.Mode) {
		return node, nil
	}
	node.GPUs, err = t.of(machine)
	if err != nil {
		return node, fmt.Errorf("node %s: %w", n.Name, err)
	}
	node.HeadroomMiB = headroom(n, machine)
	return node, nil
}

// headroom is what the node's device plugin keeps of each GPU for the driver, in MiB:
// the least by which the memory of its GPUs comes down to what the node offers.
func headroom(n *corev1.Node, m gpu.Machine) int64 {
	offered := n.Status.Capacity[contract.ResourceGPUMemory]
	if offered.IsZero() {
		return 0
	}
	const step = 1 << 10
	most := int64(0)
	for _, device := range m.GPUs {
		most = max(most, device.MemoryMiB)
	}
	steps := sort.Search(int(most/step)+1, func(steps int) bool {
		sum := int64(0)
		for _, device := range m.GPUs {
			sum += max(device.MemoryMiB-int64(steps)*step, 0) / step
		}
		return sum <= offered.Value()
	})
	return int64(steps) * step
}

// of returns the table of a machine, the same one for equal machines without unhealthy GPUs. What only
// tells two equal machines apart (UUIDs, PCI addresses) is left out.
func (t *Tables) of(m gpu.Machine) (*gpu.Table, error) {
	m.GPUs = append([]gpu.GPU(nil), m.GPUs...)
	unhealthy, healthy := make([]string, len(m.GPUs)), m.Healthy()
	for i := range m.GPUs {
		unhealthy[i] = m.GPUs[i].Unhealthy
		m.GPUs[i].UUID, m.GPUs[i].PCIBusID, m.GPUs[i].Unhealthy = "", "", ""
	}
	table, err := t.wired(m)
	if err != nil || healthy == gpu.Full(len(m.GPUs)) {
		return table, err
	}
	return table.WithHealth(unhealthy), nil
}

// wired returns the table of a machine all of whose GPUs are healthy.
func (t *Tables) wired(m gpu.Machine) (*gpu.Table, error) {
	key, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("describe hardware %q: %w", m.Name, err)
	}
	if table := t.known[string(key)].Value(); table != nil {
		return table, nil
	}
	table, err := gpu.NewTable(m)
	if err != nil {
		return nil, err
	}
	if t.known == nil {
		t.known = map[string]weak.Pointer[gpu.Table]{}
	}
	maps.DeleteFunc(t.known, func(_ string, unused weak.Pointer[gpu.Table]) bool { return unused.Value() == nil })
	t.known[string(key)] = weak.Make(table)
	return table, nil
}

// Machine finds the hardware of a node as [Node] does, with what tells equal machines apart, and
// whether the node offers it at the moment or not. ok is false for a node without GPUs. The error says
// why what the node agent published cannot be used, or that the node counts more GPUs than a machine has.
func Machine(n *corev1.Node, hw *contract.GPUNode) (m gpu.Machine, ok bool, err error) {
	if hw != nil {
		m, err = hw.Status.Machine()
		if err != nil {
			return gpu.Machine{}, false, fmt.Errorf("%s %s: %w", contract.GPUNodeKind, hw.Name, err)
		}
		exclude(&m, n, hw.Status)
		return m, len(m.GPUs) > 0, nil
	}
	if m, ok = catalog.Machine(n.Labels[contract.InstanceTypeLabel]); ok {
		if memory := memoryMiB(n); memory > 0 {
			for i := range m.GPUs {
				m.GPUs[i].MemoryMiB = memory
			}
		}
		return m, true, nil
	}
	m, err = countedMachine(n)
	return m, len(m.GPUs) > 0, err
}

// exclude marks the GPUs that must not be used though none of their own faults says so:
// all of them when the node agent cannot vouch for them, and those that are split into MIG
// devices where the node offers whole GPUs.
func exclude(m *gpu.Machine, n *corev1.Node, status contract.GPUNodeStatus) {
	reason := status.Doubt(time.Now())
	for i := range m.GPUs {
		device := &m.GPUs[i]
		switch {
		case device.Unhealthy != "":
		case reason != "":
			device.Unhealthy = reason
		case status.GPUs[i].MIG && modeOf(n) != modeMIG:
			device.Unhealthy = "the GPU is split into MIG devices, and the node offers whole GPUs"
		}
	}
}

// modeMIG is the mode of nodes that offer MIG devices, which nothing here places.
const modeMIG placement.Mode = "mig"

// countedMachine describes as many GPUs as the node counts, without links between them.
func countedMachine(n *corev1.Node) (gpu.Machine, error) {
	count, err := strconv.Atoi(n.Labels[contract.GPUCountLabel])
	if err != nil {
		for _, name := range []corev1.ResourceName{contract.ResourceDefaultGPU, contract.ResourceTopologyGPU, contract.ResourceGPUCount} {
			quantity := n.Status.Capacity[name]
			count = max(count, int(quantity.Value()))
		}
	}
	if count > gpu.MaxGPUs {
		return gpu.Machine{}, fmt.Errorf("it counts %d GPUs (label %s, or its capacity), and a machine has at most %d", count, contract.GPUCountLabel, gpu.MaxGPUs)
	}
	count = max(count, 0)
	memory := memoryMiB(n)
	m := gpu.Machine{Model: n.Labels[contract.GPUModelLabel]}
	for i := range count {
		m.GPUs = append(m.GPUs, gpu.GPU{Index: i, MemoryMiB: memory, NUMANode: -1})
		row := make([]gpu.Link, count)
		row[i].Class = gpu.Self
		m.Links = append(m.Links, row)
	}
	return m, nil
}

// mostMemoryMiB is more memory than any GPU has, in MiB.
const mostMemoryMiB = 16 << 20

// memoryMiB is what the driver of the node reports of each GPU, 0 where no label says so.
func memoryMiB(n *corev1.Node) int64 {
	memory, err := strconv.ParseInt(strings.TrimSuffix(n.Labels[contract.GPUMemoryLabel], "MiB"), 10, 64)
	if err != nil || memory < 0 || memory > mostMemoryMiB {
		return 0
	}
	return memory
}

// modeOf reads how the node offers its GPUs: the label, or ACK's default without it.
func modeOf(n *corev1.Node) placement.Mode {
	if mode := n.Labels[contract.NodeModeLabel]; mode != "" {
		return placement.Mode(mode)
	}
	return placement.ModeDefault
}

// offersGPUs reports whether the node's device plugin offers GPUs in the node's
// mode: right after a change of the label it still offers those of the mode before.
func offersGPUs(n *corev1.Node, mode placement.Mode) bool {
	name := contract.ResourceGPUMemory
	switch mode {
	case placement.ModeDefault:
		name = contract.ResourceDefaultGPU
	case placement.ModeTopology:
		name = contract.ResourceTopologyGPU
	}
	quantity := n.Status.Allocatable[corev1.ResourceName(name)]
	return quantity.Value() > 0
}

// OffersGPUs reports whether the node's device plugin offers GPUs in the mode that its labels say.
func OffersGPUs(n *corev1.Node) bool { return offersGPUs(n, modeOf(n)) }

// Relabelled returns a node as it will be with other labels, once its device plugin has followed them: in another mode
// it offers the GPUs of hw (see [Machine]), as far as it offers any now. One that loses the label of its mode stays in it
// for its device plugin (Alibaba Cloud: "Enable scheduling features"), so that it offers nothing in the mode that it has without.
func Relabelled(n *corev1.Node, hw *contract.GPUNode, labels map[string]string) *corev1.Node {
	out := n.DeepCopy()
	out.Labels = labels
	if modeOf(out) == modeOf(n) {
		return out
	}
	for _, name := range gpuResources {
		delete(out.Status.Allocatable, corev1.ResourceName(name))
	}
	machine, ok, err := Machine(n, hw)
	mode, known := catalog.LookupMode(labels[contract.NodeModeLabel])
	if err != nil || !ok || !known || !OffersGPUs(n) {
		return out
	}
	for name, count := range mode.Offers(len(machine.GPUs), machine.GPUs[0].MemoryMiB) {
		out.Status.Allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return out
}

// poolOf names the node's pool: our provider's name of it, else ACK's ID of it.
func poolOf(n *corev1.Node) string {
	if pool := n.Labels[contract.NodePoolNameLabel]; pool != "" {
		return pool
	}
	return n.Labels[contract.NodePoolIDLabel]
}
