package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/clusterchoice"
)

const (
	// again is how soon a job that has no place is tried again after something has changed in a member cluster.
	again = time.Second
	// leavesAgain is how soon a job that may run somewhere still is looked at again.
	leavesAgain = 2 * time.Second
	// quiet is how long it takes at least until a job is told of other reasons why it has no place.
	quiet = 30 * time.Second
	// unreadAfter is after how many tries to read a job, half a minute in all, others do not wait any more for what place it has.
	unreadAfter = 8
)

var (
	bindings = schema.GroupVersionResource{Group: contract.KarmadaWorkGroup, Version: contract.ResourceBindingVersion, Resource: contract.ResourceBindingResource}
	clusters = schema.GroupVersionResource{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Resource: contract.KarmadaClusterResource}
)

// controller decides about the bindings of a hub, one at a time.
type controller struct {
	hub *kube.Client
	// id is the hub's: the UID of its namespace kube-system.
	id     string
	events record.EventRecorder
	work   workqueue.TypedRateLimitingInterface[string]
	meters *meters
	// busy is nil between decisions.
	busy atomic.Pointer[looking]

	mu       sync.Mutex
	bindings map[string]*binding
	clusters map[string]*contract.FleetCluster
	members  map[string]*member
	// unreached is why some of them cannot be followed.
	unreached map[string]string
	// waiting are the bindings of jobs for which something has to change in a member cluster.
	waiting map[string]bool
	// sent are the bindings of jobs that were sent and whose places were looked at since this program has started.
	sent map[string]bool
	// asked are the places that member clusters keep, or were asked to keep, for jobs, and refusals what some have against a job, by
	// binding.
	asked    map[string]request
	refusals map[string]map[string]refusal
	// watched are the jobs in a cluster that go to another one where they wait for too long, and left the clusters in which a job without
	// one was, with whether it may run there still, both by binding.
	watched map[string]watchedJob
	left    map[string]map[string]bool
	// fences are the clusters that jobs have left, and that were asked to let nothing of them start, by binding and name.
	fences map[string]map[string]request
	// told is when jobs were last told why they have no place, by binding.
	told map[string]time.Time
}

func newController(ctx context.Context, hub *kube.Client) *controller {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: hub.Typed.CoreV1().Events("")})
	c := &controller{
		hub:      hub,
		events:   broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: contract.FleetSchedulerName}),
		work:     workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, time.Minute)),
		bindings: map[string]*binding{}, clusters: map[string]*contract.FleetCluster{}, members: map[string]*member{}, unreached: map[string]string{}, waiting: map[string]bool{}, sent: map[string]bool{},
		watched: map[string]watchedJob{}, left: map[string]map[string]bool{}, fences: map[string]map[string]request{},
		asked: map[string]request{}, refusals: map[string]map[string]refusal{}, told: map[string]time.Time{},
	}
	c.meters = newMeters(c)
	return c
}

// run works until ctx ends.
func (c *controller) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.work.ShutDown)()
	c.meters.register()
	system, err := c.hub.Typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read which hub it is: %w", err)
	}
	c.id = string(system.UID)
	known, err := c.followClusters(ctx)
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), known) {
		return nil
	}
	known, err = follow.Custom(ctx, c.hub.Dynamic, bindings, "", follow.On(func(o *unstructured.Unstructured) { c.setBinding(ctx, o) }, c.removeBinding))
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), known) { // what was sent before comes before what is to be sent
		return nil
	}
	for {
		key, stopped := c.work.Get()
		if stopped {
			return nil
		}
		c.busy.Store(&looking{key, time.Now()})
		err := c.reconcile(ctx, key)
		c.busy.Store(nil)
		switch {
		case err == nil:
			c.work.Forget(key)
		case ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "A job was not sent to a cluster, and is tried again", "binding", key)
			c.work.AddRateLimited(key)
		}
		c.work.Done(key)
	}
}

