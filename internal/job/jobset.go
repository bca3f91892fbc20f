package job

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// The part of JobSet jobset.x-k8s.io/v1alpha2 that we write and read (JobSet 0.7,
// api/jobset/v1alpha2): a template of a Job for each role.

type jobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              jobSetSpec   `json:"spec"`
	Status            jobSetStatus `json:"status,omitzero"`
}

type jobSetSpec struct {
	Roles                   []jobSetRole   `json:"replicatedJobs,omitempty"`
	Network                 *jobSetNetwork `json:"network,omitempty"`
	FailurePolicy           *jobSetFailure `json:"failurePolicy,omitempty"`
	Suspend                 *bool          `json:"suspend,omitempty"`
	TTLSecondsAfterFinished *int32         `json:"ttlSecondsAfterFinished,omitempty"`
}

type jobSetRole struct {
	Name     string                  `json:"name"`
	Replicas *int32                  `json:"replicas,omitempty"`
	Template batchv1.JobTemplateSpec `json:"template"`
	// DependsOn are the roles that this one waits for, which JobSet has from 0.8.
	DependsOn []any `json:"dependsOn,omitempty"`
}

type jobSetNetwork struct {
	EnableDNSHostnames       *bool `json:"enableDNSHostnames,omitempty"`
	PublishNotReadyAddresses *bool `json:"publishNotReadyAddresses,omitempty"`
}

type jobSetFailure struct {
	MaxRestarts int32        `json:"maxRestarts"`
	Rules       []jobSetRule `json:"rules,omitempty"`
}

type jobSetRule struct {
	Name                string   `json:"name"`
	Action              string   `json:"action"`
	OnJobFailureReasons []string `json:"onJobFailureReasons,omitempty"`
}

type jobSetStatus struct {
	Conditions []Condition        `json:"conditions,omitempty"`
	Restarts   int32              `json:"restarts,omitempty"`
	Roles      []jobSetRoleStatus `json:"replicatedJobsStatus,omitempty"`
}

// jobSetRoleStatus counts the Jobs of a role. One of which all pods are ready or done is ready, unless
// it has succeeded.
type jobSetRoleStatus struct {
	Name      string `json:"name"`
	Ready     int32  `json:"ready"`
	Succeeded int32  `json:"succeeded"`
	Failed    int32  `json:"failed"`
	Active    int32  `json:"active"`
}

var jobSetVersion = schema.GroupVersion{Group: contract.JobSetGroup, Version: contract.JobSetVersion}

// jobSetOperator is the value of the label [contract.JobOperatorNameLabel] on pods of JobSets.
const jobSetOperator = "jobset-controller"

// jobSetCompleted is the condition of a JobSet that has succeeded.
const jobSetCompleted = "Completed"

// toJobSet gives a job the shape of a JobSet: one Job for each role, with as many pods as the role has replicas.
// One of them that fails, with its replicas that are not restarted in their pods, makes the whole set start again,
// as often as the limit says: what the others have computed is of no use without it. A deadline is no such failure.
func toJobSet(o *object, framework Framework) *jobSet {
	s := &jobSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: jobSetVersion.String(), Kind: contract.JobSetKind},
		ObjectMeta: o.ObjectMeta,
		Spec: jobSetSpec{
			Network:                 &jobSetNetwork{EnableDNSHostnames: ptr.To(true), PublishNotReadyAddresses: ptr.To(true)},
			Suspend:                 o.Spec.RunPolicy.Suspend,
			TTLSecondsAfterFinished: o.Spec.RunPolicy.TTLSecondsAfterFinished,
		},
	}
	if limit := o.Spec.RunPolicy.BackoffLimit; limit != nil {
		s.Spec.FailurePolicy = &jobSetFailure{MaxRestarts: *limit}
		if *limit > 0 && o.Spec.RunPolicy.ActiveDeadlineSeconds != nil {
			s.Spec.FailurePolicy.Rules = []jobSetRule{{Name: "deadline", Action: "FailJobSet", OnJobFailureReasons: []string{batchv1.JobReasonDeadlineExceeded}}}
		}
	}
	for _, name := range sortedRoles(o.Spec.Jobs) {
		spec := indexed(o, framework, name)
		spec.BackoffLimit = ptr.To[int32](0)
		if spec.Template.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			spec.BackoffLimit = new(batchBackoff)
		}
		s.Spec.Roles = append(s.Spec.Roles, jobSetRole{Name: name, Replicas: ptr.To[int32](1), Template: batchv1.JobTemplateSpec{Spec: spec}})
	}
	return s
}

