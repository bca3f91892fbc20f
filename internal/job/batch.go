package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// batchOperator is the value of the label [contract.JobOperatorNameLabel] on pods of Jobs, by which
// those of a job of another framework and the same name are told from them.
const batchOperator = "job-controller"

// toBatch gives a job the shape of a Job batch/v1.
func toBatch(o *object) *batchv1.Job {
	spec := indexed(o, Batch, contract.ReplicaWorker)
	spec.BackoffLimit = o.Spec.RunPolicy.BackoffLimit
	spec.TTLSecondsAfterFinished = o.Spec.RunPolicy.TTLSecondsAfterFinished
	spec.Suspend = o.Spec.RunPolicy.Suspend
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: contract.BatchJobKind},
		ObjectMeta: o.ObjectMeta,
		Spec:       spec,
	}
}

// indexed describes a Job of the replicas of a role: indexed, so that each of its pods is one member, and the
// same one when it is made again. Its pods get the labels by which those of the training operator are known.
// An eviction does not count as a failure where Kubernetes can tell the two apart, which is for pods that are
// not restarted in place.
func indexed(o *object, framework Framework, role string) batchv1.JobSpec {
	replica := o.Spec.Jobs[camel(role)]
	template := *replica.Template.DeepCopy()
	template.Labels = merge(template.Labels, map[string]string{
		contract.JobOperatorNameLabel: framework.object().operator, contract.JobNameLabel: o.Name, contract.JobReplicaTypeLabel: role,
	})
	template.Spec.RestartPolicy = corev1.RestartPolicy(replica.RestartPolicy)
	spec := batchv1.JobSpec{
		Parallelism:           replica.Replicas,
		Completions:           replica.Replicas,
		CompletionMode:        ptr.To(batchv1.IndexedCompletion),
		ActiveDeadlineSeconds: o.Spec.RunPolicy.ActiveDeadlineSeconds,
		Template:              template,
	}
	if template.Spec.RestartPolicy == corev1.RestartPolicyNever {
		spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}}
	}
	return spec
}

