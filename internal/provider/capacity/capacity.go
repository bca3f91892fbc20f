// Package capacity is what a node pool offers to jobs, as a value that travels
// through Terraform's graph: the type of a pool's attribute "capacity" and of a
// job's "pools". It is read from nodes that exist and taken from the catalogue for
// nodes that are planned, and turned back into the planner's nodes.
package capacity

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Capacity is what one pool offers.
type Capacity struct {
	// Pool is the pool's name.
	Pool         string `tfsdk:"pool"`
	InstanceType string `tfsdk:"instance_type"`
	// Fallbacks are instance types that nodes may have as well, with the same GPUs.
	Fallbacks []string `tfsdk:"fallback_instance_types"`
	// Mode and GPUPolicy are the values of the node labels ack.node.gpu.schedule and ack.node.gpu.placement.
	Mode      string `tfsdk:"mode"`
	GPUPolicy string `tfsdk:"gpu_policy"`
	// GPUModel is the product name of the GPUs, Wiring the catalogue's name of the link graph.
	GPUModel    string `tfsdk:"gpu_model"`
	Wiring      string `tfsdk:"wiring"`
	GPUsPerNode int64  `tfsdk:"gpus_per_node"`
	// GPUs counts all GPUs of the pool, FreeGPUs those that nobody uses and that are healthy.
	GPUs     int64 `tfsdk:"gpus"`
	FreeGPUs int64 `tfsdk:"free_gpus"`
	// Labels are the node labels that every node of the pool has or will have.
	Labels map[string]string `tfsdk:"labels"`
	// LiveLabels are what the nodes that exist have otherwise, all of them the same: labels
	// that planned nodes need not get, nil for a label that they lack.
	LiveLabels map[string]*string `tfsdk:"live_labels"`
	Taints     []Taint            `tfsdk:"taints"`
	// Nodes are in the planner's order; a planned node is called "pool[ordinal]".
	Nodes []Node `tfsdk:"nodes"`

	// planned is what the planner sees of it, where that is worth remembering.
	planned *planned
}

// Taint keeps pods away that do not tolerate it.
type Taint struct {
	Key    string `tfsdk:"key"`
	Value  string `tfsdk:"value"`
	Effect string `tfsdk:"effect"`
}

// Node is a node of a pool: its name, and in what it differs from a fresh node of the
// pool. What is nil is as it is there.
type Node struct {
	Name          string `tfsdk:"name"`
	Unschedulable *bool  `tfsdk:"unschedulable"`
	// Taints are those beside the pool's that keep pods away, as kubectl writes them.
	Taints []string `tfsdk:"taints"`
	// Labels are those beside or instead of the pool's, nil for one that the node lacks.
	Labels map[string]*string `tfsdk:"labels"`
	// SickGPUs are the reasons why GPUs must not be used, by NVML index.
	SickGPUs map[string]string `tfsdk:"sick_gpus"`
	// Links is the node's own link matrix, one row per GPU as `nvidia-smi topo -m` prints it.
	Links []string `tfsdk:"links"`
	// NVLinkDomain names the rack whose NVLink switches join the node with others.
	NVLinkDomain *string `tfsdk:"nvlink_domain"`
	// GPUMemoryMiB is the memory of each GPU; of the smallest where they differ.
	GPUMemoryMiB *int64 `tfsdk:"gpu_memory_mib"`
	// HeadroomMiB is memory of each GPU that shared requests do not get.
	HeadroomMiB *int64 `tfsdk:"headroom_mib"`
	// What the node offers to pods.
	MilliCPU  *int64           `tfsdk:"milli_cpu"`
	MemoryMiB *int64           `tfsdk:"memory_mib"`
	Pods      *int64           `tfsdk:"pods"`
	Extended  map[string]int64 `tfsdk:"extended"`
	// Held is what is taken of it, by job.
	Held []Held `tfsdk:"held"`
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
// when the list or anything in it is unknown until apply. Where the context carries the
// pools ([Carry]), they are the list.
func List(ctx context.Context, value types.List) (list []Capacity, known bool, diags diag.Diagnostics) {
	if list, known = carriedBy(ctx); known {
		return list, true, nil
	}
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

// NameOnly returns the Terraform value of a capacity of which nothing but the pool is known until apply.
func NameOnly(pool string) types.Object {
	attributes := map[string]attr.Value{}
	for name, t := range Type.AttrTypes {
		unknown, err := t.ValueFromTerraform(context.Background(), tftypes.NewValue(t.TerraformType(context.Background()), tftypes.UnknownValue))
		if err != nil {
			return types.ObjectUnknown(Type.AttrTypes)
		}
		attributes[name] = unknown
	}
	attributes["pool"] = types.StringValue(pool)
	return types.ObjectValueMust(Type.AttrTypes, attributes)
}

// Open returns the Terraform value of the pool's capacity of which nothing is unknown until apply but what its nodes say: which nodes there
// are, how many, and what they have.
func (p Pool) Open(ctx context.Context) (types.Object, diag.Diagnostics) {
	said, diags := p.empty().Value(ctx)
	if diags.HasError() {
		return said, diags
	}
	open, attributes := NameOnly(p.Name).Attributes(), said.Attributes()
	for _, name := range []string{"nodes", "live_labels", "gpus", "free_gpus"} {
		attributes[name] = open[name]
	}
	return types.ObjectValue(Type.AttrTypes, attributes)
}

// Pools returns the names of the pools of a list of capacities, of which all else may be unknown. known
// is false when a name is.
func Pools(value types.List) (names []string, known bool) {
	if value.IsUnknown() {
		return nil, false
	}
	for _, element := range value.Elements() {
		object, ok := element.(types.Object)
		if !ok {
			return nil, false
		}
		name, ok := object.Attributes()["pool"].(types.String)
		if !ok || name.IsNull() || name.IsUnknown() {
			return nil, false
		}
		names = append(names, name.ValueString())
	}
	return names, true
}

// complete makes empty collections of nil ones that Terraform would show as null.
func (c Capacity) complete() Capacity {
	c.Taints, c.Nodes = orEmpty(c.Taints), orEmpty(c.Nodes)
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	return c
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
