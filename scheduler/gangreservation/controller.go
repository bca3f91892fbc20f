// Package gangreservation keeps places for gangs that are still to come: for who decides about several clusters, and wants to know
// that a gang has its place in one of them before it sends it there. It answers GangReservations.
//
// A place is held by the planner, exact GPUs and quota included, from the answer until the gang takes it, until the reservation is
// deleted, or until it expires by the clock of this program. What was promised is in the object's status: a scheduler that starts
// holds the same places again before it places anything.
//
// A reservation that is fenced keeps no place, but has nothing of its job start: who takes a job out of a cluster asks for that, and is
// told once no pod of it has a node. What still comes of the job, since someone has created it there late, waits.
package gangreservation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// Resource is that of reservations.
var Resource = schema.GroupVersionResource{Group: contract.GangReservationGroup, Version: contract.GangReservationVersion, Resource: contract.GangReservationResource}

// keptFor is how long an object stays after its places are not held any more, for who wants to know what became of it.
const keptFor = 10 * time.Minute

// A scheduler that starts tries to list the reservations so often, and for so long.
const listAgain, listWithin = time.Second, 10 * time.Second

// Controller answers reservations while [Controller.Run] runs.
type Controller struct {
	cache  *clustercache.Cache
	client dynamic.Interface
	synced cache.InformerSynced
	work   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	now    func() time.Time

	mu      sync.Mutex
	objects map[types.NamespacedName]*contract.GangReservation

	// held are the gangs, by key, for which places are kept, by reservation, fenced those that do not start, and ended when one was told
	// that nothing is kept. Only one goroutine uses them.
	held, fenced map[types.NamespacedName][]string
	ended        map[types.NamespacedName]time.Time
}

// Follow begins to follow reservations, until ctx ends. Nothing is held before [Controller.Restore].
func Follow(ctx context.Context, c *clustercache.Cache, client dynamic.Interface) (*Controller, error) {
	r := newController(c, client)
	var err error
	r.synced, err = follow.Custom(ctx, client, Resource, metav1.NamespaceAll, follow.On(r.set, r.remove))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, r.work.ShutDown)
	return r, nil
}

func newController(c *clustercache.Cache, client dynamic.Interface) *Controller {
	return &Controller{
		cache: c, client: client, now: time.Now,
		work:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](100*time.Millisecond, 10*time.Second)),
		objects: map[types.NamespacedName]*contract.GangReservation{}, held: map[types.NamespacedName][]string{}, fenced: map[types.NamespacedName][]string{}, ended: map[types.NamespacedName]time.Time{},
	}
}

func (r *Controller) set(object *unstructured.Unstructured) {
	key := keyOf(object)
	reservation := &contract.GangReservation{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, reservation); err != nil {
		klog.Background().Error(err, "Cannot use a reservation", "reservation", key)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.objects[key]; before == nil || !follow.Older(reservation, before) { // what was written is known before a watch shows it
		r.objects[key] = reservation
		r.work.Add(key)
	}
}

// wrote takes in a reservation as it was written, unless it has gone meanwhile.
func (r *Controller) wrote(object *unstructured.Unstructured) {
	r.mu.Lock()
	known := r.objects[keyOf(object)]
	r.mu.Unlock()
	if known != nil && known.UID == object.GetUID() {
		r.set(object)
	}
}

func (r *Controller) remove(object *unstructured.Unstructured) {
	key := keyOf(object)
	r.mu.Lock()
	delete(r.objects, key)
	r.mu.Unlock()
	r.work.Add(key)
}

// Restore holds again what was promised and has not expired, and fences again, also where nobody has answered that yet. It is called once, before anything is placed, with a cache that holds the
// cluster; the error is that of ctx.
func (r *Controller) Restore(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), r.synced) {
		return fmt.Errorf("wait for the reservations: %w", context.Cause(ctx))
	}
	// The watch may lag behind what a predecessor has promised last, or was asked for.
	var list *unstructured.UnstructuredList
	err := wait.PollUntilContextTimeout(ctx, listAgain, listWithin, true, func(ctx context.Context) (listed bool, err error) {
		list, err = r.client.Resource(Resource).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Cannot list the reservations")
			return false, nil
		}
		return true, nil
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("list the reservations: %w", context.Cause(ctx))
	case err != nil:
		klog.FromContext(ctx).Info("Those reservations are held of which the watch tells")
	case list != nil:
		for i := range list.Items {
			r.set(&list.Items[i])
		}
	}
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.objects))
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *contract.GangReservation) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, reservation := range all {
		if reservation.Fences(r.now()) {
			_ = r.raise(reservation) // Run says what is wrong with it
		}
	}
	for _, reservation := range all {
		if reservation.Spec.Fenced || !r.lives(reservation) {
			continue
		}
		var gangs []contract.GrantedGang
		planned, why := promised(reservation)
		if why == "" {
			gangs, why = r.grant(reservation, planned)
		}
		if why != "" {
			klog.FromContext(ctx).Info("A place that was promised cannot be had any more", "reservation", klog.KObj(reservation), "reason", why)
			continue // Run says so
		}
		r.held[keyOf(reservation)] = names(gangs)
	}
	return nil
}

