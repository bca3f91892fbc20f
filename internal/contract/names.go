// Package contract holds every label, annotation, resource name and record that
// gpuplan's parts exchange with each other, with ACK's tools, and with the job
// operators. A name that two programs must agree on is written here and nowhere else.
package contract

import "time"

// DefaultReserveAfter is how long a gang waits before the scheduler reserves capacity for it. It is
// longer than most short jobs take to make room by themselves, and short beside what
// training runs for.
const DefaultReserveAfter = 5 * time.Minute

// Names of our own programs and objects.
const (
	// OldestMinor is the minor version of the oldest Kubernetes that a kube-scheduler of this
	// version can work with: it reads resource.k8s.io/v1, which came with 1.34.
	OldestMinor = 34
	// SchedulerName is the scheduler name that pods of planned jobs carry.
	SchedulerName = "gpuplan-scheduler"
	// RouteLabel on a pod or namespace is "false" where pods that name no scheduler are to
	// stay with the cluster's own, whatever they ask for.
	RouteLabel = "gpuplan.dev/route"
	// RoutePodsAnnotation on the scheduler's Deployment is "true" when the policy is wanted.
	RoutePodsAnnotation = "gpuplan.dev/route-pods"
	// RoutePolicyName is the name of the admission policy that sends pods to the scheduler.
	RoutePolicyName = "gpuplan-route-pods"
	// NodeAgentName is the name of the node agent's DaemonSet and of its objects.
	NodeAgentName = "gpuplan-node-agent"
	// NodeAgentHealthPort is where it answers the liveness probe of its manifest.
	NodeAgentHealthPort = 9401
	// NodeAgentLongestInterval is how long it may wait between two looks at the hardware: an agent that does
	// nothing for 5 minutes fails its liveness probe.
	NodeAgentLongestInterval = 2 * time.Minute
	// SystemNamespace holds the scheduler and the node agent.
	SystemNamespace = "gpuplan-system"
	// FieldManager owns the fields that the provider writes by server-side apply.
	FieldManager = "terraform-provider-gpuplan"
	// ManagedByLabel with ManagedByValue marks objects that the provider created.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "terraform-provider-gpuplan"
	// NameLabel is the recommended label with the name of the program.
	NameLabel = "app.kubernetes.io/name"
	// PartOfLabel with PartOfValue marks pods of our own programs.
	PartOfLabel = "app.kubernetes.io/part-of"
	PartOfValue = "gpuplan"
	// OwnerLabel on objects, and on the pods of jobs, is the stamp of the configuration that
	// created them: see package internal/provider/owner. OwnerTag is the same on node pools of the cloud.
	OwnerLabel = "gpuplan.dev/owner"
	OwnerTag   = OwnerLabel
	// LatestNumbers ends what the scheduler writes on a pod that waits with others of its gang: the
	// object follows that has the latest numbers.
	LatestNumbers = " The latest numbers are on "
	// ReservedText begins what the scheduler writes on pods of a gang that waits for others with
	// capacity reserved for it: whom it waits for follows.
	ReservedText = "Reserved: waits for "
	// ReserveAfterAnnotation and StaleAfterAnnotation on the scheduler's Deployment say what its
	// configuration sets.
	ReserveAfterAnnotation = "gpuplan.dev/reserve-after"
	StaleAfterAnnotation   = "gpuplan.dev/stale-after"
	// ConfigHashAnnotation on a pod template makes a change of configuration roll the pods.
	ConfigHashAnnotation = "gpuplan.dev/config-hash"
)