// sortedRoles are the names of roles in order, as they are written in the configuration.
func sortedRoles(replicas map[string]replicaSpec) (names []string) {
	for name := range replicas {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	return names
}

// fromJobSet gives a JobSet the shape of the operator's kinds.
func fromJobSet(obj *unstructured.Unstructured) (*object, error) {
	s := &jobSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, s); err != nil {
		return nil, err
	}
	o := &object{TypeMeta: s.TypeMeta, ObjectMeta: s.ObjectMeta}
	o.Spec.RunPolicy = runPolicy{TTLSecondsAfterFinished: s.Spec.TTLSecondsAfterFinished, Suspend: s.Spec.Suspend}
	if s.Spec.FailurePolicy != nil {
		o.Spec.RunPolicy.BackoffLimit = ptr.To(s.Spec.FailurePolicy.MaxRestarts)
	}
	o.Spec.Jobs, o.Status.ReplicaStatuses = map[string]replicaSpec{}, map[string]replicaStatus{}
	begun := s.Status.Restarts > 0
	for _, role := range s.Spec.Roles {
		if role.Name == "" {
			continue // nothing but the controller's webhook keeps it out
		}
		spec, jobs := role.Template.Spec, ptr.Deref(role.Replicas, 1)
		if spec.Template.Spec.SchedulerName == "" { // which nobody writes into a JobSet, and Kubernetes into its Jobs
			spec.Template.Spec.SchedulerName = corev1.DefaultSchedulerName
		}
		if spec.ActiveDeadlineSeconds != nil {
			o.Spec.RunPolicy.ActiveDeadlineSeconds = spec.ActiveDeadlineSeconds
		}
		o.Spec.Jobs[camel(role.Name)] = replicaSpec{
			Replicas: ptr.To(times(atOnce(spec), jobs)), Jobs: jobs, Later: len(role.DependsOn) > 0,
			RestartPolicy: string(spec.Template.Spec.RestartPolicy), Template: spec.Template,
		}
		for _, found := range s.Status.Roles {
			if found.Name == role.Name {
				o.Status.ReplicaStatuses[camel(role.Name)] = replicaStatus{
					Active: times(atOnce(spec), found.Ready), Succeeded: times(atOnce(spec), found.Succeeded), Failed: found.Failed,
				}
				begun = begun || found.Active+found.Ready+found.Succeeded+found.Failed > 0
			}
		}
	}
	s.course(o, begun)
	return o, nil
}

// course says how a JobSet has come to stand where it does, of which its status has conditions alone.
func (s *jobSet) course(o *object, begun bool) {
	since, held := s.CreationTimestamp, ptr.Deref(s.Spec.Suspend, false)
	for _, c := range s.Status.Conditions {
		switch {
		case c.Type == string(Suspended) && c.Status == corev1.ConditionFalse:
			since = c.LastTransitionTime
		case c.Status != corev1.ConditionTrue:
		case c.Type == jobSetCompleted:
			c.Type = string(Succeeded)
			fallthrough
		case c.Type == string(Failed):
			begun, held = true, false
			o.Status.CompletionTime = ptr.To(c.LastTransitionTime)
		}
		o.Status.Conditions = append(o.Status.Conditions, c)
	}
	if begun && !held {
		o.Status.StartTime = &since
	}
}

