package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

// member is the picture of one member cluster.
type member struct {
	name string
	// access is how it is reached: the picture is made again when that changes.
	access string
	end    context.CancelFunc
	state  *clustercache.Cache
	synced atomic.Bool
	// began is since when it is followed.
	began time.Time

	mu sync.Mutex
	// held are the gangs of jobs of which the place is charged here until they are bound, by binding.
	held map[string]toCome

	client *kube.Client
	asking sync.Mutex
	// reservations are what it was asked to keep, by binding.
	reservations map[string]*contract.GangReservation
	// unheard is when it did not answer last in time. One goroutine uses it.
	unheard time.Time
}

// within is a context of what is asked of the member's API server, which has some time to answer, until end.
func (m *member) within(ctx context.Context) (asking context.Context, end func()) {
	asking, cancel := context.WithTimeout(ctx, writeWithin)
	return asking, func() {
		if errors.Is(asking.Err(), context.DeadlineExceeded) {
			m.unheard = time.Now()
		}
		cancel()
	}
}

// rests reports whether the member is asked nothing that can wait, since it did not answer in time: else each job would wait for that, and
// all others behind it, until the places lapse that are kept for them.
func (m *member) rests() bool { return time.Since(m.unheard) < quiet }

// followMember begins to keep the picture of a member cluster in step, until ctx or the member ends. changed is called when it is
// complete, and after each change, answered with the binding of a reservation of the fleet that has changed. devices means that it
// serves classes of devices.
func followMember(ctx context.Context, fleet, name, access string, config *rest.Config, devices bool, changed func(), answered func(binding string)) (*member, error) {
	client, err := kube.New(config)
	if err != nil {
		return nil, err
	}
	metadataOnly, err := metadata.NewForConfig(client.Config)
	if err != nil {
		return nil, fmt.Errorf("set up the client of %s: %w", name, err)
	}
	ctx, end := context.WithCancel(ctx)
	m := &member{name: name, access: access, end: end, began: time.Now(), state: clustercache.New(), held: map[string]toCome{}, client: client, reservations: map[string]*contract.GangReservation{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client.Typed, 0, informers.WithTransform(follow.Trim), informers.WithTweakListOptions(follow.Latest))
	factory.InformerFor(&corev1.Pod{}, unfinishedPods)
	m.state.Subscribe(func(clusterstate.Change) { changed() })
	wait, err := m.state.Follow(ctx, factory, client.Dynamic, metadataOnly, devices)
	if err != nil {
		end()
		return nil, fmt.Errorf("follow %s: %w", name, err)
	}
	ours := func(do func(*unstructured.Unstructured) string) func(*unstructured.Unstructured) {
		return func(object *unstructured.Unstructured) {
			do := do
			if object.GetLabels()[contract.FleetLabel] != fleet {
				do = m.removeReservation // it may have been one of the fleet
			}
			if binding := do(object); binding != "" {
				answered(binding)
			}
		}
	}
	reservations, err := follow.Custom(ctx, client.Dynamic, gangreservation.Resource, metav1.NamespaceAll, follow.On(ours(m.setReservation), ours(m.removeReservation)))
	if err != nil {
		end()
		return nil, fmt.Errorf("follow %s: %w", name, err)
	}
	factory.StartWithContext(ctx)
	go func() {
		if wait(ctx) == nil && cache.WaitForCacheSync(ctx.Done(), reservations) {
			m.synced.Store(true)
			changed()
		}
	}()
	return m, nil
}

// unfinished selects the pods that have not ended.
const unfinished = "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)

// unfinishedPods follows the pods that hold or want resources, as kube-scheduler's informers do.
func unfinishedPods(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	return coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(options *metav1.ListOptions) {
			options.FieldSelector = unfinished
			follow.Latest(options)
		})
}

// offer is the place that the member has for a job, beside what it holds for others; why says why it has none.
func (m *member) offer(gangs toCome) (offer clusterchoice.Offer, why string) {
	offer, why = m.state.Find(gangs.in(m.name))
	offer.Cluster, offer.Promised = m.name, m.name == gangs.cluster
	return offer, why
}

// hold charges the place of a job until its pods are bound there, or it is given up; why says why it has none.
func (m *member) hold(binding string, gangs toCome) (why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, why = m.state.Grant(gangs.in(m.name), nil); why == "" {
		m.held[binding] = gangs
	}
	return why
}

// release gives up what is held for a binding.
func (m *member) release(binding string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveUp(binding)
}

// giveUp is release; mu must be held.
func (m *member) giveUp(binding string) {
	if gangs, ok := m.held[binding]; ok {
		m.state.Revoke(gangs.Keys()...)
		delete(m.held, binding)
	}
}

// settle gives up what is held for jobs whose pods are bound, as the member shows it.
func (m *member) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for binding, gangs := range m.held {
		if m.bound(gangs) {
			m.giveUp(binding)
		}
	}
}

// bound reports whether the member shows pods of each gang of a job bound: all that it needs are bound at once.
func (m *member) bound(gangs toCome) bool {
	for _, key := range gangs.Keys() {
		if gang, ok := m.state.Gang(key); !ok || gang.Running == 0 {
			return false
		}
	}
	return true
}

// whole reports whether the member shows all pods of a job bound: gangs with a minimum are bound before.
func (m *member) whole(gangs toCome) bool {
	for _, key := range gangs.Keys() {
		if gang, ok := m.state.Gang(key); !ok || gang.Running < gangs.Count(key) {
			return false
		}
	}
	return true
}

// has reports whether the member shows pods of a gang of a job.
func (m *member) has(gangs toCome) bool {
	return slices.ContainsFunc(gangs.Keys(), m.state.HasPods)
}
