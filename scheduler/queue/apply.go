package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

const (
	// writers is how many objects are written side by side.
	writers = 16
	// releasesAtOnce is how many units go into the release log at once, whose size is limited.
	releasesAtOnce = 500
)

// Resources of the queue and of the tree.
func queues() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: contract.QueueGroup, Version: contract.QueueVersion, Resource: contract.QueueResource}
}

func units() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: contract.QueueGroup, Version: contract.QueueVersion, Resource: contract.QueueUnitResource}
}

func trees() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Resource: contract.QuotaTreeResource}
}

// writer carries out plans. What the API server answers goes into the state at once.
type writer struct {
	client dynamic.Interface
	state  *state
	log    *releaseLog
	meters *meters
	events record.EventRecorder
	now    func() time.Time
	// told are jobs whose unit's name is taken, with the unit that has it, once they were told.
	told map[types.UID]types.UID
	// refusals are jobs whose units were refused.
	refusals map[types.UID]refusal
	// keptBack is what jobs were told last of why they cannot be resumed.
	keptBack sync.Map
}

func newWriter(client dynamic.Interface, state *state, log *releaseLog, meters *meters, events record.EventRecorder) *writer {
	return &writer{
		client: client, state: state, log: log, meters: meters, events: events, now: time.Now,
		told: map[types.UID]types.UID{}, refusals: map[types.UID]refusal{},
	}
}

// apply writes what decides what runs. Objects that changed meanwhile are left for the
// next plan, which their change brings about. It returns when there is more to write, zero for never.
func (w *writer) apply(ctx context.Context, p plan) (again time.Time, err error) {
	for _, t := range p.taken {
		w.nameTaken(t)
	}
	err = errors.Join(
		each(ctx, p.verify, w.verify),
		each(ctx, p.createQueues, w.createQueue),
		each(ctx, p.deleteQueues, w.deleteQueue),
		each(ctx, p.suspend, w.suspend),
		each(ctx, p.drop, w.drop),
	)
	again, refused := w.enqueue(ctx, p.enqueue)
	return again, errors.Join(err, refused,
		each(ctx, p.describe, w.describe),
		each(ctx, p.phases, w.report),
		each(ctx, p.back, w.sendBack),
		each(ctx, p.resume, w.resume),
		w.start(ctx, p.start),
	)
}

// each does something with all items, and returns the errors that a later plan cannot know of.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(writers)
	for _, item := range items {
		group.Go(func() error { return harmless(do(ctx, item)) })
	}
	return group.Wait()
}

// harmless drops the errors of objects that have changed or gone.
func harmless(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (w *writer) createQueue(ctx context.Context, path string) error {
	q := &contract.Queue{
		TypeMeta: metav1.TypeMeta{APIVersion: queues().GroupVersion().String(), Kind: contract.QueueKind},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: queuePrefix(path), Namespace: contract.QueueNamespace,
			Labels:      map[string]string{contract.QueueCreatedLabel: contract.QueueCreatedValue, contract.PartOfLabel: contract.PartOfValue},
			Annotations: map[string]string{contract.QueuePathAnnotation: path},
		},
		Spec: contract.QueueSpec{QueuePolicy: contract.PolicyPriority},
	}
	object, err := toObject(q)
	if err != nil {
		return err
	}
	delete(object.Object, "status")
	created, err := w.client.Resource(queues()).Namespace(contract.QueueNamespace).Create(ctx, object, w.create())
	if err != nil {
		return fmt.Errorf("create the Queue of %s: %w", path, err)
	}
	return w.state.answerQueue(created)
}

func (w *writer) deleteQueue(ctx context.Context, q *queue) error {
	err := w.client.Resource(queues()).Namespace(q.Namespace).Delete(ctx, q.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &q.UID, ResourceVersion: &q.ResourceVersion},
	})
	if err == nil || apierrors.IsNotFound(err) {
		w.state.removeQueue(q.object)
		return nil
	}
	return fmt.Errorf("delete Queue %s: %w", q.Name, err)
}

