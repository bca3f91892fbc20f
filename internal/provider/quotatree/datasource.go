package quotatree

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// NewData returns the data source: the tree of the cluster, whoever manages it.
func NewData() datasource.DataSource {
	return &treeData{session.DataSource{Type: "gpuplan_quota_tree"}}
}

type treeData struct{ session.DataSource }

type dataModel struct {
	ID      types.String `tfsdk:"id"`
	Total   types.Map    `tfsdk:"total"`
	MaxJobs types.Int64  `tfsdk:"max_jobs"`
	Quotas  types.Map    `tfsdk:"quotas"`
	Leaves  types.Map    `tfsdk:"leaves"`
}

func (d *treeData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	amounts := func(description string) schema.MapAttribute {
		return schema.MapAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
	}
	count := func(description string) schema.Int64Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The quota tree of the cluster that another Terraform state owns, or that nobody manages with Terraform. " +
			"A job names its leaf as `data.gpuplan_quota_tree.NAME.leaves[\"vision\"]`, which fails at plan for a leaf that the tree does not have. " +
			"Any plan that reaches the cluster checks jobs by this tree, with or without the data source. What is used of it is in `gpuplan_queues`.",
		Attributes: map[string]schema.Attribute{
			"id":       schema.StringAttribute{MarkdownDescription: "Namespace and name of the object.", Computed: true},
			"total":    amounts("What all quotas share: a quantity for each resource."),
			"max_jobs": count("Largest number of jobs that run at a time in the whole tree; null for no limit."),
			"quotas": schema.MapNestedAttribute{
				MarkdownDescription: "The nodes of the tree by path, as in the resource `gpuplan_quota_tree`.", Computed: true,
				NestedObject: schema.NestedAttributeObject{CustomType: nodeType, Attributes: map[string]schema.Attribute{
					"min":        amounts("Guaranteed quantity of each resource; null for none."),
					"max":        amounts("Largest quantity of each resource; null for no limit."),
					"max_jobs":   count("Largest number of jobs that run at a time below the node; null for no limit."),
					"namespaces": schema.SetAttribute{MarkdownDescription: "Namespaces whose pods are charged to the leaf when they name no leaf themselves; null for none.", Computed: true, ElementType: types.StringType},
					"lend_limit": amounts("Largest part of `min` that others may borrow while it is idle; null for all of it."),
				}},
			},
			"leaves": amounts("Names of the leaves by name."),
		},
	}
}

// Read looks at the tree that is in force.
func (d *treeData) Read(ctx context.Context, _ datasource.ReadRequest, resp *datasource.ReadResponse) {
	snapshot, err := d.Session.Snapshot(ctx)
	if err != nil {
		resp.Diagnostics.AddError("Quota tree cannot be read", session.Unread(err))
		return
	}
	if snapshot.QuotaTree == nil {
		resp.Diagnostics.AddError("Cluster has no quota tree", "There is no "+kind.Kind+". A gpuplan_quota_tree creates one; where that is in this configuration, refer to it instead of reading it.")
		return
	}
	var m model
	if resp.Diagnostics.Append(m.imported(ctx, snapshot.QuotaTree)...); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, dataModel{ID: m.ID, Total: m.Total, MaxJobs: m.MaxJobs, Quotas: m.Quotas, Leaves: m.Leaves})...)
}
