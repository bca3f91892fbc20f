package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// pass is the one thing there is to do: look at everything and write what follows.
// Events that come while a pass runs bring about one more.
type pass struct{}

// Pauses after a pass that failed.
const firstPause, lastPause = 50 * time.Millisecond, 10 * time.Second

// controller runs the queue of a cluster.
type controller struct {
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	timing   timing
	identity string
	// fleet means that jobs are held by bindings: the cluster is the hub of a fleet.
	fleet bool

	state  *state
	meters *meters
	work   workqueue.TypedRateLimitingInterface[pass]
}

func newController(typed kubernetes.Interface, dynamic dynamic.Interface, timing timing, identity string) *controller {
	c := &controller{
		typed: typed, dynamic: dynamic, timing: timing, identity: identity,
		work: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[pass](firstPause, lastPause)),
	}
	c.meters = newMeters()
	c.state = newState(func() { c.work.Add(pass{}) })
	return c
}

// run works until ctx ends, or until another controller has taken over.
func (c *controller) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// First the release log: what a predecessor releases from now on is in it.
	log, err := takeReleaseLog(ctx, c.typed.CoreV1().ConfigMaps(contract.SystemNamespace), c.identity)
	if err != nil {
		return err
	}
	c.state.began = version(log.object)
	if err := c.follow(ctx); err != nil {
		return err
	}
	w := newWriter(c.dynamic, c.state, log, c.meters, newRecorder(ctx, c.typed))
	reporter := newReporter(w)
	go func() {
		<-ctx.Done()
		c.work.ShutDown()
	}()
	c.work.Add(pass{})
	for {
		if _, ended := c.work.Get(); ended {
			return nil
		}
		err := c.pass(ctx, w, reporter)
		switch {
		case errors.Is(err, errTakenOver):
			return err
		case err != nil && ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Will try again")
			c.work.AddRateLimited(pass{})
		default:
			c.work.Forget(pass{})
		}
		c.work.Done(pass{})
	}
}

func (c *controller) pass(ctx context.Context, w *writer, reporter *reporter) error {
	now := w.now()
	plan := c.state.plan(c.timing, now, w.log.releasing)
	if !plan.next.IsZero() {
		c.work.AddAfter(pass{}, plan.next.Sub(now))
	}
	c.meters.observe(plan.counts)
	again, err := w.apply(ctx, plan)
	if !again.IsZero() {
		c.work.AddAfter(pass{}, again.Sub(w.now()))
	}
	if errors.Is(err, errTakenOver) {
		return err
	}
	// One write that is refused keeps nobody from reading of the others.
	later, failed := reporter.apply(ctx, plan)
	if later > 0 {
		c.work.AddAfter(pass{}, later)
	}
	return errors.Join(err, failed)
}

// follow keeps the state in step with the cluster, and returns when it is.
func (c *controller) follow(ctx context.Context) error {
	log := klog.FromContext(ctx)
	unreadable := func(err error) {
		if err != nil {
			log.Error(err, "Cannot use an object of the cluster")
		}
	}
	s := c.state
	factory := informers.NewSharedInformerFactoryWithOptions(c.typed, 0,
		informers.WithTweakListOptions(follow.Latest), informers.WithTransform(follow.Trim))
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(follow.On(s.setPod, func(p *corev1.Pod) { s.removePod(p.UID) }))
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	classes, err := factory.Scheduling().V1().PriorityClasses().Informer().AddEventHandler(follow.On(s.setClass, func(p *schedulingv1.PriorityClass) { s.removeClass(p) }))
	if err != nil {
		return fmt.Errorf("follow priority classes: %w", err)
	}
	workers, err := factory.Apps().V1().StatefulSets().Informer().AddEventHandler(follow.On(s.setWorkers, s.removeWorkers))
	if err != nil {
		return fmt.Errorf("follow the workers of MPIJobs: %w", err)
	}
	synced := []cache.InformerSynced{pods.HasSynced, classes.HasSynced, workers.HasSynced}
	if c.fleet {
		bindingsSynced, err := follow.Custom(ctx, c.dynamic, binding().gvr(), metav1.NamespaceAll,
			follow.On(func(o *unstructured.Unstructured) { unreadable(s.setBinding(o)) }, s.removeBinding))
		if err != nil {
			return err
		}
		synced = append(synced, bindingsSynced)
	}
	for _, k := range kinds() {
		handler := follow.Arrivals(
			func(o *unstructured.Unstructured) { unreadable(s.findJob(k, o)) },
			func(o *unstructured.Unstructured) { unreadable(s.setJob(k, o)) },
			func(o *unstructured.Unstructured) { s.removeJob(o.GetUID()) })
		if c.fleet {
			handler = follow.Arrivals(
				func(o *unstructured.Unstructured) { unreadable(s.describeBound(k, o, s.began)) },
				func(o *unstructured.Unstructured) { unreadable(s.describeBound(k, o, version(o))) },
				func(o *unstructured.Unstructured) { s.removeDescribed(o.GetUID()) })
		}
		if k.gvk.Group == batchv1.GroupName {
			informer := dynamicinformer.NewFilteredDynamicInformer(c.dynamic, k.gvr(), metav1.NamespaceAll, 0, cache.Indexers{}, follow.Latest).Informer()
			handled, err := informer.AddEventHandler(handler)
			if err != nil {
				return fmt.Errorf("follow %s: %w", k.resource, err)
			}
			synced = append(synced, handled.HasSynced)
			go informer.RunWithContext(ctx)
			continue
		}
		hasSynced, err := follow.Custom(ctx, c.dynamic, k.gvr(), metav1.NamespaceAll, handler)
		if err != nil {
			return err
		}
		synced = append(synced, hasSynced)
	}
	treeSynced, err := follow.Custom(ctx, c.dynamic, trees(), contract.QuotaTreeNamespace,
		follow.On(func(o *unstructured.Unstructured) { unreadable(s.setTree(o)) }, func(o *unstructured.Unstructured) { unreadable(s.removeTree(o)) }))
	if err != nil {
		return err
	}
	queuesSynced, err := follow.Custom(ctx, c.dynamic, queues(), contract.QueueNamespace,
		follow.On(func(o *unstructured.Unstructured) { unreadable(s.setQueue(o)) }, s.removeQueue))
	if err != nil {
		return err
	}
	unitsSynced, err := follow.Custom(ctx, c.dynamic, units(), metav1.NamespaceAll,
		follow.On(func(o *unstructured.Unstructured) { unreadable(s.setUnit(o)) }, s.removeUnit))
	if err != nil {
		return err
	}
	synced = append(synced, treeSynced, queuesSynced, unitsSynced)
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("wait for the state of the cluster: %w", context.Cause(ctx))
	}
	return nil
}
