package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

const (
	// lease is how long a member cluster keeps the place of a job that is on its way, and renewAfter when it is asked for longer.
	lease, renewAfter = time.Minute, 20 * time.Second
	// patience is for how long that goes on with a job that was sent and does not get there.
	patience = 10 * time.Minute
	// answerWithin is how long the scheduler of a member cluster may take to answer, writeWithin its API server.
	answerWithin, writeWithin = 10 * time.Second, 5 * time.Second
	// refusedFor is how long a member cluster that has refused a job is not asked for it again.
	refusedFor = 10 * time.Second
)

// request is a place that a member cluster was asked to keep for a job.
type request struct {
	cluster string
	epoch   int64
	// first and last are when it was asked for the first time, and the last time.
	first, last time.Time
}

// refusal is what a member cluster has against a job, which it is not asked for again until then.
type refusal struct {
	why   string
	until time.Time
}

// reservable reports whether places can be kept for the pods of a job before they are there: a pod that is in no gang has a name that
// nobody knows yet.
func reservable(pods []*corev1.Pod) bool {
	gang := false
	for _, pod := range pods {
		if _, ok := inventory.GangKey(pod); ok {
			gang = true
		} else if inventory.AsksForGPUs(pod) {
			return false
		}
	}
	return gang
}

// manifest is the job as a reservation in a cluster has it.
func manifest(object *unstructured.Unstructured, cluster string) map[string]any {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": object.Object["spec"]}}
	job.SetAPIVersion(object.GetAPIVersion())
	job.SetKind(object.GetKind())
	job.SetNamespace(object.GetNamespace())
	job.SetName(object.GetName())
	job.SetUID(object.GetUID())
	job.SetGeneration(object.GetGeneration())
	job.SetLabels(object.GetLabels())
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	job.SetAnnotations(annotations)
	if plan, _, _ := contract.PlannedPlacementFrom(annotations); plan.Cluster != "" && plan.Cluster != cluster {
		job = job.DeepCopy()
		forgetPlan(job.Object)
	}
	return job.Object
}

// isFor reports whether a reservation is for a job as it is now, and not as it was, or for one of its name before it.
func isFor(reservation *contract.GangReservation, object *unstructured.Unstructured) bool {
	job := unstructured.Unstructured{Object: reservation.Spec.Job}
	return job.GetUID() == object.GetUID() && job.GetGeneration() == object.GetGeneration()
}

