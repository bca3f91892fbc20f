package trainingjob

import (
	"math"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/int32validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// jobAttribute is an attribute of the resource.
type jobAttribute = attribute[model, job.Spec]

// jobAttributes are all attributes of the resource but those that its roles have as well
// ([containerAttributes]), and timeouts.
var jobAttributes = slices.Concat(identityAttributes, placementAttributes, podAttributes, runAttributes, resultAttributes)

// identityAttributes say what the job is.
var identityAttributes = []jobAttribute{
	{
		name:   "id",
		schema: computedText("Namespace and name of the job, `NAMESPACE/NAME`, known at plan."),
	},
	{
		name: "namespace",
		schema: schema.StringAttribute{
			MarkdownDescription: "Namespace of the job. Default `default`.",
			Optional:            true, Computed: true, Default: stringdefault.StaticString("default"),
		},
		property: text(func(m *model) *types.String { return &m.Namespace }, func(s *job.Spec) *string { return &s.Namespace }),
		places:   true,
	},
	{
		name: "name",
		schema: schema.StringAttribute{
			MarkdownDescription: "Name of the job. Its pods are called `NAME-ROLE-INDEX`, which has room for 63 characters, or with `batch` `NAME-INDEX-` and five characters of chance, on the host `NAME-INDEX`, which has as much; with `jobset` `NAME-ROLE-0-INDEX-` and five characters of chance, which count, and so with `trainjob`.",
			Required:            true,
		},
		property: text(func(m *model) *types.String { return &m.Name }, func(s *job.Spec) *string { return &s.Name }),
		places:   true,
	},
	{
		name: "framework",
		schema: schema.StringAttribute{
			MarkdownDescription: "`pytorch` makes a PyTorchJob with the roles `master` and `worker`, `mpi` an MPIJob with the roles `launcher` and `worker`, in version `v1` of the training operator (tests run with 1.9), `v2beta1` of the MPI operator (0.5 or later; tests run with 0.7) where the cluster serves that and not `v1`, or `v1alpha1` where it serves no other or arena is to know the job (`arena_compatible`); " +
				"`batch` makes an indexed Job of Kubernetes with the role `worker`, which needs no operator: each replica finds its number in `JOB_COMPLETION_INDEX`; " +
				"`jobset` makes a JobSet (`jobset.x-k8s.io/v1alpha2`, JobSet 0.6 or later; tests run with 0.10) with roles of any name, each an indexed Job whose replicas find their number in the same way, and each other as `NAME-ROLE-0-INDEX.NAME`; " +
				"`trainjob` makes a TrainJob (`trainer.kubeflow.org/v1alpha1`, Kubeflow Trainer 2.1 or later; tests run with 2.1), which becomes a JobSet: all that is said of `jobset` holds for it. What it runs is in a TrainingRuntime of its name, which goes with it; what someone changes of that while the job runs, the next apply writes as it was.",
			Required:   true,
			Validators: []validator.String{oneOf(job.Frameworks())},
		},
		property: text(func(m *model) *types.String { return &m.Framework }, func(s *job.Spec) *job.Framework { return &s.Framework }),
		shapes:   true, places: true,
	},
	{
		name: "roles",
		schema: schema.MapNestedAttribute{
			MarkdownDescription: "Roles of the job by name. Roles that ask for GPUs are members of the gang. " +
				"An MPI job need not list its launcher, which asks for none and may run anywhere. " +
				"Terraform leaves out attributes of a role that do not exist, misspelt ones too, without a word: the plan shows what is left.",
			Required:     true,
			NestedObject: schema.NestedAttributeObject{CustomType: roleType, Attributes: roleSchemas},
		},
		property: rolesProperty,
		shapes:   true,
	},
}

// placementAttributes decide where the job may run.
var placementAttributes = []jobAttribute{
	{
		name: "mode",
		schema: schema.StringAttribute{
			MarkdownDescription: "How the replicas ask for GPUs. `topology` (default): whole GPUs with the best links between them, picked by the scheduler. " +
				"`default`: whole GPUs that the node's device plugin picks. `shared`: parts of GPUs. The nodes must offer their GPUs in this mode.",
			Optional: true, Computed: true, Default: stringdefault.StaticString(string(job.Topology)),
			Validators: []validator.String{oneOf(job.Modes())},
		},
		property: text(func(m *model) *types.String { return &m.Mode }, func(s *job.Spec) *job.Mode { return &s.Mode }),
		shapes:   true, places: true,
	},
	{
		name: "gang",
		schema: schema.SingleNestedAttribute{
			MarkdownDescription: "Whether the members run all together or not at all, which is the default.",
			Optional:            true, CustomType: gangType, Attributes: gangAttributes,
		},
		property: gangProperty,
		places:   true,
	},
	{
		name: "pools",
		schema: schema.ListAttribute{
			MarkdownDescription: "Capacity of the node pools whose nodes the members may use, `[gpuplan_node_pool.NAME.capacity]`. " +
				"The members are kept on these pools, and the plan names their nodes and GPUs. It is not stored, so that what others use of the pools is no change of the job; " +
				"`pool_names` is. Without it the job may use the whole cluster; it is then checked against the cluster as it is, without what the plan adds to node pools or opens to the job there, but for the pools of jobs in its `after`. Taken away from a job that exists, it changes nothing until the job is replaced. Its planned placement is known after apply, like that of a job which has no room until others of this plan have left.",
			Optional: true, WriteOnly: true, ElementType: capacity.Type,
			Validators: []validator.List{listvalidator.SizeAtLeast(1)},
		},
		property: list(func(m *model) *types.List { return &m.PoolNames }, func(s *job.Spec) *[]string { return &s.Pools }),
		places:   true,
	},
	{
		name:   "fleet",
		schema: fleetSchema,
	},
	{
		name: "after",
		schema: schema.ListAttribute{
			MarkdownDescription: "Jobs that are placed first, `[gpuplan_training_job.NAME.placed]`: this one is planned around them. " +
				"It takes a reference, because Terraform visits only what is referred to before what refers to it: the ID of a job in quotes is refused. " +
				"Jobs of one `for_each` or `count` cannot be placed after each other; make two resources of them. " +
				"Jobs without such an order are planned each on its own.",
			Optional: true, WriteOnly: true, ElementType: types.StringType,
		},
	},
	{
		name: "require_immediate",
		schema: schema.BoolAttribute{
			MarkdownDescription: "Fails the plan, instead of warning, when the job would have to wait: for another job of this configuration, but for one that the same plan takes away, or for quota that is in use, also of members beyond the minimum. Of a job that nothing runs of when `timeouts.create` is over, it fails the apply, and the next one creates the job again; with `wait_for = \"none\"` nothing is waited for. Default `false`.",
			Optional:            true,
		},
	},
	{
		name: "allow_preemption",
		schema: schema.BoolAttribute{
			MarkdownDescription: "Agrees that the scheduler evicts running gangs for this job, by priority or to take back guaranteed quota. " +
				"The plan names them either way: without consent it fails where the job is checked, with consent it warns, and the planned placement is known after apply. " +
				"Consent covers what an apply does: after it the scheduler preempts as PriorityClass and quota say, like for any pod. A job that must never evict anybody has a PriorityClass with `preemptionPolicy: Never`. Default `false`.",
			Optional: true,
		},
	},
	{
		name: session.PlacementCheck,
		schema: schema.StringAttribute{
			MarkdownDescription: "What the plan does when the job does not fit, or the cluster would refuse it or its pods: `error`, `warn` or `off`. Default: the provider's. Running gangs that would be evicted for the job are named in any case.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(session.Checks()...)},
		},
	},
	{
		name:     "quota",
		schema:   optionalText("Leaf of the quota tree that is charged; without it the leaf of the namespace."),
		property: text(func(m *model) *types.String { return &m.Quota }, func(s *job.Spec) *string { return &s.Quota }),
		places:   true,
	},
	{
		name: "preemptible",
		schema: schema.BoolAttribute{
			MarkdownDescription: "`false` keeps the job within the guaranteed quota of its leaf, so that nobody takes it back. Default `true`.",
			Optional:            true,
		},
		property: says(refusals, func(m *model) *types.Bool { return &m.Preemptible }, func(s *job.Spec) *bool { return &s.NonPreemptible }),
		places:   true,
	},
	{
		name: "scheduler_name",
		schema: schema.StringAttribute{
			MarkdownDescription: "Scheduler of the pods. Default `" + contract.SchedulerName + "`. Only that one keeps to the plan: for any other the plan checks the job, but has no planned placement. ACK's own scheduler places members by their links (mode `topology`) only when all ask for the same, and the plan refuses others.",
			Optional:            true,
		},
		property: text(func(m *model) *types.String { return &m.SchedulerName }, func(s *job.Spec) *string { return &s.SchedulerName }),
		places:   true,
	},
	{
		name:     "priority_class",
		schema:   optionalText("PriorityClass of the pods."),
		property: text(func(m *model) *types.String { return &m.PriorityClass }, func(s *job.Spec) *string { return &s.PriorityClass }),
		places:   true,
	},
	{
		name: "node_selector",
		schema: schema.MapAttribute{
			MarkdownDescription: "Labels that the nodes must have.",
			Optional:            true, ElementType: types.StringType,
		},
		property: dictionary(func(m *model) *types.Map { return &m.NodeSelector }, func(s *job.Spec) *map[string]string { return &s.NodeSelector }),
		places:   true,
	},
	{
		name: "tolerations",
		schema: schema.ListNestedAttribute{
			MarkdownDescription: "Taints that the pods tolerate.",
			Optional:            true,
			NestedObject:        schema.NestedAttributeObject{CustomType: tolerationType, Attributes: schemas(tolerationAttributes)},
		},
		property: tolerationsProperty,
		places:   true,
	},
}

// sharedByDefault is the default of the host's namespaces.
const sharedByDefault = "Default: `true` for a new MPI job in mode `topology` with several workers, as `arena submit mpi --gputopology` has it, because NCCL uses NVLink between pods of one node only where they share the " +
	"IPC, PID and network namespaces of the host; `false` for any other job, and the plan warns of NVLink rings between pods that do not. Of an MPIJob `v2beta1` the plan refuses `host_network` for workers without a command: they run sshd on port 22, which is the node's own. Set the three to `false` there, or give the workers a command that runs sshd on another port. A job that exists keeps what it has. " +
	"Namespaces that enforce the Pod Security Standards refuse pods with it."

// podAttributes are about the pods themselves.
var podAttributes = []jobAttribute{
	{
		name: "host_network",
		schema: kept("Uses the network of the host. Every port of a pod is then a port of its node: the workers of a PyTorch job declare one port of their own, " +
			"so that a worker can share the master's node, but two workers cannot share one. " + sharedByDefault),
		property: yes(func(m *model) *types.Bool { return &m.HostNetwork }, func(s *job.Spec) *bool { return &s.HostNetwork }),
		initial:  func(s *job.Spec) { s.HostNetwork = s.JoinsPods() },
		places:   true,
	},
	{
		name:     "host_ipc",
		schema:   kept("Shares the IPC namespace of the host. " + sharedByDefault),
		property: yes(func(m *model) *types.Bool { return &m.HostIPC }, func(s *job.Spec) *bool { return &s.HostIPC }),
		initial:  func(s *job.Spec) { s.HostIPC = s.JoinsPods() },
	},
	{
		name:     "host_pid",
		schema:   kept("Shares the process namespace of the host. " + sharedByDefault),
		property: yes(func(m *model) *types.Bool { return &m.HostPID }, func(s *job.Spec) *bool { return &s.HostPID }),
		initial:  func(s *job.Spec) { s.HostPID = s.JoinsPods() },
	},
	{
		name: "dns_policy",
		schema: schema.StringAttribute{
			MarkdownDescription: "DNS policy of the pods. Default `ClusterFirstWithHostNet` with `host_network`, else `ClusterFirst`.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("ClusterFirst", "ClusterFirstWithHostNet", "Default")},
		},
		property: text(func(m *model) *types.String { return &m.DNSPolicy }, func(s *job.Spec) *corev1.DNSPolicy { return &s.DNSPolicy }),
	},
	{
		name:     "service_account",
		schema:   optionalText("Service account of the pods; without it the namespace's default."),
		property: text(func(m *model) *types.String { return &m.ServiceAccount }, func(s *job.Spec) *string { return &s.ServiceAccount }),
	},
	{
		name: "image_pull_secrets",
		schema: schema.ListAttribute{
			MarkdownDescription: "Names of Secrets in the job's namespace with which the images are pulled.",
			Optional:            true, ElementType: types.StringType,
		},
		property: list(func(m *model) *types.List { return &m.ImagePullSecrets }, func(s *job.Spec) *[]string { return &s.ImagePullSecrets }),
	},
	{
		name: "image_pull_policy",
		schema: schema.StringAttribute{
			MarkdownDescription: "When the nodes pull the images: `Always`, `IfNotPresent` or `Never`. Default: `Always` for an image with the tag `latest` or without one, else `IfNotPresent`.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))},
		},
		property: text(func(m *model) *types.String { return &m.ImagePullPolicy }, func(s *job.Spec) *corev1.PullPolicy { return &s.ImagePullPolicy }),
	},
	{
		name: "shared_memory",
		schema: optionalText("Size of `/dev/shm` of each replica, such as `\"16Gi\"`: NCCL and data loaders use it between processes. " +
			"What is in it counts as main memory of the replica. Without it the container runtime gives 64 MiB, and with `host_ipc` the pod has that of the host: " +
			"one of its own hides it, and NCCL uses no NVLink between pods then."),
		property: quantity(func(m *model) *types.String { return &m.SharedMemory }, func(s *job.Spec) *resource.Quantity { return &s.SharedMemory }),
	},
	{
		name: "volumes",
		schema: schema.MapNestedAttribute{
			MarkdownDescription: "Volume claims that every replica mounts, by name of the volume. Members on several nodes need a claim that can be mounted by many.",
			Optional:            true,
			NestedObject:        schema.NestedAttributeObject{CustomType: volumeType, Attributes: schemas(volumeAttributes)},
		},
		property: volumesProperty,
	},
	codeSyncAttribute,
	tensorBoardAttribute,
	{
		name: "port",
		schema: schema.Int32Attribute{
			MarkdownDescription: "TCP port on which the master of a PyTorch job listens, from 1 to 65534, default 23456. With `host_network` the workers of a job with a master declare the next one; give jobs that share nodes ports of their own.",
			Optional:            true,
			Validators:          []validator.Int32{int32validator.Between(1, 65534)},
		},
		property: smallCount(func(m *model) *types.Int32 { return &m.Port }, func(s *job.Spec) *int32 { return &s.Port }),
		places:   true,
	},
	{
		name: "rdma_defaults",
		schema: kept("Sets NCCL up for eRDMA as ACK's documents do, in a job of which a role has `rdma`: such roles may lock memory (capability `IPC_LOCK`), and all roles get the variables " +
			"`NCCL_SOCKET_IFNAME=eth0`, `NCCL_NET_GDR_LEVEL=1`, `NCCL_P2P_LEVEL=5`, `NCCL_ALGO=Ring`, `NCCL_DEBUG=INFO`, `NCCL_IB_HCA=erdma`, `NCCL_IB_TIMEOUT=23` and `NCCL_IB_RETRY_CNT=10`, each unless `env` has it. " +
			"Default `true` for a new job; one that exists keeps what it has. Namespaces that enforce the Pod Security Standards refuse pods with the capability."),
		property: yes(func(m *model) *types.Bool { return &m.RDMADefaults }, func(s *job.Spec) *bool { return &s.RDMADefaults }),
		initial:  func(s *job.Spec) { s.RDMADefaults = s.AsksForRDMA() },
	},
	{
		name: "nproc_per_node",
		schema: optionalText("How many processes `torchrun` starts in each replica of a PyTorch job: a number, mostly that of its GPUs, or `auto` (default), `gpu` or `cpu` for as many as the replica has of them. " +
			"The operator gives it to the replicas as `PET_NPROC_PER_NODE`, whatever `env` says, and sets `WORLD_SIZE` to all processes of the job; with a word in place of a number it counts one for each replica. A command that does not call `torchrun` reads these itself."),
		property: text(func(m *model) *types.String { return &m.ProcessesPerNode }, func(s *job.Spec) *string { return &s.ProcessesPerNode }),
	},
	{
		name: "mpi_implementation",
		schema: schema.StringAttribute{
			MarkdownDescription: "By which implementation of MPI the launcher of an MPI job is told where the workers are: `OpenMPI` (default), `Intel` or `MPICH`. Only an MPIJob `v2beta1` knows others than the default.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(job.Implementations()...)},
		},
		property: text(func(m *model) *types.String { return &m.MPIImplementation }, func(s *job.Spec) *string { return &s.MPIImplementation }),
	},
	{
		name:     "ssh_auth_mount_path",
		schema:   optionalText("Where the pods of an MPIJob `v2beta1` have the keys by which its launcher reaches the workers: the folder `.ssh` of the user that the image runs as, by default `/root/.ssh`. Jobs in other versions have no such keys."),
		property: text(func(m *model) *types.String { return &m.SSHAuthMountPath }, func(s *job.Spec) *string { return &s.SSHAuthMountPath }),
	},
	{
		name:     "arena_compatible",
		schema:   flag("Adds the marks and the ConfigMap by which `arena list`, `get`, `logs`, `top job` and `delete` know the job, which is of framework `mpi` or `pytorch` then. Can be switched while the job runs. An MPI job that is created with it is an MPIJob `v1alpha1`, which arena knows, where the cluster serves that version; one that was created before stays what it is."),
		property: yes(func(m *model) *types.Bool { return &m.ArenaCompatible }, func(s *job.Spec) *bool { return &s.Arena }),
		change:   inPlace,
	},
	{
		name: "labels",
		schema: schema.MapAttribute{
			MarkdownDescription: "Labels of the job and its pods. Pods that run keep theirs when these change, and with `batch`, `jobset` and `trainjob` those that follow them, too.",
			Optional:            true, ElementType: types.StringType,
		},
		property: dictionary(func(m *model) *types.Map { return &m.Labels }, func(s *job.Spec) *map[string]string { return &s.Labels }),
		change:   inPlace,
	},
	{
		name: "annotations",
		schema: schema.MapAttribute{
			MarkdownDescription: "Annotations of the job and its pods. Pods that run keep theirs when these change, and with `batch`, `jobset` and `trainjob` those that follow them, too.",
			Optional:            true, ElementType: types.StringType,
		},
		property: dictionary(func(m *model) *types.Map { return &m.Annotations }, func(s *job.Spec) *map[string]string { return &s.Annotations }),
		change:   inPlace,
	},
}

// runAttributes are about the course of the job.
var runAttributes = []jobAttribute{
	{
		name: "wait_for",
		schema: schema.StringAttribute{
			MarkdownDescription: "What create waits for: `running` (default), when every replica runs, or of a gang with a `minimum` the members that the plan has placed, and at least the minimum; `succeeded`; or `none`. " +
				"A job that fails, that is deleted meanwhile or of which within a minute no pod can be created is an error (not where a ResourceQuota refuses them that has room for them once others have gone); that of a job that fails has the last lines of the log of the pod that failed first, where the kubeconfig's user may `get` `pods/log`. " +
				"They are shown, and no state has them: what a program writes into its log, whoever sees the output of the apply can read. A wait that is interrupted or takes longer than `timeouts.create` is a warning: " +
				"an error would make Terraform delete the job with the next apply, which goes on instead. What must not start before the job has come so far is held back by a postcondition of the job, such as `self.status == \"Succeeded\"`. A plan places what comes after a job beside it, also with `succeeded`: the wait may be over before the job is.",
			Optional:   true,
			Validators: []validator.String{stringvalidator.OneOf(waitRunning, waitSucceeded, waitNone)},
		},
	},
	{
		name: "triggers",
		schema: schema.MapAttribute{
			MarkdownDescription: "Any values but secrets, since the job has them in an annotation; a change of one deletes the job and runs it again, the first ones included. An imported job that another tool has created ran for none. A plan with `-replace` or `replace_triggered_by` fails where this one warns, because Terraform prints no warnings there.",
			Optional:            true, ElementType: types.StringType,
		},
		property: property[model, job.Spec]{value: func(m *model) attr.Value { return m.Triggers }},
		reruns:   func(before, wanted *model) bool { return !sameTriggers(before.Triggers, wanted.Triggers) },
	},
	{
		name: "queue",
		schema: flag("Lets the job wait in the job queue until the quota tree has room for all its members, also for those beyond `minimum`, `max_jobs` included. " +
			"It is created suspended, and the queue controller, which `gpuplan_scheduler` installs, lets it start, or takes it back when its pods, or the `minimum` of them, do not run in time. " +
			"`kubectl get queueunits` shows its place. With `wait_for = \"none\"` an apply does not wait for its turn."),
		property: yes(func(m *model) *types.Bool { return &m.Queue }, func(s *job.Spec) *bool { return &s.Queue }),
	},
	{
		name: "suspend",
		schema: flag("Ends the pods of a running job, or does not create them; `false` lets it run again, unless it has finished. What someone else has said of it, as with `kubectl`, the next apply undoes, " +
			"and its plan warns; `lifecycle.ignore_changes` leaves that to others. A job with the label `kueue.x-k8s.io/queue-name` Kueue suspends and lets start: the provider leaves it alone."),
		property: yes(func(m *model) *types.Bool { return &m.Suspend }, func(s *job.Spec) *bool { return &s.Suspend }),
		change:   inPlace,
		places:   true,
	},
	{
		name: "clean_pod_policy",
		schema: schema.StringAttribute{
			MarkdownDescription: "Which pods go when the job has finished: `None` (default), `Running` or `All`. With `batch` they stay until the job is deleted, and with `jobset` and `trainjob` those of what has finished (`Running`, which is its default).",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("None", "Running", "All")},
		},
		property: text(func(m *model) *types.String { return &m.CleanPodPolicy }, func(s *job.Spec) *string { return &s.CleanPodPolicy }),
		change:   inPlace,
	},
	{
		name: "restart_policy",
		schema: schema.StringAttribute{
			MarkdownDescription: "When a replica that ended is started again: `Always`, `OnFailure` (default with `pytorch`), `Never` (default with all others), " +
				"or `ExitCode`, which starts it again after exit codes from 128. An MPIJob `v1alpha1` or `v2beta1` has `OnFailure` and `Never` alone. With `batch`: `OnFailure`, which starts it in its pod, or `Never`, with which a pod that failed is made again, up to `backoff_limit`, and one that was evicted does not count. " +
				"With `jobset` and `trainjob`: `OnFailure`, which starts it in its pod up to 6 times, or `Never`; what fails then makes all roles start again, up to `backoff_limit`.",
			Optional:   true,
			Validators: []validator.String{stringvalidator.OneOf("Always", "OnFailure", "Never", "ExitCode")},
		},
		property: text(func(m *model) *types.String { return &m.RestartPolicy }, func(s *job.Spec) *string { return &s.RestartPolicy }),
	},
	{
		name: "backoff_limit",
		schema: schema.Int32Attribute{
			MarkdownDescription: "How often replicas are started again before the job has failed; with `batch` 6 unless it is set. With `jobset` and `trainjob` it is how often all of them start again together, 0 unless it is set, and another limit needs a new job.",
			Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(0)},
		},
		property: bound(func(m *model) *types.Int32 { return &m.BackoffLimit }, func(s *job.Spec) **int32 { return &s.BackoffLimit }),
		change:   inPlaceButJobSet,
	},
	{
		name: "active_deadline_seconds",
		schema: schema.Int64Attribute{
			MarkdownDescription: "After how many seconds, at most 2147483647, a job that still runs has failed; with `jobset` and `trainjob` since it has last started, and another deadline needs a new job.",
			Optional:            true, Validators: []validator.Int64{int64validator.Between(1, math.MaxInt32)},
		},
		property: says(deadlines, func(m *model) *types.Int64 { return &m.ActiveDeadlineSeconds }, func(s *job.Spec) **int64 { return &s.ActiveDeadlineSeconds }),
		change:   inPlaceButJobSet,
	},
	{
		name: "ttl_seconds_after_finished",
		schema: schema.Int32Attribute{
			MarkdownDescription: "After how many seconds the operator deletes a finished job. Not with `trainjob`, which stays, nor of an MPIJob `v1alpha1` or `v2beta1`. A job with this setting that is gone counts as finished, unless it was suspended.",
			Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(0)},
		},
		property: bound(func(m *model) *types.Int32 { return &m.TTLSecondsAfterFinished }, func(s *job.Spec) **int32 { return &s.TTLSecondsAfterFinished }),
		change:   inPlace,
	},
}