// Node labels and annotations.
const (
	// NodeModeLabel selects how a node offers its GPUs: default, topology, share, cgpu, core_mem, mps, mig.
	NodeModeLabel = "ack.node.gpu.schedule"
	// NodeGPUPolicyLabel selects how shared GPUs fill up: binpack (default) or spread.
	NodeGPUPolicyLabel = "ack.node.gpu.placement"
	// ClusterIDLabel is set by ACK to the ID of the node's cluster.
	ClusterIDLabel = "ack.aliyun.com"
	// NodePoolIDLabel is set by ACK to the ID of the node pool.
	NodePoolIDLabel = "alibabacloud.com/nodepool-id"
	// NodePoolNameLabel is set by our provider to the name of the node pool.
	NodePoolNameLabel = "gpuplan.dev/pool"
	// InstanceTypeLabel is the well-known label with the instance type.
	InstanceTypeLabel = "node.kubernetes.io/instance-type"
	// NVLinkDomainLabel is set by NVIDIA's GPU feature discovery, or the node agent, on nodes of a rack
	// whose GPUs are all on the same NVLink switches: "cluster UUID.clique ID".
	NVLinkDomainLabel = "nvidia.com/gpu.clique"
	// GPUModelLabel, GPUMemoryLabel and GPUCountLabel are set by ACK on GPU nodes.
	GPUModelLabel  = "aliyun.accelerator/nvidia_name"
	GPUMemoryLabel = "aliyun.accelerator/nvidia_mem"
	GPUCountLabel  = "aliyun.accelerator/nvidia_count"
)

// Extended resources.
const (
	// ResourceDefaultGPU is a whole GPU that the device plugin picks (mode default).
	ResourceDefaultGPU = "nvidia.com/gpu"
	// ResourceTopologyGPU is a whole GPU that the scheduler picks (mode topology).
	ResourceTopologyGPU = "aliyun.com/gpu"
	// ResourceGPUMemory is GPU memory in GiB (shared modes).
	ResourceGPUMemory = "aliyun.com/gpu-mem"
	// ResourceCorePercent is compute share, 100 per GPU (mode core_mem).
	ResourceCorePercent = "aliyun.com/gpu-core.percentage"
	// ResourceGPUCount is the number of GPUs of a shared node, and the pod label
	// that spreads a shared request over several GPUs.
	ResourceGPUCount = "aliyun.com/gpu-count"
	// ResourceERDMA is a sharing token: 200 per eRDMA device, no share of bandwidth.
	ResourceERDMA = "aliyun/erdma"
)

// Add-ons of ACK.
const (
	// KubeScheduler is ACK's own scheduler.
	KubeScheduler = "kube-scheduler"
	// AIInstaller offers the GPUs of nodes in ACK's own modes to pods.
	AIInstaller = "ack-ai-installer"
	// NodeProblemDetector is what managed operation of a node pool needs.
	NodeProblemDetector = "ack-node-problem-detector"
)

// Names of what sets up eRDMA devices.
const (
	// ERDMAController is the add-on that sets up the eRDMA devices of nodes that join after it.
	ERDMAController = "ack-erdma-controller"
	// ERDMADeviceGroup and ERDMADeviceKind are the objects by which it knows devices
	// (AliyunContainerService/alibabacloud-erdma-controller).
	ERDMADeviceGroup = "network.alibabacloud.com"
	ERDMADeviceKind  = "ERdmaDevice"
)

// Where Terway is told which network interfaces of nodes it manages: a JSON object at the key of its ConfigMap, with the
// tags that these have (ACK: "Configure a filter for ENIs").
const (
	TerwayNamespace = "kube-system"
	TerwayConfigMap = "eni-config"
	TerwayConfigKey = "eni_conf"
	TerwayFilter    = "eni_tag_filter"
)

// Gang spellings on pods.
const (
	// TopologyGroupLabel and TopologyReplicasLabel are the spelling of the topology document.
	// Beside another spelling, which says how many members must run, the replicas say how
	// many there are in all.
	TopologyGroupLabel    = "gpu-topology"
	TopologyReplicasLabel = "gpu-topology-replica"
	// LightGangLabel and LightGangMinLabel are ACK's gang labels, which arena --gang writes.
	LightGangLabel    = "pod-group.scheduling.sigs.k8s.io/name"
	LightGangMinLabel = "pod-group.scheduling.sigs.k8s.io/min-available"
	// RoleLabel names the role of a pod in its gang where no training operator does.
	RoleLabel = "gpuplan.dev/role"
	// RoleMinLabel on a pod says how many members of its role must run, within what the gang
	// needs as a whole. On a PodGroup it is an annotation with the minimum of each role as JSON,
	// {"worker": 2}, which goes before the labels.
	RoleMinLabel = "gpuplan.dev/role-min-available"
	// PodGroupLabel names a PodGroup object of PodGroupAPIVersion.
	PodGroupLabel      = "scheduling.x-k8s.io/pod-group"
	PodGroupAPIVersion = "scheduling.x-k8s.io/v1alpha1"
	// PodGroupGroup, PodGroupVersion, PodGroupKind and PodGroupResource identify its CRD.
	PodGroupGroup    = "scheduling.x-k8s.io"
	PodGroupVersion  = "v1alpha1"
	PodGroupKind     = "PodGroup"
	PodGroupResource = "podgroups"
	// DegradedCondition of a PodGroup is True while a lost node or an unhealthy GPU
	// keeps its gang from running as placed.
	DegradedCondition = "Degraded"
)

