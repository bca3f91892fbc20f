package nodepool

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/mode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/setting"
)

// Limits of the service.
const (
	maxVSwitches  = 8
	maxTypes      = 10
	maxNameLength = 63 // the name is the value of a node label
)

func (r *pool) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	attributes := map[string]schema.Attribute{
		"name": schema.StringAttribute{
			MarkdownDescription: "Name of the pool, unique in the cluster: at most 63 characters, those of a Kubernetes label value. A change replaces the pool.",
			Required:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			Validators:          []validator.String{stringvalidator.LengthBetween(1, maxNameLength), labelValue{}},
		},
		"instance_type": schema.StringAttribute{
			MarkdownDescription: "GPU instance type of the nodes, such as `ecs.gn6v-c10g1.20xlarge`. A change replaces the pool.",
			Required:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			Validators:          []validator.String{instanceType{}},
		},
		"fallback_instance_types": schema.ListAttribute{
			MarkdownDescription: "Up to 9 instance types that are tried, in this order, when `instance_type` is not to be had. They have the same GPUs with the same links. " +
				"Of nodes that do not exist yet nobody knows which type they get: they are planned with the least CPU, memory and eRDMA devices that any of the types has, and without the label `node.kubernetes.io/instance-type`. " +
				"A change is for nodes that are created after it. Default: none.",
			Optional: true, ElementType: types.StringType,
			Validators: []validator.List{listvalidator.SizeAtMost(maxTypes - 1), listvalidator.UniqueValues(), listvalidator.ValueStringsAre(instanceType{})},
		},
		"size": schema.Int64Attribute{
			MarkdownDescription: "Number of nodes, 0 to 2,000. When it is lowered, the nodes of `remove_nodes` go; without that the cloud chooses.",
			Required:            true,
			Validators:          []validator.Int64{int64validator.Between(0, catalog.MaxPoolSize)},
		},
		"remove_nodes": schema.SetAttribute{
			MarkdownDescription: "Names of the nodes that go when `size` is lowered: as many of the pool's nodes as it is lowered by. They are drained and their instances released, which needs `scaling_policy` `release`, and jobs on the others stay. Names of nodes that are not the pool's (any more) mean nothing. " +
				"Default: the cloud chooses, so that the plan knows what is left only where all nodes are alike, and refuses while any of them has a job.",
			Optional: true, ElementType: types.StringType,
		},
		"mode": schema.StringAttribute{
			MarkdownDescription: "How the nodes offer their GPUs (node label `ack.node.gpu.schedule`): `default` (whole GPUs, picked by the device plugin), " +
				"`topology` (whole GPUs, picked by the scheduler by the links between them), `share`, `cgpu`, `mps`, `core_mem` (parts of GPUs), `mig` or `disabled`. " +
				"What a mode needs of the region, the cluster and its add-ons is checked at plan, where the service says what the cluster has; an add-on that a `gpuplan_addon` or `gpuplan_scheduler_config` of the same plan installs or upgrades counts where the node pool names that in `depends_on`. " +
				"`topology`, `share`, `cgpu`, `mps` and `core_mem` need the add-on `ack-ai-installer`, or a `gpuplan_node_agent` with `device_plugins`: a plan warns where the add-on is missing. " +
				"Default `default`. A change to or from `core_mem` or `mig` replaces the pool: existing nodes cannot be switched.",
			Optional: true, Computed: true, Default: stringdefault.StaticString(string(placement.ModeDefault)),
			Validators: []validator.String{mode.Exists{}},
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplaceIf(modeReplaces,
				"Nodes cannot be switched to or from this mode.", "Nodes cannot be switched to or from `core_mem` and `mig`.")},
		},
		"mode_change_policy": schema.StringAttribute{
			MarkdownDescription: "What becomes of nodes that someone has labelled with another mode, where no label can switch between the two, to or from `core_mem` and `mig` (`other_mode_nodes`): with `report` the plan names them, and they stay as they are and count for nothing in `capacity`; " +
				"with `replace` the apply drains and releases them, and the pool gets new ones. That takes `allow_disruption` while jobs run there. Of other modes the apply writes the label again. Default `report`.",
			Optional:   true,
			Validators: []validator.String{stringvalidator.OneOf(reportNodes, replaceNodes)},
		},
		"gpu_policy": schema.StringAttribute{
			MarkdownDescription: "How shared GPUs fill up (node label `ack.node.gpu.placement`): `binpack`, which is the service's default, or `spread`. Only for modes with parts of GPUs.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(string(placement.Binpack), string(placement.Spread))},
		},
		"labels": schema.MapAttribute{
			MarkdownDescription: "Labels of the nodes. Changes reach the nodes that exist. Labels of the provider and of the platform are set by other attributes.",
			Optional:            true, ElementType: types.StringType,
			Validators: []validator.Map{nodeLabels{}},
		},
		"taints": schema.SetNestedAttribute{
			MarkdownDescription: "Taints of the nodes, one per key and effect. Changes reach the nodes that exist.",
			Optional:            true,
			Validators:          []validator.Set{distinctTaints{}},
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"key": schema.StringAttribute{
					MarkdownDescription: "Key of the taint.", Required: true,
					Validators: []validator.String{labelKey{}},
				},
				"value": schema.StringAttribute{
					MarkdownDescription: "Value of the taint. Default: empty.", Optional: true, Computed: true, Default: stringdefault.StaticString(""),
					Validators: []validator.String{labelValue{}},
				},
				"effect": schema.StringAttribute{
					MarkdownDescription: "`NoSchedule`, `PreferNoSchedule` or `NoExecute`.", Required: true,
					Validators: []validator.String{stringvalidator.OneOf("NoSchedule", "PreferNoSchedule", "NoExecute")},
				},
			}},
		},
		"vswitch_ids": schema.SetAttribute{
			MarkdownDescription: "vSwitches in which the nodes are created, 1 to 8.",
			Required:            true, ElementType: types.StringType,
			Validators: []validator.Set{setvalidator.SizeBetween(1, maxVSwitches), setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
		},
		"allow_disruption": schema.BoolAttribute{
			MarkdownDescription: "Allows changes that take nodes or GPUs away from running jobs: a smaller size, another mode, replacing or deleting the pool, a change of labels by which jobs select their nodes, or new `NoExecute` taints that they do not tolerate. Default `false`: the plan refuses and names the jobs. To replace or delete the pool it has to be applied before: Terraform reads it from the state then. A pool whose deletion has failed is replaced by every plan, so that consent comes too late there: delete it at the cloud, with force. The check needs the Kubernetes API of the cluster: without a kubeconfig, or with that of another cluster, the provider sees no jobs, and refuses nothing. A repair of nodes that differ asks for no consent.",
			Optional:            true, Computed: true, Default: booldefault.StaticBool(false),
		},
		"kubelet_max_parallelism": schema.Int64Attribute{
			MarkdownDescription: "On how many nodes at a time a change of `kubelet_config` restarts the kubelet. Default: the service's.",
			Optional:            true, Validators: []validator.Int64{int64validator.AtLeast(1)},
		},
		"timeouts": duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{Create: true, Update: true, Delete: true,
			CreateDescription: "Default `60m`.", UpdateDescription: "Default `60m`.", DeleteDescription: "Default `40m`."})),
	}
	maps.Copy(attributes, setting.Attributes())
	addComputedAttributes(attributes)
	resp.Schema = schema.Schema{
		MarkdownDescription: "A pool of GPU nodes of an ACK cluster.\n\n" +
			"What the pool offers (`capacity`) is known at plan, so that jobs of the same plan are checked against nodes that do not exist yet. " +
			"The labels of every node are compared with the pool's at each refresh; a node that differs shows up as drift and is repaired. A node that the cloud has and the cluster lacks is drift as well.",
		Attributes: attributes,
	}
}

