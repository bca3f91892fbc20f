package repair

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// DefaultGrace is how long a node may be unreachable before the members of gangs on it
// are failed.
const DefaultGrace = time.Minute

// Clients are how the controller reaches the cluster.
type Clients struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	Events  events.EventRecorder
}

// Controller repairs gangs while [Controller.Run] runs.
type Controller struct {
	cache *clustercache.Cache
	grace time.Duration
	clock clock.WithTicker
	queue workqueue.TypedRateLimitingInterface[item]
	// running means that changes of the cache matter: not on a scheduler that stands by.
	running atomic.Bool
	Clients

	// Only the goroutine of Run uses what follows.

	// failing are pods that have been failed and that the cache still shows.
	failing map[types.UID]bool
	// recorded are the texts that gangs were told last.
	recorded map[string]string
	// untold are texts about lost members that gangs could not be told when these were failed.
	untold map[string]string
}

// item is something to look at: a node, a gang, a gang that matters only if it waits to
// be repaired, because a member was bound, or a pod that was failed.
type item struct {
	node, gang, bound string
	pod               types.NamespacedName
	uid               types.UID
}

// New returns a controller of the gangs in the cache, which must not be following a
// cluster yet. grace is how long a node may be unreachable before the members on it are
// failed.
func New(cache *clustercache.Cache, grace time.Duration) *Controller {
	return newController(cache, grace, clock.RealClock{})
}

func newController(cache *clustercache.Cache, grace time.Duration, clock clock.WithTicker) *Controller {
	c := &Controller{
		cache: cache, grace: grace, clock: clock,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[item](),
			workqueue.TypedRateLimitingQueueConfig[item]{Clock: clock}),
		failing:  map[types.UID]bool{},
		recorded: map[string]string{},
		untold:   map[string]string{},
	}
	cache.Subscribe(func(change clusterstate.Change) {
		if !c.running.Load() {
			return
		}
		if change.Node != "" {
			c.queue.Add(item{node: change.Node})
		}
		for _, gang := range []string{change.Gang, change.Left} {
			if gang != "" {
				c.queue.Add(item{gang: gang})
			}
		}
		if change.Bound != "" {
			c.queue.Add(item{bound: change.Bound})
		}
	})
	return c
}

// Run repairs until ctx ends. synced waits until the cache holds the cluster. Only the
// scheduler that leads may run it.
func (c *Controller) Run(ctx context.Context, clients Clients, synced func(context.Context) error) {
	c.Clients = clients
	c.running.Store(true)
	var stopped sync.WaitGroup
	defer stopped.Wait()
	stopped.Go(func() {
		<-ctx.Done()
		c.queue.ShutDown()
	})
	if err := synced(ctx); err != nil {
		return // the scheduler stops
	}
	c.checkAll(ctx)
	for {
		next, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		c.process(ctx, next)
	}
}

// checkAll queues everything that an earlier scheduler may have left undone.
func (c *Controller) checkAll(ctx context.Context) {
	nodes, gangs := c.cache.Keys()
	for _, name := range nodes {
		c.queue.Add(item{node: name})
	}
	for _, key := range gangs {
		c.queue.Add(item{gang: key})
	}
	if err := c.resume(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look for members that an earlier scheduler failed")
	}
}

func (c *Controller) process(ctx context.Context, next item) {
	defer c.queue.Done(next)
	if err := c.sync(ctx, next); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot repair", "node", next.node, "gang", cmp.Or(next.gang, next.bound), "pod", next.pod.String())
		c.queue.AddRateLimited(next)
		return
	}
	c.queue.Forget(next)
}

func (c *Controller) sync(ctx context.Context, next item) error {
	switch {
	case next.node != "":
		return c.syncNode(ctx, next.node)
	case next.gang != "":
		return c.syncGang(ctx, next.gang)
	case next.bound != "":
		return c.syncBound(ctx, next.bound)
	}
	return c.remove(ctx, next)
}