// enqueue makes the units of jobs, one after the other in the order of their arrival. It returns
// when to ask again for those that are refused, zero for never.
func (w *writer) enqueue(ctx context.Context, entries []*entry) (again time.Time, err error) {
	w.forget(entries)
	defer func() { w.state.setUnitless(maps.Keys(w.refusals)) }()
	later := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	var held time.Duration
	for _, e := range entries {
		asked := w.now()
		if r := w.refusals[e.job.uid]; asked.Before(r.again) {
			later(r.again)
			continue
		}
		err := w.createUnit(ctx, e)
		if err == nil {
			delete(w.refusals, e.job.uid)
			continue
		}
		if concernsAll(ctx, err) {
			return again, err
		}
		w.refused(ctx, e.job, err)
		later(w.refusals[e.job.uid].again)
		if held += w.now().Sub(asked); held >= refusalsTake {
			later(w.now()) // the others have their turn in the next pass
			break
		}
	}
	return again, nil
}

// createUnit makes the unit of a job.
func (w *writer) createUnit(ctx context.Context, e *entry) error {
	j := e.job
	yes := true
	u := &contract.QueueUnit{
		TypeMeta: metav1.TypeMeta{APIVersion: units().GroupVersion().String(), Kind: contract.QueueUnitKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.namespace, Name: j.unitName(),
			Labels: map[string]string{contract.PartOfLabel: contract.PartOfValue},
			Annotations: map[string]string{
				contract.ArrivalAnnotation: strconv.FormatInt(j.sequence, 10), contract.ClassPriorityAnnotation: priorityText(e.spec),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: j.kind.gvk.GroupVersion().String(), Kind: j.kind.gvk.Kind,
				Name: j.name, UID: j.uid, Controller: &yes,
			}},
		},
		Spec: e.spec,
	}
	object, err := toObject(u)
	if err != nil {
		return err
	}
	delete(object.Object, "status")
	created, err := w.client.Resource(units()).Namespace(u.Namespace).Create(ctx, object, w.create())
	if apierrors.IsAlreadyExists(err) {
		return nil // that of an earlier job of this name; its end brings us back
	}
	if err != nil {
		return fmt.Errorf("create %s %s: %w", contract.QueueUnitKind, e.id(), err)
	}
	return w.state.answerUnit(created)
}

// drop deletes the unit of a job that is not to be queued any more.
func (w *writer) drop(ctx context.Context, u *unit) error {
	err := w.client.Resource(units()).Namespace(u.Namespace).Delete(ctx, u.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &u.UID}})
	if err == nil || apierrors.IsNotFound(err) {
		w.state.removeUnit(u.object)
		return nil
	}
	return fmt.Errorf("delete %s %s/%s: %w", contract.QueueUnitKind, u.Namespace, u.Name, err)
}

// verify looks whether a unit is there that no watch has shown and whose job is gone: a
// watch that broke off may have missed all of it.
func (w *writer) verify(ctx context.Context, u *unit) error {
	object, err := w.client.Resource(units()).Namespace(u.Namespace).Get(ctx, u.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		w.state.removeUnit(u.object)
		return nil
	case err != nil:
		return fmt.Errorf("read %s %s/%s: %w", contract.QueueUnitKind, u.Namespace, u.Name, err)
	}
	return w.state.answerUnit(object)
}

// describe writes the unit's description.
func (w *writer) describe(ctx context.Context, e *entry) error {
	next := e.unit.object.DeepCopy()
	fields := map[string]any{"queue": e.spec.Queue, "resource": e.spec.Resource}
	if priority(e.spec) != priority(e.unit.Spec) {
		fields["priority"], fields["priorityClassName"] = e.spec.Priority, e.spec.PriorityClassName
		annotations := map[string]string{}
		maps.Copy(annotations, e.unit.Annotations)
		annotations[contract.ClassPriorityAnnotation] = priorityText(e.spec)
		next.SetAnnotations(annotations)
	}
	for field, value := range fields {
		raw, err := plain(value)
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedField(next.Object, raw, "spec", field); err != nil {
			return err
		}
	}
	return w.update(ctx, next)
}

// report writes the unit's status.
func (w *writer) report(ctx context.Context, e *entry) error { return w.setStatus(ctx, e, e.status) }

func (w *writer) setStatus(ctx context.Context, e *entry, status contract.QueueUnitStatus) error {
	next := e.unit.object.DeepCopy()
	raw, err := plain(status)
	if err != nil {
		return err
	}
	next.Object["status"] = raw
	if err := w.update(ctx, next, "status"); err != nil {
		return err
	}
	w.record(e, status)
	return nil
}

