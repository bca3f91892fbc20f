package queue

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// state is what is known of the cluster. It takes in what watches show (set…, remove…)
// and what the API server answers to our own writes (answer…), whichever is newer. The
// objects in it are not changed. It is safe for concurrent use; changed is called after each change.
type state struct {
	changed func()
	// began is the place in the order of arrival of all jobs that were there before the
	// controller began to follow them: before those that it sees arrive.
	began int64

	mu   sync.Mutex
	jobs map[types.UID]*job
	// sets are the JobSets that TrainJobs have become, by the UID of the TrainJob.
	sets map[types.UID]*job
	// described are the objects of jobs that bindings hold in a fleet, bindingOf their bindings, both by the UID of the job.
	described map[types.UID]*job
	bindingOf map[types.UID]types.UID

	units   map[string]*unit
	queues  map[string]*queue
	pods    map[types.UID]*pod
	owners  map[types.UID]*owner
	classes map[string]*schedulingv1.PriorityClass
	// workers are the jobs that StatefulSets belong to.
	workers map[types.UID]types.UID
	// trees are the quota trees by name, inForce is the one that counts. tree is the last
	// valid one, bar is set while that in force is not valid.
	trees   map[string]*unstructured.Unstructured
	inForce *unstructured.Unstructured
	tree    *tree
	bar     *inventory.Bar
	// gone are the units and Queues whose end was seen since the pass began.
	gone map[types.UID]bool
	// unitless are jobs whose units the API server refuses: they are not in line.
	unitless map[types.UID]bool
	// releasingSince is when a plan first found a unit in the release log whose release is not on
	// record, by incarnation.
	releasingSince map[string]time.Time
}

// unit and queue are objects in their typed and their whole form.
type unit struct {
	contract.QueueUnit
	object *unstructured.Unstructured
	// shown means that a watch has shown it; before, its end may go by unseen.
	shown bool
}

// followed reports whether the unit was made for a job of this kind and name.
func (u *unit) followed(j *job) bool {
	owner := metav1.GetControllerOf(u.object)
	return owner != nil && owner.Kind == j.kind.gvk.Kind && owner.Name == j.name
}

// orphaned reports whether the unit is one of ours that lost its owner: a job that is deleted with
// propagation policy Orphan leaves it behind.
func (u *unit) orphaned() bool {
	return u.Labels[contract.PartOfLabel] == contract.PartOfValue && metav1.GetControllerOf(u.object) == nil && u.Spec.ConsumerRef.UID != ""
}

// incarnation names a unit that is not another one of the same name.
func (u *unit) incarnation() string { return key(u.Namespace, u.Name) + "@" + string(u.UID) }

type queue struct {
	contract.Queue
	object *unstructured.Unstructured
}

// tree is a valid quota tree.
type tree struct {
	spec quota.Spec
	// empty is the tree without usage.
	empty *quota.Tree
}

func newState(changed func()) *state {
	return &state{
		changed:   changed,
		jobs:      map[types.UID]*job{},
		sets:      map[types.UID]*job{},
		described: map[types.UID]*job{}, bindingOf: map[types.UID]types.UID{},
		units:   map[string]*unit{},
		queues:  map[string]*queue{},
		pods:    map[types.UID]*pod{},
		owners:  map[types.UID]*owner{},
		classes: map[string]*schedulingv1.PriorityClass{},
		workers: map[types.UID]types.UID{},
		trees:   map[string]*unstructured.Unstructured{},
		gone:    map[types.UID]bool{},
	}
}

// key is "namespace/name".
func key(namespace, name string) string { return namespace + "/" + name }

// version is the resource version of an object as a number, 0 when it is none.
func version(object metav1.Object) int64 {
	n, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// newer reports whether an object is newer than what is known under its name, nil for
// nothing. Resource versions order an object and another one of its name, too.
func newer(object, known *unstructured.Unstructured) bool {
	if known == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), known.GetResourceVersion())
	return err != nil || order > 0
}

// setJob takes in a job. The error says why it cannot be read. A job that is not known
// yet arrived with this resource version.
func (s *state) setJob(k kind, object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeJob(k, object, version(object))
}

// findJob takes in a job that was there before the controller began to follow jobs. Its
// resource version tells when it changed last, not when it arrived.
func (s *state) findJob(k kind, object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeJob(k, object, s.began)
}

func (s *state) takeJob(k kind, object *unstructured.Unstructured, arrived int64) error {
	before := s.jobs[object.GetUID()]
	if !k.has(object) || before != nil && !newer(object, before.object) {
		return nil
	}
	j, err := newJob(k, object, before)
	if err != nil {
		return err
	}
	if j.sequence = arrived; before != nil {
		j.sequence = before.sequence
	}
	if set := s.sets[j.uid]; set != nil {
		j.needs = set.needs
	}
	s.jobs[object.GetUID()] = j
	if j.partOf != "" && j.kind.gvk.Kind == contract.JobSetKind {
		s.describe(j)
	}
	s.changed()
	return nil
}

// describe takes in what a JobSet says that a TrainJob needs. The lock must be held.
func (s *state) describe(set *job) {
	s.sets[set.partOf] = set
	if whole := s.jobs[set.partOf]; whole != nil {
		described := *whole
		described.needs = set.needs
		s.jobs[whole.uid] = &described
	}
}

func (s *state) removeJob(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[uid]; j != nil && s.sets[j.partOf] == j && s.jobs[j.partOf] == nil {
		delete(s.sets, j.partOf)
	}
	delete(s.jobs, uid)
	delete(s.sets, uid)
	s.changed()
}

