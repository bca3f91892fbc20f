package trainingjob

import (
	"context"
	"math"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int32validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

const description = "A distributed training job: a PyTorchJob or an MPIJob of the Kubeflow training operator, whose members run all together or not at all.\n\n" +
	"The plan checks that the whole gang fits, and names the node and the GPUs of every member; the gpuplan scheduler then places it exactly so. " +
	"Give the job the capacity of the pools it may use, `pools = [gpuplan_node_pool.NAME.capacity]`: the check then works before the pool exists.\n\n" +
	"A job runs to completion. When it has finished, or was cleaned up after it finished, a plan has nothing to do; change `triggers` to run it again. " +
	"A job that vanished before it finished is created again. Most changes replace the job, because a running gang cannot change; " +
	"`suspend`, the clean-up settings, `labels` and `annotations` change in place."

func (r *trainingJob) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	attributes := map[string]schema.Attribute{
		"id": computedText("Namespace and name of the job, `NAMESPACE/NAME`, known at plan."),
		"namespace": schema.StringAttribute{
			MarkdownDescription: "Namespace of the job. Default `default`.",
			Optional:            true, Computed: true, Default: stringdefault.StaticString("default"),
		},
		"name": schema.StringAttribute{
			MarkdownDescription: "Name of the job. Its pods are called `NAME-ROLE-INDEX`, which has room for 63 characters.",
			Required:            true,
		},
		"framework": schema.StringAttribute{
			MarkdownDescription: "`pytorch` makes a PyTorchJob with the roles `master` and `worker`, `mpi` an MPIJob with the roles `launcher` and `worker`, in version `v1` of the training operator, or `v1alpha1` where the cluster serves no other or arena is to know the job (`arena_compatible`).",
			Required:            true,
			Validators:          []validator.String{oneOf(job.Frameworks())},
		},
		"roles": schema.MapNestedAttribute{
			MarkdownDescription: "Roles of the job by name. Roles that ask for GPUs are members of the gang. " +
				"An MPI job need not list its launcher, which asks for none and may run anywhere.",
			Required:     true,
			NestedObject: schema.NestedAttributeObject{CustomType: roleType, Attributes: roleAttributes()},
		},
		"wait_for": schema.StringAttribute{
			MarkdownDescription: "What create waits for: `running` (default), when every replica runs; `succeeded`; or `none`. " +
				"A job that fails, that is deleted meanwhile or of which no pod can be created is an error. A wait that is interrupted or takes longer than `timeouts.create` is a warning: " +
				"an error would make Terraform delete the job with the next apply, which goes on instead. What must not start before the job has come so far is held back by a postcondition of the job, such as `self.status == \"Succeeded\"`.",
			Optional:   true,
			Validators: []validator.String{stringvalidator.OneOf(waitRunning, waitSucceeded, waitNone)},
		},
		"triggers": schema.MapAttribute{
			MarkdownDescription: "Any values; a change of one deletes the job and runs it again.",
			Optional:            true, ElementType: types.StringType,
		},
		"timeouts": duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{
			Create: true, Update: true, Delete: true,
			CreateDescription: "How long to wait for `wait_for`; default `20m`.",
			UpdateDescription: "How long a resumed job may take to run again; default `20m`.",
			DeleteDescription: "How long the pods may take to end; default `10m`.",
		})),
	}
	for _, group := range []map[string]schema.Attribute{containerAttributes(), placementAttributes(), podAttributes(), runAttributes(), resultAttributes()} {
		for name, attribute := range group {
			attributes[name] = attribute
		}
	}
	resp.Schema = schema.Schema{Version: schemaVersion, MarkdownDescription: description, Attributes: attributes}
}

// containerAttributes are those of the job that each role can override.
func containerAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"image": optionalText("Container image of all roles."),
		"command": schema.ListAttribute{
			MarkdownDescription: "Command of all roles; without it the image's own. In an MPI job it is the launcher's: the workers wait for it.",
			Optional:            true, ElementType: types.StringType,
		},
		"args": schema.ListAttribute{
			MarkdownDescription: "Arguments of the command, for the same roles.",
			Optional:            true, ElementType: types.StringType,
		},
		"env": schema.MapAttribute{
			MarkdownDescription: "Environment variables of all roles. Values are stored in the state and in the job: put secrets elsewhere.",
			Optional:            true, ElementType: types.StringType,
		},
		"working_dir": optionalText("Working directory of all roles; without it the image's own."),
	}
}

