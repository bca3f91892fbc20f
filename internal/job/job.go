// Package job describes a training job, renders it as the object of the Kubeflow
// training operator that runs it, as a Job of Kubernetes, as a JobSet, or as a TrainJob, and predicts the pods that
// are made of that object. The plan therefore gives the planner the same pods that the
// scheduler sees later.
//
// The package is pure: no I/O, no clock.
package job

import (
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Framework is the training framework, which decides the kind of object and the roles.
type Framework string

// Frameworks that are rendered.
const (
	PyTorch Framework = "pytorch" // PyTorchJob kubeflow.org/v1: master, worker
	MPI     Framework = "mpi"     // MPIJob kubeflow.org/v1, v2beta1 or v1alpha1: launcher, worker
	JobSet  Framework = "jobset"  // JobSet jobset.x-k8s.io/v1alpha2: roles of any name
	// TrainJob is one of trainer.kubeflow.org/v1alpha1, which becomes a JobSet.
	TrainJob Framework = "trainjob"
	Batch    Framework = "batch" // Job batch/v1: worker
)

// Frameworks returns all frameworks, those of operators first: who looks for a job by its name may
// find a Job of that name which has nothing to do with it.
func Frameworks() []Framework { return []Framework{MPI, PyTorch, TrainJob, JobSet, Batch} }

// AsJobSet reports whether the framework's jobs run as a JobSet.
func (f Framework) AsJobSet() bool { return f == JobSet || f == TrainJob }

// Roles returns the roles that the framework knows, the leading one first; none where a job has roles of
// any name.
func (f Framework) Roles() []string {
	switch f {
	case MPI:
		return []string{contract.ReplicaLauncher, contract.ReplicaWorker}
	case Batch:
		return []string{contract.ReplicaWorker}
	case JobSet, TrainJob:
		return nil
	}
	return []string{contract.ReplicaMaster, contract.ReplicaWorker}
}

// Has reports whether a job of the framework can have a role of this name.
func (f Framework) Has(role string) bool { return f.AsJobSet() || slices.Contains(f.Roles(), role) }

// Mode is how the members of a job ask for GPUs.
type Mode string

// Modes of a job.
const (
	// Default asks for whole GPUs that the node's device plugin picks (nvidia.com/gpu).
	Default Mode = "default"
	// Topology asks for whole GPUs that the scheduler picks by their links (aliyun.com/gpu).
	Topology Mode = "topology"
	// Shared asks for parts of GPUs (aliyun.com/gpu-mem, aliyun.com/gpu-core.percentage).
	Shared Mode = "shared"
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Default, Topology, Shared} }

// autoProcesses lets torchrun count the GPUs of a replica, which is what the operator does unless told otherwise.
const autoProcesses = "auto"

// Role is a group of replicas with one template.
type Role struct {
	Replicas int32
	// Minimum is how many replicas of the role must run, within the minimum of the gang; 0 sets none.
	Minimum       int32
	Image         string
	Command, Args []string
	Env           map[string]string
	WorkingDir    string
	// GPUs is the number of whole GPUs per replica, or in mode Shared the number
	// of GPUs that MemoryGiB is spread over (0 means 1).
	GPUs int64
	// MemoryGiB is the GPU memory per replica in GiB, over all its GPUs (mode Shared).
	MemoryGiB int64
	// CorePercent is the compute share of one GPU per replica in percent (mode Shared); 0 asks for none.
	CorePercent int64
	// CPU and Memory are requests and limits of the replica; zero asks for none.
	CPU, Memory resource.Quantity
	// RDMA asks for one slot of an eRDMA device.
	RDMA bool
}

