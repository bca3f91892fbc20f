package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// The part of kubeflow.org/v1 that we write and read (training operator 1.9,
// pkg/apis/kubeflow.org/v1). Its Go module needs another version of Kubernetes.

type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              objectSpec   `json:"spec"`
	Status            objectStatus `json:"status,omitzero"`
}

type objectSpec struct {
	RunPolicy      runPolicy              `json:"runPolicy"`
	SlotsPerWorker *int32                 `json:"slotsPerWorker,omitempty"`
	PyTorch        map[string]replicaSpec `json:"pytorchReplicaSpecs,omitempty"`
	MPI            map[string]replicaSpec `json:"mpiReplicaSpecs,omitempty"`
	// Jobs are those of a Job, a JobSet or a TrainJob, which have other shapes.
	Jobs         map[string]replicaSpec `json:"-"`
	NprocPerNode string                 `json:"nprocPerNode,omitempty"`
	// The rest v2beta1 of MPIJob has alone.
	MPIImplementation      string `json:"mpiImplementation,omitempty"`
	SSHAuthMountPath       string `json:"sshAuthMountPath,omitempty"`
	LauncherCreationPolicy string `json:"launcherCreationPolicy,omitempty"`
}

type replicaSpec struct {
	Replicas      *int32 `json:"replicas,omitempty"`
	RestartPolicy string `json:"restartPolicy,omitempty"`
	// Jobs is into how many Jobs of a JobSet the replicas are divided.
	Jobs int32 `json:"-"`
	// Later means that no pods of it are created before those of other roles of a JobSet are ready or done.
	Later    bool                   `json:"-"`
	Template corev1.PodTemplateSpec `json:"template"`
}

type runPolicy struct {
	CleanPodPolicy          string            `json:"cleanPodPolicy,omitempty"`
	TTLSecondsAfterFinished *int32            `json:"ttlSecondsAfterFinished,omitempty"`
	ActiveDeadlineSeconds   *int64            `json:"activeDeadlineSeconds,omitempty"`
	BackoffLimit            *int32            `json:"backoffLimit,omitempty"`
	SchedulingPolicy        *schedulingPolicy `json:"schedulingPolicy,omitempty"`
	Suspend                 *bool             `json:"suspend,omitempty"`
}

type schedulingPolicy struct {
	MinAvailable *int32 `json:"minAvailable,omitempty"`
}

type objectStatus struct {
	Conditions      []Condition              `json:"conditions,omitempty"`
	ReplicaStatuses map[string]replicaStatus `json:"replicaStatuses,omitempty"`
	StartTime       *metav1.Time             `json:"startTime,omitempty"`
	CompletionTime  *metav1.Time             `json:"completionTime,omitempty"`
}

type replicaStatus struct {
	Active    int32 `json:"active,omitempty"`
	Succeeded int32 `json:"succeeded,omitempty"`
	Failed    int32 `json:"failed,omitempty"`
}

// kindOf is what differs between the kinds of objects.
type kindOf struct {
	kind, container, operator, app string
}

func (f Framework) object() kindOf {
	switch f {
	case MPI:
		return kindOf{kind: contract.MPIJobKind, container: contract.MPIContainerName, operator: "mpijob-controller", app: "mpijob"}
	case Batch:
		return kindOf{kind: contract.BatchJobKind, container: contract.BatchContainerName, operator: batchOperator}
	case JobSet:
		return kindOf{kind: contract.JobSetKind, container: contract.BatchContainerName, operator: jobSetOperator}
	case TrainJob:
		return kindOf{kind: contract.TrainJobKind, container: contract.BatchContainerName, operator: trainJobOperator}
	}
	return kindOf{kind: contract.PyTorchJobKind, container: contract.PyTorchContainerName, operator: "pytorchjob-controller", app: "pytorchjob"}
}

// alphaVersion is the version of MPIJob that arena knows.
var alphaVersion = schema.GroupVersion{Group: contract.KubeflowGroup, Version: contract.MPIAlphaVersion}

// GVK returns the kind of object that the framework's jobs are, in the training operator's version.
func (f Framework) GVK() schema.GroupVersionKind {
	switch f {
	case Batch:
		return batchv1.SchemeGroupVersion.WithKind(contract.BatchJobKind)
	case JobSet:
		return jobSetVersion.WithKind(contract.JobSetKind)
	case TrainJob:
		return trainerVersion.WithKind(contract.TrainJobKind)
	}
	return schema.GroupVersionKind{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Kind: f.object().kind}
}

// Kinds returns the kind of the framework's jobs in each version that is written, the
// training operator's first.
func (f Framework) Kinds() []schema.GroupVersionKind {
	if f == MPI {
		return []schema.GroupVersionKind{f.GVK(), operatorVersion.WithKind(contract.MPIJobKind), alphaVersion.WithKind(contract.MPIJobKind)}
	}
	return []schema.GroupVersionKind{f.GVK()}
}

// Resources returns the resources that are written for the framework's jobs.
func (f Framework) Resources() []schema.GroupResource {
	switch f {
	case MPI:
		return []schema.GroupResource{{Group: contract.KubeflowGroup, Resource: contract.MPIJobResource}}
	case Batch:
		return []schema.GroupResource{{Group: batchv1.GroupName, Resource: contract.BatchJobResource}}
	case JobSet:
		return []schema.GroupResource{{Group: contract.JobSetGroup, Resource: contract.JobSetResource}}
	case TrainJob:
		return []schema.GroupResource{
			{Group: contract.TrainerGroup, Resource: contract.TrainJobResource},
			{Group: contract.TrainerGroup, Resource: contract.TrainingRuntimeResource},
		}
	}
	return []schema.GroupResource{{Group: contract.KubeflowGroup, Resource: contract.PyTorchJobResource}}
}

// GVK returns the kind of object that the job is.
func (s Spec) GVK() schema.GroupVersionKind {
	kind := s.Framework.GVK()
	if s.Version != "" {
		kind.Version = s.Version
	}
	return kind
}

// Runner names what a cluster needs to run the framework's jobs.
func (f Framework) Runner() string {
	switch f {
	case JobSet:
		return "JobSet 0.6 or later"
	case TrainJob:
		return "Kubeflow Trainer 2.1 or later, with JobSet"
	case MPI:
		return "the Kubeflow training operator 1.9, or the MPI operator 0.5 or later"
	}
	return "the Kubeflow training operator 1.9"
}

// Operators returns the values of the label training.kubeflow.org/operator-name on the framework's pods: that of the
// MPI operator, too.
func (f Framework) Operators() []string {
	if f == MPI {
		return []string{f.object().operator, mpiOperator}
	}
	return []string{f.object().operator}
}

// replicas returns the replica specs of the framework's kind.
func (s *objectSpec) replicas(f Framework) map[string]replicaSpec {
	switch f {
	case MPI:
		return s.MPI
	case Batch, JobSet, TrainJob:
		return s.Jobs
	}
	return s.PyTorch
}

func frameworkOf(kind string) (Framework, bool) {
	for _, f := range Frameworks() {
		if f.object().kind == kind {
			return f, true
		}
	}
	return "", false
}
