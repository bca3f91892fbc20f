package queue

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// kind is a kind of job that can be queued.
type kind struct {
	gvk      schema.GroupVersionKind
	resource string
	// suspend is the path of the field that holds the job, nil where its annotation does.
	suspend []string
}

// kinds lists the kinds of jobs. The training operator serves MPIJob in v1, the MPI operator
// in v2beta1, which is no harm where a cluster serves both and shows an object twice, and
// before that in v1alpha1, which has another shape: see [kind.has].
func kinds() []kind {
	kubeflow := schema.GroupVersion{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion}
	mpiOperator := schema.GroupVersion{Group: contract.KubeflowGroup, Version: contract.MPIOperatorVersion}
	mpiAlpha := schema.GroupVersion{Group: contract.KubeflowGroup, Version: contract.MPIAlphaVersion}
	jobSets := schema.GroupVersion{Group: contract.JobSetGroup, Version: contract.JobSetVersion}
	trainer := schema.GroupVersion{Group: contract.TrainerGroup, Version: contract.TrainerVersion}
	runPolicy := []string{"spec", "runPolicy", "suspend"}
	return []kind{
		{kubeflow.WithKind(contract.PyTorchJobKind), contract.PyTorchJobResource, runPolicy},
		{kubeflow.WithKind(contract.MPIJobKind), contract.MPIJobResource, runPolicy},
		{batchv1.SchemeGroupVersion.WithKind("Job"), "jobs", []string{"spec", "suspend"}},
		{mpiOperator.WithKind(contract.MPIJobKind), contract.MPIJobResource, runPolicy},
		{mpiAlpha.WithKind(contract.MPIJobKind), contract.MPIJobResource, nil},
		{jobSets.WithKind(contract.JobSetKind), contract.JobSetResource, []string{"spec", "suspend"}},
		{trainer.WithKind(contract.TrainJobKind), contract.TrainJobResource, []string{"spec", "suspend"}},
	}
}

// has reports whether an object is of the kind, however the server shows it.
func (k kind) has(object *unstructured.Unstructured) bool {
	return trainingjob.Alpha(object) == (k.suspend == nil)
}

func (k kind) gvr() schema.GroupVersionResource { return k.gvk.GroupVersion().WithResource(k.resource) }

// job is a job as the queue sees it. It is not changed once it is made.
type job struct {
	kind            kind
	object          *unstructured.Unstructured
	namespace, name string
	uid             types.UID
	// partOf is the training job that made this one, "" for a job on its own.
	partOf types.UID
	// created is a time in Unix seconds.
	created int64
	// suspended means that the job's field holds it, asked that its annotations ask for that.
	suspended, asked bool
	// wanted and declined are what [contract.QueueAnnotation] says. What Kueue holds is declined, too.
	wanted, declined bool
	// started means that it has run, deleted that it is only kept until its finalizers are done:
	// its controller makes no pods for it any more.
	started, deleted bool
	// ended is how many pods a Job says that it has had of those that it makes no more.
	ended int
	// running is how many pods are known to run by what is told of the job in another cluster.
	running int
	// content is that of the binding that holds the job in a fleet, nil in a cluster.
	content *fleet.Binding
	// finished is Succeed or Failed, "" before.
	finished contract.QueueUnitPhase
	// sequence is the order of arrival within a second: the resource version with which
	// the job was created, or [state.began].
	sequence int64
	needs
}

// needs is what the job's description says about its pods. A TrainJob's are those of the JobSet that it becomes, and
// empty before that.
type needs struct {
	// leaf is the quota leaf that the pods name, "" when the namespace decides.
	leaf        string
	charge      quota.Resources
	requests    corev1.ResourceList
	preemptible bool
	// pods is how many must run for the job to run.
	pods          int
	priorityClass string
	priority      *int32
}

