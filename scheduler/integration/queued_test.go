package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// heldSuffix ends the name of the job that is queued while the quota tree is invalid.
const heldSuffix = "-held"

// maxJobs is how many of a run's queued jobs may be out of the queue at a time.
const maxJobs = 2

// launchQueue runs the queue controller.
func launchQueue() (*localtest.Process, error) {
	return localtest.Launch(cluster.kubeconfig, contract.SchedulerName, "queue", "--leader-elect=false", "--v=2")
}

// startQueue runs the queue controller until the test ends.
func startQueue(t *testing.T) {
	t.Helper()
	p, err := launchQueue()
	require.NoError(t, err)
	p.EndWith(t)
}

// queuedJob is a job of two pods without GPUs that waits in the queue of a leaf.
func queuedJob(namespace, name, leaf string) *batchv1.Job {
	suspend, two, grace := true, int32(2), int64(0)
	list := corev1.ResourceList{corev1.ResourceCPU: quantity(1)}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{Suspend: &suspend, Parallelism: &two, Completions: &two, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{contract.QuotaLabel: leaf}},
			Spec: corev1.PodSpec{
				SchedulerName: contract.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{Name: "main", Image: "test", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
			},
		}},
	}
}

// finished reports whether a job has ended.
func finished(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// followJobs checks after every change of a job how many are out of the queue.
func (a *audit) followJobs(ctx context.Context, namespace string) {
	jobs := map[string]*batchv1.Job{}
	for version := ""; ctx.Err() == nil; time.Sleep(again) {
		if version == "" {
			list, err := api().BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			clear(jobs)
			for i := range list.Items {
				jobs[list.Items[i].Name] = &list.Items[i]
			}
			version = list.ResourceVersion
		}
		watched, err := api().BatchV1().Jobs(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			continue
		}
		for event := range watched.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			if !ok {
				version = ""
				break
			}
			version = job.ResourceVersion
			if jobs[job.Name] = job; event.Type == watch.Deleted {
				delete(jobs, job.Name)
			}
			a.checkJobs(jobs)
		}
		watched.Stop()
	}
}

func (a *audit) checkJobs(jobs map[string]*batchv1.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := 0
	for _, job := range jobs {
		if *job.Spec.Suspend || finished(job) {
			continue
		}
		out++
		if a.barred > 0 && strings.HasSuffix(job.Name, heldSuffix) {
			a.violation("job %s is out of the queue while the quota tree is invalid", job.Name)
		}
	}
	a.note("%d queued jobs are out", out)
	if out > maxJobs {
		a.violation("%d jobs are out of the queue; at most %d may be", out, maxJobs)
	}
}

// unfinishedJobs says which queued jobs have not ended.
func (c *chaos) unfinishedJobs(ctx context.Context) string {
	list, err := api().BatchV1().Jobs(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for i := range list.Items {
		if job := &list.Items[i]; !finished(job) {
			return fmt.Sprintf("job %s has not ended, suspended: %t, %d pods active", job.Name, *job.Spec.Suspend, job.Status.Active)
		}
	}
	return ""
}
