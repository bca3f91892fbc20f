package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// openJob is a job that is neither held nor finished, and of which the cluster may have no pods.
type openJob struct {
	kind, namespace, name string
	made                  time.Time
	// makers are the UIDs of the job and of the Jobs that its operator has made; set is the StatefulSet that
	// it makes, "" for none.
	makers []types.UID
	set    string
	// said is what the job's conditions say.
	said string
}

// openJobOf reads a job; ok is false when it is finished, or asks for no GPUs, as far as it says: what a TrainJob without
// a JobSet asks for it does not. parts are the Jobs that operators have made.
func openJobOf(object *unstructured.Unstructured, parts []unstructured.Unstructured) (job openJob, ok bool) {
	spec, err := trainingjob.Parse(object)
	if err != nil || spec.Members() == 0 && object.GetKind() != contract.TrainJobKind {
		return openJob{}, false
	}
	status, err := trainingjob.StatusOf(object)
	if err != nil || status.Finished() {
		return openJob{}, false
	}
	job = openJob{
		kind: object.GetKind(), namespace: object.GetNamespace(), name: object.GetName(), made: object.GetCreationTimestamp().Time,
		makers: []types.UID{object.GetUID()}, said: status.Message,
	}
	if trainingjob.Alpha(object) {
		job.set = trainingjob.WorkerSet(object.GetName())
	}
	for i := range parts {
		if maker := trainingjob.PartOf(&parts[i]); maker.UID == object.GetUID() {
			job.makers = append(job.makers, parts[i].GetUID())
		}
	}
	return job, true
}

// listWarnings lists the warnings about what makes pods; known is false where the user may not list them.
func listWarnings(ctx context.Context, client *kube.Client, namespace string) (warnings []corev1.Event, known bool, err error) {
	list, err := client.Typed.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.kind!=Pod"})
	if !readable(&err) || err != nil {
		return nil, false, err
	}
	return list.Items, true, nil
}

// concerns reports whether a warning is about the job or what makes its pods.
func (j openJob) concerns(event *corev1.Event) bool {
	about := event.InvolvedObject
	return slices.Contains(j.makers, about.UID) ||
		j.set != "" && about.Namespace == j.namespace && about.Kind == "StatefulSet" && about.Name == j.set && !lastOf(event).Before(j.made)
}

// causeless reports whether an event's text ends before its cause: the training operator says
// "Created worker pod: " of a worker of an MPIJob that it could not make, beside an event with the cause.
func causeless(event *corev1.Event) bool {
	return strings.HasSuffix(strings.TrimSpace(event.Message), ":")
}

// lastOf is when an event happened for the last time.
func lastOf(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return cmp.Or(event.LastTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
}

// withoutPods answers for jobs of a name that the cluster has no pods of.
func (a Around) withoutPods(namespace, name string) (answers []Answer) {
	for _, job := range a.open {
		if job.namespace != namespace || job.name != name {
			continue
		}
		answers = append(answers, Answer{
			Gang: job.namespace + "/" + job.name, Job: job.kind, State: Incomplete, Since: job.made, Rejections: []string{a.whyNoPods(job)},
		})
	}
	return answers
}

// whyNoPods is the last warning about a job, else what its conditions say.
func (a Around) whyNoPods(job openJob) string {
	var last *corev1.Event
	for i := range a.warnings {
		if event := &a.warnings[i]; job.concerns(event) && !causeless(event) && (last == nil || lastOf(last).Before(lastOf(event))) {
			last = event
		}
	}
	switch {
	case last != nil:
		return fmt.Sprintf("%s of %s %s: %s", last.Reason, last.InvolvedObject.Kind, last.InvolvedObject.Name, last.Message)
	case !a.warned:
		return "why could not be looked at: you may not list events"
	case job.said != "":
		return "its conditions say: " + job.said
	}
	return "nothing says why, neither its conditions nor an event. After an eviction that is so until its controller makes them again, which may wait a while (back-off)"
}
