// Package bypass tells of pods that were given GPUs past the scheduler. Their GPUs are
// counted like any other's, but nobody recorded which ones they got, kept their gang
// together, or asked the quota first.
package bypass

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Reason is the reason of the events.
const Reason = "BypassesScheduler"

// Events per second, and at once: a scheduler that starts in a cluster that others have
// filled must not flood it.
const (
	eventsPerSecond = 1
	burst           = 20
)

// Watch writes one event for each pod that bypasses the scheduler until ctx ends. Only
// the scheduler that leads may run it; the caller starts the factory.
func Watch(ctx context.Context, factory informers.SharedInformerFactory, recorder events.EventRecorder) error {
	w := &watcher{
		namespaces: factory.Core().V1().Namespaces().Lister(),
		queue:      workqueue.NewTyped[*corev1.Pod](),
		recorder:   recorder,
	}
	pods := factory.Core().V1().Pods().Informer()
	// A pod passes the filter for the first time once.
	registration, err := pods.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: w.bypasses,
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: w.add},
	})
	if err != nil {
		return fmt.Errorf("follow pods that bypass the scheduler: %w", err)
	}
	var stopped sync.WaitGroup
	stopped.Go(func() {
		<-ctx.Done()
		w.queue.ShutDown()
	})
	w.record(ctx)
	stopped.Wait()
	return pods.RemoveEventHandler(registration)
}

type watcher struct {
	namespaces corelisters.NamespaceLister
	queue      workqueue.TypedInterface[*corev1.Pod]
	recorder   events.EventRecorder
}

func (w *watcher) add(object any) {
	if pod, ok := object.(*corev1.Pod); ok {
		w.queue.Add(pod)
	}
}

// record writes the events, at a limited rate.
func (w *watcher) record(ctx context.Context) {
	limit := flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, burst)
	for {
		pod, shutdown := w.queue.Get()
		if shutdown || limit.Wait(ctx) != nil {
			return
		}
		w.recorder.Eventf(pod, nil, corev1.EventTypeWarning, Reason, "Watching",
			"%s put this pod on %s, though it asks for GPUs that %s hands out: no record says which GPUs it has, its gang is not kept together, and its quota was not asked. "+
				"Set schedulerName to %[3]s and no nodeName, or label the pod or its namespace %s=false",
			binder(pod), pod.Spec.NodeName, contract.SchedulerName, contract.RouteLabel)
		w.queue.Done(pod)
	}
}

func binder(pod *corev1.Pod) string {
	switch pod.Spec.SchedulerName {
	case "":
		return "Its nodeName"
	case contract.SchedulerName:
		return "Its nodeName, or a binding by others,"
	case corev1.DefaultSchedulerName: // what the API server fills in, also where nodeName is given
		return pod.Spec.SchedulerName + ", or its nodeName,"
	}
	return pod.Spec.SchedulerName
}

// bypasses tells whether an object is a pod that has GPUs from another scheduler, and
// that nobody excused, by what the chart's policy gpuplan-route-pods goes by as well: the label, kube-system, a DaemonSet.
func (w *watcher) bypasses(object any) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || inventory.Finished(pod) {
		return false
	}
	if _, recorded := pod.Annotations[contract.AllocationAnnotation]; recorded && pod.Spec.SchedulerName == contract.SchedulerName {
		return false
	}
	if pod.Namespace == metav1.NamespaceSystem || pod.Labels[contract.RouteLabel] == "false" || !inventory.AsksForGPUs(pod) {
		return false
	}
	if slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" }) {
		return false
	}
	namespace, err := w.namespaces.Get(pod.Namespace)
	return err != nil || namespace.Labels[contract.RouteLabel] != "false"
}