func (c *controller) setBinding(ctx context.Context, object *unstructured.Unstructured) {
	b, err := bindingOf(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot use a binding")
		return
	}
	if !b.ours() {
		c.removeBinding(object)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.bindings[b.key()]; before == nil || !follow.Older(b, before) {
		c.bindings[b.key()] = b
		c.work.Add(b.key())
	}
}

// wrote takes in a binding as it was written, unless it has gone meanwhile: a watch shows it later.
func (c *controller) wrote(object *unstructured.Unstructured) {
	b, err := bindingOf(object)
	if err != nil {
		return // it is told of that when the watch shows it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.bindings[b.key()]; before != nil && before.UID == b.UID && !follow.Older(b, before) {
		c.bindings[b.key()] = b
		c.work.Add(b.key())
	}
}

func (c *controller) removeBinding(object *unstructured.Unstructured) {
	key := keyOf(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bindings, key)
	delete(c.waiting, key)
	delete(c.sent, key)
	delete(c.told, key)
	delete(c.refusals, key)
	delete(c.watched, key)
	delete(c.left, key)
	delete(c.fences, key)
	c.abandon(key)
	c.work.Add(key)
}

// What is before the names of clusters in the queue, of which bindings, with a namespace before them, have none: clusters as the hub
// has them, and those in which something has changed.
const memberPrefix, changePrefix = "cluster:", "change:"

func (c *controller) reconcile(ctx context.Context, key string) error {
	if name, ok := strings.CutPrefix(key, memberPrefix); ok {
		return c.connect(ctx, name)
	}
	if name, ok := strings.CutPrefix(key, changePrefix); ok {
		c.changed(name)
		return nil
	}
	c.mu.Lock()
	b := c.bindings[key]
	delete(c.waiting, key)
	c.mu.Unlock()
	if b == nil {
		c.giveBack(ctx, key, func(string, *contract.GangReservation) bool { return true })
		return nil
	}
	object, err := c.hub.Get(ctx, b.kind(), b.Spec.Resource.Namespace, b.Spec.Resource.Name)
	gone := kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed) || err == nil && !b.isOf(object)
	if b.Cluster() != "" && (gone || apierrors.IsForbidden(err)) {
		c.work.AddAfter(b.key(), quiet)
		c.looked(b.key()) // nobody can say what place it has, and others do not wait for that
		return nil
	}
	if gone {
		c.work.AddAfter(b.key(), quiet) // the binding goes, too, unless the hub did not know yet what it serves
		return nil
	}
	if apierrors.IsForbidden(err) && b.Cluster() == "" {
		text := fmt.Sprintf("the scheduler of the fleet may not read %s of %s: a ClusterRole has to let its account on the hub get them", b.Spec.Resource.Kind, b.Spec.Resource.APIVersion)
		c.work.AddAfter(b.key(), quiet)
		return c.refuse(ctx, b, nil, reasonUnreadable, text)
	}
	if err != nil {
		if b.Cluster() != "" && c.work.NumRequeues(b.key()) >= unreadAfter {
			c.looked(b.key())
		}
		return err
	}
	pods, err := job.Expected(object)
	unreadable := ""
	switch {
	case err != nil:
		unreadable = fmt.Sprintf("what the job runs cannot be read: %s", err)
	case len(pods) == 0 && b.kind().Kind == contract.TrainJobKind:
		unreadable = "a TrainJob has its pods in a TrainingRuntime, which the hub does not have: make it a JobSet"
	}
	c.refence(ctx, b, object)
	switch {
	case c.removed(b) && !b.stays(object):
		return c.withdraw(ctx, b, object, newToCome(pods))
	case b.Cluster() != "":
		return c.keep(ctx, b, object, pods)
	case b.Spec.Suspension.Scheduling:
		c.yield(ctx, b.key())
		if unreadable != "" { // nor can the queue
			return c.refuse(ctx, b, object, reasonUnreadable, "its policy holds it for the queue of the hub, which cannot take it: "+unreadable)
		}
		return nil // it is told when the queue lets the job go
	case unreadable != "":
		return c.refuse(ctx, b, object, reasonUnreadable, unreadable)
	}
	return c.place(ctx, b, object, pods)
}

// yield gives up what was found for a job that is held again.
func (c *controller) yield(ctx context.Context, key string) {
	c.mu.Lock()
	c.abandon(key)
	c.mu.Unlock()
	c.drop(ctx, key, "")
}

// abandon forgets what members were asked for a job, and where it is charged; mu must be held.
func (c *controller) abandon(key string) {
	delete(c.asked, key)
	for _, m := range c.members {
		m.release(key)
	}
}

// ended reports whether a job has finished.
func ended(object *unstructured.Unstructured) bool {
	status, err := job.StatusOf(object)
	return err == nil && status.Finished()
}

