package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// ToView returns the planner's view of several pools.
func ToView(pools ...Capacity) (*snapshot.View, error) {
	view := snapshot.NewView()
	for _, c := range pools {
		nodes, occupants, err := c.Planner()
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			view.SetNode(n)
		}
		for _, p := range occupants {
			view.AddPod(p)
		}
	}
	return view, nil
}

// Elsewhere reports whether the pool is not one of the cluster of that ID, "" for not known, which has these nodes: by the ID
// that ACK writes on nodes, which can have the names of another cluster's, or because it has none of those that exist.
func (c Capacity) Elsewhere(clusterID string, nodes []corev1.Node) bool {
	if of := c.LiveLabels[contract.ClusterIDLabel]; of != nil && clusterID != "" {
		return *of != clusterID
	}
	exists := func(n Node) bool { return !strings.HasSuffix(n.Name, "]") }
	here := func(n Node) bool {
		return slices.ContainsFunc(nodes, func(live corev1.Node) bool { return live.Name == n.Name })
	}
	return slices.ContainsFunc(c.Nodes, exists) && !slices.ContainsFunc(c.Nodes, here)
}

// Planner returns the pool's nodes and the pods that stand for what is taken of them.
// The error says that the capacity is not one of this provider's: its instance type,
// mode or links are unknown. The slices are for reading only.
func (c Capacity) Planner() ([]placement.Node, []placement.Pod, error) {
	if c.planned == nil {
		return c.translate()
	}
	p := c.planned
	p.once.Do(func() { p.nodes, p.occupants, p.err = c.translate() })
	return p.nodes, p.occupants, p.err
}

// planned is a capacity in the planner's terms, which is made when it is first asked for.
type planned struct {
	once      sync.Once
	nodes     []placement.Node
	occupants []placement.Pod
	err       error
}

func (c Capacity) translate() ([]placement.Node, []placement.Pod, error) {
	pool := Pool{Name: c.Pool, InstanceType: c.InstanceType, Fallbacks: c.Fallbacks, Mode: c.Mode, GPUPolicy: c.GPUPolicy, Taints: c.Taints}
	template, err := pool.template()
	if err != nil {
		return nil, nil, fmt.Errorf("capacity of pool %s: %w", c.Pool, err)
	}
	nodes := make([]placement.Node, 0, len(c.Nodes))
	var occupants []placement.Pod
	for i, n := range c.Nodes {
		node, err := c.node(n, i, template)
		if err != nil {
			return nil, nil, fmt.Errorf("capacity of pool %s: node %s: %w", c.Pool, n.Name, err)
		}
		positions := map[int]int{}
		if node.GPUs != nil {
			for position, device := range node.GPUs.Machine().GPUs {
				positions[device.Index] = position
			}
		}
		for _, h := range n.Held {
			pods, err := h.occupants(node, positions)
			if err != nil {
				return nil, nil, fmt.Errorf("capacity of pool %s: node %s: %w", c.Pool, n.Name, err)
			}
			node.Allocatable.Pods += int64(len(pods)) - value(h.Pods) // one stands for several
			occupants = append(occupants, pods...)
		}
		nodes = append(nodes, node)
	}
	return nodes, occupants, nil
}

// node is a node of the pool as the planner sees it.
func (c Capacity) node(n Node, place int, template placement.Node) (node placement.Node, err error) {
	node = template
	node.Name, node.Since, node.Unschedulable = n.Name, since(n, c.Pool, place), value(n.Unschedulable)
	node.NVLinkDomain, node.HeadroomMiB = value(n.NVLinkDomain), value(n.HeadroomMiB)
	node.Taints = slices.Clone(template.Taints)
	for _, text := range n.Taints {
		node.Taints = append(node.Taints, taint(text))
	}
	node.Labels = map[string]string{}
	maps.Copy(node.Labels, c.Labels)
	node.Labels[corev1.LabelHostname] = n.Name
	different := []map[string]*string{n.Labels}
	if n.Name != placement.PlannedName(c.Pool, place) {
		different = []map[string]*string{c.LiveLabels, n.Labels}
	}
	for _, labels := range different {
		for key, text := range labels {
			if text == nil {
				delete(node.Labels, key)
			} else {
				node.Labels[key] = *text
			}
			switch key {
			case contract.NodePoolNameLabel:
				node.Pool = value(text)
			case contract.NodeModeLabel:
				node.Mode = placement.Mode(cmp.Or(value(text), string(placement.ModeDefault)))
			case contract.NodeGPUPolicyLabel:
				node.GPUPolicy = placement.GPUPolicy(cmp.Or(value(text), string(placement.Binpack)))
			}
		}
	}
	node.Allocatable = placement.Resources{
		MilliCPU:    given(n.MilliCPU, template.Allocatable.MilliCPU),
		MemoryBytes: given(n.MemoryMiB, template.Allocatable.MemoryBytes/mib) * mib,
		Pods:        given(n.Pods, template.Allocatable.Pods),
		Extended:    template.Allocatable.Extended,
	}
	if n.Extended != nil {
		node.Allocatable.Extended = n.Extended
	}
	if template.GPUs != nil && (len(n.Links) > 0 || len(n.SickGPUs) > 0 || n.GPUMemoryMiB != nil) {
		node.GPUs, err = own(template.GPUs.Machine(), n)
	}
	return node, err
}

// own returns the table of a machine with the sick GPUs, the GPU memory and the links of a node.
func own(m gpu.Machine, n Node) (*gpu.Table, error) {
	if len(n.Links) > 0 {
		status := contract.StatusOf(m)
		status.Links = n.Links
		var err error
		if m, err = status.Machine(); err != nil {
			return nil, err
		}
	}
	m.GPUs = slices.Clone(m.GPUs)
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = given(n.GPUMemoryMiB, m.GPUs[i].MemoryMiB)
		if reason, ok := n.SickGPUs[strconv.Itoa(m.GPUs[i].Index)]; ok {
			m.GPUs[i].Unhealthy = reason
		}
	}
	return gpu.NewTable(m)
}
