package placementdata

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int32validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

func (d *whatIf) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Would this gang fit, where would it run, and if it does not fit: why not, and what would help? " +
			"Asks the planner of the plan and of the scheduler about the capacity of pools, planned or existing, or about the live cluster, with changes to try out. It changes nothing.",
		Attributes: map[string]schema.Attribute{
			"mode": schema.StringAttribute{
				MarkdownDescription: "How the members ask for GPUs: `topology` (default), `default` or `shared`; see `gpuplan_training_job`.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.OneOf(string(job.Topology), string(job.Default), string(job.Shared))},
			},
			"roles": schema.MapNestedAttribute{
				MarkdownDescription: "Roles of the gang, `master` and `worker`, with what each replica asks for. Of a JobSet, whose roles have other names, only the plan of the job itself says whether it fits.",
				Required:            true,
				Validators:          []validator.Map{mapvalidator.SizeAtLeast(1)},
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"replicas": schema.Int32Attribute{
						MarkdownDescription: "Number of replicas, default 1. There is one master.", Optional: true,
					},
					"minimum": schema.Int32Attribute{
						MarkdownDescription: "How many replicas of the role must run; see `gpuplan_training_job`.",
						Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(1)},
					},
					"gpus":         optionalCount("Whole GPUs of each replica; in mode `shared` the number of GPUs that `memory_gib` is spread over."),
					"memory_gib":   optionalCount("GPU memory of each replica in GiB (mode `shared`)."),
					"core_percent": optionalCount("Compute share of one GPU for each replica in percent, a multiple of 5 (mode `shared`).", amount.Cores{}),
					"cpu":          schema.StringAttribute{MarkdownDescription: "CPU of each replica, such as `\"8\"`.", Optional: true},
					"memory":       schema.StringAttribute{MarkdownDescription: "Main memory of each replica, such as `\"64Gi\"`.", Optional: true},
					"rdma":         schema.BoolAttribute{MarkdownDescription: "Whether each replica uses the node's eRDMA device.", Optional: true},
				}},
			},
			"minimum": schema.Int32Attribute{
				MarkdownDescription: "How many members must run together; default all.",
				Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(1)},
			},
			"namespace": schema.StringAttribute{
				MarkdownDescription: "Namespace of the gang, default `default`.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"quota": schema.StringAttribute{
				MarkdownDescription: "Leaf of the quota tree that is charged; without it the leaf of the `namespace`. The tree is the cluster's with what runs now, or, while the cluster has none, the one planned in this configuration.",
				Optional:            true,
			},
			"node_selector": schema.MapAttribute{
				MarkdownDescription: "Labels that the nodes must have.", Optional: true, ElementType: types.StringType,
			},
			"pools": schema.ListAttribute{
				MarkdownDescription: "Capacity of the pools to look at, `[gpuplan_node_pool.NAME.capacity]`. Without it the whole live cluster. " +
					"Terraform reads a data source that names a resource with pending changes at apply only; hand the capacity over through a local value to have the answer in the plan.",
				Optional: true, ElementType: capacity.Type,
			},
			"pool_sizes": schema.MapAttribute{
				MarkdownDescription: "Sizes to try out, by name of the pool. New nodes are empty; when a pool shrinks, its last nodes go.",
				Optional:            true, ElementType: types.Int64Type,
				Validators: []validator.Map{mapvalidator.ValueInt64sAre(int64validator.Between(0, catalog.MaxPoolSize))},
			},
			"without_nodes": schema.SetAttribute{
				MarkdownDescription: "Names of nodes to leave out.", Optional: true, ElementType: types.StringType,
			},
			"fits":          schema.BoolAttribute{MarkdownDescription: "Whether the whole gang fits.", Computed: true},
			"verdict":       text("The verdict in words: how many of how many fit, why the next one does not, and the nearest fix."),
			"members_asked": schema.Int64Attribute{MarkdownDescription: "Number of members that must run together.", Computed: true},
			"members_fit":   schema.Int64Attribute{MarkdownDescription: "How many of them fit.", Computed: true},
			"placement": schema.MapAttribute{
				MarkdownDescription: "Where the members would run, " + assignment.Description + ". When not all fit, the best placement of those that do. " +
					"Nodes that do not exist yet are called `POOL[0]`, `POOL[1]`, ….",
				Computed: true, ElementType: types.StringType,
			},
			"reasons": schema.ListNestedAttribute{
				MarkdownDescription: "What keeps the next member from fitting, the most common first.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"code":  text("Name of the constraint, such as `NotEnoughGPUs`."),
					"nodes": schema.Int64Attribute{MarkdownDescription: "Number of nodes that it rules out.", Computed: true},
					"text":  text("The constraint in words."),
				}},
			},
			"fixes": schema.ListNestedAttribute{
				MarkdownDescription: "Changes after each of which the whole gang fits, the nearest first.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"kind":   text("What to change, such as `pool size`."),
					"target": text("Name of the pool, role or quota to change."),
					"from":   text("The value now."),
					"to":     text("The value that helps."),
					"text":   text("The change in words."),
				}},
			},
		},
	}
}

func text(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func optionalCount(description string, validators ...validator.Int64) schema.Int64Attribute {
	return schema.Int64Attribute{
		MarkdownDescription: description, Optional: true, Validators: validators,
	}
}