// endedThere reports whether a job has finished in the cluster where it is, as that tells; told is false where it tells nothing yet. The
// object on the hub says of a job that has failed in another cluster what it said there, until this one tells something.
func (b *binding) endedThere(object *unstructured.Unstructured) (finished, told bool) {
	there := b.Shown(object)
	return there != nil && ended(there), there != nil
}

// stays reports whether a job has finished, so that it does not leave its cluster when that is removed. Of one that has failed nobody may
// know any more where: it leaves if its policy has it go on elsewhere, as it may have done.
func (b *binding) stays(object *unstructured.Unstructured) bool {
	finished, told := b.endedThere(object)
	_, moves := b.toleration()
	return finished || !told && (b.Succeeded(object) || ended(object) && (!moves || succeeded(object)))
}

// succeeded reports whether a job has run, and is not to run once more.
func succeeded(object *unstructured.Unstructured) bool {
	status, err := job.StatusOf(object)
	return err == nil && status.Phase == job.Succeeded
}

// keep says of a job that was sent that it was, and charges its place, also where it was sent before this program started, until its
// pods are bound.
func (c *controller) keep(ctx context.Context, b *binding, object *unstructured.Unstructured, pods []*corev1.Pod) error {
	c.mu.Lock()
	delete(c.left, b.key()) // what was seen of a cluster before the job came back there says nothing
	m, seen := c.members[b.Cluster()], c.sent[b.key()]
	c.mu.Unlock()
	finished, _ := b.endedThere(object)
	gangs, charged := newToCome(pods), true
	switch {
	case finished && m != nil:
		m.release(b.key())
	case finished || seen || len(pods) == 0:
	case m == nil || !m.synced.Load():
		charged = false
	case !m.bound(gangs):
		m.hold(b.key(), gangs) // where it has no place any more there is nothing to hold
	}
	if charged {
		c.looked(b.key()) // others do not wait for what is written of it
	} else {
		c.mu.Lock()
		c.waiting[b.key()] = true
		c.mu.Unlock()
	}
	if !b.noted() {
		return c.note(ctx, b) // which brings us back
	}
	if there := b.Shown(object); there != nil && !succeeded(object) && succeeded(there) != b.Succeeded(object) {
		return c.noteSuccess(ctx, b, object, succeeded(there)) // as well
	}
	if text := result(b.Cluster(), pods); len(pods) > 0 && b.said() != text {
		if _, err := c.report(ctx, b, metav1.ConditionTrue, reasonSuccess, text); err != nil {
			return err
		}
	}
	if !charged {
		return nil
	}
	c.tend(ctx, b, object, gangs, finished)
	return c.watchOver(ctx, b, object, gangs, finished)
}

// looked notes that the place of a job that was sent was looked at: those that waited for that are tried again.
func (c *controller) looked(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sent[key] {
		c.sent[key] = true
		c.retry()
	}
}

// place finds the cluster that has the best place for a job, has the place kept there, and sends the job.
func (c *controller) place(ctx context.Context, b *binding, object *unstructured.Unstructured, pods []*corev1.Pod) error {
	gangs := newToCome(pods)
	c.mu.Lock()
	sent := c.sent[b.key()]
	delete(c.sent, b.key())
	c.mu.Unlock()
	if sent { // it was taken out of its cluster, by whom ever
		c.yield(ctx, b.key())
	}
	if succeeded(object) || b.Succeeded(object) {
		return c.refuse(ctx, b, object, reasonNoCluster, "the job has succeeded, and was taken out of its cluster: it is sent to no other one, where it would run once more")
	}
	if why := c.leaves(ctx, b, object, gangs); why != "" {
		c.mu.Lock()
		c.waiting[b.key()] = true
		c.mu.Unlock()
		c.work.AddAfter(b.key(), leavesAgain)
		return c.refuse(ctx, b, object, reasonNoCluster, "the job waits until it is gone from where it was: "+why)
	}
	if decided, err := c.hear(ctx, b, object, pods, gangs); decided || err != nil {
		return err
	}
	c.mu.Lock()
	c.waiting[b.key()] = true
	c.mu.Unlock()
	began := time.Now()
	offers, reasons, unknown := c.offers(b, gangs)
	best := clusterchoice.Best(offers)
	c.meters.decided(began, best >= 0)
	if best < 0 && unknown {
		c.work.AddAfter(b.key(), quiet)
		return nil // the jobs that wait are tried again once it is known, and are told when that takes long
	}
	if best < 0 {
		text := "the fleet has no clusters"
		if len(reasons) > 0 {
			text = strings.Join(reasons, "; ")
		}
		return c.refuse(ctx, b, object, reasonNoCluster, text)
	}
	c.mu.Lock()
	chosen := c.members[offers[best].Cluster]
	c.mu.Unlock()
	if chosen == nil || chosen.hold(b.key(), gangs) != "" {
		c.work.AddAfter(b.key(), again)
		return nil // someone was faster
	}
	return c.ask(ctx, b, object, chosen, pods)
}

