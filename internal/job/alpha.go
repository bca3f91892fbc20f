package job

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// The part of MPIJob kubeflow.org/v1alpha1 that we write and read (MPI operator 0.2.3,
// pkg/apis/kubeflow/v1alpha1): one template for the launcher and the workers.

type alphaObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              alphaSpec   `json:"spec"`
	Status            alphaStatus `json:"status,omitzero"`
}

type alphaSpec struct {
	Replicas              *int32                 `json:"replicas,omitempty"`
	SlotsPerWorker        *int32                 `json:"slotsPerWorker,omitempty"`
	CleanPodPolicy        string                 `json:"cleanPodPolicy,omitempty"`
	BackoffLimit          *int32                 `json:"backoffLimit,omitempty"`
	ActiveDeadlineSeconds *int64                 `json:"activeDeadlineSeconds,omitempty"`
	Template              corev1.PodTemplateSpec `json:"template"`
}

type alphaStatus struct {
	LauncherStatus string       `json:"launcherStatus,omitempty"`
	WorkerReplicas int32        `json:"workerReplicas,omitempty"`
	StartTime      *metav1.Time `json:"startTime,omitempty"`
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// longestAlphaName is how long the name of a job may be of which the operator makes a
// StatefulSet: its pods have a label with the set's name and a hash.
const longestAlphaName = 45

// Alpha reports whether an object is an MPIJob of the shape of v1alpha1. A server that
// serves v1 as well may show it under either version.
func Alpha(obj *unstructured.Unstructured) bool {
	_, found, _ := unstructured.NestedMap(obj.Object, "spec", "template")
	return found && obj.GetKind() == contract.MPIJobKind
}

// Whole reports whether an object has the part that describes its pods. One that is asked
// for in a version that it was not written in may lack it.
func Whole(obj *unstructured.Unstructured) bool {
	o, framework, err := decode(obj)
	return err != nil || len(o.Spec.replicas(framework)) > 0
}

func (s Spec) alphaFaults(add report) {
	if len(s.Name) > longestAlphaName {
		add("", "name", "the name has %d characters, and %d are possible", len(s.Name), longestAlphaName)
	}
	if s.Gang && s.Minimum < s.Members() {
		add("", "gang", "the launcher starts when all workers run, so the minimum is %d", s.Members())
	}
	if s.RestartPolicy != string(corev1.RestartPolicyNever) && s.RestartPolicy != string(corev1.RestartPolicyOnFailure) {
		add("", "restart_policy", "%q is not possible: use \"Never\" or \"OnFailure\"", s.RestartPolicy)
	}
	if s.TTLSecondsAfterFinished != nil {
		add("", "ttl_seconds_after_finished", "nothing cleans up after it")
	}
	launcher, worker := s.Roles[contract.ReplicaLauncher], s.Roles[contract.ReplicaWorker]
	if launcher.Replicas != 1 || !launcher.CPU.IsZero() || !launcher.Memory.IsZero() || launcher.RDMA {
		add(contract.ReplicaLauncher, "", "the launcher is one pod without requests")
	}
	if len(worker.Command) > 0 || len(worker.Args) > 0 {
		add(contract.ReplicaWorker, "command", "the workers wait for the launcher, and run nothing else")
	}
	if launcher.Image != worker.Image || launcher.WorkingDir != worker.WorkingDir || !maps.Equal(launcher.Env, worker.Env) {
		add(contract.ReplicaLauncher, "", "launcher and workers have one template, so image, env and working_dir are the same")
	}
}

// toAlpha gives an MPIJob of v1 the shape of v1alpha1. Its pods get the labels by which those
// of the training operator are known, as far as they are the same for all.
func toAlpha(o *object) *alphaObject {
	launcher, worker := o.Spec.MPI[camel(contract.ReplicaLauncher)], o.Spec.MPI[camel(contract.ReplicaWorker)]
	template := *worker.Template.DeepCopy()
	template.Labels = merge(template.Labels, map[string]string{
		contract.JobOperatorNameLabel: MPI.object().operator, contract.JobNameLabel: o.Name,
	})
	main, leads := &template.Spec.Containers[0], launcher.Template.Spec.Containers[0]
	main.Command, main.Args = leads.Command, leads.Args
	template.Spec.RestartPolicy = corev1.RestartPolicy(worker.RestartPolicy)
	a := &alphaObject{TypeMeta: metav1.TypeMeta{APIVersion: alphaVersion.String(), Kind: contract.MPIJobKind}, ObjectMeta: o.ObjectMeta, Spec: alphaSpec{
		Replicas:              worker.Replicas,
		SlotsPerWorker:        o.Spec.SlotsPerWorker,
		CleanPodPolicy:        o.Spec.RunPolicy.CleanPodPolicy,
		BackoffLimit:          o.Spec.RunPolicy.BackoffLimit,
		ActiveDeadlineSeconds: o.Spec.RunPolicy.ActiveDeadlineSeconds,
		Template:              template,
	}}
	if ptr.Deref(o.Spec.RunPolicy.Suspend, false) {
		a.Annotations = merge(a.Annotations, map[string]string{contract.SuspendAnnotation: "true"})
	}
	return a
}

// fromAlpha gives an MPIJob of v1alpha1 the shape of v1.
func fromAlpha(obj *unstructured.Unstructured) (*object, error) {
	a := &alphaObject{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, a); err != nil {
		return nil, err
	}
	o := &object{TypeMeta: a.TypeMeta, ObjectMeta: a.ObjectMeta}
	o.Annotations = others(a.Annotations, contract.SuspendAnnotation)
	o.Spec.SlotsPerWorker = a.Spec.SlotsPerWorker
	o.Spec.RunPolicy = runPolicy{
		CleanPodPolicy: a.Spec.CleanPodPolicy, BackoffLimit: a.Spec.BackoffLimit, ActiveDeadlineSeconds: a.Spec.ActiveDeadlineSeconds,
		Suspend: ptr.To(Held(obj)),
	}
	launcher, worker := a.Spec.Template.DeepCopy(), a.Spec.Template.DeepCopy()
	delete(launcher.Labels, contract.ResourceGPUCount)
	if len(launcher.Spec.Containers) > 0 {
		launcher.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		worker.Spec.Containers[0].Command, worker.Spec.Containers[0].Args = nil, nil
	}
	policy := string(a.Spec.Template.Spec.RestartPolicy)
	o.Spec.MPI = map[string]replicaSpec{
		camel(contract.ReplicaLauncher): {Replicas: ptr.To[int32](1), RestartPolicy: policy, Template: *launcher},
		camel(contract.ReplicaWorker):   {Replicas: ptr.To(ptr.Deref(a.Spec.Replicas, 1)), RestartPolicy: policy, Template: *worker},
	}
	o.Status = objectStatus{StartTime: a.Status.StartTime, CompletionTime: a.Status.CompletionTime, ReplicaStatuses: map[string]replicaStatus{
		camel(contract.ReplicaWorker): {Active: a.Status.WorkerReplicas},
	}}
	if a.Status.LauncherStatus == alphaActive {
		o.Status.ReplicaStatuses[camel(contract.ReplicaLauncher)] = replicaStatus{Active: 1}
	}
	return o, nil
}

// What the operator says of a launcher that runs.
const alphaActive = "Active"

// alphaPhase is where a job stands, which has no conditions.
func alphaPhase(obj *unstructured.Unstructured) (phase Phase, message string) {
	status, _, _ := unstructured.NestedMap(obj.Object, "status")
	launcher, _ := status["launcherStatus"].(string)
	switch {
	case launcher == string(Succeeded):
		return Succeeded, "the launcher has succeeded"
	case launcher == string(Failed):
		return Failed, "the launcher has failed"
	case Held(obj):
		return Suspended, ""
	case launcher == alphaActive:
		return Running, ""
	case len(status) > 0:
		return Created, ""
	}
	return Pending, ""
}

// alphaPod is a pod of an MPIJob v1alpha1: of the operator's StatefulSet of workers, or of the
// Job with its launcher. Its init container asks for nothing.
func alphaPod(o *object, role string, index int, template corev1.PodTemplateSpec) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace,
			Name:      o.Name + "-" + role,
			Labels: merge(template.Labels, map[string]string{
				contract.ArenaMPIGroupLabel: contract.KubeflowGroup, contract.ArenaMPIJobLabel: o.Name, contract.ArenaMPIRoleLabel: role,
			}),
			Annotations: template.Annotations,
		},
		Spec: *template.Spec.DeepCopy(),
	}
	if role == contract.ReplicaLauncher {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "kubectl-delivery"})
	} else {
		p.Name = objectName(o.Name, role, index)
		p.Labels[appsv1.PodIndexLabel] = strconv.Itoa(index)
	}
	SetDefaults(&p.Spec)
	return p
}