// Spec is a whole training job.
type Spec struct {
	Namespace, Name string
	Framework       Framework
	Mode            Mode
	// Roles by name, see [Framework.Roles]. An MPI job without a launcher gets one, see [Spec.Complete].
	Roles map[string]Role
	// Gang makes the members run all together or not at all. Minimum is how many must; 0 means all, and without Gang nothing.
	Gang    bool
	Minimum int32
	// Quota is the leaf of the quota tree that is charged; "" leaves it to the namespace.
	Quota string
	// NonPreemptible jobs use guaranteed quota only.
	NonPreemptible               bool
	SchedulerName, PriorityClass string
	// Pools are the names of the node pools whose nodes the members may use; nil allows all.
	Pools                         []string
	NodeSelector                  map[string]string
	Tolerations                   []corev1.Toleration
	HostNetwork, HostIPC, HostPID bool
	// DNSPolicy "" means ClusterFirstWithHostNet with HostNetwork, and ClusterFirst otherwise.
	DNSPolicy corev1.DNSPolicy
	// ServiceAccount is the pods' account, "" for the namespace's default.
	ServiceAccount string
	// ImagePullSecrets are names of Secrets in the job's namespace.
	ImagePullSecrets []string
	// ImagePullPolicy is when images are pulled: Always, IfNotPresent, Never; "" is Kubernetes' default.
	ImagePullPolicy corev1.PullPolicy
	// SharedMemory is the size of /dev/shm; zero leaves it to the container runtime (64 MiB).
	SharedMemory resource.Quantity
	// Volumes by name.
	Volumes map[string]Volume
	// CodeSync fetches code into each replica, nil for none.
	CodeSync *CodeSync
	// TensorBoard shows what the job logs, nil for none.
	TensorBoard *TensorBoard
	// RDMADefaults sets NCCL up in a job with a role that asks for RDMA, where Env does not, and lets such roles lock memory.
	RDMADefaults bool
	// Port is the TCP port of a PyTorch master; 0 means 23456. With HostNetwork the workers declare the next one.
	Port int32
	// ProcessesPerNode is how many processes torchrun starts in each replica of a PyTorchJob: a number, or
	// "auto", "cpu" or "gpu" to count what the replica has; "" means auto.
	ProcessesPerNode string
	// MPIImplementation is one of [Implementations], and SSHAuthMountPath where pods have the launcher's keys; "" leaves
	// them to the MPI operator, which alone knows them.
	MPIImplementation, SSHAuthMountPath string
	Suspend                             bool
	// Queue leaves it to the job queue when the job starts; it is suspended until then.
	Queue bool
	// CleanPodPolicy is which pods go when the job has finished: None, Running, All.
	CleanPodPolicy string
	// RestartPolicy of all replicas: Always, OnFailure, Never, ExitCode; "" is the framework's default.
	RestartPolicy           string
	BackoffLimit            *int32
	ActiveDeadlineSeconds   *int64
	TTLSecondsAfterFinished *int32
	// Owner is the stamp of the configuration that creates the job, on the job and its pods; "" for none.
	Owner string
	// Version is that of an MPI job: [contract.MPIAlphaVersion], which arena knows, [contract.MPIOperatorVersion], which is
	// the MPI operator's, or "" for the training operator's. The job must have no [Spec.VersionFaults].
	Version string
	// Arena adds the marks by which `arena list`, `get` and `delete` know the job.
	Arena bool
	// Planned is the [contract.PlannedPlacement] of the job as text, "" for none.
	Planned string
	// Ended are the indexes for which a Job that exists makes no pods any more ([Ended]).
	Ended               inventory.IndexRanges
	Labels, Annotations map[string]string
}

// ID returns "namespace/name".
func (s Spec) ID() string { return s.Namespace + "/" + s.Name }

// RoleNames returns the names of the roles in alphabetical order, as the planner sorts them.
func (s Spec) RoleNames() []string { return slices.Sorted(maps.Keys(s.Roles)) }

// Members returns how many replicas are members of the gang, see [Spec.Late].
func (s Spec) Members() int32 {
	var n int64
	for name, r := range s.Roles {
		if !s.Late(name) {
			n += int64(r.Replicas)
		}
	}
	return int32(min(n, math.MaxInt32)) // a job that has more fails its check
}

// Late reports whether a role is no member of the gang, because it asks for no
// GPU: above all an MPI launcher, which starts the processes of the others.
func (s Spec) Late(role string) bool { return !s.Roles[role].asksForGPUs() }

func (r Role) asksForGPUs() bool { return r.GPUs != 0 || r.MemoryGiB != 0 }

// JoinsPods reports whether NCCL is to use the links between GPUs of several pods, for which these
// share the host's IPC, PID and network namespaces (ACK: "GPU topology-aware scheduling"), as arena
// has it. It has no such PyTorchJobs: two of their workers cannot share a node on the host's network.
func (s Spec) JoinsPods() bool {
	return s.Framework == MPI && s.Mode == Topology && s.Members() > 1
}

// SharesHost reports whether the pods of one node share all that NCCL needs to use the links between their GPUs:
// the host's namespaces, and its /dev/shm.
func (s Spec) SharesHost() bool {
	return s.HostIPC && s.HostPID && s.HostNetwork && s.SharedMemory.IsZero()
}

