package capacity

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Type is the Terraform type of [Capacity].
var Type = types.ObjectType{AttrTypes: map[string]attr.Type{
	"pool":                    types.StringType,
	"instance_type":           types.StringType,
	"fallback_instance_types": types.ListType{ElemType: types.StringType},
	"mode":                    types.StringType,
	"gpu_policy":              types.StringType,
	"gpu_model":               types.StringType,
	"wiring":                  types.StringType,
	"gpus_per_node":           types.Int64Type,
	"gpus":                    types.Int64Type,
	"free_gpus":               types.Int64Type,
	"labels":                  types.MapType{ElemType: types.StringType},
	"live_labels":             types.MapType{ElemType: types.StringType},
	"taints":                  types.ListType{ElemType: taintType},
	"nodes":                   types.ListType{ElemType: nodeType},
}}

var taintType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"key":    types.StringType,
	"value":  types.StringType,
	"effect": types.StringType,
}}

var nodeType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"name":           types.StringType,
	"unschedulable":  types.BoolType,
	"taints":         types.ListType{ElemType: types.StringType},
	"labels":         types.MapType{ElemType: types.StringType},
	"sick_gpus":      types.MapType{ElemType: types.StringType},
	"links":          types.ListType{ElemType: types.StringType},
	"nvlink_domain":  types.StringType,
	"gpu_memory_mib": types.Int64Type,
	"headroom_mib":   types.Int64Type,
	"milli_cpu":      types.Int64Type,
	"memory_mib":     types.Int64Type,
	"pods":           types.Int64Type,
	"extended":       types.MapType{ElemType: types.Int64Type},
	"held":           types.ListType{ElemType: heldType},
}}

var heldType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"job":             types.StringType,
	"gpus":            types.StringType,
	"unrecorded_gpus": types.Int64Type,
	"shares":          types.ListType{ElemType: types.StringType},
	"milli_cpu":       types.Int64Type,
	"memory_mib":      types.Int64Type,
	"pods":            types.Int64Type,
	"extended":        types.MapType{ElemType: types.Int64Type},
	"host_ports":      types.ListType{ElemType: types.StringType},
}}

// Attribute is the computed attribute of a resource that offers capacity. The framework
// would put the types of nested attributes together again for each value that it looks at,
// so they are given to it.
func Attribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "What the pool offers to jobs, known at plan: read from nodes that exist, taken from the catalogue for nodes that are planned. " +
			"Give it to a job: `pools = [gpuplan_node_pool.NAME.capacity]`.",
		Computed: true, CustomType: Type,
		Attributes: map[string]schema.Attribute{
			"pool":                    text("Name of the pool."),
			"instance_type":           text("Instance type of the nodes."),
			"fallback_instance_types": texts("Instance types that nodes may have as well; null for none. A fresh node offers the least of all of them."),
			"mode":                    text("How the nodes offer their GPUs."),
			"gpu_policy":              text("How shared GPUs fill up, `binpack` or `spread`; empty in modes without shared GPUs."),
			"gpu_model":               text("Product name of the GPUs."),
			"wiring":                  text("Name of the link graph between the GPUs of a node, for example `dgx1-v100`."),
			"gpus_per_node":           number("GPUs of one node."),
			"gpus":                    number("GPUs of all nodes."),
			"free_gpus":               number("Healthy GPUs that nobody uses."),
			"labels": schema.MapAttribute{
				MarkdownDescription: "Labels that every node of the pool carries.",
				Computed:            true, ElementType: types.StringType,
			},
			"live_labels": labels("What the nodes that exist have beside or instead of these, all of them the same; null for a label that they lack. Nodes that are planned need not get them."),
			"taints": schema.ListNestedAttribute{
				MarkdownDescription: "Taints of the nodes.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{CustomType: taintType, Attributes: map[string]schema.Attribute{
					"key":    text("Key of the taint."),
					"value":  text("Value of the taint, empty for none."),
					"effect": text("`NoSchedule`, `PreferNoSchedule` or `NoExecute`."),
				}},
			},
			"nodes": schema.ListNestedAttribute{
				MarkdownDescription: "The nodes in the order in which equal nodes are filled, each with what differs from the catalogue's node of the pool. A planned node is called `NAME[0]`, `NAME[1]`, …; it offers of CPU, memory, disk and pods what nodes of the pool that exist offer, of what they differ in the least.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{CustomType: nodeType, Attributes: nodeAttributes()},
			},
		},
	}
}

func nodeAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"name":           text("Name of the node."),
		"unschedulable":  schema.BoolAttribute{MarkdownDescription: "The node is cordoned.", Computed: true},
		"taints":         texts("Taints beside the pool's that keep pods away, `KEY=VALUE:EFFECT`."),
		"labels":         labels("Labels of the node beside or instead of the pool's; null for one that it lacks."),
		"sick_gpus":      labels("GPUs that must not be used, by index, with the reason."),
		"links":          texts("Rows of the node's link matrix as `nvidia-smi topo -m` prints it, when it is not the one of the pool's wiring."),
		"nvlink_domain":  text("NVLink domain that the node shares with others: the rack whose NVLink switches join their GPUs."),
		"gpu_memory_mib": number("Memory of each GPU in MiB, as the node's driver reports it, when it is not the catalogue's; of the smallest GPU where they differ."),
		"headroom_mib":   number("Memory in MiB of each GPU that shared requests do not get, because the node's device plugin keeps it for the driver."),
		"milli_cpu":      number("CPU that the node offers, in thousandths of a core, when it is not what the catalogue says."),
		"memory_mib":     number("Main memory that the node offers, in MiB, when it is not what the catalogue says."),
		"pods":           number("Pods that the node takes, when it is not what the catalogue says."),
		"extended": schema.MapAttribute{
			MarkdownDescription: "Other resources by name, such as `aliyun/erdma` and `ephemeral-storage` in bytes, when they are not what the catalogue says.",
			Computed:            true, ElementType: types.Int64Type,
		},
		"held": schema.ListNestedAttribute{
			MarkdownDescription: "What is taken of the node, by job. A job that is replaced is planned without what it holds.",
			Computed:            true,
			NestedObject: schema.NestedAttributeObject{CustomType: heldType, Attributes: map[string]schema.Attribute{
				"job":             text("Namespace and name of the job; null for pods of no job."),
				"gpus":            text("Whole GPUs by index, as in `0-3,6`."),
				"unrecorded_gpus": number("Number of GPUs of which nobody wrote down which they are, as in mode `default`."),
				"shares":          texts("Parts of GPUs, as in `0: 4 GiB, 25 %`."),
				"milli_cpu":       number("CPU in thousandths of a core."),
				"memory_mib":      number("Main memory in MiB."),
				"pods":            number("Number of pods."),
				"extended": schema.MapAttribute{
					MarkdownDescription: "Other resources by name.", Computed: true, ElementType: types.Int64Type,
				},
				"host_ports": texts("Ports of the node, as in `TCP/23456`."),
			}},
		},
	}
}

func texts(description string) schema.ListAttribute {
	return schema.ListAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
}

func labels(description string) schema.MapAttribute {
	return schema.MapAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
}

func text(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func number(description string) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
}