// resultAttributes are what the provider finds out.
var resultAttributes = []jobAttribute{
	{
		name: "pool_names",
		schema: schema.ListAttribute{
			MarkdownDescription: "Names of the pools that the members are kept on. Other pools need a new job.",
			Computed:            true, ElementType: types.StringType,
		},
	},
	{
		name:   "placed",
		schema: computedText("The job with its planned placement, for `after` of jobs that are placed behind this one."),
	},
	{
		name:   "planned_cluster",
		schema: computedText("Member cluster in which the planned placement of a job of a fleet is; null for any other job, or where nothing is promised."),
	},
	{
		name:   "cluster",
		schema: computedText("Member cluster to which the hub has sent a job of a fleet; null before, and for any other job."),
	},
	{
		name: "planned_placement",
		schema: schema.MapAttribute{
			MarkdownDescription: "Where the plan puts every member, " + assignment.Description + ". A node that does not exist yet is called `POOL[0]`, `POOL[1]`, …: the pool's nodes by age; once it exists, a refresh gives its name. " +
				"Without `pools` it is known after apply. Null where nothing is promised: without gang, or with another scheduler.",
			Computed: true, ElementType: types.StringType,
		},
	},
	{
		name: "planned_node_count",
		schema: schema.Int64Attribute{
			MarkdownDescription: "Number of nodes in the planned placement.",
			Computed:            true,
		},
	},
	{
		name: "placement_as_planned",
		schema: schema.BoolAttribute{
			MarkdownDescription: "Whether all members got the nodes and GPUs of the planned placement, of a job of a fleet in the planned cluster, by what the scheduler has recorded and, where the agent of a node gives containers their GPUs, by what it has given; the data source `gpuplan_training_job` says where they run. Null as long as not all are placed, or when nothing was promised.",
			Computed:            true,
		},
	},
	{
		name: "status",
		schema: computedText("Where the job stands: `Pending` (also when all members were evicted and wait), `Created`, `Running`, `Restarting`, `Suspended`, `Succeeded`, `Failed`, " +
			"`CleanedUp` when its time to live removed it before Terraform saw how it ended, or `Deleting`."),
	},
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

// kept is a flag of which a new job has the initial value, and one that exists keeps its own.
func kept(description string) schema.BoolAttribute {
	return schema.BoolAttribute{
		MarkdownDescription: description,
		Optional:            true, Computed: true,
		PlanModifiers: []planmodifier.Bool{boolplanmodifier.UseStateForUnknown()},
	}
}

func oneOf[T ~string](values []T) validator.String {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return stringvalidator.OneOf(texts...)
}