// times multiplies counts that nobody has checked.
func times(a, b int32) int32 { return int32(min(int64(a)*int64(b), math.MaxInt32)) }

// jobSetPhase is where a JobSet stands. Its conditions say only how it ends, and that it is suspended. Roles that
// are no members of a gang run beside it, and do not say whether it does.
func jobSetPhase(o *object, obj *unstructured.Unstructured) (phase Phase, message string) {
	phase, message = conditionPhase(o)
	if phase != Pending {
		return phase, message
	}
	spec, running, active := specOf(o, JobSet), false, false
	for name, r := range o.Status.ReplicaStatuses {
		running = running || r.Active+r.Succeeded > 0 && (spec.Members() == 0 || !spec.Late(strings.ToLower(name)))
	}
	roles, _, _ := unstructured.NestedSlice(obj.Object, "status", "replicatedJobsStatus")
	for _, role := range roles {
		fields, _ := role.(map[string]any)
		count, _, _ := unstructured.NestedInt64(fields, "active")
		active = active || count > 0
	}
	restarts, _, _ := unstructured.NestedInt64(obj.Object, "status", "restarts")
	switch {
	case running:
		return Running, ""
	case active:
		return Created, ""
	case restarts > 0:
		return Restarting, ""
	}
	return Pending, ""
}

// jobSetPod is a pod of a JobSet: of one of the Jobs that its controller makes for a role.
func jobSetPod(o *object, role string, index int, replica replicaSpec) *corev1.Pod {
	each := max(1, int(ptr.Deref(replica.Replicas, 1)/max(1, replica.Jobs)))
	part := index / each
	p := batchPod(o, objectName(o.Name, role, part), index%each, replica.Template)
	p.Labels = merge(p.Labels, jobSetLabels(o.Name, role, part, replica.Jobs))
	return p
}

// jobSetLabels are those of one of the Jobs of a role, and of its pods.
func jobSetLabels(set, role string, part int, jobs int32) map[string]string {
	return map[string]string{
		contract.JobSetNameLabel: set, contract.JobSetRoleLabel: role,
		contract.JobSetJobsLabel: strconv.Itoa(int(jobs)), contract.JobSetJobIndexLabel: strconv.Itoa(part),
	}
}

// Children are the names of the Jobs that the controller makes of a JobSet, nil for other jobs.
func (s Spec) Children() (names []string) {
	if !s.Framework.AsJobSet() {
		return nil
	}
	for _, role := range s.RoleNames() {
		names = append(names, objectName(s.Name, role, 0))
	}
	return names
}

// Jobs are what the controller makes of a JobSet, one for each role and named as [Spec.Children] says, nil for other jobs.
func (s Spec) Jobs() (jobs []*batchv1.Job, err error) {
	if !s.Framework.AsJobSet() {
		return nil, nil
	}
	obj, err := s.Render()
	if err != nil {
		return nil, err
	}
	if s.Framework == TrainJob {
		obj = asJobSet(obj)
	}
	set := &jobSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, set); err != nil {
		return nil, fmt.Errorf("render the Jobs of job %s: %w", s.ID(), err)
	}
	for _, role := range set.Spec.Roles {
		labels := jobSetLabels(s.Name, role.Name, 0, 1)
		j := &batchv1.Job{
			TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: contract.BatchJobKind},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace, Name: objectName(s.Name, role.Name, 0),
				Labels: merge(role.Template.Labels, labels), Annotations: role.Template.Annotations,
			},
			Spec: role.Template.Spec,
		}
		j.Spec.Suspend = set.Spec.Suspend
		j.Spec.Template.Labels = merge(j.Spec.Template.Labels, labels)
		j.Spec.Template.Spec.Subdomain = s.Name
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func isJobSet(obj *unstructured.Unstructured) bool {
	return obj.GetKind() == contract.JobSetKind && obj.GroupVersionKind().Group == contract.JobSetGroup
}