// ask has a member cluster keep the place that was found there for a job; where nobody knows reservations the job is sent at once.
func (c *controller) ask(ctx context.Context, b *binding, object *unstructured.Unstructured, chosen *member, pods []*corev1.Pod) error {
	asking, end := chosen.within(ctx)
	found, err := c.find(asking, b, chosen)
	end()
	switch {
	case err != nil:
		c.put(b.key(), chosen, "it cannot be asked whether it has a job of that name: "+err.Error())
		return nil
	case found != absent && found != brought: // Karmada would change it into this one, or not make this one
		c.put(b.key(), chosen, found.String())
		return nil
	}
	c.mu.Lock()
	delete(c.fences[b.key()], chosen.name)
	c.mu.Unlock()
	if !reservable(pods) {
		return c.send(ctx, b, object, chosen, pods) // a fence there is opened once it is sent
	}
	epoch, known, err := chosen.reserve(ctx, b.key(), c.id, object, false)
	switch {
	case err != nil:
		c.put(b.key(), chosen, "its scheduler cannot be asked for a place: "+err.Error())
		return nil
	case !known:
		return c.send(ctx, b, object, chosen, pods)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[b.key()] = request{cluster: chosen.name, epoch: epoch, first: time.Now(), last: time.Now()}
	c.work.AddAfter(b.key(), answerWithin)
	return nil
}

// put notes what a member cluster has against a job, and has it placed again.
func (c *controller) put(key string, m *member, why string) {
	m.release(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, key)
	if c.refusals[key] == nil {
		c.refusals[key] = map[string]refusal{}
	}
	c.refusals[key][m.name] = refusal{why, time.Now().Add(refusedFor)}
	c.work.Add(key)
}

// refused says what a member cluster has against a job, "" for nothing any more.
func (c *controller) refused(key, cluster string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.refusals[key][cluster]
	rest := time.Until(found.until)
	if rest <= 0 {
		return ""
	}
	c.work.AddAfter(key, rest)
	return found.why
}

// hear acts on the answer of the member cluster that was asked to keep the place of a job; decided is false when the job has to be
// placed again.
func (c *controller) hear(ctx context.Context, b *binding, object *unstructured.Unstructured, pods []*corev1.Pod, gangs toCome) (decided bool, err error) {
	c.mu.Lock()
	asked, waits := c.asked[b.key()]
	m := c.members[asked.cluster]
	c.mu.Unlock()
	if !waits {
		if m = c.promised(b, object, gangs); m == nil {
			return false, nil
		}
		return true, c.ask(ctx, b, object, m, pods) // its scheduler may have ended since
	}
	var reservation *contract.GangReservation
	if m != nil {
		reservation = m.reservation(b.key())
	}
	answered := reservation != nil && reservation.Status.Epoch >= asked.epoch
	switch {
	case m == nil, // it has left the fleet, or is reached in another way by now
		c.barred(b, m.name), answered && !isFor(reservation, object): // the policy or the cluster has changed, or the job
		c.mu.Lock()
		defer c.mu.Unlock()
		c.abandon(b.key())
		c.work.Add(b.key())
		return true, nil
	case answered && reservation.Status.Phase == contract.PhaseReserved && time.Since(asked.last) >= lease: // it lapses, whatever was shown last
		return true, c.ask(ctx, b, object, m, pods)
	case answered && reservation.Status.Phase == contract.PhaseReserved:
		c.meters.answers.WithLabelValues(m.name, answerReserved).Inc()
		m.hold(b.key(), gangs) // again, where it was not sent the last time; the member is right about its place
		return true, c.send(ctx, b, object, m, pods)
	case answered && reservation.Status.Phase == contract.PhaseRefused:
		c.meters.answers.WithLabelValues(m.name, answerRefused).Inc()
		c.put(b.key(), m, "its scheduler refuses the place: "+reservation.Status.Message)
	case answered && reservation.Status.Phase == contract.PhaseExpired:
		c.put(b.key(), m, "it kept the place, and the time was over before the job was sent")
	case answered:
		c.put(b.key(), m, "it has gangs of the job's names already")
	case time.Since(asked.last) < answerWithin:
		c.work.AddAfter(b.key(), answerWithin-time.Since(asked.last)) // who was to come back sooner than that is here, in the place of both
		return true, nil
	default:
		c.meters.answers.WithLabelValues(m.name, answerNone).Inc()
		c.put(b.key(), m, "its scheduler does not answer")
		return true, c.takeBack(ctx, b.key(), m, reservation)
	}
	return true, nil
}

// barred reports whether a job may not go to a member cluster.
func (c *controller) barred(b *binding, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cluster := c.clusters[name]
	if cluster == nil {
		return true
	}
	_, why := b.bars(cluster)
	return why != ""
}

// promised finds the member cluster that keeps the place of a job since before this program started, as it shows it, nil for none.
func (c *controller) promised(b *binding, object *unstructured.Unstructured, gangs toCome) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	incomplete := c.incomplete()
	for name, m := range c.members {
		reservation, cluster := m.reservation(b.key()), c.clusters[name]
		if reservation == nil || cluster == nil || reservation.Status.Phase != contract.PhaseReserved || reservation.Status.Epoch != reservation.Spec.Epoch {
			continue
		}
		if _, why := b.bars(cluster); why != "" || !m.synced.Load() || incomplete[name] || time.Now().Before(c.refusals[b.key()][name].until) {
			continue
		}
		if isFor(reservation, object) && m.hold(b.key(), gangs) == "" {
			return m
		}
	}
	return nil
}