func addComputedAttributes(attributes map[string]schema.Attribute) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	attributes["id"] = schema.StringAttribute{
		MarkdownDescription: "`CLUSTER_ID/NODEPOOL_ID`, for import.", Computed: true, PlanModifiers: keep,
	}
	attributes["nodepool_id"] = schema.StringAttribute{
		MarkdownDescription: "The service's ID of the pool.", Computed: true, PlanModifiers: keep,
	}
	attributes["state"] = schema.StringAttribute{
		MarkdownDescription: "The service's state of the pool; `active` when nothing is in progress.", Computed: true,
	}
	attributes["node_names"] = schema.ListAttribute{
		MarkdownDescription: "Names of the nodes, in the order in which equal nodes are filled.", Computed: true, ElementType: types.StringType,
	}
	attributes["drifted_nodes"] = schema.MapAttribute{
		MarkdownDescription: "What is not as it should be, by name of the node (or of the pool, for its own record at the service). Empty after an apply.",
		Computed:            true, ElementType: types.StringType,
	}
	attributes["other_mode_nodes"] = schema.MapAttribute{
		MarkdownDescription: "The modes that nodes are labelled with, by their names, where that is another than the pool's and the node had to be replaced to get that.",
		Computed:            true, ElementType: types.StringType,
	}
	attributes["capacity"] = capacity.Attribute()
}