// fromBatch gives a Job the shape of the operator's kinds. Its pods are those of one role.
func fromBatch(obj *unstructured.Unstructured) (*object, error) {
	j := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, j); err != nil {
		return nil, err
	}
	o := &object{TypeMeta: j.TypeMeta, ObjectMeta: j.ObjectMeta}
	o.Spec.RunPolicy = runPolicy{
		BackoffLimit: j.Spec.BackoffLimit, ActiveDeadlineSeconds: j.Spec.ActiveDeadlineSeconds,
		TTLSecondsAfterFinished: j.Spec.TTLSecondsAfterFinished, Suspend: j.Spec.Suspend,
	}
	worker := camel(contract.ReplicaWorker)
	o.Spec.Jobs = map[string]replicaSpec{worker: {
		Replicas: ptr.To(atOnce(j.Spec)), RestartPolicy: string(j.Spec.Template.Spec.RestartPolicy), Template: j.Spec.Template,
	}}
	o.Status = objectStatus{
		StartTime: j.Status.StartTime, CompletionTime: j.Status.CompletionTime,
		ReplicaStatuses: map[string]replicaStatus{worker: {Active: ptr.Deref(j.Status.Ready, 0), Succeeded: j.Status.Succeeded, Failed: j.Status.Failed}},
	}
	for _, c := range j.Status.Conditions {
		o.Status.Conditions = append(o.Status.Conditions, Condition{
			Type: batchCondition(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return o, nil
}

// batchBackoff is how often the pods of a Job are made again unless it says otherwise (Kubernetes: "Jobs").
const batchBackoff int32 = 6

// atOnce is how many pods of a Job run together at most.
func atOnce(j batchv1.JobSpec) int32 {
	pods := ptr.Deref(j.Parallelism, 1)
	if j.Completions != nil {
		pods = min(pods, *j.Completions)
	}
	return pods
}

// completeBatch says what Kubernetes writes into every Job. Objects of operators stay as they are written.
func (s *Spec) completeBatch() {
	if s.Framework != Batch {
		return
	}
	if s.BackoffLimit == nil {
		s.BackoffLimit = new(batchBackoff)
	}
	if s.ImagePullPolicy == "" {
		s.ImagePullPolicy = pullPolicy(s.Roles[contract.ReplicaWorker].Image)
	}
}

// briefBatch is the inverse of completeBatch.
func (s *Spec) briefBatch() {
	if s.Framework != Batch {
		return
	}
	if ptr.Deref(s.BackoffLimit, 0) == batchBackoff {
		s.BackoffLimit = nil
	}
	if s.ImagePullPolicy == pullPolicy(s.Roles[contract.ReplicaWorker].Image) {
		s.ImagePullPolicy = ""
	}
}

// pullPolicy is when an image is pulled unless its pod says (Kubernetes: "Images", default image pull policy).
func pullPolicy(image string) corev1.PullPolicy {
	name, _, pinned := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !tagged && !pinned {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// batchCondition is what the training operator calls a condition of a Job.
func batchCondition(of batchv1.JobConditionType) string {
	switch of {
	case batchv1.JobComplete:
		return string(Succeeded)
	case batchv1.JobFailed:
		return string(Failed)
	}
	return string(of)
}

// batchPhase is where a Job stands. Its conditions say only how it ends, and that it is suspended.
func batchPhase(o *object, obj *unstructured.Unstructured) (phase Phase, message string) {
	phase, message = conditionPhase(o)
	if phase != Pending {
		return phase, message
	}
	worker := o.Status.ReplicaStatuses[camel(contract.ReplicaWorker)]
	active, _, _ := unstructured.NestedInt64(obj.Object, "status", "active")
	switch {
	case worker.Active+worker.Succeeded > 0:
		return Running, ""
	case active > 0:
		return Created, ""
	}
	return Pending, ""
}

// Ended are the indexes for which a Job makes no pods any more, none of other objects: an operator makes all
// replicas again that it does not find, and the status of a JobSet does not tell.
func Ended(obj *unstructured.Unstructured) inventory.IndexRanges {
	j := &batchv1.Job{}
	if !isBatch(obj) || runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, j) != nil {
		return nil
	}
	return inventory.EndedIndexes(j.Status)
}

// batchPod is a pod of a Job of this name, and has a name with a suffix that nobody knows before.
func batchPod(o *object, name string, index int, template corev1.PodTemplateSpec) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace,
			Name:      name + "-" + strconv.Itoa(index),
			Labels: merge(template.Labels, map[string]string{
				batchv1.JobNameLabel: name, batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index),
			}),
			Annotations: merge(template.Annotations, map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index)}),
		},
		Spec: *template.Spec.DeepCopy(),
	}
	SetDefaults(&p.Spec)
	return p
}

// Keep gives a rendered Job or JobSet what nobody can change of the live one: its templates, but for labels and
// annotations of one that is suspended, and of a Job has not started, and its policy on failures. Of a template that
// someone else has written nothing else is applied, so that it stays theirs. So do roles of an MPIJob v2beta1. It leaves objects of other kinds as they are.
func Keep(rendered, live *unstructured.Unstructured) error {
	switch {
	case isJobSet(rendered):
		return keepJobSet(rendered, live)
	case isTrainJob(rendered):
		return keepTrainJob(rendered, live)
	case VersionOf(rendered) == contract.MPIOperatorVersion:
		return keepOperator(rendered, live)
	case !isBatch(rendered):
		return nil
	}
	template, _, err := unstructured.NestedMap(live.Object, "spec", "template")
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", live.GetKind(), live.GetNamespace(), live.GetName(), err)
	}
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	if labels[contract.ManagedByLabel] != contract.ManagedByValue {
		template = map[string]any{}
	}
	for _, key := range batchLabels {
		unstructured.RemoveNestedField(template, "metadata", "labels", key)
	}
	if started, _, _ := unstructured.NestedString(live.Object, "status", "startTime"); Held(live) && started == "" {
		metadata, _, _ := unstructured.NestedMap(rendered.Object, "spec", "template", "metadata")
		template["metadata"] = metadata
	}
	policy, _, _ := unstructured.NestedMap(live.Object, "spec", "podFailurePolicy")
	for field, kept := range map[string]map[string]any{"template": template, "podFailurePolicy": policy} {
		unstructured.RemoveNestedField(rendered.Object, "spec", field)
		if len(kept) == 0 {
			continue
		}
		if err := unstructured.SetNestedMap(rendered.Object, kept, "spec", field); err != nil {
			return fmt.Errorf("render %s %s/%s: %w", live.GetKind(), live.GetNamespace(), live.GetName(), err)
		}
	}
	return nil
}

