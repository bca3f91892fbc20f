package fleet

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

const (
	// fencedFor is how long a fence stands, and refenceAfter when the cluster is asked for longer.
	fencedFor, refenceAfter = time.Hour, 20 * time.Minute
	// silence is how long a scheduler that leads may say nothing: then it has lost its Lease, and the next one fences before it places
	// anything.
	silence = 20 * time.Second
)

// fence has a member cluster let nothing of a job start that has left it, or that it is being taken out of: Karmada may create it there
// late, by what it has read before. why says why nobody there has said yet that nothing does, "" also where nobody knows fences.
func (c *controller) fence(ctx context.Context, b *binding, object *unstructured.Unstructured, m *member) (why string) {
	key := b.key()
	asked := c.fenceOf(key, m)
	reservation, since := m.reservation(key), time.Since(asked.last)
	lost := asked.epoch > 0 && since >= answerWithin && (reservation == nil || !reservation.Spec.Fenced)
	if lost || since >= refenceAfter {
		epoch, known, err := m.reserve(ctx, key, c.id, object, true)
		switch {
		case missesNamespace(err):
			known = false // nor can the job be there
		case err != nil:
			return "the job was there, and its scheduler cannot be asked to let nothing of it start: " + err.Error()
		}
		if !known {
			epoch = 0
		}
		since = 0
		asked = request{cluster: m.name, epoch: epoch, last: time.Now()}
		c.noteFence(key, asked)
	}
	answered := reservation != nil && reservation.Status.Epoch >= asked.epoch
	if answered && asked.epoch > 0 && reservation.Spec.Fenced && reservation.Status.Phase == contract.PhaseReserved { // its scheduler is older than its CRD, and keeps a place
		if err := m.unreserve(ctx, key, reservation); err != nil {
			return "the job was there, and its scheduler keeps its place: " + err.Error()
		}
		c.noteFence(key, request{cluster: m.name, last: asked.last})
		return ""
	}
	if answered && reservation.Status.Phase == contract.PhaseRefused { // it cannot be read, nor could it be sent
		return ""
	}
	if asked.epoch == 0 || answered && reservation.Status.Phase == contract.PhaseFenced || since >= silence {
		return ""
	}
	return "the job was there, and its scheduler has not said yet that nothing of it starts there any more"
}

// fenceOf is when a cluster was asked for a fence last.
func (c *controller) fenceOf(key string, m *member) request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fences[key][m.name]
}

// noteFence notes that a cluster was asked for a fence, epoch 0 where nobody knows them.
func (c *controller) noteFence(key string, asked request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fences[key] == nil {
		c.fences[key] = map[string]request{}
	}
	c.fences[key][asked.cluster] = asked
}

// refence has the fences stand for longer that keep a job out of the clusters that it has left, but for someone else's job of its name,
// which would wait for as long as the binding is there.
func (c *controller) refence(ctx context.Context, b *binding, object *unstructured.Unstructured) {
	due, stand := map[*member]*contract.GangReservation{}, false
	c.mu.Lock()
	for name, m := range c.members {
		r, asked := m.reservation(b.key()), c.fences[b.key()][name]
		rest := refenceAfter
		if r == nil && asked.epoch > 0 { // it was deleted, or is not shown yet
			rest = answerWithin
		} else if r == nil || !r.Spec.Fenced {
			continue
		}
		if name == b.Cluster() || name == c.asked[b.key()].cluster || !c.ready(name) {
			continue
		}
		switch stand = true; {
		case time.Since(asked.last) < rest:
		case m.rests():
			c.work.AddAfter(b.key(), quiet)
		default:
			due[m] = r
		}
	}
	c.mu.Unlock()
	for m, r := range due {
		before := c.fenceOf(b.key(), m)
		asking, end := m.within(ctx)
		found, err := c.find(asking, b, m)
		end()
		switch {
		case err != nil:
		case (found == foreign || found == rival) && r != nil:
			err = m.unreserve(ctx, b.key(), r)
			c.noteFence(b.key(), request{cluster: m.name, last: time.Now()})
		default:
			if c.fence(ctx, b, object, m); c.fenceOf(b.key(), m).last.Equal(before.last) {
				err = errors.New("its scheduler cannot be asked")
			}
		}
		if err != nil && !apierrors.IsConflict(err) { // its time will be over, unless a later try is better
			klog.FromContext(ctx).Error(err, "A fence of a job that has left is not looked after", "binding", b.key(), "cluster", m.name)
			c.work.AddAfter(b.key(), quiet)
		}
	}
	if stand {
		c.work.AddAfter(b.key(), refenceAfter)
	}
}

// unfence lets a job start in the cluster to which it is sent.
func (c *controller) unfence(ctx context.Context, b *binding, m *member) error {
	r := m.reservation(b.key())
	if r == nil || !r.Spec.Fenced {
		return nil
	}
	c.mu.Lock()
	delete(c.fences[b.key()], m.name)
	c.mu.Unlock()
	klog.FromContext(ctx).V(1).Info("A job comes back to a cluster", "binding", b.key(), "cluster", m.name)
	return m.unreserve(ctx, b.key(), r)
}

// fencedOff reports whether a cluster that the job has left was asked to let nothing of it start, and has not been asked for its place
// since; mu must be held.
func (c *controller) fencedOff(key, cluster string) bool {
	_, asked := c.fences[key][cluster]
	return asked || c.asked[key].cluster == cluster
}
