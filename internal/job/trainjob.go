package job

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A TrainJob trainer.kubeflow.org/v1alpha1 (Kubeflow Trainer 2.1, pkg/apis/trainer/v1alpha1) says of its pods only
// what its runtime, another object, leaves open. Ours has a TrainingRuntime of its own name that says all of them, as
// the template of a JobSet. Here both are one object: the runtime's spec is the field [trainJobTemplate] of the
// TrainJob, which its kind does not have. [Split] and [Join] are the way from one shape to the other.

// trainJobTemplate is the field of a TrainJob that has its runtime's template.
const trainJobTemplate = "runtimeTemplate"

// trainJobOperator is the value of the label [contract.JobOperatorNameLabel] on pods of TrainJobs.
const trainJobOperator = "trainjob-controller"

// trainJobComplete is the condition of a TrainJob that has succeeded.
const trainJobComplete = "Complete"

var trainerVersion = schema.GroupVersion{Group: contract.TrainerGroup, Version: contract.TrainerVersion}

// RuntimeGVK is the kind of the objects that say what the pods of TrainJobs are.
func RuntimeGVK() schema.GroupVersionKind {
	return trainerVersion.WithKind(contract.TrainingRuntimeKind)
}

type trainJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              trainJobSpec    `json:"spec"`
	Template          runtimeTemplate `json:"runtimeTemplate"`
}

type trainJobSpec struct {
	RuntimeRef runtimeRef `json:"runtimeRef"`
	Suspend    *bool      `json:"suspend,omitempty"`
}

type runtimeRef struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

type runtimeTemplate struct {
	Spec jobSetSpec `json:"spec"`
}

// toTrainJob gives a job the shape of a TrainJob with its runtime: that of a JobSet, but for what suspends it.
func toTrainJob(o *object) *trainJob {
	set := toJobSet(o, TrainJob)
	t := &trainJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: trainerVersion.String(), Kind: contract.TrainJobKind},
		ObjectMeta: o.ObjectMeta,
		Spec: trainJobSpec{
			RuntimeRef: runtimeRef{APIGroup: contract.TrainerGroup, Kind: contract.TrainingRuntimeKind, Name: o.Name},
			Suspend:    set.Spec.Suspend,
		},
		Template: runtimeTemplate{Spec: set.Spec},
	}
	t.Template.Spec.Suspend = nil
	return t
}

// asJobSet shows a TrainJob with its runtime as the JobSet that it becomes, with the status that it has of it. How often
// that has started again it does not tell.
func asJobSet(obj *unstructured.Unstructured) *unstructured.Unstructured {
	set := &unstructured.Unstructured{Object: map[string]any{}}
	set.SetGroupVersionKind(jobSetVersion.WithKind(contract.JobSetKind))
	set.Object["metadata"] = obj.Object["metadata"]
	spec, _, _ := unstructured.NestedMap(obj.Object, trainJobTemplate, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	spec["suspend"] = Held(obj)
	set.Object["spec"] = spec
	roles, _, _ := unstructured.NestedSlice(obj.Object, "status", "jobsStatus")
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok && fields["type"] == trainJobComplete {
			fields["type"] = jobSetCompleted
		}
	}
	set.Object["status"] = map[string]any{"replicatedJobsStatus": roles, "conditions": conditions}
	return set
}

// RuntimeOf names the TrainingRuntime that a TrainJob refers to, "" for another kind of runtime and for other jobs.
func RuntimeOf(obj *unstructured.Unstructured) string {
	if !isTrainJob(obj) {
		return ""
	}
	if kind, _, _ := unstructured.NestedString(obj.Object, "spec", "runtimeRef", "kind"); kind != contract.TrainingRuntimeKind {
		return ""
	}
	name, _, _ := unstructured.NestedString(obj.Object, "spec", "runtimeRef", "name")
	return name
}

// Join gives a TrainJob what its runtime says of its pods. One whose runtime is not of our making, or is another job's,
// stays without, and so do other jobs.
func Join(obj, runtime *unstructured.Unstructured) {
	if runtime == nil || runtime.GetName() != obj.GetName() || !(Spec{Name: obj.GetName(), Framework: TrainJob}).OwnsRuntime(runtime) {
		return
	}
	if template, found, _ := unstructured.NestedMap(runtime.Object, "spec", "template"); found {
		obj.Object[trainJobTemplate] = template
	}
}

