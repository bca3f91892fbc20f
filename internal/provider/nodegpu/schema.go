package nodegpu

import (
	"context"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/mode"
)

// Syntax of Kubernetes for values of labels, and for names of nodes.
var (
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	nodeName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

func (r *nodeGPU) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	offers := capacity.Attribute()
	offers.MarkdownDescription = "What the nodes offer to jobs, as `capacity` of a `gpuplan_node_pool`, for `pools = [gpuplan_node_gpu.NAME.capacity]` of a job. It is read at refresh: a plan that changes the mode, " +
		"or which nodes there are, knows the pool's name alone, and jobs that are given it are checked once it is applied. " +
		"Null where the nodes are not all of one instance type of the catalogue: leave `pools` out of jobs there, and name this resource in their `depends_on`."
	resp.Schema = schema.Schema{
		MarkdownDescription: "How nodes that exist offer their GPUs, for clusters that are not ACK, and nodes that come from elsewhere (kubeadm, Karpenter, another provider). " +
			"It labels the nodes by server-side apply, and owns these labels alone: a plan refuses to change one that someone else has set, and names the owner. Nodes of ACK's node pools are `gpuplan_node_pool`'s.\n\n" +
			"A job that names this resource in its `depends_on` is planned on the nodes as they will be. The labels of every node are compared at each refresh; one that differs shows up as drift, and is written again. " +
			"A node that leaves the cluster leaves the state; take it out of `nodes`, too.\n\n" +
			"A destroy, or a node that is taken out of `nodes`, takes away those of the labels that nobody else has set as well, and puts nothing in their place. " +
			"ACK's device plugin leaves such a node in the mode that it has: set `mode = \"default\"` and apply that before, where its GPUs are to be whole again.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{MarkdownDescription: "Names of the nodes, `NODE,NODE`, for import.", Computed: true},
			"name": schema.StringAttribute{
				MarkdownDescription: "Name under which jobs and data sources know the nodes as a pool (node label `gpuplan.dev/pool`), unique in the cluster: at most 63 characters, those of a Kubernetes label value.",
				Required:            true,
				Validators:          []validator.String{stringvalidator.LengthBetween(1, 63), stringvalidator.RegexMatches(labelValue, "must have the form of a Kubernetes label value")},
			},
			"nodes": schema.SetAttribute{
				MarkdownDescription: "Names of the nodes. The data source `gpuplan_gpu_nodes` finds nodes by their labels.",
				Required:            true, ElementType: types.StringType,
				Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(
					stringvalidator.LengthBetween(1, 253), stringvalidator.RegexMatches(nodeName, "must be the name of a node"))},
			},
			"mode": schema.StringAttribute{
				MarkdownDescription: "How the nodes offer their GPUs (node label `ack.node.gpu.schedule`): `default` (whole GPUs, picked by the device plugin), " +
					"`topology` (whole GPUs, picked by the scheduler by the links between them), `share`, `cgpu`, `mps`, `core_mem` (parts of GPUs), `mig` or `disabled`. The nodes need a device plugin that follows the label; an apply waits for it. " +
					"No label switches a node to or from `core_mem` and `mig`, in ACK's documents: the plan refuses it. A node that joins with that label can be named here. " +
					"A node that was in mode `cgpu` keeps isolating memory in mode `share` until it is restarted.",
				Required:   true,
				Validators: []validator.String{mode.Exists{}},
			},
			"gpu_policy": schema.StringAttribute{
				MarkdownDescription: "How shared GPUs fill up (node label `ack.node.gpu.placement`): `binpack`, which holds without the label, or `spread`. Only for modes with parts of GPUs.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.OneOf(string(placement.Binpack), string(placement.Spread))},
			},
			"allow_disruption": schema.BoolAttribute{
				MarkdownDescription: "Allows another mode, or none, for nodes whose GPUs are in use, and another name for nodes that pods select by it: pods that use the GPUs of a mode must have finished before its label is changed, in ACK's documents, or schedulers lose count of what they hold. " +
					"Default `false`: the plan refuses and names the jobs. For a destroy it has to be applied before: Terraform reads it from the state then.",
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			},
			"drifted_nodes": schema.MapAttribute{
				MarkdownDescription: "What is not as it should be, by name of the node. Empty after an apply.",
				Computed:            true, ElementType: types.StringType,
			},
			"capacity": offers,
			"timeouts": duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{Create: true, Update: true, Delete: true,
				CreateDescription: "How long to wait until the nodes offer their GPUs in the mode; default `5m`. The apply warns of nodes that do not.",
				UpdateDescription: "Default `5m`.", DeleteDescription: "Default `5m`."})),
		},
	}
}

// ValidateConfig checks what more than one attribute decides.
func (r *nodeGPU) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(mode.CheckPolicy(m.Mode, m.GPUPolicy)...)
	}
}