// Quota on pods and objects.
const (
	// QuotaLabel and KoordinatorQuotaLabel name the quota leaf; without them the namespace decides.
	QuotaLabel            = "quota.scheduling.alibabacloud.com/name"
	KoordinatorQuotaLabel = "quota.scheduling.koordinator.sh/name"
	// PreemptibleLabel and KoordinatorPreemptibleLabel are "false" for pods that only use guaranteed quota.
	PreemptibleLabel            = "quota.scheduling.alibabacloud.com/preemptible"
	KoordinatorPreemptibleLabel = "quota.scheduling.koordinator.sh/preemptible"
	// MaxJobsKey in min or max of a quota node limits dequeued jobs.
	MaxJobsKey = "kube-queue/max-jobs"
	// LendLimitAttribute is the attribute with the part of min that may be lent (JSON resource list).
	LendLimitAttribute = "alibabacloud.com/lendlimit"

	// QuotaTreeGroup, QuotaTreeVersion, QuotaTreeKind and QuotaTreeResource identify the CRD.
	QuotaTreeGroup    = "scheduling.sigs.k8s.io"
	QuotaTreeVersion  = "v1beta1"
	QuotaTreeKind     = "ElasticQuotaTree"
	QuotaTreeResource = "elasticquotatrees"
	// QuotaTreeNamespace is the only namespace in which a tree is effective; QuotaTreeName is the name we give it.
	QuotaTreeNamespace = "kube-system"
	QuotaTreeName      = "elasticquotatree"
	// QuotaTreeInForce is the condition of a tree that says whether its limits count.
	QuotaTreeInForce = "InForce"
)

// What the device plugins of the node agent use.
const (
	// ConfirmedAnnotation on a pod holds the [Confirmation] as JSON.
	ConfirmedAnnotation = "gpuplan.dev/confirmed"
	// CDIKind is the kind of the CDI devices by which a container runtime is told the GPUs of a container.
	CDIKind = "gpuplan.dev/gpu"
	// GivenGPUsEnv is set in each container to which the agent has given GPUs, and lists their UUIDs: NVIDIA's own CDI
	// specification sets [VisibleDevicesEnv] to another value. Until they are known it is [NoGPUs].
	GivenGPUsEnv = "GPUPLAN_GPUS"
	NoGPUs       = "none"
	// VisibleDevicesEnv names to NVIDIA's container runtime the GPUs of a container, [NoVisibleDevices] to do nothing.
	VisibleDevicesEnv = "NVIDIA_VISIBLE_DEVICES"
	NoVisibleDevices  = "void"
	// ShareMemoryEnv and DeviceMemoryEnv are what ACK sets in a container with a part of a GPU:
	// the GiB that it has of each of its GPUs, and those of the whole GPU.
	ShareMemoryEnv  = "ALIYUN_COM_GPU_MEM_CONTAINER"
	DeviceMemoryEnv = "ALIYUN_COM_GPU_MEM_DEV"
)

// What the scheduler writes on a pod together with the binding.
const (
	// AllocationAnnotation holds the [Allocation] record as JSON.
	AllocationAnnotation = "gpuplan.dev/allocation"
	// GPUsAnnotation and VisibleAnnotation are comma lists that `arena top node -d` reads:
	// the pod's own GPUs, and the GPUs of its gang on the node.
	GPUsAnnotation    = "topology.kubernetes.io/gpu-group"
	VisibleAnnotation = "topology.kubernetes.io/gpu-visible"
	// ShareMemoryAnnotation and ShareCoreAnnotation are what arena reads about shared
	// GPUs: JSON objects {"container index": {"GPU index": GiB or percent}}.
	ShareMemoryAnnotation = "scheduler.framework.gpushare.allocation"
	ShareCoreAnnotation   = "gpushare.alibabacloud.com/core-percentage"
)