// JoinSet gives a TrainJob what the JobSet that it has become runs. Of a JobSet that is not suspended Kubeflow Trainer
// changes nothing, whatever becomes of the runtime. It reports false for a JobSet that is not the TrainJob's.
func JoinSet(obj, set *unstructured.Unstructured) bool {
	maker := PartOf(set)
	spec, found, _ := unstructured.NestedMap(set.Object, "spec")
	if !found || maker == nil || maker.UID != obj.GetUID() || set.GetDeletionTimestamp() != nil {
		return false
	}
	delete(spec, "suspend")
	obj.Object[trainJobTemplate] = map[string]any{"spec": spec}
	return true
}

// Split parts a job into the objects that it is in the cluster, in the order in which they are created: the runtime of a
// TrainJob and itself, any other job alone.
func Split(obj *unstructured.Unstructured) (runtime, bare *unstructured.Unstructured) {
	template, found, _ := unstructured.NestedMap(obj.Object, trainJobTemplate)
	if !found {
		return nil, obj
	}
	bare = obj.DeepCopy()
	delete(bare.Object, trainJobTemplate)
	runtime = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": template}}}
	runtime.SetGroupVersionKind(RuntimeGVK())
	runtime.SetNamespace(obj.GetNamespace())
	runtime.SetName(obj.GetName())
	labels := map[string]string{contract.ManagedByLabel: contract.ManagedByValue}
	if owner := obj.GetLabels()[contract.OwnerLabel]; owner != "" {
		labels[contract.OwnerLabel] = owner
	}
	runtime.SetLabels(labels)
	return runtime, bare
}

// runtimeFirst is how Kubeflow Trainer refuses a TrainJob without its runtime
// (pkg/runtime/core/trainingruntime.go of its version 2).
const runtimeFirst = "must be created before the TrainJob is created"

// MissesRuntime reports whether a TrainJob was refused because Kubeflow Trainer does not see its runtime.
func MissesRuntime(err error) bool { return err != nil && strings.Contains(err.Error(), runtimeFirst) }

// OwnsRuntime reports whether a TrainingRuntime of the job's name is of its making: it belongs to the TrainJob, or an
// apply of this configuration that was cut off has left it. Without [Spec.Owner] that is taken for one of any configuration.
func (s Spec) OwnsRuntime(runtime *unstructured.Unstructured) bool {
	labels, owners := runtime.GetLabels(), runtime.GetOwnerReferences()
	if labels[contract.ManagedByLabel] != contract.ManagedByValue {
		return false
	}
	if len(owners) > 0 {
		return s.Owns(owners)
	}
	by := labels[contract.OwnerLabel]
	return by == "" || s.Owner == "" || by == s.Owner
}

// keepTrainJob is [Keep] for a TrainJob: its JobSet is a copy of what its runtime says, of which nobody can change more
// than of a JobSet.
func keepTrainJob(rendered, live *unstructured.Unstructured) error {
	set := asJobSet(rendered)
	if err := keepJobSet(set, asJobSet(live)); err != nil {
		return err
	}
	unstructured.RemoveNestedField(set.Object, "spec", "suspend")
	if err := unstructured.SetNestedField(rendered.Object, set.Object["spec"], trainJobTemplate, "spec"); err != nil {
		return fmt.Errorf("render TrainJob %s/%s: %w", live.GetNamespace(), live.GetName(), err)
	}
	return nil
}

func isTrainJob(obj *unstructured.Unstructured) bool {
	return obj.GetKind() == contract.TrainJobKind && obj.GroupVersionKind().Group == contract.TrainerGroup
}

// foreignTrainJob is [Foreign] for a TrainJob: other ones may share its runtime, unless that is of our making.
func foreignTrainJob(obj *unstructured.Unstructured) string {
	if _, joined := obj.Object[trainJobTemplate]; joined {
		return ""
	}
	kind, _, _ := unstructured.NestedString(obj.Object, "spec", "runtimeRef", "kind")
	name, _, _ := unstructured.NestedString(obj.Object, "spec", "runtimeRef", "name")
	return fmt.Sprintf("what it runs is said by the %s %s, which this provider has not made and other jobs may use", kind, name)
}

// checkTrainJob holds the rules of TrainJobs alone.
func (s Spec) checkTrainJob(add report) {
	if s.Framework == TrainJob && s.TTLSecondsAfterFinished != nil {
		add("", "ttl_seconds_after_finished", "a TrainJob that has finished stays until it is deleted: leave it out with framework %q", TrainJob)
	}
}