func roleAttributes() map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{
		"replicas": schema.Int32Attribute{
			MarkdownDescription: "Number of replicas, default 1. There is one master, and one launcher.",
			Optional:            true,
		},
		"minimum": schema.Int32Attribute{
			MarkdownDescription: "How many replicas of the role must run, beside those that the other roles need. Unless `gang.minimum` says more, the gang needs " +
				"as many members as its roles together: of a role without a minimum all. A role that asks for no GPU has none.",
			Optional: true, Validators: []validator.Int32{int32validator.AtLeast(1)},
		},
		"gpus": schema.Int64Attribute{
			MarkdownDescription: "Whole GPUs of each replica. In mode `shared`: the number of GPUs that `memory_gib` is spread over evenly.",
			Optional:            true, Validators: []validator.Int64{int64validator.AtLeast(0)},
		},
		"memory_gib": schema.Int64Attribute{
			MarkdownDescription: "GPU memory of each replica in GiB (mode `shared`).",
			Optional:            true, Validators: []validator.Int64{int64validator.AtLeast(0)},
		},
		"core_percent": schema.Int64Attribute{
			MarkdownDescription: "Compute share of one GPU for each replica in percent, a multiple of 5 (mode `shared`). Without it only memory is limited.",
			Optional:            true, Validators: []validator.Int64{int64validator.AtLeast(0)},
		},
		"cpu":    optionalText("CPU of each replica, such as `\"8\"` or `\"500m\"`: requested and limited alike."),
		"memory": optionalText("Main memory of each replica, such as `\"64Gi\"`: requested and limited alike."),
		"rdma": schema.BoolAttribute{
			MarkdownDescription: "Gives each replica the node's eRDMA device (`aliyun/erdma`).",
			Optional:            true,
		},
	}
	for name, attribute := range containerAttributes() {
		attributes[name] = attribute
	}
	attributes["image"] = optionalText("Container image of the role; without it the job's.")
	attributes["working_dir"] = optionalText("Working directory of the role; without it the job's.")
	attributes["command"] = schema.ListAttribute{
		MarkdownDescription: "Command of the role; without it the job's.", Optional: true, ElementType: types.StringType,
	}
	attributes["args"] = schema.ListAttribute{
		MarkdownDescription: "Arguments of the role; without them the job's.", Optional: true, ElementType: types.StringType,
	}
	attributes["env"] = schema.MapAttribute{
		MarkdownDescription: "Environment variables of the role, beside the job's.", Optional: true, ElementType: types.StringType,
	}
	return attributes
}

