package integration

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operator keeps the pods of jobs in being, as a job operator does: those that are
// deleted or have failed it makes again. It also ends, as a kubelet does, pods whose
// deletion stays half done: the API server marks a pod before it removes it, and gives
// up in between when its client is killed.
type operator struct {
	mu   sync.Mutex
	jobs map[string]worldGang
}

// tick is how often the operator looks.
const tick = 100 * time.Millisecond

func (o *operator) submit(g worldGang) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.jobs[g.name] = g
}

// end takes a job off the list; its pods stay as they are.
func (o *operator) end(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.jobs, name)
}

func (o *operator) list() (jobs []worldGang) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range o.jobs {
		jobs = append(jobs, g)
	}
	return jobs
}

// run works until ctx ends. It ignores errors: it tries everything again.
func (o *operator) run(ctx context.Context, namespace string) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			o.work(ctx, namespace)
		}
	}
}

func (o *operator) work(ctx context.Context, namespace string) {
	list, err := api().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	there := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		there[pod.Name] = pod
	}
	now := int64(0)
	remove := func(pod *corev1.Pod) {
		_ = api().CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp != nil {
			remove(&pod)
			continue
		}
		if pod.Labels[batchv1.JobNameLabel] != "" && holds(&pod) {
			pod.Status.Phase = corev1.PodSucceeded // a queued job's pod has done its work
			_, _ = api().CoreV1().Pods(namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
		}
	}
	for _, g := range o.list() {
		if g.budget != nil {
			_, err := api().PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, g.budget, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return
			}
		}
		if g.podGroup != nil {
			_, err := cluster.client.Dynamic.Resource(podGroups).Namespace(namespace).Create(ctx, g.podGroup, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return
			}
		}
		for _, want := range g.pods {
			pod, ok := there[want.Name]
			switch {
			case !ok:
				_, _ = api().CoreV1().Pods(namespace).Create(ctx, want, metav1.CreateOptions{})
			case pod.Status.Phase == corev1.PodFailed:
				remove(&pod)
			}
		}
	}
}