// Complete returns the job with everything spelled out that the framework implies,
// so that two descriptions of one job are equal.
func (s Spec) Complete() Spec {
	s.Roles = maps.Clone(s.Roles)
	if s.Roles == nil {
		s.Roles = map[string]Role{}
	}
	if _, ok := s.Roles[contract.ReplicaLauncher]; s.Framework == MPI && !ok {
		s.Roles[contract.ReplicaLauncher] = Role{Replicas: 1, Image: s.Roles[contract.ReplicaWorker].Image}
	}
	if s.DNSPolicy == "" {
		s.DNSPolicy = corev1.DNSClusterFirst
		if s.HostNetwork {
			s.DNSPolicy = corev1.DNSClusterFirstWithHostNet
		}
	}
	if s.RestartPolicy == "" {
		s.RestartPolicy = "Never"
		if s.Framework == PyTorch {
			s.RestartPolicy = "OnFailure"
		}
	}
	if s.CleanPodPolicy == "" {
		s.CleanPodPolicy = "None"
		if s.Framework.AsJobSet() {
			s.CleanPodPolicy = "Running" // which is what its controller does
		}
	}
	s.completeBatch()
	if s.Port == 0 && s.Framework == PyTorch {
		s.Port = contract.PyTorchPort
	}
	s.completeRDMA()
	s.completeCodeSync()
	s.completeTensorBoard()
	s.completeMPI()
	if s.ProcessesPerNode == "" && s.Framework == PyTorch {
		s.ProcessesPerNode = autoProcesses
	}
	switch {
	case !s.Gang:
		s.Minimum = 0
	case s.Minimum == 0:
		s.Minimum = s.Members()
		s.completeMinima()
	}
	return s
}

// completeMinima gives a gang whose roles have minima, and that has none itself, what they need
// together. Of roles without a minimum all replicas must run.
func (s *Spec) completeMinima() {
	if !slices.ContainsFunc(s.RoleNames(), func(name string) bool { return s.Roles[name].Minimum > 0 }) {
		return
	}
	s.Minimum = 0
	for _, name := range s.RoleNames() {
		r := s.Roles[name]
		if s.Late(name) {
			continue
		}
		if r.Minimum == 0 {
			r.Minimum = r.Replicas
			s.Roles[name] = r
		}
		s.Minimum += r.Minimum
	}
}

// Brief returns the job without what it has anyway: the inverse of [Spec.Complete], but for
// roles, which it keeps.
func (s Spec) Brief() Spec {
	s = s.Complete()
	implied := Spec{Framework: s.Framework, HostNetwork: s.HostNetwork}.Complete()
	if s.DNSPolicy == implied.DNSPolicy {
		s.DNSPolicy = ""
	}
	if s.RestartPolicy == implied.RestartPolicy {
		s.RestartPolicy = ""
	}
	if s.CleanPodPolicy == implied.CleanPodPolicy {
		s.CleanPodPolicy = ""
	}
	s.briefBatch()
	if s.Port == implied.Port {
		s.Port = 0
	}
	if s.ProcessesPerNode == implied.ProcessesPerNode {
		s.ProcessesPerNode = ""
	}
	s.briefCodeSync()
	s.briefTensorBoard()
	if s.MPIImplementation == implied.MPIImplementation {
		s.MPIImplementation = ""
	}
	if s.SSHAuthMountPath == implied.SSHAuthMountPath {
		s.SSHAuthMountPath = ""
	}
	if s.Gang {
		s.briefMinima()
	}
	return s
}

// briefMinima leaves out those minima that the others imply.
func (s *Spec) briefMinima() {
	alone, withRoles := *s, *s // without the minimum of the gang, and of roles that need all their replicas
	alone.Minimum, withRoles.Minimum = 0, 0
	withRoles.Roles = maps.Clone(s.Roles)
	for name, r := range withRoles.Roles {
		if r.Minimum == r.Replicas {
			r.Minimum = 0
			withRoles.Roles[name] = r
		}
	}
	for _, brief := range []Spec{withRoles, alone} {
		if whole := brief.Complete(); whole.Minimum == s.Minimum && apiequality.Semantic.DeepEqual(whole.Roles, s.Roles) {
			*s = brief
			return
		}
	}
}

// MemberName returns the planner's name of a replica, "worker-0".
func MemberName(role string, index int) string { return role + "-" + strconv.Itoa(index) }
