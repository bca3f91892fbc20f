package quotatree

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
)

// maxJobs is the largest limit of jobs that run at a time: more than any cluster has, as trees say that want none.
const maxJobs = 1_000_000_000_000

func (r *tree) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The quota tree of the cluster (`ElasticQuotaTree`): what every team is guaranteed (`min`) and what it may use at most (`max`).\n\n" +
			"A cluster has one effective tree, in the namespace `kube-system`. Creating a second one is refused; import the existing one instead. " +
			"The whole tree belongs to this resource: someone else's changes to what is written here show up as drift. A tree that is replaced (`-replace`, `terraform taint`, `replace_triggered_by`) goes on and is changed in place, so that the cluster is never without one.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "Namespace and name of the object, for import.",
				Computed:            true,
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"total": schema.MapAttribute{
				MarkdownDescription: "What all quotas share: a quantity for each resource, for example `{ \"aliyun.com/gpu\" = \"16\", cpu = \"160\", memory = \"600Gi\" }`. " +
					"It is both minimum and maximum of the topmost node, and should not exceed what the cluster has.",
				Required: true, ElementType: types.StringType,
				Validators: []validator.Map{mapvalidator.SizeAtLeast(1)},
			},
			"max_jobs": schema.Int64Attribute{
				MarkdownDescription: "Largest number of jobs that run at a time in the whole tree (`kube-queue/max-jobs` of the topmost node), as `max_jobs` of a node is below it. No limit without it.",
				Optional:            true,
				Validators:          []validator.Int64{int64validator.Between(1, maxJobs)},
			},
			"quotas": schema.MapNestedAttribute{
				MarkdownDescription: "The nodes of the tree by path: `research` is below the topmost node, `research/vision` below `research`, which must be listed too. " +
					"The last part of a path is the node's name and must be unique in the whole tree. Nodes without nodes below them are leaves: jobs are charged to leaves.",
				Required:   true,
				Validators: []validator.Map{mapvalidator.SizeAtLeast(1)},
				NestedObject: schema.NestedAttributeObject{CustomType: nodeType, Attributes: map[string]schema.Attribute{
					"min": schema.MapAttribute{
						MarkdownDescription: "Guaranteed quantity of each resource; 0 for a resource that is not listed. Others may borrow it while it is idle.",
						Optional:            true, ElementType: types.StringType,
					},
					"max": schema.MapAttribute{
						MarkdownDescription: "Largest quantity of each resource; no limit for a resource that is not listed.",
						Optional:            true, ElementType: types.StringType,
					},
					"max_jobs": schema.Int64Attribute{
						MarkdownDescription: "Largest number of jobs that run at a time below this node. The job queue holds jobs with `queue = true` until they are within it, and the scheduler other gangs; a pod on its own, as those of a job without a gang are, is no job to it. No limit without it.",
						Optional:            true,
						Validators:          []validator.Int64{int64validator.Between(1, maxJobs)},
					},
					"namespaces": schema.SetAttribute{
						MarkdownDescription: "Namespaces whose pods are charged to this leaf when they name no leaf themselves. A namespace belongs to one leaf.",
						Optional:            true, ElementType: types.StringType,
					},
					"lend_limit": schema.MapAttribute{
						MarkdownDescription: "Largest part of `min` that others may borrow while it is idle; all of it for a resource that is not listed.",
						Optional:            true, ElementType: types.StringType,
					},
				}},
			},
			"leaves": schema.MapAttribute{
				MarkdownDescription: "Names of the leaves by name, known at plan. A job that names its leaf as `gpuplan_quota_tree.NAME.leaves[\"vision\"]` is created after the tree.",
				Computed:            true, ElementType: types.StringType,
			},
			"allow_disruption": schema.BoolAttribute{
				MarkdownDescription: "Allows a change that takes quota away from running jobs: lowering a maximum, or the total, below what running pods use, with GPUs or without, of jobs or not, or removing a leaf to which running jobs are charged. " +
					"Such jobs keep running, but over their quota. Also allows replacing an imported tree of another name than `elasticquotatree`, which leaves the cluster without one for a moment. Default `false`.",
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			},
			"timeouts": duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{Create: true, Update: true, Delete: true,
				CreateDescription: "How long to wait for the kind `ElasticQuotaTree` to be installed; default `5m`.",
				UpdateDescription: "Default `5m`.", DeleteDescription: "Default `5m`."})),
		},
	}
}