// Karmada's kinds: the clusters of a fleet, and what binds an object to some of them.
const (
	KarmadaClusterGroup    = "cluster.karmada.io"
	KarmadaClusterVersion  = "v1alpha1"
	KarmadaClusterKind     = "Cluster"
	KarmadaClusterResource = "clusters"
	KarmadaWorkGroup       = "work.karmada.io"
	ResourceBindingVersion = "v1alpha2"
	ResourceBindingKind    = "ResourceBinding"
	// BindingScheduled is the condition of a binding that says whether its object has a cluster.
	BindingScheduled        = "Scheduled"
	ResourceBindingResource = "resourcebindings"
	// ClusterSecretsNamespace is where Karmada keeps on a hub how it reaches member clusters, unless it is told of another.
	ClusterSecretsNamespace = "karmada-cluster"
	// KarmadaManagedLabel with "true" marks what Karmada has brought to a member cluster.
	KarmadaManagedLabel = "karmada.io/managed"
	// KarmadaTemplateAnnotation on what Karmada has brought is the UID of the object of the hub from which it is, and these are the Work of
	// the hub that brings it.
	KarmadaTemplateAnnotation      = "resourcetemplate.karmada.io/uid"
	KarmadaWorkNamespaceAnnotation = "work.karmada.io/namespace"
	KarmadaWorkNameAnnotation      = "work.karmada.io/name"
	KarmadaWorkVersion             = "v1alpha1"
	KarmadaWorkResource            = "works"
	// FleetSchedulerName is the scheduler of policies and bindings that our scheduler of fleets takes; the hub of the local platform
	// gives it to policies of gangs that name none.
	FleetSchedulerName = "gpuplan-fleet-scheduler"
	// FleetQueueName is the account on a hub of the job queue there.
	FleetQueueName = "gpuplan-fleet-queue"
	// AppliedPlacementAnnotation on a binding is the placement, as JSON, by which its clusters were chosen.
	AppliedPlacementAnnotation = "policy.karmada.io/applied-placement"
	// KarmadaSkipsNamespaceLabel on a namespace of the hub, "true", keeps Karmada from making it in member clusters, and from deleting it
	// there with all that is in it.
	KarmadaSkipsNamespaceLabel = "namespace.karmada.io/skip-auto-propagation"
	// SentAnnotation on a binding is the cluster to which its job was sent last. It may run there until the cluster has shown that it does
	// not: Karmada itself forgets where it was, also while the cluster cannot be asked.
	SentAnnotation = "gpuplan.dev/sent-to"
	// SucceededAnnotation on a binding is the UID of its job once a cluster has told that it has succeeded, of kinds of which the hub itself
	// does not show that: Karmada forgets what a cluster has told when it takes the job from there.
	SucceededAnnotation = "gpuplan.dev/succeeded"
)

