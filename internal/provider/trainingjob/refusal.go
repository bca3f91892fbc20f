package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

// patience is how long a job of which no pod can be created is waited for: what its pods
// lack may come with another resource of the apply.
const patience = time.Minute

// errRefused means that none of a job's pods can be created.
var errRefused = errors.New("none of its pods can be created")

// refusalFollower watches the warnings about a job, and about the workers' StatefulSet of an
// MPIJob v1alpha1, the launcher's Job of an MPIJob v2beta1, the JobSet of a TrainJob or the Jobs of a JobSet, while someone waits for the job, because only they say why no pods can be created.
type refusalFollower struct {
	client *kube.Client
	spec   job.Spec
	uid    k8stypes.UID
	// makers are what makes pods for the operator, nil when that makes them itself. Warnings from before the
	// job are about those of an earlier job of the same name.
	makers []maker
	since  metav1.Time
	// giveUp ends the wait.
	giveUp context.CancelCauseFunc

	mu    sync.Mutex
	last  string
	limit *time.Timer
	// created means that there are pods, begun that there are Jobs of a JobSet, so that what kept these from being
	// made is over.
	created, begun bool
}

// maker is an object that makes pods of a job.
type maker struct{ kind, name string }

// refusalsOf follows the warnings about a job that is in the cluster.
func refusalsOf(client *kube.Client, spec job.Spec, live *unstructured.Unstructured, giveUp context.CancelCauseFunc) *refusalFollower {
	f := &refusalFollower{client: client, spec: spec, uid: live.GetUID(), since: live.GetCreationTimestamp(), giveUp: giveUp}
	switch job.VersionOf(live) {
	case contract.MPIAlphaVersion:
		f.makers = []maker{{statefulSet, job.WorkerSet(live.GetName())}}
	case contract.MPIOperatorVersion:
		f.makers = []maker{{contract.BatchJobKind, spec.Launcher()}}
	}
	for _, name := range spec.Children() {
		f.makers = append(f.makers, maker{contract.BatchJobKind, name})
	}
	if spec.Framework == job.TrainJob {
		f.makers = append(f.makers, maker{contract.JobSetKind, spec.Name})
	}
	return f
}

func (f *refusalFollower) run(ctx context.Context) {
	var done sync.WaitGroup
	done.Go(func() { f.watch(ctx, fields.Set{"involvedObject.uid": string(f.uid)}) })
	for _, m := range f.makers {
		done.Go(func() { f.watch(ctx, fields.Set{"involvedObject.kind": m.kind, "involvedObject.name": m.name}) })
	}
	if f.spec.Framework.AsJobSet() {
		done.Go(func() { f.watchJobs(ctx) })
		done.Go(func() { f.askForJobs(ctx) })
	}
	done.Wait()
}

// watchJobs watches the Jobs that a JobSet becomes.
func (f *refusalFollower) watchJobs(ctx context.Context) {
	changes, err := f.client.Typed.BatchV1().Jobs(f.spec.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: podLabels(f.spec).String()})
	if err != nil {
		return // the pods are watched, too
	}
	each(ctx, changes, func(_ context.Context, made *batchv1.Job) {
		if made.DeletionTimestamp == nil {
			f.begin()
		}
	})
}

func (f *refusalFollower) watch(ctx context.Context, about fields.Set) {
	about["type"] = corev1.EventTypeWarning
	changes, err := f.client.Typed.CoreV1().Events(f.spec.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: about.String()})
	if err != nil {
		return // the wait goes on without these reasons
	}
	each(ctx, changes, f.take)
}

const statefulSet = "StatefulSet"

// concerns reports whether an event is about the job or what makes its pods.
func (f *refusalFollower) concerns(event *corev1.Event) bool {
	about := event.InvolvedObject
	return about.UID == f.uid ||
		slices.Contains(f.makers, maker{about.Kind, about.Name}) && !event.CreationTimestamp.Before(&f.since)
}

func (f *refusalFollower) take(ctx context.Context, event *corev1.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.concerns(event) || event.Type != corev1.EventTypeWarning || event.Message == f.last {
		return
	}
	f.last = event.Message
	tflog.Info(ctx, "the job's operator warns", map[string]any{"job": f.spec.ID(), "reason": event.Reason, "message": event.Message})
	if slices.Contains([]string{reasonFailedCreate, reasonSetFailedCreate, reasonMPIFailed}, event.Reason) ||
		!f.begun && slices.Contains([]string{reasonTrainJobFailed, reasonServiceFailed}, event.Reason) {
		f.fail(event.Message)
	}
}

// fail begins the time after which the wait ends, unless what has failed may pass; mu must be held.
func (f *refusalFollower) fail(message string) {
	if f.limit == nil && !f.created && !preflight.MayPass(message) {
		f.limit = time.AfterFunc(patience, f.end)
	}
}

// askForJobs asks the cluster whether it would create the Jobs of a JobSet that has none: its controller says why it
// could not to nobody but its log.
func (f *refusalFollower) askForJobs(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, jobsMissing, false, func(ctx context.Context) (bool, error) {
		f.mu.Lock()
		begun := f.begun || f.created
		f.mu.Unlock()
		if begun {
			return true, nil
		}
		err := preflight.Jobs(ctx, f.client, f.spec)
		f.mu.Lock()
		defer f.mu.Unlock()
		if kube.IsRefusal(err) && !f.begun {
			f.last = "its Jobs cannot be created: " + err.Error()
			f.fail(err.Error())
		}
		return false, nil
	})
}

// jobsMissing is how long a JobSet may have no Jobs before it is asked why.
const jobsMissing = 5 * time.Second

// The reasons of events about a pod that cannot be created: the training operator's, that of the
// controllers of StatefulSets and Jobs, and the MPI operator's, which has the same for a launcher that has failed.
// Before there are Jobs of which pods could be made: Kubeflow Trainer's about a JobSet, and JobSet's about its service.
const (
	reasonFailedCreate    = "FailedCreatePod"
	reasonSetFailedCreate = "FailedCreate"
	reasonMPIFailed       = "MPIJobFailed"
	reasonTrainJobFailed  = "TrainJobResourcesCreationFailed"
	reasonServiceFailed   = "HeadlessServiceCreationFailed"
)

// end ends the wait, unless a pod was created meanwhile.
func (f *refusalFollower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.created {
		f.giveUp(fmt.Errorf("%w within %s", errRefused, patience))
	}
}

// pod notes that the operator can create pods.
func (f *refusalFollower) pod() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created, f.last = true, ""
}

// begin notes that a JobSet has Jobs. What was said before of those that could not be made is over.
func (f *refusalFollower) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun {
		return
	}
	f.begun, f.last = true, ""
	if f.limit != nil {
		f.limit.Stop()
		f.limit = nil
	}
}

// refused reports whether the operator has tried to create a pod and no pod was created.
func (f *refusalFollower) refused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limit != nil && !f.created
}

// silent reports whether no pod was created and nobody has said why.
func (f *refusalFollower) silent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.created && f.last == ""
}

func (f *refusalFollower) reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
