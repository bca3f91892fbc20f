package gang

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/hooks"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
)

// Name is the plugin's name in a scheduler configuration.
const Name = "GPUPlanGang"

// Plugin is the gang plugin. Its lock is never held while the framework is called:
// the framework calls PreEnqueue under its queue's lock.
type Plugin struct {
	handle hooks.Handle
	cache  *clustercache.Cache
	client dynamic.Interface
	meter  *metrics.Metrics
	// synced waits until the cache holds the cluster.
	synced func(context.Context) error
	work   *workQueue
	aside  *aside
	// rechecks are for pods that the API server has refused to delete: they may be many, and hold up no evictions.
	rechecks *aside
	statuses *statusQueue
	// departures are of pods that end, or that others delete, losses those of each gang.
	departures departures
	losses     losses
	// pace bounds how fast texts are written on pods.
	pace *rate.Limiter
	// after calls a function after a pause.
	after func(time.Duration, func())
	// now is the time by which texts are written at a pace, and departures are waited for.
	now func() time.Time
	// reserveAfter is how long a gang waits before capacity is reserved for it; negative: for ever.
	reserveAfter time.Duration
	// staleAfter is how long a gang that has lost members may find no place for others, 0: for ever.
	staleAfter time.Duration
	// due means that gangs have waited so long when places were held last.
	due atomic.Bool
	// leading means that this scheduler schedules, and is not a replica that stands by:
	// only then it writes to the API server.
	leading atomic.Bool

	// answers are, by key, what PreEnqueue says of gangs that wait. They are replaced with the
	// lock held, and read without it: the queue waits for nobody.
	answers sync.Map

	mu    sync.Mutex
	gangs map[string]*gang
	// ran are the pods that have been among the members of a gang when it ran as a whole, as far as
	// this scheduler has seen.
	ran map[string]map[types.UID]bool
	// begun are the pods that this scheduler has given places in a gang of which none had one, until
	// the gang runs as a whole.
	begun map[string]map[types.UID]bool
	// recovered means that gangs that a crash left half bound have been planned.
	recovered bool
	// planning is the gang that a cycle is planning, "" for none: its members may be charged to
	// the view before they are assumed.
	planning string
	// outrun means that the worker has looked at the gangs that wait, or at this one, since the cycle began to
	// plan: what the cycle knows may be of before.
	outrun bool
	// refreshes means that the worker, which alone uses it, is about to look at texts again.
	refreshes bool
	// halfway are gangs that were evicted in part, with when the rest may be evicted again; the worker alone uses it.
	halfway map[string]time.Time
	// checksBeside means that the worker is about to try gangs again that may have to run near pods.
	checksBeside bool

	// recording is the gang of which the writer is writing why it waits, "" for none; it is
	// not activated meanwhile. interrupted means that it should be.
	recording   string
	interrupted bool
	// recorded is what the writer, which alone uses it, has written of gangs that wait.
	recorded map[string]*recorded
	// refusals is, by gang, what pods have been told that other plugins refuse; the writer alone uses it.
	refusals map[string]map[types.UID]refusedPod
}

var (
	_ fwk.QueueSortPlugin   = (*Plugin)(nil)
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PermitPlugin      = (*Plugin)(nil)
	_ fwk.PostBindPlugin    = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// New returns the plugin of a profile. It makes the cache follow the cluster, so a
// scheduler may have one profile with it.
func New(ctx context.Context, cache *clustercache.Cache, meter *metrics.Metrics, framework fwk.Handle, args Args) (*Plugin, error) {
	handle, err := hooks.HandleOf(framework)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("%s: set up the client for custom resources: %w", Name, err)
	}
	p := newPlugin(cache, meter, handle, client)
	p.reserveAfter, p.staleAfter = args.ReserveAfter.Duration, args.StaleAfter.Duration
	cache.Subscribe(p.work.observe)
	cache.Subscribe(p.warn)
	cache.Subscribe(p.departs)
	cache.Subscribe(func(change clusterstate.Change) {
		if change.Rules {
			p.checkAll()
		}
	})
	pods, err := metadata.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("%s: set up the client for metadata of pods: %w", Name, err)
	}
	if p.synced, err = cache.Follow(ctx, handle.SharedInformerFactory(), client, pods, true); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	go p.run(ctx)
	return p, nil
}

func newPlugin(cache *clustercache.Cache, meter *metrics.Metrics, handle hooks.Handle, client dynamic.Interface) *Plugin {
	return &Plugin{
		handle:   handle,
		cache:    cache,
		client:   client,
		meter:    meter,
		work:     newWorkQueue(),
		aside:    newAside(evictors),
		rechecks: newAside(recheckers),
		statuses: newStatusQueue(),
		pace:     rate.NewLimiter(textsPerSecond, textsAtOnce),
		after:    func(pause time.Duration, f func()) { time.AfterFunc(pause, f) },
		now:      time.Now,
		gangs:    map[string]*gang{},
		ran:      map[string]map[types.UID]bool{},
		begun:    map[string]map[types.UID]bool{},
		halfway:  map[string]time.Time{},
		recorded: map[string]*recorded{},
		refusals: map[string]map[types.UID]refusedPod{},

		reserveAfter: contract.DefaultReserveAfter,
	}
}

// Lead is called when this scheduler begins to schedule, and may be called again.
func (p *Plugin) Lead() {
	if p.leading.Swap(true) {
		return
	}
	p.checkAll()
	p.work.add(clusterstate.Change{RolledBack: true}) // what was evicted in part is finished now
}