func (w *writer) update(ctx context.Context, next *unstructured.Unstructured, subresources ...string) error {
	updated, err := w.client.Resource(units()).Namespace(next.GetNamespace()).Update(ctx, next, metav1.UpdateOptions{FieldManager: contract.QueueControllerName}, subresources...)
	if apierrors.IsNotFound(err) {
		w.state.removeUnit(next)
	}
	if err != nil {
		return fmt.Errorf("update %s %s/%s: %w", contract.QueueUnitKind, next.GetNamespace(), next.GetName(), err)
	}
	return w.state.answerUnit(updated)
}

// sendBack notes that a job had its time before it suspends it, so that a controller
// that takes over in between does the rest.
func (w *writer) sendBack(ctx context.Context, e *entry) error {
	if err := w.report(ctx, e); err != nil {
		return err
	}
	w.meters.sentBack.WithLabelValues(e.path).Inc()
	return w.suspend(ctx, e.job)
}

// start releases units.
func (w *writer) start(ctx context.Context, entries []*entry) error {
	if len(entries) == 0 {
		return nil
	}
	// The others have their turn in the next pass, which these bring about.
	entries = entries[:min(len(entries), releasesAtOnce)]
	releasing := w.state.underWay(w.log.releasing)
	for _, e := range entries {
		releasing[e.unit.incarnation()] = e.unit.Status.Attempts + 1
	}
	if err := w.log.write(ctx, releasing); err != nil {
		return err
	}
	return each(ctx, entries, w.resume)
}

// underWay are those of the units that are being released that are not out yet.
func (s *state) underWay(releasing map[string]int64) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]int64{}
	for _, u := range s.units {
		if attempt := releasing[u.incarnation()]; attempt > u.Status.Attempts {
			left[u.incarnation()] = attempt
		}
	}
	return left
}

// resume lets a job run whose unit is in the release log.
func (w *writer) resume(ctx context.Context, e *entry) error {
	if err := w.setSuspend(ctx, e.job, false); err != nil {
		w.releaseRefused(ctx, e.job, err)
		return err
	}
	w.keptBack.Delete(e.job.uid)
	now := metav1.NewTime(w.now().Truncate(time.Second))
	status := e.unit.Status
	status.Attempts++
	status.Phase, status.Position, status.Message = contract.UnitDequeued, 0, untilRuns(e.job)
	status.LastAllocateTime, status.LastUpdateTime = &now, &now
	if err := w.setStatus(ctx, e, status); err != nil {
		return err
	}
	w.meters.released.WithLabelValues(e.path).Inc()
	return nil
}

func (w *writer) suspend(ctx context.Context, j *job) error { return w.setSuspend(ctx, j, true) }

// setSuspend suspends a job or lets it run. It changes the job only as it is known, so that
// it never acts on a decision that others have made void.
func (w *writer) setSuspend(ctx context.Context, j *job, suspend bool) error {
	if j.suspended == suspend && (suspend || !j.asked) {
		return nil
	}
	patch := map[string]any{}
	if j.suspended != suspend && j.kind.suspend != nil {
		if err := unstructured.SetNestedField(patch, suspend, j.kind.suspend...); err != nil {
			return err
		}
	}
	metadata := map[string]any{"resourceVersion": j.object.GetResourceVersion()}
	if !suspend && j.asked || j.kind.suspend == nil {
		metadata["annotations"] = map[string]any{contract.SuspendAnnotation: strconv.FormatBool(suspend)}
	}
	patch["metadata"] = metadata
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	updated, err := w.client.Resource(j.kind.gvr()).Namespace(j.namespace).Patch(ctx, j.name, types.MergePatchType, raw,
		metav1.PatchOptions{FieldManager: contract.QueueControllerName})
	if apierrors.IsNotFound(err) {
		w.state.removeJob(j.uid)
	}
	if err != nil {
		return fmt.Errorf("suspend or resume %s: %w", j, err)
	}
	return w.state.answerJob(j.kind, updated)
}

func (w *writer) create() metav1.CreateOptions {
	return metav1.CreateOptions{FieldManager: contract.QueueControllerName}
}

func toObject(typed any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return &unstructured.Unstructured{Object: content}, err
}

// plain is a value in the form that unstructured objects have.
func plain(value any) (any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out any
	err = utiljson.Unmarshal(raw, &out)
	return out, err
}