// offers are the places that clusters have for a job. reasons are why the others have none, in the order of their names; unknown means
// that some may have one yet.
func (c *controller) offers(b *binding, gangs toCome) (offers []clusterchoice.Offer, reasons []string, unknown bool) {
	c.mu.Lock()
	members, unreached := maps.Clone(c.members), maps.Clone(c.unreached)
	all := slices.SortedFunc(maps.Values(c.clusters), func(a, b *contract.FleetCluster) int { return natural.Compare(a.Name, b.Name) })
	incomplete := c.incomplete()
	c.mu.Unlock()
	for _, cluster := range all {
		term, why := b.bars(cluster)
		m := members[cluster.Name]
		if why == "" && (m == nil || !m.synced.Load() || incomplete[cluster.Name]) {
			if why = unreached[cluster.Name]; why == "" {
				why = "its state is not known yet"
			}
			unknown = unknown || m == nil && unreached[cluster.Name] == "" || m != nil && time.Since(m.began) < quiet
		}
		if why == "" && m.rests() {
			why = "it does not answer"
			c.work.AddAfter(b.key(), quiet)
		}
		if why == "" {
			why = c.refused(b.key(), cluster.Name)
		}
		if why == "" {
			var offer clusterchoice.Offer
			if offer, why = m.offer(gangs); why == "" {
				if b.evictedFrom(cluster.Name) {
					term += len(b.Spec.Placement.Terms()) // after all others
					offer.Promised = false
				}
				offer.Term, offer.Weight = term, b.Spec.Placement.Weight(cluster)
				offers = append(offers, offer)
			}
		}
		if why != "" {
			reasons = append(reasons, cluster.Name+": "+strings.TrimSuffix(why, "."))
		}
	}
	return offers, reasons, unknown
}

// send sends a job to the cluster that was chosen, where its place is charged.
func (c *controller) send(ctx context.Context, b *binding, object *unstructured.Unstructured, chosen *member, pods []*corev1.Pod) error {
	if err := c.commit(ctx, b, object, chosen.name, pods); err != nil {
		chosen.release(b.key())
		if apierrors.IsConflict(err) {
			return nil // it is told of the change
		}
		return err
	}
	c.meters.sent.WithLabelValues(chosen.name).Inc()
	c.mu.Lock()
	delete(c.waiting, b.key())
	delete(c.refusals, b.key())
	delete(c.left, b.key())
	c.sent[b.key()] = true
	c.mu.Unlock()
	return nil
}

// incomplete are the clusters of which the picture lacks places of jobs that were sent there before this program started; mu must be held.
func (c *controller) incomplete() map[string]bool {
	names := map[string]bool{}
	for key, b := range c.bindings {
		if b.Cluster() != "" && !c.sent[key] {
			names[b.Cluster()] = true
		}
	}
	return names
}

// changed gives up the places in a member cluster that are taken by now, and has jobs tried again that wait.
func (c *controller) changed(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[name]; m != nil {
		m.settle()
		c.stir(m)
	}
	for key, asked := range c.asked {
		if asked.cluster == name {
			c.work.Add(key)
		}
	}
	c.retry()
}

// retry has jobs tried again that wait, in the order in which they came; mu must be held.
func (c *controller) retry() {
	came := func(key string) time.Time {
		if b := c.bindings[key]; b != nil {
			return b.CreationTimestamp.Time
		}
		return time.Time{}
	}
	for _, key := range slices.SortedFunc(maps.Keys(c.waiting), func(a, b string) int { return cmp.Or(came(a).Compare(came(b)), natural.Compare(a, b)) }) {
		c.work.AddAfter(key, again)
	}
}