// WorkerSet is the name of the StatefulSet that the operator makes of the workers of an
// MPIJob v1alpha1.
func WorkerSet(jobName string) string { return jobName + "-" + contract.ReplicaWorker }

// HoldField is the field of a job that says whether it is not to run.
func HoldField(obj *unstructured.Unstructured) []string {
	if Alpha(obj) {
		return []string{"metadata", "annotations", contract.SuspendAnnotation}
	}
	if isBatch(obj) || isJobSet(obj) || isTrainJob(obj) {
		return []string{"spec", "suspend"}
	}
	return []string{"spec", "runPolicy", "suspend"}
}

// Held reports whether a job is not to run: its field says so, or of an MPIJob v1alpha1
// its annotation.
func Held(obj *unstructured.Unstructured) bool {
	if Alpha(obj) {
		return obj.GetAnnotations()[contract.SuspendAnnotation] == "true"
	}
	suspended, _, _ := unstructured.NestedBool(obj.Object, HoldField(obj)...)
	return suspended
}

// Hold says in a job whether it is not to run.
func Hold(obj *unstructured.Unstructured, held bool) error {
	if Alpha(obj) {
		obj.SetAnnotations(merge(obj.GetAnnotations(), map[string]string{contract.SuspendAnnotation: strconv.FormatBool(held)}))
		return nil
	}
	return unstructured.SetNestedField(obj.Object, held, HoldField(obj)...)
}

// Queued reports whether a queue decides when a job runs, ours or Kueue's.
func Queued(obj metav1.Object) bool {
	return obj.GetAnnotations()[contract.QueueAnnotation] == "true" || obj.GetLabels()[contract.KueueQueueLabel] != ""
}
