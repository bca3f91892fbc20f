package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
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

	// trying means that the picture changes only because a place is tried in it, or given up.
	trying atomic.Bool
	// mu keeps one trial from meeting another.
	mu sync.Mutex
	// held are the pods of jobs that were sent here and that are not bound yet, by binding.
	held map[string][]*corev1.Pod
	pods cache.Indexer

	dynamic dynamic.Interface
	asking  sync.Mutex
	// reservations are what it was asked to keep, by binding.
	reservations map[string]*contract.GangReservation
}

// followMember begins to keep the picture of a member cluster in step, until ctx or the member ends. changed is called when it is
// complete, and after each change, answered with the binding of a reservation of the fleet that has changed.
func followMember(ctx context.Context, fleet, name, access string, config *rest.Config, changed func(), answered func(binding string)) (*member, error) {
	client, err := kube.New(config)
	if err != nil {
		return nil, err
	}
	metadataOnly, err := metadata.NewForConfig(client.Config)
	if err != nil {
		return nil, fmt.Errorf("set up the client of %s: %w", name, err)
	}
	ctx, end := context.WithCancel(ctx)
	m := &member{name: name, access: access, end: end, state: clustercache.New(), held: map[string][]*corev1.Pod{}, dynamic: client.Dynamic, reservations: map[string]*contract.GangReservation{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client.Typed, 0, informers.WithTransform(follow.Trim), informers.WithTweakListOptions(follow.Latest))
	m.pods = factory.InformerFor(&corev1.Pod{}, unfinishedPods).GetIndexer()
	m.state.Subscribe(func(clusterstate.Change) {
		if !m.trying.Load() { // else the picture is as it was
			changed()
		}
	})
	wait, err := m.state.Follow(ctx, factory, client.Dynamic, metadataOnly)
	if err != nil {
		end()
		return nil, fmt.Errorf("follow %s: %w", name, err)
	}
	ours := func(do func(*unstructured.Unstructured) string) func(*unstructured.Unstructured) {
		return func(object *unstructured.Unstructured) {
			if object.GetLabels()[contract.FleetLabel] == fleet {
				if binding := do(object); binding != "" {
					answered(binding)
				}
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

// unfinishedPods follows the pods that hold or want resources, as kube-scheduler's informers do.
func unfinishedPods(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	return coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(options *metav1.ListOptions) {
			options.FieldSelector = "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)
			follow.Latest(options)
		})
}

// offer is the place that the member has for the pods of a job, beside what it holds for others; why says why it has none. It leaves
// the picture as it was.
func (m *member) offer(pods []*corev1.Pod) (offer clusterchoice.Offer, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	offer, why = m.place(pods)
	m.take(pods)
	return offer, why
}

// hold charges the place of a job's pods until they are bound there, or given up; why says why it has none.
func (m *member) hold(binding string, pods []*corev1.Pod) (why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(m.held[binding])
	delete(m.held, binding)
	if _, why = m.place(pods); why != "" {
		m.take(pods)
		return why
	}
	m.held[binding] = pods
	return ""
}

// release gives up what is held for a binding.
func (m *member) release(binding string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(m.held[binding])
	delete(m.held, binding)
}

// settle gives up what is held for jobs whose pods are bound, as the member shows it.
func (m *member) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for binding, pods := range m.held {
		if m.bound(pods) {
			m.take(pods)
			delete(m.held, binding)
		}
	}
}

// bound reports whether the member shows pods of each gang of a job bound: a gang is bound whole.
func (m *member) bound(pods []*corev1.Pod) bool {
	waiting := map[string]bool{}
	for _, pod := range pods {
		if key, ok := inventory.PlanKey(pod); ok {
			waiting[key] = true
		}
	}
	objects, err := m.pods.ByIndex(cache.NamespaceIndex, pods[0].Namespace)
	if err != nil {
		return false
	}
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			key, _ := inventory.PlanKey(pod)
			delete(waiting, key)
		}
	}
	return len(waiting) == 0
}

// place has all gangs of the pods planned, and charged, one after the other.
func (m *member) place(pods []*corev1.Pod) (offer clusterchoice.Offer, why string) {
	m.trying.Store(true)
	defer m.trying.Store(false)
	offer.Cluster = m.name
	var keys []string
	for _, pod := range pods {
		m.state.SetPod(pod)
		if key, ok := inventory.PlanKey(pod); ok && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		d, ok, err := m.state.Decide(key, clustercache.Limits{}, func(d *clustercache.Decision) bool { return d.Result.Reservation == nil })
		switch {
		case err != nil:
			return offer, err.Error()
		case !ok:
			return offer, fmt.Sprintf("gang %s has no pods", key)
		case d.MissingText != "":
			return offer, d.MissingText
		case d.Result.Placement == nil:
			return offer, d.Result.Verdict.String()
		case d.Declined:
			return offer, "running gangs would have to be evicted"
		}
		offer.Placements = append(offer.Placements, *d.Result.Placement)
	}
	offer.LeftGPUs = m.left(offer.Placements)
	return offer, ""
}

// left counts the GPUs that are free on the nodes of placements.
func (m *member) left(placements []placement.Placement) (gpus int) {
	view, seen := m.state.Snapshot().View, map[string]bool{}
	for _, p := range placements {
		for _, a := range p.Assignments {
			if node := view.State(a.Node); node != nil && !seen[a.Node] {
				seen[a.Node] = true
				gpus += node.FreeGPUs(node.HealthyGPUs()).Len()
			}
		}
	}
	return gpus
}

// take takes pods out of the picture that are not of the cluster.
func (m *member) take(pods []*corev1.Pod) {
	m.trying.Store(true)
	defer m.trying.Store(false)
	for _, pod := range pods {
		m.state.Forget(pod.UID)
		m.state.RemovePod(pod.UID)
	}
}