// promised are the places that a reservation's status tells, by gang; why says what is wrong with them.
func promised(reservation *contract.GangReservation) (planned map[string][]contract.PlannedNode, why string) {
	planned = map[string][]contract.PlannedNode{}
	for _, gang := range reservation.Status.Gangs {
		if err := (contract.PlannedPlacement{Nodes: gang.Nodes}).Check(); err != nil {
			return nil, fmt.Sprintf("the status is not what was written: %s", err)
		}
		planned[gang.Name] = gang.Nodes
	}
	return planned, ""
}

// lives reports whether places are promised and have not expired.
func (r *Controller) lives(reservation *contract.GangReservation) bool {
	status := &reservation.Status
	return status.Phase == contract.PhaseReserved && status.Expires != nil && r.now().Before(status.Expires.Time)
}

// Run answers until ctx ends.
func (r *Controller) Run(ctx context.Context) {
	for {
		key, stopped := r.work.Get()
		if stopped {
			return
		}
		if err := r.reconcile(ctx, key); err == nil {
			r.work.Forget(key)
		} else if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "A reservation was not answered, and is tried again", "reservation", key)
			r.work.AddRateLimited(key)
		}
		r.work.Done(key)
	}
}

func (r *Controller) reconcile(ctx context.Context, key types.NamespacedName) error {
	r.mu.Lock()
	reservation := r.objects[key]
	r.mu.Unlock()
	if reservation == nil || reservation.DeletionTimestamp != nil {
		r.release(key)
		delete(r.ended, key)
		return nil
	}
	if reservation.Spec.Fenced {
		return r.keepOut(ctx, reservation)
	}
	status := &reservation.Status
	if reservation.Spec.Epoch > status.Epoch {
		return r.answer(ctx, reservation)
	}
	if status.Phase != contract.PhaseReserved {
		r.release(key)
		return r.clean(ctx, reservation)
	}
	if r.held[key] != nil && r.lives(reservation) {
		r.work.AddAfter(key, status.Expires.Sub(r.now()))
		return nil
	}
	ended := contract.GangReservationStatus{Epoch: status.Epoch, Phase: contract.PhaseExpired, Message: "The job has not come in time.", Expires: status.Expires, Gangs: status.Gangs}
	switch held := r.held[key]; {
	case held == nil && r.lives(reservation):
		ended.Phase, ended.Message = contract.PhaseRefused, "The places cannot be had any more."
	case held == nil && slices.ContainsFunc(names(status.Gangs), r.cache.HasPods), held != nil && !slices.ContainsFunc(held, r.cache.Granted):
		ended.Phase, ended.Message = contract.PhaseTaken, ""
	}
	r.release(key)
	return r.write(ctx, reservation, ended)
}

// answer holds the places of a new request, or holds them for longer, and says so; what cannot be told is not held.
func (r *Controller) answer(ctx context.Context, reservation *contract.GangReservation) error {
	status := contract.GangReservationStatus{Epoch: reservation.Spec.Epoch, Phase: contract.PhaseReserved}
	r.open(keyOf(reservation))
	gangs, why := r.grant(reservation, nil)
	switch {
	case why != "":
		status.Phase, status.Message = contract.PhaseRefused, why
		r.release(keyOf(reservation))
	case len(gangs) == 0:
		status.Phase = contract.PhaseTaken
		r.release(keyOf(reservation))
	default:
		r.held[keyOf(reservation)] = names(gangs)
		status.Expires, status.Gangs = r.until(reservation), gangs
	}
	if status.Phase != contract.PhaseReserved {
		r.ended[keyOf(reservation)] = r.now()
	}
	err := r.write(ctx, reservation, status)
	if err != nil && !r.lives(reservation) {
		r.release(keyOf(reservation)) // else it stays promised until then
	}
	return err
}

