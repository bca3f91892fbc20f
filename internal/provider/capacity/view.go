package capacity

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// ToView returns the planner's view of several pools.
func ToView(pools ...Capacity) (*placement.View, error) {
	view := placement.NewView()
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

// Planner returns the pool's nodes and one pod per node that holds what is taken on
// it. A node's allocatable amounts are what is free, apart from cards and ports.
// The error says that the capacity is not one of this provider's: its instance type,
// mode or links are unknown.
func (c Capacity) Planner() ([]placement.Node, []placement.Pod, error) {
	pool := Pool{Name: c.Pool, InstanceType: c.InstanceType, Mode: c.Mode, CardPolicy: c.CardPolicy, Taints: c.Taints}
	template, err := pool.template()
	if err != nil {
		return nil, nil, fmt.Errorf("capacity of pool %s: %w", c.Pool, err)
	}
	var nodes []placement.Node
	var occupants []placement.Pod
	for i, n := range c.Nodes {
		node := template
		node.Name, node.Since, node.Unschedulable = n.Name, since(n, c.Pool, i), n.Unschedulable
		node.NVLinkDomain, node.HeadroomMiB = n.NVLinkDomain, n.HeadroomMiB
		node.Labels = maps.Clone(c.Labels)
		node.Labels[corev1.LabelHostname] = n.Name
		node.Allocatable = placement.Resources{
			MilliCPU:    n.FreeMilliCPU,
			MemoryBytes: n.FreeMemoryMiB * mib,
			Pods:        n.FreePods,
			Extended:    n.Extended,
		}
		if len(n.Links) > 0 {
			if node.Cards, err = rewired(template.Cards.Machine(), n.Links); err != nil {
				return nil, nil, fmt.Errorf("capacity of pool %s: node %s: %w", c.Pool, n.Name, err)
			}
		}
		if pod, ok := occupant(node, n); ok {
			node.Allocatable.Pods++ // the occupant is a pod itself
			occupants = append(occupants, pod)
		}
		nodes = append(nodes, node)
	}
	return nodes, occupants, nil
}

// occupant is the pod that stands for everything that holds cards or ports of a node.
func occupant(node placement.Node, n Node) (placement.Pod, bool) {
	pod := placement.Pod{ID: "taken on " + n.Name, Node: n.Name}
	pod.Request.HostPorts = n.HostPorts
	var free gpu.Set
	for _, card := range n.FreeCards {
		free |= gpu.SetOf(int(card))
	}
	total := 0
	if node.Cards != nil {
		total = len(node.Cards.Machine().Cards)
	}
	taken := gpu.Full(total) &^ free
	switch node.Mode {
	case placement.ModeNone:
	case placement.ModeDefault:
		pod.Request.Mode, pod.Request.Cards = node.Mode, taken.Len()
	case placement.ModeTopology:
		pod.Request.Mode, pod.Request.Cards, pod.Own = node.Mode, taken.Len(), taken
	default:
		if len(n.UsedShares) > 0 {
			pod.Request.Mode = node.Mode
		}
		for _, s := range n.UsedShares {
			pod.Shares = append(pod.Shares, placement.CardShare{Card: int(s.Card), MemoryGiB: s.MemoryGiB, CorePercent: s.CorePercent})
			pod.Request.MemoryGiB += s.MemoryGiB
			pod.Request.CorePercent += s.CorePercent
			taken &^= gpu.SetOf(int(s.Card))
		}
		pod.Request.Cards = len(pod.Shares)
		pod.Own = taken // broken cards, which nobody can share
	}
	needed := len(n.HostPorts) > 0 || pod.Request.Cards > 0 || pod.Own != 0
	return pod, needed
}

// rewired returns the table of a machine with another link matrix.
func rewired(m gpu.Machine, rows []string) (*gpu.Table, error) {
	status := contract.StatusOf(m)
	status.Links = rows
	machine, err := status.Machine()
	if err != nil {
		return nil, err
	}
	return gpu.NewTable(machine)
}
