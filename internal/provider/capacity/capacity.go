// Package capacity is what a node pool offers to jobs, as a value that travels
// through Terraform's graph: the type of a pool's attribute "capacity" and of a
// job's "pools". It is read from nodes that exist and taken from the catalogue for
// nodes that are planned, and turned back into the planner's nodes.
package capacity

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// Capacity is what one pool offers.
type Capacity struct {
	// Pool is the pool's name.
	Pool         string `tfsdk:"pool"`
	InstanceType string `tfsdk:"instance_type"`
	// Mode and CardPolicy are the values of the node labels ack.node.gpu.schedule and ack.node.gpu.placement.
	Mode       string `tfsdk:"mode"`
	CardPolicy string `tfsdk:"card_policy"`
	// CardModel is the product name of the cards, Wiring the catalogue's name of the link graph.
	CardModel    string `tfsdk:"card_model"`
	Wiring       string `tfsdk:"wiring"`
	CardsPerNode int64  `tfsdk:"cards_per_node"`
	// Cards counts all cards of the pool, FreeCards those that nobody uses and that are healthy.
	Cards     int64 `tfsdk:"cards"`
	FreeCards int64 `tfsdk:"free_cards"`
	// Labels are the node labels that every node of the pool has or will have.
	Labels map[string]string `tfsdk:"labels"`
	Taints []Taint           `tfsdk:"taints"`
	// Nodes are in the planner's order; a planned node is called "pool[ordinal]".
	Nodes []Node `tfsdk:"nodes"`
}

// Taint keeps pods away that do not tolerate it.
type Taint struct {
	Key    string `tfsdk:"key"`
	Value  string `tfsdk:"value"`
	Effect string `tfsdk:"effect"`
}

// Node is what is free on one node.
type Node struct {
	Name string `tfsdk:"name"`
	// FreeCards are the positions of cards that are free as a whole, ascending. In mode
	// "default" only their number means something: the device plugin picks the cards.
	FreeCards []int64 `tfsdk:"free_cards"`
	// UsedShares are the parts of cards that are taken, in the shared modes.
	UsedShares []Share `tfsdk:"used_shares"`
	// Links is the node's own link matrix, one row per card as `nvidia-smi topo -m`
	// prints it; empty when it is the one of the pool's wiring.
	Links []string `tfsdk:"links"`
	// NVLinkDomain names the rack whose NVLink switches join the node with others, "" for none.
	NVLinkDomain  string           `tfsdk:"nvlink_domain"`
	FreeMilliCPU  int64            `tfsdk:"free_milli_cpu"`
	FreeMemoryMiB int64            `tfsdk:"free_memory_mib"`
	FreePods      int64            `tfsdk:"free_pods"`
	Extended      map[string]int64 `tfsdk:"extended"`
	// HeadroomMiB is memory of each card that shared requests do not get.
	HeadroomMiB int64 `tfsdk:"headroom_mib"`
	// HostPorts are taken ports of the node, "TCP/23456".
	HostPorts     []string `tfsdk:"host_ports"`
	Unschedulable bool     `tfsdk:"unschedulable"`
	// Jobs are the jobs on the node, sorted, with what would be free without them.
	Jobs []Freed `tfsdk:"jobs"`
}

// Share is a part of one card.
type Share struct {
	Card int64 `tfsdk:"card"`
	// MemoryGiB is card memory in GiB, CorePercent the share of the card's compute, 0 for a memory-only request.
	MemoryGiB   int64 `tfsdk:"memory_gib"`
	CorePercent int64 `tfsdk:"core_percent"`
}

// Value returns the Terraform value.
func (c Capacity) Value(ctx context.Context) (types.Object, diag.Diagnostics) {
	return types.ObjectValueFrom(ctx, Type.AttrTypes, c.complete())
}

// From reads a known Terraform value. Null and unknown values are for the caller to tell apart first.
func From(ctx context.Context, value types.Object) (Capacity, diag.Diagnostics) {
	var c Capacity
	diags := value.As(ctx, &c, basetypes.ObjectAsOptions{})
	return c, diags
}

// List reads a known list of capacities, the attribute "pools". known is false
// when the list or anything in it is unknown until apply.
func List(ctx context.Context, value types.List) (list []Capacity, known bool, diags diag.Diagnostics) {
	tf, err := value.ToTerraformValue(ctx)
	if err != nil {
		diags.AddError("Capacity cannot be read", fmt.Sprintf("The provider failed to read a list of capacities: %s.", err))
		return nil, false, diags
	}
	if !tf.IsFullyKnown() {
		return nil, false, nil
	}
	if value.ElementsAs(ctx, &list, false).HasError() {
		diags.AddAttributeError(path.Root("pools"), "Invalid capacity", "pools: this is not the capacity of pools; write it as [gpuplan_node_pool.NAME.capacity].")
	}
	return list, true, diags
}

// complete makes empty collections of nil ones, which Terraform would show as null.
func (c Capacity) complete() Capacity {
	c.Labels, c.Taints = orEmptyMap(c.Labels), orEmpty(c.Taints)
	nodes := make([]Node, len(c.Nodes))
	for i, n := range c.Nodes {
		n.FreeCards, n.UsedShares = orEmpty(n.FreeCards), orEmpty(n.UsedShares)
		n.Links, n.HostPorts = orEmpty(n.Links), orEmpty(n.HostPorts)
		n.Extended = orEmptyMap(n.Extended)
		jobs := make([]Freed, len(n.Jobs))
		for j, f := range n.Jobs {
			f.FreeCards, f.UsedShares, f.HostPorts = orEmpty(f.FreeCards), orEmpty(f.UsedShares), orEmpty(f.HostPorts)
			f.Extended = orEmptyMap(f.Extended)
			jobs[j] = f
		}
		n.Jobs = jobs
		nodes[i] = n
	}
	c.Nodes = nodes
	return c
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orEmptyMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}
