package job

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// Phase is where a job stands, in the operator's words.
type Phase string

// Phases of a job.
const (
	Pending    Phase = "Pending" // not looked at by the operator yet, or started once and waiting for all its members again
	Created    Phase = "Created" // accepted, replicas not running yet
	Running    Phase = "Running"
	Restarting Phase = "Restarting"
	Suspended  Phase = "Suspended"
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
)

// Condition is a condition of a job as the operator writes it.
type Condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitzero"`
}

// Status is what the operator reports of a job.
type Status struct {
	Phase      Phase
	Conditions []Condition
	// Start and Completion are nil as long as the job has not started or finished.
	Start, Completion *metav1.Time
	// Active, Done and Wanted count replicas: running, succeeded, and those that must
	// run, which of a gang are its minimum.
	Active, Done, Wanted int32
	// Message is the operator's message for the phase.
	Message string

	// members counts those of the gang that run or have succeeded; minimum is how many must, and elastic that more may.
	members, minimum int32
	elastic          bool
}

// Finished reports whether the job has succeeded or failed.
func (s Status) Finished() bool { return s.Phase == Succeeded || s.Phase == Failed }

// Runs reports whether the job runs with every replica that must run. The operator's Running
// condition alone only says that the leading replica does. A gang that may run with a part of
// its members runs when its minimum does, and as many as placed, whether the leading one is of them or not.
func (s Status) Runs(placed int32) bool {
	if s.elastic {
		return (s.Phase == Created || s.Phase == Running) && s.members >= max(s.minimum, placed)
	}
	return s.Phase == Running && s.Active+s.Done >= s.Wanted
}

// StatusOf reads the status of a PyTorchJob, an MPIJob, a Job, a JobSet, or a TrainJob with its runtime.
func StatusOf(obj *unstructured.Unstructured) (Status, error) {
	o, framework, err := decode(obj)
	if err != nil {
		return Status{}, err
	}
	s := Status{Conditions: o.Status.Conditions, Start: o.Status.StartTime, Completion: o.Status.CompletionTime}
	var atFirst int32
	for _, r := range o.Spec.replicas(framework) {
		s.Wanted += ptr.Deref(r.Replicas, 1)
		if !r.Later {
			atFirst += ptr.Deref(r.Replicas, 1)
		}
	}
	spec := specOf(o, framework)
	if spec.Gang {
		s.minimum, s.elastic = spec.Minimum, spec.Minimum < spec.Members()
		s.Wanted -= max(0, spec.Members()-spec.Minimum) // a launcher's Job has the labels of the gang that it belongs to
	}
	s.Wanted = min(s.Wanted, atFirst)
	for name, r := range o.Status.ReplicaStatuses {
		s.Active += r.Active
		s.Done += r.Succeeded
		if !spec.Late(strings.ToLower(name)) {
			s.members += r.Active + r.Succeeded
		}
	}
	s.Phase, s.Message = phaseOf(o, obj)
	if s.Phase == Running && spec.Members() > 0 && s.members == 0 {
		s.Phase, s.Message = Pending, "" // the operator leaves its condition when all members are evicted
	}
	return s, nil
}

// phaseOf is the phase as the operator reports it.
func phaseOf(o *object, obj *unstructured.Unstructured) (phase Phase, message string) {
	switch {
	case Alpha(obj):
		return alphaPhase(obj)
	case isBatch(obj):
		return batchPhase(o, obj)
	case isJobSet(obj):
		return jobSetPhase(o, obj)
	case isTrainJob(obj):
		return jobSetPhase(o, asJobSet(obj))
	}
	return conditionPhase(o)
}

// conditionPhase is the phase as the conditions say.
func conditionPhase(o *object) (phase Phase, message string) {
	phase = Pending
	// Conditions stay when the job moves on; the later phase wins.
	for _, p := range []Phase{Created, Running, Restarting, Suspended, Failed, Succeeded} {
		for _, c := range o.Status.Conditions {
			if c.Type == string(p) && c.Status == corev1.ConditionTrue {
				phase, message = p, c.Message
			}
		}
	}
	return phase, message
}

// decode reads the parts of a job object that we know.
func decode(obj *unstructured.Unstructured) (*object, Framework, error) {
	framework, ok := frameworkOf(obj.GetKind())
	if !ok {
		return nil, "", fmt.Errorf("%s %s/%s is no training job: want a PyTorchJob, an MPIJob, a Job, a JobSet or a TrainJob", obj.GetKind(), obj.GetNamespace(), obj.GetName())
	}
	var reshape func(*unstructured.Unstructured) (*object, error)
	switch {
	case Alpha(obj):
		reshape = fromAlpha
	case framework == Batch:
		reshape = fromBatch
	case framework == JobSet:
		reshape = fromJobSet
	case framework == TrainJob:
		reshape = func(obj *unstructured.Unstructured) (*object, error) { return fromJobSet(asJobSet(obj)) }
	}
	if reshape != nil {
		o, err := reshape(obj)
		if err != nil {
			return nil, "", fmt.Errorf("read %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
		}
		return o, framework, nil
	}
	o := &object{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, o); err != nil {
		return nil, "", fmt.Errorf("read %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return o, framework, nil
}