// placementAttributes decide where the job may run.
func placementAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"mode": schema.StringAttribute{
			MarkdownDescription: "How the replicas ask for GPUs. `topology` (default): whole GPUs with the best links between them, picked by the scheduler. " +
				"`default`: whole GPUs that the node's device plugin picks. `shared`: parts of GPUs. The nodes must offer their GPUs in this mode.",
			Optional: true, Computed: true, Default: stringdefault.StaticString(string(job.Topology)),
			Validators: []validator.String{oneOf(job.Modes())},
		},
		"gang": schema.SingleNestedAttribute{
			MarkdownDescription: "Whether the members run all together or not at all, which is the default.",
			Optional:            true, CustomType: gangType,
			Attributes: map[string]schema.Attribute{
				"enabled": schema.BoolAttribute{
					MarkdownDescription: "`false` lets every member start when there is room for it; not in mode `topology`. Default `true`.",
					Optional:            true,
				},
				"minimum": schema.Int32Attribute{
					MarkdownDescription: "How many members must run together; default all, or what the roles need that have a `minimum`. Members beyond it start where there is room, and are the first to go when others take places.",
					Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(1)},
				},
			},
		},
		"pools": schema.ListAttribute{
			MarkdownDescription: "Capacity of the node pools whose nodes the members may use, `[gpuplan_node_pool.NAME.capacity]`. " +
				"The members are kept on these pools, and the plan names their nodes and GPUs. It is not stored, so that what others use of the pools is no change of the job; " +
				"`pool_names` is. Without it the job may use the whole cluster; it is then checked against the cluster as it is. Its planned placement is known after apply, like that of a job which has no room until others of this plan have left.",
			Optional: true, WriteOnly: true, ElementType: capacity.Type,
			Validators: []validator.List{listvalidator.SizeAtLeast(1)},
		},
		"after": schema.ListAttribute{
			MarkdownDescription: "Jobs that are placed first, `[gpuplan_training_job.NAME.placed]`: this one is planned around them. " +
				"It takes a reference, because Terraform visits only what is referred to before what refers to it: the ID of a job in quotes is refused. " +
				"Jobs of one `for_each` or `count` cannot be placed after each other; make two resources of them. " +
				"Jobs without such an order are planned each on its own.",
			Optional: true, WriteOnly: true, ElementType: types.StringType,
		},
		"require_immediate": schema.BoolAttribute{
			MarkdownDescription: "Fails the plan, instead of warning, when the job would have to wait: for another job of this configuration, or for quota that is in use. Of a job that nothing runs of when `timeouts.create` is over, it fails the apply, and the next one creates the job again. Default `false`.",
			Optional:            true,
		},
		"allow_preemption": schema.BoolAttribute{
			MarkdownDescription: "Agrees that the scheduler evicts running gangs for this job, by priority or to take back guaranteed quota. " +
				"The plan names them either way: without consent it fails where the job is checked, with consent it warns, and the planned placement is known after apply. " +
				"Consent covers what an apply does: after it the scheduler preempts as PriorityClass and quota say, like for any pod. A job that must never evict anybody has a PriorityClass with `preemptionPolicy: Never`. Default `false`.",
			Optional: true,
		},
		session.PlacementCheck: schema.StringAttribute{
			MarkdownDescription: "What the plan does when the job does not fit, or the cluster would refuse it or its pods: `error`, `warn` or `off`. Default: the provider's. Running gangs that would be evicted for the job are named in any case.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(session.Checks()...)},
		},
		"quota": optionalText("Leaf of the quota tree that is charged; without it the leaf of the namespace."),
		"preemptible": schema.BoolAttribute{
			MarkdownDescription: "`false` keeps the job within the guaranteed quota of its leaf, so that nobody takes it back. Default `true`.",
			Optional:            true,
		},
		"scheduler_name": schema.StringAttribute{
			MarkdownDescription: "Scheduler of the pods. Default `" + contract.SchedulerName + "`. Only that one keeps to the plan: for any other the plan checks the job, but has no planned placement.",
			Optional:            true,
		},
		"priority_class": optionalText("PriorityClass of the pods."),
		"node_selector": schema.MapAttribute{
			MarkdownDescription: "Labels that the nodes must have.",
			Optional:            true, ElementType: types.StringType,
		},
		"tolerations": schema.ListNestedAttribute{
			MarkdownDescription: "Taints that the pods tolerate.",
			Optional:            true,
			NestedObject: schema.NestedAttributeObject{CustomType: tolerationType, Attributes: map[string]schema.Attribute{
				"key": optionalText("Key of the taint; without it every taint, with operator `Exists`."),
				"operator": schema.StringAttribute{
					MarkdownDescription: "`Equal` (default) or `Exists`.", Optional: true,
					Validators: []validator.String{stringvalidator.OneOf("Equal", "Exists")},
				},
				"value": optionalText("Value of the taint, with operator `Equal`."),
				"effect": schema.StringAttribute{
					MarkdownDescription: "`NoSchedule`, `PreferNoSchedule` or `NoExecute`; without it every effect.", Optional: true,
					Validators: []validator.String{stringvalidator.OneOf("NoSchedule", "PreferNoSchedule", "NoExecute")},
				},
			}},
		},
	}
}

// podAttributes are about the pods themselves.
func podAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"host_network": flag("Uses the network of the host. Every port of a pod is then a port of its node: the workers of a PyTorch job declare one port of their own, " +
			"so that a worker can share the master's node, but two workers cannot share one."),
		"host_ipc": flag("Shares the IPC namespace of the host, which NCCL needs between pods of one node."),
		"host_pid": flag("Shares the process namespace of the host."),
		"dns_policy": schema.StringAttribute{
			MarkdownDescription: "DNS policy of the pods. Default `ClusterFirstWithHostNet` with `host_network`, else `ClusterFirst`.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("ClusterFirst", "ClusterFirstWithHostNet", "Default")},
		},
		"service_account": optionalText("Service account of the pods; without it the namespace's default."),
		"image_pull_secrets": schema.ListAttribute{
			MarkdownDescription: "Names of Secrets in the job's namespace with which the images are pulled.",
			Optional:            true, ElementType: types.StringType,
		},
		"shared_memory": optionalText("Size of `/dev/shm` of each replica, such as `\"16Gi\"`: NCCL and data loaders use it between processes. " +
			"What is in it counts as main memory of the replica. Without it the container runtime gives 64 MiB."),
		"volumes": schema.MapNestedAttribute{
			MarkdownDescription: "Volume claims that every replica mounts, by name of the volume. Members on several nodes need a claim that can be mounted by many.",
			Optional:            true,
			NestedObject: schema.NestedAttributeObject{CustomType: volumeType, Attributes: map[string]schema.Attribute{
				"claim":      schema.StringAttribute{MarkdownDescription: "Name of the PersistentVolumeClaim in the job's namespace.", Required: true},
				"mount_path": schema.StringAttribute{MarkdownDescription: "Path in the containers.", Required: true},
				"read_only":  schema.BoolAttribute{MarkdownDescription: "Mounts it for reading only. Default `false`.", Optional: true},
			}},
		},
		"port": schema.Int32Attribute{
			MarkdownDescription: "TCP port on which the master of a PyTorch job listens, default 23456. With `host_network` the workers declare the next one; give jobs that share nodes ports of their own.",
			Optional:            true,
			Validators:          []validator.Int32{int32validator.Between(1, 65534)},
		},
		"arena_compatible": flag("Adds the marks and the ConfigMap by which `arena list`, `get`, `logs`, `top job` and `delete` know the job. Can be switched while the job runs. An MPI job that is created with it is an MPIJob `v1alpha1`, which arena knows, where the cluster serves that version; one that was created before stays what it is."),
		"labels": schema.MapAttribute{
			MarkdownDescription: "Labels of the job and its pods. Pods that run keep theirs when these change.",
			Optional:            true, ElementType: types.StringType,
		},
		"annotations": schema.MapAttribute{
			MarkdownDescription: "Annotations of the job and its pods. Pods that run keep theirs when these change.",
			Optional:            true, ElementType: types.StringType,
		},
	}
}

