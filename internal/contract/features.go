package contract

// NodeFeaturesManager owns the labels of Nodes that the node agent writes.
const NodeFeaturesManager = "gpuplan-node-agent-features"

// Labels of Nodes that NVIDIA's GPU feature discovery (GFD) writes, by which workloads select nodes; beside them is
// [NVLinkDomainLabel]. Some facts have two names: the first ones are deprecated (NVIDIA/k8s-device-plugin,
// docs/gpu-feature-discovery).
const (
	GFDProductLabel         = "nvidia.com/gpu.product"
	GFDCountLabel           = "nvidia.com/gpu.count"
	GFDReplicasLabel        = "nvidia.com/gpu.replicas"
	GFDSharingStrategyLabel = "nvidia.com/gpu.sharing-strategy"
	GFDMemoryLabel          = "nvidia.com/gpu.memory"
	GFDFamilyLabel          = "nvidia.com/gpu.family"
	GFDComputeMajorLabel    = "nvidia.com/gpu.compute.major"
	GFDComputeMinorLabel    = "nvidia.com/gpu.compute.minor"
	GFDMachineLabel         = "nvidia.com/gpu.machine"
	GFDModeLabel            = "nvidia.com/gpu.mode"
	GFDMIGCapableLabel      = "nvidia.com/mig.capable"
	GFDMPSCapableLabel      = "nvidia.com/mps.capable"

	GFDOldDriverMajorLabel = "nvidia.com/cuda.driver.major"
	GFDOldDriverMinorLabel = "nvidia.com/cuda.driver.minor"
	GFDOldDriverRevLabel   = "nvidia.com/cuda.driver.rev"
	GFDDriverMajorLabel    = "nvidia.com/cuda.driver-version.major"
	GFDDriverMinorLabel    = "nvidia.com/cuda.driver-version.minor"
	GFDDriverRevisionLabel = "nvidia.com/cuda.driver-version.revision"
	GFDDriverVersionLabel  = "nvidia.com/cuda.driver-version.full"
	GFDOldCUDAMajorLabel   = "nvidia.com/cuda.runtime.major"
	GFDOldCUDAMinorLabel   = "nvidia.com/cuda.runtime.minor"
	GFDCUDAMajorLabel      = "nvidia.com/cuda.runtime-version.major"
	GFDCUDAMinorLabel      = "nvidia.com/cuda.runtime-version.minor"
	GFDCUDAVersionLabel    = "nvidia.com/cuda.runtime-version.full"

	// GFDTimestampLabel is when GFD looked at the node: the node agent never writes it.
	GFDTimestampLabel = "nvidia.com/gfd.timestamp"
	// NFDLabelsAnnotation ends the name of the annotation in which node feature discovery, which writes GFD's labels,
	// lists the labels of a Node that are its own; an instance of a name of its own puts that before it.
	NFDLabelsAnnotation = "nfd.node.kubernetes.io/feature-labels"
)