// batchLabels are what Kubernetes writes into the template of a Job, and on a Job that has no labels but those of its template.
var batchLabels = []string{batchv1.JobNameLabel, batchv1.ControllerUidLabel, "job-name", "controller-uid"}

func isBatch(obj *unstructured.Unstructured) bool {
	return obj.GetKind() == contract.BatchJobKind && obj.GroupVersionKind().Group == batchv1.GroupName
}

// Foreign says why an object cannot be described as a job of ours, "" when it can: of Jobs and JobSets only those of
// which each index is one pod, all at once, and that are nobody's part can.
func Foreign(obj *unstructured.Unstructured) string {
	if isTrainJob(obj) {
		return foreignTrainJob(obj)
	}
	if !isBatch(obj) && !isJobSet(obj) {
		return ""
	}
	if owner := metav1.GetControllerOf(obj); owner != nil {
		return fmt.Sprintf("it belongs to the %s %s", owner.Kind, owner.Name)
	}
	if isJobSet(obj) {
		return foreignJobSet(obj)
	}
	mode, _, _ := unstructured.NestedString(obj.Object, "spec", "completionMode")
	parallelism, _, _ := unstructured.NestedInt64(obj.Object, "spec", "parallelism")
	completions, _, _ := unstructured.NestedInt64(obj.Object, "spec", "completions")
	if mode != string(batchv1.IndexedCompletion) || parallelism != completions {
		return fmt.Sprintf("its completionMode is %s with %d completions and a parallelism of %d, and a job here has the mode %s and as many completions as replicas, of which Kubernetes lets nobody change the first",
			mode, completions, parallelism, batchv1.IndexedCompletion)
	}
	return ""
}

// Clashes reports whether the pods of an object could not be told from those of a job of its name and
// another framework. Those of a Job, a JobSet or a TrainJob of ours that is no gang can.
func Clashes(obj *unstructured.Unstructured) bool {
	if isTrainJob(obj) {
		if foreignTrainJob(obj) != "" {
			return true // what its pods are is not known
		}
		obj = asJobSet(obj)
	}
	if isJobSet(obj) {
		return slices.ContainsFunc(jobSetRoles(obj), func(role map[string]any) bool {
			labels, _, _ := unstructured.NestedStringMap(role, "template", "spec", "template", "metadata", "labels")
			return joins(labels, obj.GetName())
		})
	}
	labels, _, _ := unstructured.NestedStringMap(obj.Object, "spec", "template", "metadata", "labels")
	return !isBatch(obj) || joins(labels, obj.GetName())
}

// joins reports whether labels make a pod of a job part of the gang of the job's name.
func joins(labels map[string]string, job string) bool {
	return slices.ContainsFunc([]string{contract.PodGroupLabel, contract.LightGangLabel, contract.TopologyGroupLabel}, func(name string) bool {
		return labels[name] == job || labels[name] == "true"
	})
}

// checkBatch holds the rules of Jobs, and of those of a JobSet.
func (s Spec) checkBatch(add report) {
	if s.Framework != Batch && !s.Framework.AsJobSet() {
		return
	}
	if s.RestartPolicy != "" && s.RestartPolicy != string(corev1.RestartPolicyNever) && s.RestartPolicy != string(corev1.RestartPolicyOnFailure) {
		add("", "restart_policy", "%q is not possible with framework %q: use \"Never\" or \"OnFailure\"", s.RestartPolicy, s.Framework)
	}
	switch {
	case s.Framework.AsJobSet() && s.CleanPodPolicy != "" && s.CleanPodPolicy != "Running":
		add("", "clean_pod_policy", "a JobSet that has finished keeps the pods of what has finished, and no others: leave clean_pod_policy out with framework %q", s.Framework)
	case s.Framework == Batch && s.CleanPodPolicy != "" && s.CleanPodPolicy != "None":
		add("", "clean_pod_policy", "a Job keeps its pods until it is deleted: leave clean_pod_policy out with framework %q, and set ttl_seconds_after_finished", Batch)
	}
	if s.Arena {
		add("", "arena_compatible", "arena knows no jobs of framework %q: leave it out", s.Framework)
	}
}