// grant has places kept for the gangs of a job; why says what stops it.
func (r *Controller) grant(reservation *contract.GangReservation, planned map[string][]contract.PlannedNode) (gangs []contract.GrantedGang, why string) {
	pods, err := podsOf(reservation)
	if err != nil {
		return nil, fmt.Sprintf("what the job runs cannot be read: %s", err)
	}
	// Pods on their own have names that nobody knows before they are there.
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { _, ok := inventory.GangKey(pod); return !ok })
	if len(pods) == 0 {
		return nil, "the job has no gang: no labels of its pods name one"
	}
	toCome := clusterstate.NewToCome(pods)
	if why := r.claim(keyOf(reservation), toCome.Keys()); why != "" {
		return nil, why
	}
	return r.cache.Grant(toCome, planned)
}

// claim gives back what a reservation holds for other gangs than these, as it does when it is for another job by now; why says
// which of them another reservation keeps a place for, whose promise would end with this one, or lets nothing start of.
func (r *Controller) claim(key types.NamespacedName, gangs []string) (why string) {
	wanted := func(gang string) bool { return slices.Contains(gangs, gang) }
	r.cache.Revoke(slices.DeleteFunc(slices.Clone(r.held[key]), wanted)...)
	for other, held := range r.held {
		if i := slices.IndexFunc(held, wanted); other != key && i >= 0 && r.cache.Granted(held[i]) {
			return fmt.Sprintf("gang %s: reservation %s keeps its place already", held[i], other)
		}
	}
	for other, fenced := range r.fenced {
		if i := slices.IndexFunc(fenced, wanted); other != key && i >= 0 {
			return fmt.Sprintf("gang %s: reservation %s lets nothing of that name start", fenced[i], other)
		}
	}
	return ""
}

// podsOf are the pods that the job of a reservation will have, once all are there.
func podsOf(reservation *contract.GangReservation) ([]*corev1.Pod, error) {
	object := &unstructured.Unstructured{Object: reservation.Spec.Job}
	if object.GetNamespace() != reservation.Namespace {
		return nil, fmt.Errorf("it is of namespace %q, its reservation of %q: a reservation is in the namespace of its job", object.GetNamespace(), reservation.Namespace)
	}
	return job.Expected(object)
}

// until is when the time of a reservation is over that is answered now.
func (r *Controller) until(reservation *contract.GangReservation) *metav1.Time {
	expires := metav1.NewTime(r.now().Add(time.Duration(reservation.Spec.Seconds) * time.Second).Truncate(time.Second))
	return &expires
}

// release gives back the places of a reservation, and takes its fence away.
func (r *Controller) release(key types.NamespacedName) {
	r.open(key)
	r.cache.Revoke(r.held[key]...)
	delete(r.held, key)
}

// clean deletes a reservation that has held nothing for a while.
func (r *Controller) clean(ctx context.Context, reservation *contract.GangReservation) error {
	since := reservation.CreationTimestamp.Time
	if expires := reservation.Status.Expires; expires != nil {
		since = expires.Time
	}
	if ended := r.ended[keyOf(reservation)]; ended.After(since) { // who asks again with an old object wants to know the answer
		since = ended
	}
	if left := since.Add(keptFor).Sub(r.now()); left > 0 {
		r.work.AddAfter(keyOf(reservation), left)
		return nil
	}
	err := r.client.Resource(Resource).Namespace(reservation.Namespace).Delete(ctx, reservation.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &reservation.UID, ResourceVersion: &reservation.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete reservation %s, which holds nothing any more: %w", keyOf(reservation), err)
	}
	return nil
}

// write writes what has become of a reservation, unless it has changed: the change is told, and answered then.
func (r *Controller) write(ctx context.Context, reservation *contract.GangReservation, status contract.GangReservationStatus) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": reservation.ResourceVersion},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return fmt.Errorf("encode the status of reservation %s: %w", keyOf(reservation), err)
	}
	written, err := r.client.Resource(Resource).Namespace(reservation.Namespace).Patch(ctx, reservation.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the status of reservation %s: %w", keyOf(reservation), err)
	}
	r.wrote(written) // what is decided by an older state would be that nothing is promised
	return nil
}

func keyOf(reservation metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: reservation.GetNamespace(), Name: reservation.GetName()}
}

func names(gangs []contract.GrantedGang) []string {
	names := make([]string, len(gangs))
	for i, gang := range gangs {
		names[i] = gang.Name
	}
	return names
}
