package mpialpha

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetUp adds the controller to a manager.
func SetUp(mgr ctrl.Manager) error {
	jobs := &unstructured.Unstructured{}
	jobs.SetGroupVersionKind(kind)
	return ctrl.NewControllerManagedBy(mgr).Named("mpijob-" + version).
		For(jobs).Owns(&appsv1.StatefulSet{}).Owns(&batchv1.Job{}).
		Complete(&controller{mgr.GetClient()})
}

type controller struct{ client.Client }

// Reconcile makes what a job needs next, and reports.
func (c *controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := c.Get(ctx, request.NamespacedName, object); err != nil || object.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	j, err := read(object)
	if err != nil || j == nil {
		return ctrl.Result{}, err
	}
	if j.suspended() {
		return ctrl.Result{}, c.hold(ctx, j)
	}
	launcher, workers, err := c.run(ctx, j)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, c.report(ctx, j, launcher, workers)
}

// hold removes what a suspended job has.
func (c *controller) hold(ctx context.Context, j *job) error {
	for _, object := range []client.Object{j.launcher(), j.worker(0)} {
		if err := c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return c.report(ctx, j, nil, nil)
}

// run makes the workers, and the launcher when they are ready.
func (c *controller) run(ctx context.Context, j *job) (*batchv1.Job, *appsv1.StatefulSet, error) {
	launcher, workers := &batchv1.Job{}, &appsv1.StatefulSet{}
	started, err := c.find(ctx, j, j.launcherName(), launcher)
	if err != nil {
		return nil, nil, err
	}
	if !started {
		launcher = nil
		for _, object := range j.support() {
			if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
				return nil, nil, err
			}
		}
	}
	replicas := j.workers(finished(launcher) != "")
	made, err := c.find(ctx, j, j.workerName(), workers)
	switch {
	case err != nil:
		return nil, nil, err
	case !made:
		workers = j.worker(replicas)
		err = c.Create(ctx, workers)
	case *workers.Spec.Replicas != replicas:
		workers.Spec.Replicas = &replicas
		err = c.Update(ctx, workers)
	case !started && workers.Status.ReadyReplicas == replicas:
		launcher = j.launcher()
		err = c.Create(ctx, launcher)
	}
	return launcher, workers, err
}

// find reads an object of the job, and refuses someone else's of that name.
func (c *controller) find(ctx context.Context, j *job, name string, object client.Object) (bool, error) {
	err := c.Get(ctx, client.ObjectKey{Namespace: j.object.GetNamespace(), Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err == nil && !metav1.IsControlledBy(object, j.object) {
		err = fmt.Errorf("%T %s/%s exists and does not belong to the MPIJob %s", object, object.GetNamespace(), name, j.object.GetName())
	}
	return err == nil, err
}

// finished is Succeeded or Failed, "" for a launcher that is not there or not done.
func finished(launcher *batchv1.Job) string {
	if launcher == nil {
		return ""
	}
	for _, c := range launcher.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return "Succeeded"
		case c.Type == batchv1.JobFailed:
			return "Failed"
		}
	}
	return ""
}

// report writes the job's status where it changed.
func (c *controller) report(ctx context.Context, j *job, launcher *batchv1.Job, workers *appsv1.StatefulSet) error {
	before := j.object.DeepCopy()
	status := map[string]any{}
	if workers != nil {
		status["workerReplicas"] = int64(workers.Status.ReadyReplicas)
	}
	if launcher != nil {
		if launcher.Status.StartTime != nil {
			status["startTime"] = launcher.Status.StartTime.UTC().Format("2006-01-02T15:04:05Z")
		}
		if launcher.Status.CompletionTime != nil {
			status["completionTime"] = launcher.Status.CompletionTime.UTC().Format("2006-01-02T15:04:05Z")
		}
		if end := finished(launcher); end != "" {
			status["launcherStatus"] = end
		} else if launcher.Status.Active > 0 {
			status["launcherStatus"] = "Active"
		}
	}
	j.object.Object["status"] = status
	patch := client.MergeFrom(before)
	if raw, err := patch.Data(j.object); err != nil || string(raw) == "{}" {
		return err
	}
	return client.IgnoreNotFound(c.Status().Patch(ctx, j.object, patch))
}
