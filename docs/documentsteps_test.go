package docs_test

// documents are ACK's documents on GPU clusters, step by step: every step, parameter, command, restriction, note and
// question, with what stands for it here, and what shows that. The tables of documents.md are made of them.
var documents = []document{
	{"Topology-aware GPU scheduling (PyTorch edition)", []step{
		{
			"Restriction: only for MPI jobs that are trained by a distributed framework",
			"`framework` of `gpuplan_training_job` is `mpi`, `pytorch`, `jobset`, `trainjob` or `batch`; mode `topology` works for all",
			[]string{"internal/provider/trainingjob TestJobsOnTheLocalPlatform", "internal/provider/trainingjob TestJobSetsOnTheLocalPlatform", "internal/provider/trainingjob/trainer TestTrainJobsOnTheLocalPlatform", "internal/provider/trainingjob TestBatchJobsOnTheLocalPlatform"},
		},
		{
			"Restriction: pods are created, and the job starts, only when the requests of all of them can be met",
			"the scheduler places a gang as a whole or not at all; a plan fails when it does not fit",
			[]string{"scheduler/integration TestOneOfTwoGangsRuns", "internal/provider/trainingjob TestFirstPlanRefusesAGangThatDoesNotFit"},
		},
		{
			"Prerequisites: Kubernetes 1.18.8, driver 418.87.01, NCCL 2.7",
			"the API servers that are supported are newer; driver and NCCL: a real node",
			[]string{"internal/provider/scheduler TestClusterThatIsTooOld", "make test-older"},
		},
		{
			"Step: label a node ack.node.gpu.schedule=topology",
			"`mode = \"topology\"` of `gpuplan_node_pool`; the label is a setting of the pool, so that nodes that join later have it, too. On nodes that are no ACK pool's `mode` of `gpuplan_node_gpu`",
			[]string{"internal/provider/nodepool TestPool", "internal/provider/nodepool TestNodeThatDiffersIsNamedAndRepaired", "internal/provider/nodegpu TestNodeGPU"},
		},
		{
			"Note: with it a node serves no regular GPU requests",
			"a plan refuses jobs of another mode on the pool",
			[]string{"internal/provider/trainingjob TestPlanInAModeThatThePoolDoesNotOffer"},
		},
		{
			"Step back: label ack.node.gpu.schedule=default --overwrite",
			"`mode = \"default\"`; the plan names the jobs that run on the nodes, and asks for `allow_disruption`",
			[]string{"internal/provider/nodepool TestRunningJobsAreNotDisplaced", "internal/provider/nodegpu TestGPUsInUse"},
		},
		{
			"Submit: arena submit mpi --gputopology=true --gang",
			"the command works unchanged; or `framework = \"mpi\"` with a pool in mode `topology`",
			[]string{"make test-arena", "internal/job TestRenderAndPods"},
		},
		{
			"--name, --image, the command",
			"`name`, `image`, `command`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"--gpus=1, --workers=4",
			"`gpus` and `replicas` of the role `worker`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"Host network, IPC and PID that arena's chart gives such workers",
			"`host_network`, `host_ipc`, `host_pid`: `true` by default for new MPI jobs of several workers in mode `topology`; a plan refuses `host_network` of an MPIJob `v2beta1`, unless the workers have a command",
			[]string{"internal/provider/trainingjob TestHostOfNewJobs", "internal/provider/trainingjob TestManifestsOfTheDocuments", "internal/job TestVersionFaults"},
		},
		{
			"Result: all four workers on one node, on GPUs that are joined by NVLink",
			"the planner takes the GPUs of the greatest ring bandwidth; the plan shows them in `planned_placement`",
			[]string{"scheduler/integration TestTopologyGangOnBestGPUs", "internal/provider/trainingjob TestFirstPlanNamesNodesAndGPUs"},
		},
		{
			"Check: arena get --type mpijob",
			"the command works unchanged; `status` and `placement_as_planned` have it in the state",
			[]string{"make test-arena"},
		},
		{
			"Check: arena logs -f",
			"the command works unchanged; when a job fails, the apply shows the end of a member's log",
			[]string{"make test-arena", "scheduler/integration TestSimulatedPodHasLogs", "internal/provider/trainingjob/live TestLogOfAJobThatFails"},
		},
		{
			"Note: the cluster has two nodes, each with eight V100",
			"`instance_type` and `size` of `gpuplan_node_pool`; the catalogue has the links of these GPUs, so that a plan knows the rings of nodes that do not exist yet",
			[]string{". TestGuides", "internal/provider/trainingjob TestFirstPlanNamesNodesAndGPUs"},
		},
		{
			"Example: the same job without topology",
			"`mode = \"default\"` of the job, and of a pool",
			[]string{"scheduler/integration TestDocumentTopologyAndRegular"},
		},
		{
			"Example: the same two jobs with ResNet50",
			"another `command` alone; arena's commands work unchanged",
			[]string{". TestGuides", "internal/provider/trainingjob TestManifestsOfTheDocuments", "make test-arena"},
		},
		{
			"Comparison: VGG16 820 against 435 images a second, ResNet50 1322 against 1252; figures that depend on model and cluster",
			"a real node",
			[]string{"a real node"},
		},
	}},
	{"Topology-aware GPU scheduling in distributed training", []step{
		{
			"Restriction: all pods of the job request the same",
			"a plan refuses roles that differ where ACK's own scheduler is to place the job; the scheduler here places them, too",
			[]string{"internal/provider/trainingjob TestPlanOfMembersThatAreNotAlike"},
		},
		{
			"Restriction: the job starts only when the requests of all pods can be met",
			"as above",
			[]string{"scheduler/integration TestOneOfTwoGangsRuns"},
		},
		{
			"Step: label nodes, and back",
			"`mode` of `gpuplan_node_pool`, and of `gpuplan_node_gpu`",
			[]string{"internal/provider/nodepool TestNodeThatDiffersIsNamedAndRepaired", "internal/provider/nodepool TestRunningJobsAreNotDisplaced", "internal/provider/nodegpu TestNodeGPU", "internal/provider/nodegpu TestGPUsInUse"},
		},
		{
			"Note: the examples need arena or the PyTorch operator",
			"jobs need the training operator in the cluster, here too; the local platform has it",
			[]string{"internal/provider/trainingjob TestJobsOnTheLocalPlatform"},
		},
		{
			"Example: a PyTorchJob with nvidia.com/gpu",
			"the manifest works unchanged",
			[]string{"scheduler/integration TestDocumentRegular"},
		},
		{
			"A master and a worker with one replica each, their image, command and args",
			"the roles `master` and `worker`, `image`, `command` and `args`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"Its log shows no NVLink between the pods",
			"a plan promises none of GPUs that the device plugin picks; the log: a real node",
			[]string{"scheduler/integration TestDocumentTopologyAndRegular"},
		},
		{
			"NCCL_DEBUG, NCCL_DEBUG_SUBSYS",
			"`env`, of the job and of a role",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments", "internal/job TestRenderAndPods"},
		},
		{
			"Example: the labels gpu-topology and gpu-topology-replica",
			"`gpuplan_training_job` writes them; in a plain manifest they make a gang. Master and worker of that manifest have one port on the host's network, so each needs a node of its own, and an event says so; `gpuplan_training_job` gives workers another port, so that they can share one",
			[]string{"scheduler/integration TestDocumentTopologyLabels", "scheduler/integration TestPortThatIsWaitedForIsNamed", "internal/job TestRenderAndPods"},
		},
		{
			"hostIPC, hostNetwork, hostPID",
			"`host_ipc`, `host_network`, `host_pid`: of a PyTorch job only where they are written",
			[]string{"internal/provider/trainingjob TestHostOfNewJobs", "internal/job TestRenderAndPods"},
		},
		{
			"dnsPolicy: ClusterFirstWithHostNet",
			"follows from `host_network`",
			[]string{"internal/job TestRenderAndPods"},
		},
		{
			"The resource aliyun.com/gpu in place of nvidia.com/gpu",
			"follows from `mode` of the job, `topology` by default; a plan refuses pools in another mode",
			[]string{"internal/job TestRenderAndPods", "internal/provider/trainingjob TestPlanInAModeThatThePoolDoesNotOffer"},
		},
		{
			"restartPolicy: OnFailure",
			"`restart_policy`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			`The annotation sidecar.istio.io/inject: "false"`,
			"`annotations`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"Check: kubectl get pods",
			"the apply waits until all members run, with progress",
			[]string{"internal/provider/trainingjob TestJobsOnTheLocalPlatform"},
		},
		{
			"Check: the log shows NVLink between the pods",
			"a plan warns when pods of one node do not share the namespaces that NCCL needs; the log: a real node",
			[]string{"internal/provider/trainingjob TestHostOfNewJobs"},
		},
		{
			"Install ack-ai-installer",
			"`gpuplan_addon`, or `gpuplan_scheduler` and `gpuplan_node_agent` on any Kubernetes; a plan warns of a pool in a mode that needs the add-on where it is missing",
			[]string{"internal/provider/addon TestAddonThatIsInstalled", "internal/provider/nodepool TestModesNeedTheirAddon", "scheduler/integration TestInstalled", "nodeagent/deploy TestInstallAndRemove"},
		},
	}},
	{"Computing power by shared GPU scheduling", []step{
		{
			"Prerequisite: Kubernetes 1.20, scheduler versions by Kubernetes version, chart 1.2.0, cGPU 1.0.5",
			"a plan refuses the mode where the cluster or the chart is older. Of chart 1.2.0 itself the document says both that it is enough and that it is old: it passes. A plan warns where there is no chart, and where ACK's scheduler is older, since the one here does not depend on it; cGPU: a real node",
			[]string{"internal/provider/nodepool TestModesNeedVersions", "internal/provider/nodepool TestModesNeedTheirAddon"},
		},
		{
			"Prerequisite: ACK Pro cluster",
			"a plan refuses the mode on a basic cluster, and on a dedicated one",
			[]string{"internal/provider/nodepool TestModesNeedVersions"},
		},
		{
			"Restriction: pods with memory only and with memory and cores do not share a node",
			"the planner keeps them apart",
			[]string{"scheduler/integration TestSharedGPUsBinpack"},
		},
		{
			"Restriction: cores are counted by 100 of a GPU, in steps of 5, from 5",
			"`core_percent` of a role is refused otherwise, and so are pods of manifests",
			[]string{"internal/provider/trainingjob TestInvalidJobs", "scheduler/integration TestInstalled"},
		},
		{
			"Restriction: regions",
			"a plan refuses `mode = \"core_mem\"` in another region, and names those that have it",
			[]string{"internal/provider/nodepool TestModeThatTheRegionDoesNotOffer"},
		},
		{
			"Upgrade, in clusters from before 1 March 2022: ticket, remove the old chart, install the new one",
			"`version` of `gpuplan_addon` upgrades the component in place, whoever installed it; a ticket, and a chart that the service does not upgrade, are yours",
			[]string{"internal/provider/addon TestOlderAddonOfSomeoneElse"},
		},
		{
			"Step 1: a node pool with name, size (0 for none yet), ECS tags, node labels",
			"`name`, `size`, `tags`, `labels` of `gpuplan_node_pool`",
			[]string{"internal/provider/nodepool TestPoolThatIsEmptyAtFirst", "internal/provider/nodepool TestPool", "internal/provider/nodepool TestSettings"},
		},
		{
			"Label ack.node.gpu.schedule=core_mem",
			"`mode = \"core_mem\"`",
			[]string{"internal/catalog TestAllocatablePerMode"},
		},
		{
			"Label ack.node.gpu.placement=binpack",
			"`gpu_policy = \"binpack\"`",
			[]string{"scheduler/integration TestSharedGPUsBinpack", "scheduler/integration TestSharedGPUsSpread", "internal/provider TestImportPlansNothing"},
		},
		{
			"Important: a node that exists is not switched to core_mem by a label, it is removed and joins again",
			"a change to or from it replaces the pool, with consent where jobs run. A node that someone has labelled to or from it is named in the plan and never labelled back; with `mode_change_policy = \"replace\"` the apply removes it, and the pool gets a new one. `gpuplan_node_gpu`, which makes no nodes, refuses such a change at plan",
			[]string{"internal/provider/nodepool TestRunningJobsAreNotDisplaced", "internal/provider/nodepool TestNodeOfAnotherModeIsNamedAndReplaced", "internal/provider/nodepool TestNodeOfAnotherModeIsSaid", "internal/provider/nodegpu TestRefusals"},
		},
		{
			"Step 2: the node shows aliyun.com/gpu-core.percentage 400, aliyun.com/gpu-count 4, aliyun.com/gpu-mem 60",
			"planned nodes offer that",
			[]string{"internal/catalog TestAllocatablePerMode"},
		},
		{
			"Step 3: a batch Job with aliyun.com/gpu-mem: 2 and aliyun.com/gpu-core.percentage: 30",
			"the manifest works unchanged; as a resource `framework = \"batch\"`, with `memory_gib` and `core_percent` of the role",
			[]string{"scheduler/integration TestDocumentShareOneGPU", "internal/provider/trainingjob TestManifestsOfTheDocuments", "internal/provider/trainingjob TestBatchJobsOnTheLocalPlatform"},
		},
		{
			"Its parallelism, label, image, command, workingDir and restartPolicy",
			"`replicas` of the role, `labels`, `image`, `command`, `working_dir`, `restart_policy`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"Note: the image is large, and takes a while",
			"the apply waits as long as `timeouts` says; then it ends with a warning, and the job goes on",
			[]string{"internal/provider/trainingjob TestWaitThatEndsEarly"},
		},
		{
			"Three such tasks fit on one GPU",
			"the planner counts memory and cores",
			[]string{"scheduler/integration TestDocumentShareOneGPU"},
		},
		{
			"Check: kubectl get po, kubectl logs",
			"the local platform answers both",
			[]string{"scheduler/integration TestSimulatedPodHasLogs"},
		},
		{
			"Check: nvidia-smi in the pod shows 2154 MiB and 30 %, and with several such pods on the GPU the sum of all; the pod's log goes slower",
			"a real node",
			[]string{"a real node"},
		},
		{
			"Clean up: kubectl delete job",
			"the next pod gets the place when the pods have gone",
			[]string{"scheduler/integration TestDocumentShareOneGPU"},
		},
	}},
	{"PyTorch training with eRDMA", []step{
		{
			"Restriction: ACK managed clusters",
			"a plan refuses the eRDMA controller in a cluster of another type",
			[]string{"internal/provider/addon TestERDMANeedsAManagedCluster"},
		},
		{
			"Restriction: gn8is, ebmgn8is, gn8v, ebmgn8v",
			"the catalogue has the eRDMA devices of these and of newer families, such as ebmgn9g; a plan refuses `rdma` on nodes without",
			[]string{"internal/catalog TestERDMAFamilies", "internal/catalog TestAllocatablePerMode", "internal/provider/trainingjob/live TestERDMANeedsItsController"},
		},
		{
			"Step 1: install ACK eRDMA Controller",
			"`gpuplan_erdma_controller`, or `gpuplan_addon` with the name `ack-erdma-controller`",
			[]string{"internal/provider/addon TestERDMAController"},
		},
		{
			"Terway: a filter for network interfaces",
			"a plan of the controller warns where the ConfigMap eni-config of Terway has no eni\\_tag\\_filter, with what to write there and when; that Terway keeps to it: a real node",
			[]string{"internal/provider/addon TestTerwayNeedsAFilter"},
		},
		{
			"Routes of several interfaces",
			"a real node",
			[]string{"a real node"},
		},
		{
			"preferDriver: default, compat, ofed",
			"`driver` of `gpuplan_erdma_controller`",
			[]string{"internal/provider/addon TestERDMAController"},
		},
		{
			"All devices, or one by NUMA",
			"`allocate_all_devices` of `gpuplan_erdma_controller`; unless it is `true`, there or in `gpuplan_addon`, pools with eRDMA devices need `cpu_policy = \"static\"`: a plan refuses others, and warns of them beside a controller that it does not know. Where it is left out, the add-on's own value holds, which is one by NUMA",
			[]string{"internal/provider/addon TestDevicesByNUMANode", "internal/provider/addon TestDevicesByNUMANodeOfPlannedPools", "internal/provider/addon TestPoolsBesideAControllerThatIsThere"},
		},
		{
			"Check the pods of the controller",
			"the apply waits until the add-on runs",
			[]string{"internal/provider/addon TestAddonThatIsInstalled"},
		},
		{
			"Step 2: enable eRDMA on instances, ibv_devinfo",
			"devices are there on nodes that join after the add-on; a plan warns of nodes that will have none. The node agent reads the state of each port as ibv_devinfo does: it tells of one that is not ACTIVE by the event `RDMAPortDown`, and a plan warns of a job that may use it. The command itself: a real node",
			[]string{"internal/provider/trainingjob/live TestERDMANeedsItsController", "nodeagent/topology TestRDMAPorts", "internal/provider/trainingjob TestERDMAPortsThatAreDown"},
		},
		{
			"Check: allocatable has aliyun/erdma 200, CPU 15890m, memory 128290128Ki, one GPU, 64 pods",
			"planned nodes offer that, of memory up to 3 MiB less",
			[]string{"internal/catalog TestAllocatableIsThatOfTheVendorsSamples"},
		},
		{
			"Step 3: install arena from the cloud-native AI suite",
			"`gpuplan_addon` with the name `ack-arena`",
			[]string{"internal/provider/addon TestAddonThatIsInstalled"},
		},
		{
			"Step 3: arena submit pytorch",
			"the command works unchanged; or `framework = \"pytorch\"`",
			[]string{"make test-arena"},
		},
		{
			"--name, --namespace",
			"`name`, `namespace`: two resources of one job are refused at plan",
			[]string{"internal/provider/trainingjob/live TestNamesChangedWithTarget"},
		},
		{
			"--workers=2, the master among them",
			"the roles `master` and `worker`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"--gpus",
			"`gpus` of a role",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"--device=aliyun/erdma=1",
			"`rdma = true` of a role",
			[]string{"internal/provider/trainingjob/live TestERDMANeedsItsController"},
		},
		{
			"--nproc-per-node",
			"`nproc_per_node`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"--clean-task-policy=None",
			"`clean_pod_policy`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"--env",
			"`env`, of the job and of a role",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments", "internal/job TestRenderAndPods"},
		},
		{
			"--working-dir",
			"`working_dir`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"--image, --image-pull-policy, the command",
			"`image`, `image_pull_policy`, `command` and `args`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"--tensorboard, --logdir",
			"`tensorboard`, whose `log_dir` is on one of the job's volumes or a URL: arena's own command, which works, reads the disk of the node otherwise",
			[]string{"internal/provider/trainingjob TestTensorBoardOfAJob", "make test-arena"},
		},
		{
			"NCCL_SOCKET_IFNAME, NCCL_NET_GDR_LEVEL, NCCL_P2P_LEVEL, NCCL_ALGO, NCCL_DEBUG, NCCL_IB_HCA, NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT",
			"`rdma_defaults` sets them in new jobs with `rdma`, NCCL_DEBUG to INFO and NCCL_IB_HCA to erdma; `env` goes first",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments", "internal/job TestRDMADefaults"},
		},
		{
			"Step 4: the kubeconfig of the cluster",
			"`gpuplan_kubeconfig`, with which other providers connect, too",
			[]string{"internal/provider/clusterdata TestKubeconfigConnectsAProvider"},
		},
		{
			"Check: the log shows Train Epoch",
			"the apply waits until all members run; what the log says: a real node",
			[]string{"internal/provider/trainingjob TestJobsOnTheLocalPlatform"},
		},
		{
			"Check: NET/IB : Using [0]erdma_0:1/RoCE",
			"`nccl` of the data source `gpuplan_training_job` reads it in the log, and warns of a job whose NCCL sends over TCP all the same; the line itself: a real node",
			[]string{"internal/provider/trainingjob TestWhatNCCLUses", "internal/nccl TestRead"},
		},
		{
			"Step 5: eadm stat shows traffic both ways",
			"the node agent's metrics `gpuplan_rdma_received_bytes_total` and `gpuplan_rdma_sent_bytes_total`; the traffic itself: a real node",
			[]string{"nodeagent/usage TestGPUs", "nodeagent/usage TestDashboard"},
		},
		{
			"AI Profiling",
			"ACK's own: a real node",
			[]string{"a real node"},
		},
		{
			"Clean up: arena delete",
			"the command works unchanged, also of jobs of the provider with `arena_compatible`; what is on volumes stays",
			[]string{"make test-arena"},
		},
		{
			"FAQ: the log does not show erdma_0",
			"without `rdma` no device is asked for; a plan warns of nodes without devices, and without an active port; libraries of the image: a real node",
			[]string{"internal/provider/trainingjob/live TestERDMANeedsItsController", "nodeagent/topology TestRDMAPorts", "internal/provider/trainingjob TestERDMAPortsThatAreDown"},
		},
		{
			"FAQ: NCCL times out",
			"`NCCL_IB_TIMEOUT` is 23 (22 where nobody says) and `NCCL_IB_RETRY_CNT` 10 by default of jobs with `rdma`",
			[]string{"internal/provider/trainingjob TestManifestsOfTheDocuments"},
		},
		{
			"FAQ: has eRDMA made it faster?",
			"two jobs, one with `rdma`; a real node",
			[]string{"a real node"},
		},
		{
			"FAQ: submitting fails for lack of resources",
			"the plan fails before, with numbers and the nearest fix; `kubectl gpuplan why` answers for pods that wait",
			[]string{"internal/provider/trainingjob TestFirstPlanRefusesAGangThatDoesNotFit", "scheduler/integration TestHeadlineAgreesWithTheScheduler"},
		},
		{
			"Build an image with RDMA libraries, by a Dockerfile",
			"the same Dockerfile, whose image is named in `image`; nothing here looks into images: a real node",
			[]string{"a real node"},
		},
	}},
	{"Gang scheduling of PyTorchJobs in a fleet", []step{
		{
			"All pods of a job run together or none does",
			"the scheduler of each cluster places gangs as a whole; across clusters `gpuplan-scheduler fleet` sends each, whole, to one that has a place for all of it",
			[]string{"scheduler/integration TestOneOfTwoGangsRuns", "internal/local/localtest TestFleetScheduler"},
		},
		{
			"Prerequisite: of the cloud-native AI suite arena alone",
			"`gpuplan_addon`; arena's commands work",
			[]string{"make test-arena"},
		},
		{
			"Prerequisite: AliyunAdcpFullAccess, the AMC command line",
			"rights in ACK's Fleet, and its own command: a fleet",
			[]string{"a fleet"},
		},
		{
			"With reservation the fleet schedules as the member does, without it by the sum of what is free",
			"`enable_reservation` of `gpuplan_scheduler_config`; `gpuplan-scheduler fleet` plans on the nodes of each member, as the scheduler there does, and by no sum; a member with `gpuplan-scheduler` keeps the place before the job is there",
			[]string{"internal/provider/addon TestSchedulerConfig", "scheduler/fleet TestPlacesOfJobs", "scheduler/integration TestGangReservation", "internal/local/localtest TestFleetScheduler"},
		},
		{
			"Note: reservation needs Kubernetes 1.28 and scheduler 6.8.0",
			"refused at plan where they are older",
			[]string{"internal/provider/addon TestVersionsThatReservationNeeds"},
		},
		{
			"Console: Add-ons, Kube Scheduler, enableReservation",
			"`gpuplan_scheduler_config`",
			[]string{"internal/provider/addon TestSchedulerConfig"},
		},
		{
			"Step 1 (optional): an ElasticQuotaTree named elasticquotatree in kube-system",
			"`gpuplan_quota_tree`",
			[]string{"internal/provider/quotatree TestQuotaTree"},
		},
		{
			"Note: only one tree, only in kube-system",
			"the tree is written into kube-system, and a second one there is refused at plan; the queue goes by the oldest",
			[]string{"internal/provider/quotatree TestQuotaTree", "internal/provider/quotatree TestSecondTreeIsRefused", "scheduler/queue TestTwoTrees"},
		},
		{
			"max and min of the root are the same",
			"`total`",
			[]string{"internal/provider/quotatree TestTreeOfTheFleetDocument"},
		},
		{
			"kube-queue/max-jobs of the root and of a child",
			"`max_jobs` of the tree and of a quota; one job at a time leaves the queue",
			[]string{"internal/provider/quotatree TestTreeOfTheFleetDocument", "scheduler/queue TestMaxJobsOneAtATime", "make demo-fleet"},
		},
		{
			"namespaces of a child",
			"`namespaces` of a quota",
			[]string{"internal/provider/quotatree TestTreeOfTheFleetDocument"},
		},
		{
			"kubectl get queue",
			"the queue makes the objects that ack-kube-queue makes",
			[]string{"scheduler/queue TestFleetDocument"},
		},
		{
			"Step 2: a PropagationPolicy with propagateDeps, failover, replicaSchedulingType, customSchedulingType: Gang; a job that fails is scheduled again",
			"the policy: `gpuplan_propagation_policy`; `gpuplan-scheduler fleet` sends gangs to clusters by it, and one that failed again when it is gone from where it was",
			[]string{"internal/provider/propagationpolicy TestPolicy", "internal/provider/fleet TestFleetOnTheLocalPlatform", "internal/local/localtest TestFleetScheduler", "internal/local/localtest TestFleetFailover"},
		},
		{
			"The same with suspension.scheduling: true",
			"`suspension` of `gpuplan_propagation_policy`; the queue controller with `--fleet` lets the jobs of the hub go",
			[]string{"internal/provider/propagationpolicy TestPolicy", "internal/provider/fleet TestFleetOnTheLocalPlatform", "internal/local/localtest TestFleetQueue"},
		},
		{
			"A PyTorchJob on the fleet",
			"the manifest, on the hub; `fleet` of `gpuplan_training_job`, whose plan names the cluster, the nodes and the GPUs",
			[]string{"internal/local/localtest TestFleetScheduler", "make demo-fleet"},
		},
		{
			"Step 3: kubectl describe shows the event ScheduleBindingSucceed, with the cluster and the pods of each role",
			"the same words, as event and condition",
			[]string{"scheduler/fleet TestResult", "internal/local/localtest TestFleetScheduler", "make demo-fleet"},
		},
		{
			"Step 3: kubectl get pytorchjob on the fleet, kubectl amc get of the job and its pods in the clusters",
			"the job on the hub has the state that it has in its cluster, also on the local platform, with kubectl; for pods kubectl with `gpuplan-local kubeconfig --cluster member-1`; ACK's own command: a fleet",
			[]string{"internal/local/localtest TestFleet"},
		},
	}},
}