// runAttributes are about the course of the job.
func runAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"queue": flag("Lets the job wait in the job queue until the quota tree has room for it, `max_jobs` included. " +
			"It is created suspended, and the queue controller, which `gpuplan_scheduler` installs, lets it start, or takes it back when its pods do not run in time. " +
			"`kubectl get queueunits` shows its place. With `wait_for = \"none\"` an apply does not wait for its turn."),
		"suspend": flag("Ends the pods of a running job, or does not create them; `false` lets it run again."),
		"clean_pod_policy": schema.StringAttribute{
			MarkdownDescription: "Which pods go when the job has finished: `None` (default), `Running` or `All`.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("None", "Running", "All")},
		},
		"restart_policy": schema.StringAttribute{
			MarkdownDescription: "When a replica that ended is started again: `Always`, `OnFailure` (default with `pytorch`), `Never` (default with `mpi`), " +
				"or `ExitCode`, which starts it again after exit codes from 128.",
			Optional:   true,
			Validators: []validator.String{stringvalidator.OneOf("Always", "OnFailure", "Never", "ExitCode")},
		},
		"backoff_limit": schema.Int32Attribute{
			MarkdownDescription: "How often replicas are started again before the job has failed.",
			Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(0)},
		},
		"active_deadline_seconds": schema.Int64Attribute{
			MarkdownDescription: "After how many seconds a job that still runs has failed.",
			Optional:            true, Validators: []validator.Int64{int64validator.Between(1, math.MaxInt32)},
		},
		"ttl_seconds_after_finished": schema.Int32Attribute{
			MarkdownDescription: "After how many seconds the operator deletes a finished job. A job with this setting that is gone counts as finished.",
			Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(0)},
		},
	}
}

// resultAttributes are what the provider finds out.
func resultAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"pool_names": schema.ListAttribute{
			MarkdownDescription: "Names of the pools that the members are kept on. Other pools need a new job.",
			Computed:            true, ElementType: types.StringType,
		},
		"placed": computedText("The job with its planned placement, for `after` of jobs that are placed behind this one."),
		"planned_placement": schema.MapAttribute{
			MarkdownDescription: "Where the plan puts every member, " + assignment.Description + ". A node that does not exist yet is called `POOL[0]`, `POOL[1]`, …: the pool's nodes by age; once it exists, a refresh gives its name. " +
				"Without `pools` it is known after apply. Null where nothing is promised: without gang, or with another scheduler.",
			Computed: true, ElementType: types.StringType,
		},
		"planned_node_count": schema.Int64Attribute{
			MarkdownDescription: "Number of nodes in the planned placement.",
			Computed:            true,
		},
		"placement_as_planned": schema.BoolAttribute{
			MarkdownDescription: "Whether all members got the nodes and GPUs of the planned placement; the data source `gpuplan_training_job` says where they run. Null as long as not all are placed, or when nothing was promised.",
			Computed:            true,
		},
		"status": computedText("Where the job stands: `Pending`, `Created`, `Running`, `Restarting`, `Suspended`, `Succeeded`, `Failed`, " +
			"`CleanedUp` when its time to live removed it before Terraform saw how it ended, or `Deleting`."),
	}
}

func computedText(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func optionalText(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Optional: true}
}

func flag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{
		MarkdownDescription: description + " Default `false`.",
		Optional:            true,
	}
}

func oneOf[T ~string](values []T) validator.String {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return stringvalidator.OneOf(texts...)
}