// Job operators (Kubeflow training operator v1), Jobs of Kubernetes, and sets of them.
const (
	KubeflowGroup        = "kubeflow.org"
	KubeflowVersion      = "v1"
	MPIOperatorVersion   = "v2beta1"  // of MPIJob, in the MPI operator
	MPIAlphaVersion      = "v1alpha1" // of MPIJob, in the MPI operator before 0.3 and in arena
	JobNameLabel         = "training.kubeflow.org/job-name"
	JobReplicaTypeLabel  = "training.kubeflow.org/replica-type"
	JobReplicaIndexLabel = "training.kubeflow.org/replica-index"
	JobOperatorNameLabel = "training.kubeflow.org/operator-name"
	JobRoleLabel         = "training.kubeflow.org/job-role"
	PyTorchContainerName = "pytorch"
	PyTorchPortName      = "pytorchjob-port"
	PyTorchPort          = 23456
	MPIContainerName     = "mpi"
	PyTorchJobKind       = "PyTorchJob"
	PyTorchJobResource   = "pytorchjobs"
	MPIJobKind           = "MPIJob"
	BatchJobKind         = "Job"
	BatchJobResource     = "jobs"
	BatchContainerName   = "main"
	JobSetGroup          = "jobset.x-k8s.io"
	JobSetVersion        = "v1alpha2"
	JobSetKind           = "JobSet"
	JobSetResource       = "jobsets"
	// Kubeflow Trainer's kinds: a job, and the template of the JobSet that it becomes.
	TrainerGroup            = "trainer.kubeflow.org"
	TrainerVersion          = "v1alpha1"
	TrainJobKind            = "TrainJob"
	TrainJobResource        = "trainjobs"
	TrainingRuntimeKind     = "TrainingRuntime"
	TrainingRuntimeResource = "trainingruntimes"
	// Labels that the controller of JobSets gives to pods: the name of the JobSet, that of its part which is
	// their role, into how many Jobs that is divided, and which of these it is.
	JobSetNameLabel            = "jobset.sigs.k8s.io/jobset-name"
	JobSetRoleLabel            = "jobset.sigs.k8s.io/replicatedjob-name"
	JobSetJobsLabel            = "jobset.sigs.k8s.io/replicatedjob-replicas"
	JobSetJobIndexLabel        = "jobset.sigs.k8s.io/job-index"
	JobSetAttemptLabel         = "jobset.sigs.k8s.io/restart-attempt"
	MPIJobResource             = "mpijobs"
	ReplicaMaster              = "master"
	ReplicaChief               = "chief"
	ReplicaWorker              = "worker"
	ReplicaLauncher            = "launcher"
	SuspendAnnotation          = "scheduling.x-k8s.io/suspend"
	PlannedPlacementAnnotation = "gpuplan.dev/planned-placement"
	// SettingsAnnotation on an object holds what the object cannot tell of the resource that
	// made it, as JSON: settings of the provider alone, and spellings. SettingsTag is the same
	// on node pools of the cloud.
	SettingsAnnotation = "gpuplan.dev/settings"
	SettingsTag        = SettingsAnnotation
	// TensorBoardAnnotation on a job says which TensorBoard it has, as JSON.
	TensorBoardAnnotation = "gpuplan.dev/tensorboard"
)

// The node agent's publications.
const (
	GPUNodeGroup    = "gpuplan.dev"
	GPUNodeVersion  = "v1alpha1"
	GPUNodeKind     = "GPUNode"
	GPUNodeResource = "gpunodes"
	// GPUsReadyCondition of a Node repeats the GPUNode's [ConditionReady].
	GPUsReadyCondition = "GPUsReady"
	// RDMAReadyCondition of a Node says whether the ports of its RDMA devices can be used. A Node has it from when its agent
	// has seen a port.
	RDMAReadyCondition = "RDMAReady"
	// TopologyConfigMapNodeLabel on the ConfigMap mirror in kube-system names the node;
	// the mirror also carries NodeModeLabel=topology, by which arena finds it.
	TopologyConfigMapNodeLabel = "nodename"
	// TopologyConfigMapPrefix and the node's name make the mirror's name.
	TopologyConfigMapPrefix = "gpu-topology-"
)

// Simulation on the local platform.
const (
	// SimulatedWiringAnnotation on a node names the catalogue wiring of a simulated machine.
	SimulatedWiringAnnotation = "local.gpuplan.dev/wiring"
	// RunForAnnotation on a pod says how long a simulated pod runs before it succeeds, as a Go duration.
	RunForAnnotation = "local.gpuplan.dev/run-for"
	// FailAfterAnnotation on a pod says after how long a simulated pod fails, as a Go duration.
	FailAfterAnnotation = "local.gpuplan.dev/fail-after"
)

// Arena's marks (kubeflow/arena v0.15).
const (
	ArenaReleaseLabel          = "release"
	ArenaAppLabel              = "app"
	ArenaCreatedByLabel        = "createdBy"
	ArenaRequestGPUsAnnotation = "requestGPUsOfJobOwner"
	ArenaChartLabel            = "chart"
	ArenaHeritageLabel         = "heritage"
	// ArenaRoleLabel is "tensorboard" on the objects of one.
	ArenaRoleLabel = "role"
	// ArenaMPIGroupLabel, ArenaMPIJobLabel and ArenaMPIRoleLabel are on the pods of MPI jobs.
	ArenaMPIGroupLabel = "group_name"
	ArenaMPIJobLabel   = "mpi_job_name"
	ArenaMPIRoleLabel  = "mpi_role_type"
)