// newJob reads a job; before is what was known of it, or nil.
func newJob(k kind, object *unstructured.Unstructured, before *job) (*job, error) {
	annotations := object.GetAnnotations()
	j := &job{
		kind: k, object: object, namespace: object.GetNamespace(), name: object.GetName(), uid: object.GetUID(),
		created: object.GetCreationTimestamp().Unix(),
		asked:   annotations[contract.SuspendAnnotation] == "true",
		wanted:  annotations[contract.QueueAnnotation] == "true",
		deleted: object.GetDeletionTimestamp() != nil,
	}
	kueues := object.GetLabels()[contract.KueueQueueLabel] != "" && !j.wanted && !j.asked
	j.declined = kueues || annotations[contract.QueueAnnotation] == "false"
	if whole := trainingjob.PartOf(object); whole != nil {
		j.partOf = whole.UID
	}
	if j.suspended = j.asked; k.suspend != nil {
		j.suspended, _, _ = unstructured.NestedBool(object.Object, k.suspend...)
	}
	if before != nil && (before.object.GetGeneration() == object.GetGeneration() || k.gvk.Kind == contract.TrainJobKind) {
		j.needs = before.needs
	}
	if err := j.read(); err != nil {
		return nil, fmt.Errorf("read %s: %w", j, err)
	}
	return j, nil
}

func (j *job) String() string {
	return j.kind.gvk.Kind + " " + j.namespace + "/" + j.name
}

// unitName is the name of the job's unit.
func (j *job) unitName() string {
	if j.content != nil {
		return contract.QueueUnitName(j.content.Spec.Resource.Kind, j.content.Spec.Resource.Name)
	}
	return contract.QueueUnitName(j.kind.gvk.Kind, j.name)
}

// sent reports whether the job of a fleet has a cluster.
func (j *job) sent() bool { return j.content != nil && j.content.Cluster() != "" }

// about is the object that is told of what becomes of the job.
func (j *job) about() runtime.Object {
	if j.content == nil {
		return j.object
	}
	of := j.content.Spec.Resource
	return &corev1.ObjectReference{APIVersion: of.APIVersion, Kind: of.Kind, Namespace: j.namespace, Name: of.Name, UID: of.UID}
}

// leafIn returns the job's leaf of a tree, "" when it has none there.
func (j *job) leafIn(tree *quota.Tree) string {
	if tree == nil {
		return ""
	}
	leaf := j.leaf
	if leaf == "" {
		leaf = tree.LeafOf(j.namespace)
	}
	if !tree.HasLeaf(leaf) {
		return ""
	}
	return leaf
}

// read takes in what the job's object says of its course, and of its pods unless that is known.
func (j *job) read() error {
	status, err := trainingjob.StatusOf(j.object)
	if err != nil {
		return err
	}
	if j.course(status); j.kind.gvk.Group == batchv1.GroupName {
		j.ended = max(int(status.Done), trainingjob.Ended(j.object).Count())
	}
	if j.charge != nil || j.kind.gvk.Kind == contract.TrainJobKind {
		return nil
	}
	roles, err := trainingjob.Replicas(j.object)
	if err != nil {
		return err
	}
	j.needs = needsOf(roles)
	j.needs.pods = int(status.Wanted)
	return nil
}

// course takes in how far the job is.
func (j *job) course(status trainingjob.Status) {
	switch status.Phase {
	case trainingjob.Succeeded:
		j.finished = contract.UnitSucceed
	case trainingjob.Failed:
		j.finished = contract.UnitFailed
	}
	j.started = status.Start != nil
}

// mostCharged is more of anything than all clusters have. A job that asks for more is charged
// with this, so that sums stay what they are.
const mostCharged = 1 << 53

// needsOf adds up what the pods of a job need.
func needsOf(roles []trainingjob.ReplicaSpec) needs {
	n := needs{charge: quota.Resources{}, requests: corev1.ResourceList{}, preemptible: true}
	for _, role := range roles {
		if role.Count <= 0 {
			continue
		}
		p := role.Pod(0)
		consumer := inventory.ConsumerOf(p, nil)
		for name, amount := range consumer.Charge {
			most := mostCharged / int64(role.Count)
			n.charge[name] = min(n.charge[name]+min(amount, most)*int64(role.Count), mostCharged)
		}
		if n.leaf == "" {
			n.leaf = consumer.Leaf
		}
		n.preemptible = n.preemptible && consumer.Preemptible
		if n.priorityClass == "" {
			n.priorityClass, n.priority = p.Spec.PriorityClassName, p.Spec.Priority
		}
	}
	n.requests = quantities(n.charge)
	return n
}