// tend keeps the place of a job that was sent for as long as it is on its way, and gives it back in all other clusters, and once it is
// not needed any more. One whose pods have not come by then is not charged any more either.
func (c *controller) tend(ctx context.Context, b *binding, object *unstructured.Unstructured, gangs toCome, finished bool) {
	to := b.Cluster()
	c.drop(ctx, b.key(), to)
	c.mu.Lock()
	for name, other := range c.members { // it may be there by another decision than ours
		if name != to {
			other.release(b.key())
		}
	}
	m, asked := c.members[to], c.asked[b.key()]
	c.mu.Unlock()
	if m == nil {
		return
	}
	if !finished { // also of one that is whole, of which a pod may come again
		if err := c.unfence(ctx, b, m); err != nil {
			klog.FromContext(ctx).Error(err, "A job that was sent is kept from starting still", "binding", b.key(), "cluster", to)
			c.work.AddAfter(b.key(), again)
			return
		}
	}
	if finished || m.whole(gangs) {
		c.drop(ctx, b.key(), "")
		c.mu.Lock()
		delete(c.asked, b.key())
		c.mu.Unlock()
		return
	}
	reservation, now := m.reservation(b.key()), time.Now()
	if asked.cluster != to { // since before this program started, or nobody was asked
		asked = request{cluster: to, first: now}
	}
	left := patience - now.Sub(asked.first)
	if left <= 0 {
		if !m.has(gangs) { // it is suspended, or refused there, and nobody keeps its place any more
			m.release(b.key())
		}
		return
	}
	if reservation != nil && reservation.Status.Phase != contract.PhaseTaken {
		left = min(left, renewAfter)
		if now.Sub(asked.last) >= renewAfter {
			epoch, _, err := m.reserve(ctx, b.key(), c.id, object, false)
			if err != nil {
				klog.FromContext(ctx).Error(err, "The place of a job that was sent is not kept for longer", "binding", b.key(), "cluster", to)
			} else {
				asked.epoch = epoch
			}
			asked.last = now
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[b.key()] = asked
	c.work.AddAfter(b.key(), left)
}

// drop gives the places of a job back that member clusters keep for it, but for one cluster, "" for none. Fences stay.
func (c *controller) drop(ctx context.Context, key, but string) {
	c.giveBack(ctx, key, func(name string, r *contract.GangReservation) bool { return name != but && !r.Spec.Fenced })
}

// giveBack gives back what is reserved for a job in clusters.
func (c *controller) giveBack(ctx context.Context, key string, which func(cluster string, r *contract.GangReservation) bool) {
	c.mu.Lock()
	back := map[*member]*contract.GangReservation{}
	for name, m := range c.members {
		switch r := m.reservation(key); {
		case r == nil || !which(name, r) || !c.ready(name): // its time will be over, and it may take long to say so
		case m.rests():
			c.work.AddAfter(key, quiet)
		default:
			back[m] = r
		}
	}
	c.mu.Unlock()
	for m, r := range back {
		if err := c.takeBack(ctx, key, m, r); err != nil && !apierrors.IsConflict(err) { // its time will be over; of a change we are told
			klog.FromContext(ctx).Error(err, "The reservation of a job is not deleted", "binding", key, "cluster", m.name)
			c.work.AddAfter(key, quiet)
		}
	}
}

// takeBack ends what a member was asked to keep for a job, nil for something that it does not show. Where the job was before, and asking
// for its place has opened the fence, that goes up again.
func (c *controller) takeBack(ctx context.Context, key string, m *member, r *contract.GangReservation) error {
	if r == nil {
		there, err := m.ownReservation(ctx, key, c.id)
		if err != nil || there == nil {
			return err
		}
		return m.unreserve(ctx, key, there)
	}
	c.mu.Lock()
	b := c.bindings[key]
	c.mu.Unlock()
	if b == nil || b.Cluster() == m.name || r.Labels[contract.LeftLabel] == "" {
		return m.unreserve(ctx, key, r)
	}
	epoch, known, err := m.reserve(ctx, key, c.id, &unstructured.Unstructured{Object: r.Spec.Job}, true)
	if err == nil && known {
		c.noteFence(key, request{cluster: m.name, epoch: epoch, last: time.Now()})
	}
	return err
}

// ready reports whether the hub reaches a cluster; mu must be held.
func (c *controller) ready(name string) bool {
	cluster := c.clusters[name]
	return cluster != nil && cluster.Reached()
}

// setReservation takes in a reservation of this fleet, by its binding.
func (m *member) setReservation(object *unstructured.Unstructured) (binding string) {
	reservation := &contract.GangReservation{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, reservation); err != nil {
		klog.Background().Error(err, "Cannot use a reservation", "cluster", m.name)
		return ""
	}
	m.asking.Lock()
	defer m.asking.Unlock()
	key := keyOf(object)
	m.reservations[key] = reservation
	return key
}

func (m *member) removeReservation(object *unstructured.Unstructured) (binding string) {
	m.asking.Lock()
	defer m.asking.Unlock()
	key := keyOf(object)
	if m.reservations[key] == nil {
		return ""
	}
	delete(m.reservations, key)
	return key
}

// reservation is what the member was asked to keep for the job of a binding, as it shows it, nil for nothing.
func (m *member) reservation(binding string) *contract.GangReservation {
	m.asking.Lock()
	defer m.asking.Unlock()
	return m.reservations[binding]
}

// reserve asks the member to keep the places of a job, or to keep them for longer, or, fenced, to let nothing of it start; known is false
// where it knows no reservations.
func (m *member) reserve(ctx context.Context, binding, fleet string, object *unstructured.Unstructured, fenced bool) (epoch int64, known bool, err error) {
	ctx, end := m.within(ctx)
	defer end()
	namespace, name, err := cache.SplitMetaNamespaceKey(binding)
	if err != nil {
		return 0, true, err
	}
	client := m.client.Dynamic.Resource(gangreservation.Resource).Namespace(namespace)
	before := m.reservation(binding)
	if epoch = 1; before != nil {
		epoch = before.Spec.Epoch + 1
	}
	spec, labels := map[string]any{"job": manifest(object, m.name), "epoch": epoch, "seconds": int64(lease / time.Second)}, map[string]any{contract.FleetLabel: fleet}
	if fenced {
		spec["fenced"], spec["seconds"], labels[contract.LeftLabel] = true, int64(fencedFor/time.Second), "true"
	}
	var written *unstructured.Unstructured
	if before == nil {
		reservation := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": contract.GangReservationGroup + "/" + contract.GangReservationVersion, "kind": contract.GangReservationKind,
			"metadata": map[string]any{"name": name, "namespace": namespace, "labels": labels},
			"spec":     spec,
		}}
		written, err = client.Create(ctx, reservation, metav1.CreateOptions{FieldManager: contract.FleetSchedulerName})
		if apierrors.IsAlreadyExists(err) {
			if there, getErr := client.Get(ctx, name, metav1.GetOptions{}); getErr == nil && there.GetLabels()[contract.FleetLabel] != fleet {
				return 0, true, fmt.Errorf("%s %s is of another fleet, which has a job of that name: give one of them another name", contract.GangReservationKind, binding)
			}
		}
	} else {
		// What was asked for before it is told of is not asked for again by the same number, which would be answered already.
		// By now another fleet may have one in its place.
		change := []map[string]any{
			{"op": "test", "path": "/metadata/labels/" + strings.ReplaceAll(contract.FleetLabel, "/", "~1"), "value": fleet},
			{"op": "test", "path": "/spec/epoch", "value": epoch - 1}, {"op": "replace", "path": "/spec", "value": spec},
		}
		if fenced && before.Labels[contract.LeftLabel] == "" {
			change = append(change, map[string]any{"op": "add", "path": "/metadata/labels", "value": labels})
		}
		var patch []byte
		if patch, err = json.Marshal(change); err == nil {
			written, err = client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: contract.FleetSchedulerName})
		}
	}
	if apierrors.IsNotFound(err) && epoch == 1 && !missesNamespace(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, true, fmt.Errorf("reserve the place of %s: %w", binding, err)
	}
	if kept, _, _ := unstructured.NestedBool(written.Object, "spec", "fenced"); fenced && !kept { // one of before would keep a place
		return 0, false, m.unreserve(ctx, binding, written)
	}
	return epoch, true, nil
}