func newUnit(object *unstructured.Unstructured) (*unit, error) {
	u := &unit{object: object}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &u.QueueUnit); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", contract.QueueUnitKind, object.GetNamespace(), object.GetName(), err)
	}
	return u, nil
}

func (s *state) setUnit(object *unstructured.Unstructured) error {
	u, err := newUnit(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeUnit(u, true)
	return nil
}

// takeUnit takes in a unit that a watch has shown, or not yet.
func (s *state) takeUnit(u *unit, shown bool) {
	before := s.units[key(u.Namespace, u.Name)]
	same := before != nil && before.UID == u.UID
	switch {
	case before == nil || newer(u.object, before.object):
	case same && shown && !before.shown:
		u = &unit{QueueUnit: before.QueueUnit, object: before.object}
	default:
		return
	}
	u.shown = shown || same && before.shown
	s.units[key(u.Namespace, u.Name)] = u
	s.changed()
}

// removeUnit and removeQueue forget an object, unless another took its name.
func (s *state) removeUnit(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[object.GetUID()] = true
	id := key(object.GetNamespace(), object.GetName())
	if u := s.units[id]; u != nil && u.UID == object.GetUID() {
		delete(s.units, id)
		s.changed()
	}
}

func newQueue(object *unstructured.Unstructured) (*queue, error) {
	q := &queue{object: object}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &q.Queue); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", contract.QueueKind, object.GetNamespace(), object.GetName(), err)
	}
	return q, nil
}

func (s *state) setQueue(object *unstructured.Unstructured) error {
	q, err := newQueue(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeQueue(q)
	return nil
}

func (s *state) takeQueue(q *queue) {
	if before := s.queues[q.Name]; before == nil || newer(q.object, before.object) {
		s.queues[q.Name] = q
		s.changed()
	}
}

func (s *state) removeQueue(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[object.GetUID()] = true
	if q := s.queues[object.GetName()]; q != nil && q.UID == object.GetUID() {
		delete(s.queues, object.GetName())
		s.changed()
	}
}

func (s *state) setPod(p *corev1.Pod) {
	next := newPod(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pods[p.UID]
	if before != nil && before.same(next) {
		return
	}
	s.count(before, -1)
	s.pods[p.UID] = next
	s.count(next, 1)
	s.changed()
}

func (s *state) removePod(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[uid]; p != nil {
		s.count(p, -1)
		delete(s.pods, uid)
		s.changed()
	}
}

func (s *state) count(p *pod, sign int64) {
	if p == nil {
		return
	}
	o := s.owners[p.owner]
	if o == nil {
		o = newOwner()
		s.owners[p.owner] = o
	}
	if o.add(p, sign); o.pods == 0 {
		delete(s.owners, p.owner)
	}
}

// setWorkers takes in a StatefulSet: the MPI operator runs the workers of an MPIJob
// v1alpha1 as one.
func (s *state) setWorkers(set *appsv1.StatefulSet) {
	maker := metav1.GetControllerOfNoCopy(set)
	if maker == nil || !strings.HasPrefix(maker.APIVersion, contract.KubeflowGroup+"/") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers[set.UID] != maker.UID {
		s.workers[set.UID] = maker.UID
		s.changed()
	}
}

func (s *state) removeWorkers(set *appsv1.StatefulSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.workers[set.UID]; ok {
		delete(s.workers, set.UID)
		s.changed()
	}
}

// whole is the job that an owner of pods belongs to: the MPI operator runs the launcher
// of an MPIJob as a Job, and the workers as a StatefulSet; a TrainJob is a JobSet, and that is Jobs. The lock must be held.
func (s *state) whole(owner types.UID) types.UID {
	if job, ok := s.workers[owner]; ok {
		return job
	}
	for range 2 { // a Job, its JobSet, the TrainJob of that
		if j := s.jobs[owner]; j != nil && j.partOf != "" {
			owner = j.partOf
		}
	}
	return owner
}

func (s *state) setClass(class *schedulingv1.PriorityClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.classes[class.Name] = class
	s.changed()
}

func (s *state) removeClass(class *schedulingv1.PriorityClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.classes, class.Name)
	s.changed()
}

// setTree takes in a quota tree. The error says why it cannot be used.
func (s *state) setTree(object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeTree(object)
}

func (s *state) takeTree(object *unstructured.Unstructured) error {
	if before := s.trees[object.GetName()]; before != nil && !newer(object, before) {
		return nil
	}
	s.trees[object.GetName()] = object
	return s.enforce()
}

func (s *state) removeTree(object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.trees[object.GetName()]; known == nil || known.GetUID() != object.GetUID() {
		return nil
	}
	delete(s.trees, object.GetName())
	return s.enforce()
}

// enforce finds the tree that counts. While the one in force is invalid, the last valid
// one that is known is what jobs are charged to, and none is released.
func (s *state) enforce() error {
	defer s.changed()
	s.bar, s.inForce = nil, inventory.InForce(slices.Collect(maps.Values(s.trees)))
	if s.inForce == nil {
		s.tree = nil
		return nil
	}
	spec, empty, err := inventory.ReadQuotaTree(s.inForce)
	if err != nil {
		s.bar = inventory.NewBar(s.inForce, err)
		return err
	}
	spec.Name = quota.RootName
	if s.tree == nil || !reflect.DeepEqual(spec, s.tree.spec) {
		s.tree = &tree{spec: spec, empty: empty}
	}
	return nil
}
