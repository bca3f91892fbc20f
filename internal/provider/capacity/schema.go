package capacity

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Type is the Terraform type of [Capacity].
var Type = types.ObjectType{AttrTypes: map[string]attr.Type{
	"pool":           types.StringType,
	"instance_type":  types.StringType,
	"mode":           types.StringType,
	"card_policy":    types.StringType,
	"card_model":     types.StringType,
	"wiring":         types.StringType,
	"cards_per_node": types.Int64Type,
	"cards":          types.Int64Type,
	"free_cards":     types.Int64Type,
	"labels":         types.MapType{ElemType: types.StringType},
	"taints":         types.ListType{ElemType: taintType},
	"nodes":          types.ListType{ElemType: nodeType},
}}

var taintType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"key":    types.StringType,
	"value":  types.StringType,
	"effect": types.StringType,
}}

var nodeType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"name":            types.StringType,
	"free_cards":      types.ListType{ElemType: types.Int64Type},
	"used_shares":     types.ListType{ElemType: shareType},
	"links":           types.ListType{ElemType: types.StringType},
	"nvlink_domain":   types.StringType,
	"free_milli_cpu":  types.Int64Type,
	"free_memory_mib": types.Int64Type,
	"free_pods":       types.Int64Type,
	"extended":        types.MapType{ElemType: types.Int64Type},
	"headroom_mib":    types.Int64Type,
	"host_ports":      types.ListType{ElemType: types.StringType},
	"unschedulable":   types.BoolType,
	"jobs":            types.ListType{ElemType: freedType},
}}

var freedType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"job":             types.StringType,
	"free_cards":      types.ListType{ElemType: types.Int64Type},
	"used_shares":     types.ListType{ElemType: shareType},
	"free_milli_cpu":  types.Int64Type,
	"free_memory_mib": types.Int64Type,
	"free_pods":       types.Int64Type,
	"extended":        types.MapType{ElemType: types.Int64Type},
	"host_ports":      types.ListType{ElemType: types.StringType},
}}

var shareType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"card":         types.Int64Type,
	"memory_gib":   types.Int64Type,
	"core_percent": types.Int64Type,
}}

// Attribute is the computed attribute of a resource that offers capacity.
func Attribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "What the pool offers to jobs, known at plan: read from nodes that exist, taken from the catalogue for nodes that are planned. " +
			"Give it to a job: `pools = [gpuplan_node_pool.NAME.capacity]`.",
		Computed: true,
		Attributes: map[string]schema.Attribute{
			"pool":           text("Name of the pool."),
			"instance_type":  text("Instance type of the nodes."),
			"mode":           text("How the nodes offer their cards."),
			"card_policy":    text("How shared cards fill up, `binpack` or `spread`; empty in modes without shared cards."),
			"card_model":     text("Product name of the cards."),
			"wiring":         text("Name of the link graph between the cards of a node, for example `dgx1-v100`."),
			"cards_per_node": number("Cards of one node."),
			"cards":          number("Cards of all nodes."),
			"free_cards":     number("Healthy cards that nobody uses."),
			"labels": schema.MapAttribute{
				MarkdownDescription: "Labels that every node of the pool carries.",
				Computed:            true, ElementType: types.StringType,
			},
			"taints": schema.ListNestedAttribute{
				MarkdownDescription: "Taints of the nodes.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"key":    text("Key of the taint."),
					"value":  text("Value of the taint, empty for none."),
					"effect": text("`NoSchedule`, `PreferNoSchedule` or `NoExecute`."),
				}},
			},
			"nodes": schema.ListNestedAttribute{
				MarkdownDescription: "The nodes in the order in which equal nodes are filled. A planned node is called `NAME[0]`, `NAME[1]`, ….",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: nodeAttributes()},
			},
		},
	}
}

func nodeAttributes() map[string]schema.Attribute {
	attributes := freeAttributes()
	attributes["name"] = text("Name of the node.")
	attributes["headroom_mib"] = number("Memory in MiB of each card that shared requests do not get, because the node's device plugin keeps it for the driver.")
	attributes["links"] = schema.ListAttribute{
		MarkdownDescription: "Rows of the node's link matrix as `nvidia-smi topo -m` prints it, when it is not the one of the pool's wiring.",
		Computed:            true, ElementType: types.StringType,
	}
	attributes["nvlink_domain"] = text("NVLink domain that the node shares with others: the rack whose NVLink switches join their cards. Empty for none, and for planned nodes.")
	attributes["unschedulable"] = schema.BoolAttribute{MarkdownDescription: "The node is cordoned.", Computed: true}
	jobs := freeAttributes()
	jobs["job"] = text("Namespace and name of the job.")
	attributes["jobs"] = schema.ListNestedAttribute{
		MarkdownDescription: "Jobs on the node, with what would be free without them: a job that is replaced is planned on that.",
		Computed:            true,
		NestedObject:        schema.NestedAttributeObject{Attributes: jobs},
	}
	return attributes
}

// freeAttributes say what is free on a node.
func freeAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"free_cards": schema.ListAttribute{
			MarkdownDescription: "Positions of the cards that are free as a whole. In mode `default` only their number counts.",
			Computed:            true, ElementType: types.Int64Type,
		},
		"used_shares": schema.ListNestedAttribute{
			MarkdownDescription: "Parts of cards that are taken, in the shared modes.",
			Computed:            true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"card":         number("Position of the card."),
				"memory_gib":   number("Card memory in GiB."),
				"core_percent": number("Share of the card's compute in percent, 0 for a request of memory alone."),
			}},
		},
		"free_milli_cpu":  number("Free CPU in thousandths of a core."),
		"free_memory_mib": number("Free main memory in MiB."),
		"free_pods":       number("Pods that the node still takes."),
		"extended": schema.MapAttribute{
			MarkdownDescription: "Other free resources by name, such as `aliyun/erdma`.",
			Computed:            true, ElementType: types.Int64Type,
		},
		"host_ports": schema.ListAttribute{
			MarkdownDescription: "Ports of the node that are taken, as in `TCP/23456`.",
			Computed:            true, ElementType: types.StringType,
		},
	}
}

func text(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func number(description string) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
}