// checkAll has every gang looked at again.
func (p *Plugin) checkAll() {
	p.mu.Lock()
	keys := slices.Collect(maps.Keys(p.gangs))
	p.mu.Unlock()
	for _, key := range keys {
		p.work.add(clusterstate.Change{Gang: key})
	}
}

// Synced waits until the plugin's view holds the cluster.
func (p *Plugin) Synced(ctx context.Context) error { return p.synced(ctx) }

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// EventsToRegister returns one event: a pod that waits has other labels, by which it may have another gang, or loses its
// gates. The queue may hear of it after the view, and would go on asking about the pod as it was. Else the plugin's worker activates
// gangs when its own view has changed, which the framework's events may precede.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodLabel | fwk.UpdatePodSchedulingGatesEliminated},
		QueueingHintFn: func(_ klog.Logger, waiting *corev1.Pod, _, changed any) (fwk.QueueingHint, error) {
			if pod, ok := changed.(*corev1.Pod); ok && pod.UID == waiting.UID {
				return fwk.Queue, nil
			}
			return fwk.QueueSkip, nil
		},
	}}, nil
}

// SignPod adds nothing: pods that are equal to the other plugins are so to this one.
// Planned pods are kept out of the framework's batching by the quota plugin.
func (*Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

// Less orders the queue by priority, then by arrival, as [clusterstate.QueuedGang] does, but for gangs that run in part: that may
// change while their pods are in the queue. All members of a gang share its arrival, so that no other pod comes between them.
func (p *Plugin) Less(a, b fwk.QueuedPodInfo) bool {
	podA, podB := a.GetPodInfo().GetPod(), b.GetPodInfo().GetPod()
	if pa, pb := priority(podA), priority(podB); pa != pb {
		return pa > pb
	}
	keyA, plannedA := inventory.PlanKey(podA)
	keyB, plannedB := inventory.PlanKey(podB)
	if keyA == keyB {
		if placeA, placeB := p.position(keyA, podA), p.position(keyA, podB); placeA != placeB {
			return placeA < placeB
		}
		return a.GetTimestamp().Before(b.GetTimestamp())
	}
	arrivalA, arrivalB := p.arrival(keyA, plannedA, a), p.arrival(keyB, plannedB, b)
	if arrivalA != arrivalB {
		return arrivalA < arrivalB
	}
	return keyA < keyB
}

// position is where a gang's member comes in its attempt, 0 when any may come.
func (p *Plugin) position(key string, pod *corev1.Pod) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, ok := p.gangs[key]; ok && g.assumed[pod.UID] != nil && g.assumed[pod.UID].attempt.ordered {
		return g.assumed[pod.UID].position
	}
	return 0
}

// arrival is when the gang that a pod is planned with, or a planned pod on its own, was created, in Unix nanoseconds. Other
// pods are in the order in which they were queued, as with kube-scheduler.
func (p *Plugin) arrival(key string, planned bool, info fwk.QueuedPodInfo) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, ok := p.gangs[key]; ok {
		return g.created
	}
	if planned {
		return info.GetPodInfo().GetPod().CreationTimestamp.UnixNano()
	}
	return info.GetTimestamp().UnixNano()
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// gang returns what is remembered of the gang of a pod, and begins to remember it.
// The lock must be held.
func (p *Plugin) gang(key string, pod *corev1.Pod) *gang {
	g, ok := p.gangs[key]
	if !ok {
		g = &gang{
			key:     key,
			entry:   entryOpen,
			created: pod.CreationTimestamp.UnixNano(),
			assumed: map[types.UID]*assumedPod{},
			answers: &p.answers,
		}
		p.gangs[key] = g
	}
	return g
}

// activate is enqueue for a gang as it is now.
func (p *Plugin) activate(ctx context.Context, key string) {
	if state, ok := p.cache.Gang(key); ok {
		p.enqueue(ctx, key, state)
	}
}

// enqueue moves pods of a gang to the queue, where PreEnqueue decides about each: its
// assumed members, or else its first pod, and pods that wait for it to run. The
// lock must not be held.
func (p *Plugin) enqueue(ctx context.Context, key string, state inventory.GangState) {
	p.mu.Lock()
	g, ok := p.gangs[key]
	if !ok || p.interrupt(key) {
		p.mu.Unlock()
		return
	}
	pods := map[string]*corev1.Pod{}
	add := func(pod *corev1.Pod) { pods[pod.Namespace+"/"+pod.Name] = pod }
	first := len(g.assumed) == 0 && g.entry == entryOpen
	for _, role := range state.Gang.Roles {
		for _, name := range role.Members {
			pod := state.Pods[name]
			switch s := g.assumed[pod.UID]; {
			case s != nil:
				if !s.reserved {
					add(pod)
				}
			case pod.Spec.NodeName != "":
			case role.Late:
				add(pod)
			case g.firstPod == pod.UID || first:
				add(pod)
				first = false
			}
		}
	}
	p.mu.Unlock()
	if len(pods) > 0 {
		p.handle.Activate(klog.FromContext(ctx), pods)
	}
}

// Factory returns a function that makes the plugin for the framework and hands it to made.
func Factory(cache *clustercache.Cache, meter *metrics.Metrics, made func(*Plugin)) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, config runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, err := decode(config)
		if err != nil {
			return nil, err
		}
		p, err := New(ctx, cache, meter, handle, args)
		if err != nil {
			return nil, err
		}
		made(p)
		return p, nil
	}
}