// missesNamespace reports whether an object was not made for want of its namespace, rather than of its kind.
func missesNamespace(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// ownReservation is the reservation for a job that the member has of a fleet, nil where it has none, or one of another fleet.
func (m *member) ownReservation(ctx context.Context, binding, fleet string) (*unstructured.Unstructured, error) {
	ctx, end := m.within(ctx)
	defer end()
	namespace, name, err := cache.SplitMetaNamespaceKey(binding)
	if err != nil {
		return nil, err
	}
	there, err := m.client.Dynamic.Resource(gangreservation.Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && there.GetLabels()[contract.FleetLabel] != fleet:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the reservation of %s: %w", binding, err)
	}
	return there, nil
}

// unreserve deletes a reservation for a job, as it was seen: who has hung since must not take away what the next scheduler that leads has
// asked for.
func (m *member) unreserve(ctx context.Context, binding string, seen metav1.Object) error {
	ctx, end := m.within(ctx)
	defer end()
	namespace, name, err := cache.SplitMetaNamespaceKey(binding)
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(seen.GetUID()), ResourceVersion: new(seen.GetResourceVersion())}}
	err = m.client.Dynamic.Resource(gangreservation.Resource).Namespace(namespace).Delete(ctx, name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the reservation of %s: %w", binding, err)
	}
	return nil
}