// jobSetRoles are the roles of a JobSet as they are written.
func jobSetRoles(obj *unstructured.Unstructured) (roles []map[string]any) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "spec", "replicatedJobs")
	for _, role := range list {
		if fields, ok := role.(map[string]any); ok {
			roles = append(roles, fields)
		}
	}
	return roles
}

// keepJobSet is [Keep] for a JobSet: nobody can change its roles, but for labels and annotations of pods while it
// is suspended, nor how it fails, nor its network.
func keepJobSet(rendered, live *unstructured.Unstructured) error {
	ours := map[string]any{}
	for _, role := range jobSetRoles(rendered) {
		name, _ := role["name"].(string)
		ours[name], _, _ = unstructured.NestedMap(role, "template", "spec", "template", "metadata")
	}
	var roles []any
	for _, role := range jobSetRoles(live) {
		name, _ := role["name"].(string)
		labels, _, _ := unstructured.NestedStringMap(role, "template", "spec", "template", "metadata", "labels")
		if labels[contract.ManagedByLabel] != contract.ManagedByValue {
			role = map[string]any{"name": name} // what others have written stays theirs
		}
		if metadata, known := ours[name]; known && Held(live) {
			if err := unstructured.SetNestedField(role, metadata, "template", "spec", "template", "metadata"); err != nil {
				return fmt.Errorf("render JobSet %s/%s: %w", live.GetNamespace(), live.GetName(), err)
			}
		}
		if len(role) > 1 {
			roles = append(roles, role)
		}
	}
	unstructured.RemoveNestedField(rendered.Object, "spec", "replicatedJobs")
	if len(roles) > 0 {
		if err := unstructured.SetNestedSlice(rendered.Object, roles, "spec", "replicatedJobs"); err != nil {
			return fmt.Errorf("render JobSet %s/%s: %w", live.GetNamespace(), live.GetName(), err)
		}
	}
	for _, field := range []string{"network", "failurePolicy"} {
		unstructured.RemoveNestedField(rendered.Object, "spec", field)
		kept, found, _ := unstructured.NestedMap(live.Object, "spec", field)
		if !found {
			continue
		}
		if err := unstructured.SetNestedMap(rendered.Object, kept, "spec", field); err != nil {
			return fmt.Errorf("render JobSet %s/%s: %w", live.GetNamespace(), live.GetName(), err)
		}
	}
	return nil
}

// foreignJobSet is [Foreign] for a JobSet: each role must be one Job, of which each index is one pod, all at once.
func foreignJobSet(obj *unstructured.Unstructured) string {
	for _, role := range jobSetRoles(obj) {
		jobs, found, _ := unstructured.NestedInt64(role, "replicas")
		spec, _, _ := unstructured.NestedMap(role, "template", "spec")
		mode, _, _ := unstructured.NestedString(spec, "completionMode")
		parallelism, _, _ := unstructured.NestedInt64(spec, "parallelism")
		completions, _, _ := unstructured.NestedInt64(spec, "completions")
		switch {
		case found && jobs != 1:
			return fmt.Sprintf("its replicatedJob %v is %d Jobs, and a role here is one Job with as many pods as it has replicas, which nobody can change of a JobSet", role["name"], jobs)
		case mode != string(batchv1.IndexedCompletion) || parallelism != completions:
			return fmt.Sprintf("the completionMode of its replicatedJob %v is %s with %d completions and a parallelism of %d, and a job here has the mode %s and as many completions as replicas, which nobody can change of a JobSet",
				role["name"], mode, completions, parallelism, batchv1.IndexedCompletion)
		}
	}
	return ""
}

// checkJobSet holds the rules of JobSets alone.
func (s Spec) checkJobSet(add report) {
	if !s.Framework.AsJobSet() {
		return
	}
	if whole := s.Complete(); s.Gang && s.Minimum >= 0 && whole.Minimum < whole.Members() {
		add("", "gang", "a JobSet does not say how many of a role's pods run, only whether all do: leave minima out with framework %q", s.Framework)
	}
}
