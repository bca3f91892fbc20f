package trainingjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// join gives a TrainJob what its runtime says of its pods ([job.Join]), one of ours that has lost it what its JobSet runs,
// and leaves other jobs as they are.
func join(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured) error {
	name := job.RuntimeOf(obj)
	if name == "" {
		return nil
	}
	runtime, err := client.Get(ctx, job.RuntimeGVK(), obj.GetNamespace(), name)
	switch {
	case err == nil:
		job.Join(obj, runtime)
	case !absent(err):
		return err
	}
	if job.Whole(obj) || !hasRuntime(obj) {
		return nil // whoever reads a job that says nothing of its pods finds that out
	}
	return joinSet(ctx, client, obj)
}

// hasRuntime reports whether a job is a TrainJob of ours, with a runtime of its own.
func hasRuntime(obj *unstructured.Unstructured) bool {
	return job.RuntimeOf(obj) == obj.GetName() && obj.GetLabels()[contract.ManagedByLabel] == contract.ManagedByValue
}

// joinSet gives a TrainJob what its JobSet runs ([job.JoinSet]), where there is one that the user may see.
func joinSet(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured) error {
	set, err := client.Get(ctx, job.JobSet.GVK(), obj.GetNamespace(), obj.GetName())
	if absent(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err == nil {
		job.JoinSet(obj, set)
	}
	return err
}

// settled is the job's object, once one that is being deleted is gone.
func settled(ctx context.Context, client *kube.Client, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	now, err := client.GetSettled(ctx, live.GroupVersionKind(), live.GetNamespace(), live.GetName(), nil)
	if err == nil {
		err = join(ctx, client, now)
	}
	return now, err
}

// write creates the objects of a job, or changes them when there is a live one. The runtime of a TrainJob comes before it,
// as Kubeflow Trainer wants it, and goes with it.
func write(ctx context.Context, client *kube.Client, spec job.Spec, obj, live *unstructured.Unstructured, takes []kube.Field) (written *unstructured.Unstructured, err error) {
	runtime, bare := job.Split(obj)
	if runtime != nil {
		if live != nil {
			own(runtime, live)
		}
		if err := applyRuntime(ctx, client, spec, runtime); err != nil {
			return nil, err
		}
	}
	err = writeTrainJob(ctx, func() (err error) {
		if live == nil {
			written, err = client.Create(ctx, bare)
		} else if err = client.Manage(ctx, bare); err == nil {
			written, err = client.Apply(ctx, bare, takes...)
		}
		return err
	})
	if err != nil && runtime != nil && live == nil && !kube.IsAlreadyExists(err) {
		err = errors.Join(err, removeRuntime(context.WithoutCancel(ctx), client, spec))
	}
	if err != nil || runtime == nil {
		return written, err
	}
	if live == nil {
		own(runtime, written)
		if err := applyRuntime(ctx, client, spec, runtime); err != nil {
			return nil, err
		}
	}
	job.Join(written, runtime)
	return written, nil
}

// How often and for how long a TrainJob is written again that Kubeflow Trainer's webhook refuses for want of its runtime:
// it looks into a cache, into which the runtime comes a moment after it was written.
const (
	webhookPoll = 200 * time.Millisecond
	webhookLag  = 10 * time.Second
)

// writeTrainJob writes again as long as the runtime, which is there, is said to be missing.
func writeTrainJob(ctx context.Context, write func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, webhookPoll, webhookLag, true, func(context.Context) (bool, error) {
		last = write()
		return !job.MissesRuntime(last), nil
	})
	return cmp.Or(last, err)
}

// own makes a runtime belong to its TrainJob. The runtime does not go before that, as Kubeflow Trainer keeps what a
// TrainJob refers to, so its owner does not wait for it.
func own(runtime, trainJob *unstructured.Unstructured) {
	runtime.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: trainJob.GetAPIVersion(), Kind: trainJob.GetKind(), Name: trainJob.GetName(), UID: trainJob.GetUID(), Controller: ptr.To(true),
	}})
}

// applyRuntime writes the runtime of a TrainJob, and none in the place of someone else's.
func applyRuntime(ctx context.Context, client *kube.Client, spec job.Spec, runtime *unstructured.Unstructured) error {
	live, err := client.Get(ctx, runtime.GroupVersionKind(), spec.Namespace, runtime.GetName())
	switch {
	case kube.IsNotFound(err):
	case err != nil:
		return err
	case !spec.OwnsRuntime(live):
		return fmt.Errorf("%s %s/%s is not the job's%s, and stays as it is: delete it if nobody needs it, or give the job another name",
			runtime.GetKind(), spec.Namespace, runtime.GetName(), job.Whose(live.GetOwnerReferences()))
	}
	_, err = client.Apply(ctx, runtime)
	return err
}

// removeTrainJob deletes a TrainJob, nil for none, its JobSet with its pods, and its runtime. The TrainJob goes first:
// Kubeflow Trainer makes the JobSet again of one that is only being deleted. It keeps a runtime to which others refer, so
// that nothing goes where there are such.
func removeTrainJob(ctx context.Context, client *kube.Client, spec job.Spec, live *unstructured.Unstructured) error {
	if err := usedByOthers(ctx, client, spec); err != nil {
		return err
	}
	if live != nil {
		if err := client.DeleteFirst(ctx, live); err != nil {
			return err
		}
	}
	switch set, err := client.Get(ctx, job.JobSet.GVK(), spec.Namespace, spec.Name); {
	case err == nil && !spec.Owns(set.GetOwnerReferences()):
		return removeRuntime(ctx, client, spec) // the pods are those of another JobSet
	case err == nil:
		if err := client.DeleteObject(ctx, set); err != nil {
			return err
		}
	case !absent(err):
		return err
	}
	for _, kind := range []schema.GroupVersionKind{batchv1.SchemeGroupVersion.WithKind(contract.BatchJobKind), corev1.SchemeGroupVersion.WithKind("Pod")} {
		if err := client.DeleteLabelled(ctx, kind, spec.Namespace, podLabels(spec).String()); err != nil {
			return err
		}
	}
	return removeRuntime(ctx, client, spec)
}

// usedByOthers is the error of a job to whose runtime other TrainJobs refer, as far as the user may know.
func usedByOthers(ctx context.Context, client *kube.Client, spec job.Spec) error {
	runtime, err := client.Get(ctx, job.RuntimeGVK(), spec.Namespace, spec.Name)
	if err != nil || !spec.OwnsRuntime(runtime) {
		return nil //nolint:nilerr // who deletes it says so
	}
	all, err := client.List(ctx, job.TrainJob.GVK(), spec.Namespace, "")
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	var others []string
	for i := range all {
		if obj := &all[i]; obj.GetName() != spec.Name && job.RuntimeOf(obj) == spec.Name {
			others = append(others, obj.GetNamespace()+"/"+obj.GetName())
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("its TrainingRuntime %s is what other TrainJobs refer to, too, which Kubeflow Trainer keeps it for: %s; delete them, or give them a runtime of their own, and then this job",
		spec.ID(), strings.Join(others, ", "))
}

// removeRuntime deletes the runtime of a TrainJob, which an apply that was cut off may have left without an owner, and
// waits until it is gone.
func removeRuntime(ctx context.Context, client *kube.Client, spec job.Spec) error {
	live, err := client.Get(ctx, job.RuntimeGVK(), spec.Namespace, spec.Name)
	switch {
	case absent(err) || err == nil && !spec.OwnsRuntime(live):
		return nil
	case err != nil:
		return err
	}
	return client.DeleteObject(ctx, live)
}
