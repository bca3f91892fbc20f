package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// resourceKind is what the API server of this test serves.
type resourceKind int

const (
	aJob resourceKind = iota
	aUnit
	aQueue
	resourceKinds
)

// apiServer is an API server with a watch of each kind, whose events and answers take
// as long as the test likes.
type apiServer struct {
	*rand.Rand
	t       *testing.T
	state   *state
	version int64
	kinds   [resourceKinds]served
	// flying are requests that have not reached the server, or whose answers are under way.
	flying []*request
	// thorough rounds write everything.
	thorough bool
	// ended are the objects whose end the watches have shown.
	ended map[types.UID]bool
}

// served is one kind of objects.
type served struct {
	objects map[string]*unstructured.Unstructured
	// shown is what the watch has shown, news what it has yet to show.
	shown   map[string]*unstructured.Unstructured
	news    []event
	handler cache.ResourceEventHandler
}

type event struct {
	object *unstructured.Unstructured
	end    bool
}

// request is a write of the controller. It is carried out once, and answered later.
type request struct {
	send   func() (answer func())
	answer func()
}

func newAPIServer(t *testing.T, seed uint64) *apiServer {
	a := &apiServer{Rand: rand.New(rand.NewPCG(seed, 14)), t: t, state: newState(func() {}), version: 100, ended: map[types.UID]bool{}}
	s := a.state
	set := [resourceKinds]func(*unstructured.Unstructured) error{
		func(o *unstructured.Unstructured) error { return s.setJob(kinds()[2], o) }, s.setUnit, s.setQueue}
	remove := [resourceKinds]func(*unstructured.Unstructured){
		func(o *unstructured.Unstructured) { s.removeJob(o.GetUID()) }, s.removeUnit, s.removeQueue}
	for k := range a.kinds {
		a.kinds[k] = served{objects: map[string]*unstructured.Unstructured{}, shown: map[string]*unstructured.Unstructured{}}
		a.kinds[k].handler = follow.On(func(o *unstructured.Unstructured) { require.NoError(t, set[k](o)) }, func(o *unstructured.Unstructured) {
			a.ended[o.GetUID()] = true
			remove[k](o)
		})
	}
	return a
}

// write makes an object, or changes it.
func (a *apiServer) write(k resourceKind, typed metav1.Object) *unstructured.Unstructured {
	a.version++
	typed.SetResourceVersion(fmt.Sprint(a.version))
	if typed.GetUID() == "" {
		typed.SetUID(types.UID(fmt.Sprint("uid-", a.version)))
	}
	object, err := toObject(typed)
	require.NoError(a.t, err)
	a.kinds[k].objects[typed.GetName()] = object
	a.kinds[k].news = append(a.kinds[k].news, event{object: object})
	return object
}

func (a *apiServer) touch(k resourceKind, object *unstructured.Unstructured) *unstructured.Unstructured {
	return a.write(k, object.DeepCopy())
}

func (a *apiServer) delete(k resourceKind, name string) {
	a.version++
	last := a.kinds[k].objects[name].DeepCopy()
	last.SetResourceVersion(fmt.Sprint(a.version))
	delete(a.kinds[k].objects, name)
	a.kinds[k].news = append(a.kinds[k].news, event{last, true})
}

// show has a watch show one event.
func (a *apiServer) show(k resourceKind) {
	s := &a.kinds[k]
	if len(s.news) == 0 {
		return
	}
	e := s.news[0]
	s.news = s.news[1:]
	before := s.shown[e.object.GetName()]
	switch {
	case e.end:
		delete(s.shown, e.object.GetName())
		s.handler.OnDelete(e.object)
	case before == nil:
		s.shown[e.object.GetName()] = e.object
		s.handler.OnAdd(e.object, false)
	default:
		s.shown[e.object.GetName()] = e.object
		s.handler.OnUpdate(before, e.object)
	}
}

// relist is a watch that has missed everything until now.
func (a *apiServer) relist(k resourceKind) {
	s := &a.kinds[k]
	s.news = nil
	for name, last := range s.shown {
		if s.objects[name] == nil {
			delete(s.shown, name)
			s.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: name, Obj: last})
		}
	}
	for name, object := range s.objects {
		before := s.shown[name]
		s.shown[name] = object
		if before == nil {
			s.handler.OnAdd(object, false)
		} else {
			s.handler.OnUpdate(before, object)
		}
	}
}

// change sends a write of a known object on condition of its resource version.
func (a *apiServer) change(k resourceKind, known *unstructured.Unstructured, answer func(*unstructured.Unstructured) error, notFound func()) {
	a.flying = append(a.flying, &request{send: func() func() {
		switch present := a.kinds[k].objects[known.GetName()]; {
		case present == nil:
			return notFound
		case present.GetResourceVersion() != known.GetResourceVersion():
			return func() {}
		default:
			next := a.touch(k, present)
			return func() { require.NoError(a.t, answer(next)) }
		}
	}})
}

// create sends a new object.
func (a *apiServer) create(k resourceKind, typed metav1.Object, answer func(*unstructured.Unstructured) error) {
	a.flying = append(a.flying, &request{send: func() func() {
		if a.kinds[k].objects[typed.GetName()] != nil {
			return func() {}
		}
		next := a.write(k, typed)
		return func() { require.NoError(a.t, answer(next)) }
	}})
}

func newUnitOf(j *job) *contract.QueueUnit {
	return &contract.QueueUnit{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.unitName()},
		Spec:       contract.QueueUnitSpec{ConsumerRef: corev1.ObjectReference{UID: j.uid}},
	}
}

// pass begins a pass of the controller, which writes whatever it knows of.
func (a *apiServer) round() {
	s := a.state
	for _, u := range s.plan(patient, now, nil).verify {
		a.flying = append(a.flying, &request{send: func() func() {
			if present := a.kinds[aUnit].objects[u.Name]; present != nil {
				return func() { require.NoError(a.t, s.answerUnit(present)) }
			}
			return func() { s.removeUnit(u.object) }
		}})
	}
	for _, uid := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[uid]
		if s.units[key(j.namespace, j.unitName())] == nil {
			a.create(aUnit, newUnitOf(j), s.answerUnit)
		}
		if a.thorough || a.IntN(2) == 0 {
			a.change(aJob, j.object, func(o *unstructured.Unstructured) error { return s.answerJob(j.kind, o) }, func() { s.removeJob(uid) })
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.units)) {
		if u := s.units[id]; s.jobs[u.Spec.ConsumerRef.UID] != nil && (a.thorough || a.IntN(2) == 0) {
			a.change(aUnit, u.object, s.answerUnit, func() { s.removeUnit(u.object) })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		q := s.queues[name]
		a.change(aQueue, q.object, s.answerQueue, func() { s.removeQueue(q.object) })
	}
	if len(s.queues) < 2 {
		a.create(aQueue, &contract.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: contract.QueueNamespace, Name: fmt.Sprint("queue-", a.version)}}, s.answerQueue)
	}
}

// proceed carries out or answers one request.
func (a *apiServer) proceed() {
	if len(a.flying) == 0 {
		return
	}
	i := a.IntN(len(a.flying))
	r := a.flying[i]
	if r.answer == nil {
		r.answer = r.send()
		return
	}
	a.flying = slices.Delete(a.flying, i, i+1)
	r.answer()
}

func (a *apiServer) step() {
	names := []string{"a", "b", "c"}
	k, name := resourceKind(a.IntN(int(resourceKinds))), names[a.IntN(len(names))]
	jobs := a.kinds[aJob].objects
	switch a.IntN(12) {
	case 0, 1:
		if jobs[name] == nil {
			fresh := object(name, nil)
			fresh.UID = ""
			a.write(aJob, fresh)
		} else {
			a.delete(aJob, name)
		}
	case 2: // the garbage collector, or a user
		if all := slices.Sorted(maps.Keys(a.kinds[k].objects)); len(all) > 0 && k != aJob {
			a.delete(k, all[a.IntN(len(all))])
		}
	case 3: // the job's own controller
		if jobs[name] != nil {
			a.touch(aJob, jobs[name])
		}
	case 4:
		if a.IntN(4) == 0 {
			a.relist(k)
		}
	case 5, 6, 7:
		a.show(k)
	default:
		if a.proceed(); len(a.flying) == 0 {
			a.round()
		}
	}
}

// known are the resource versions of what the state holds.
func (s *state) known() map[types.UID]string {
	all := map[types.UID]string{}
	for uid, j := range s.jobs {
		all[uid] = j.object.GetResourceVersion()
	}
	for _, u := range s.units {
		all[u.UID] = u.ResourceVersion
	}
	for _, q := range s.queues {
		all[q.UID] = q.ResourceVersion
	}
	return all
}

// TestAnswersReviveNothing lets jobs, units and Queues come and go while events, answers
// and writes are late in every order. Objects whose end was seen do not come back, and
// when everything has arrived, the state is what the API server has.
func TestAnswersReviveNothing(t *testing.T) {
	for seed := range uint64(1000) {
		a := newAPIServer(t, seed)
		for range 120 {
			a.step()
			for uid := range a.state.known() {
				require.False(t, a.ended[uid], "seed %d: %s is back", seed, uid)
			}
		}
		a.thorough = true
		for range 3 { // what one pass finds out may lead to another
			a.reconcile()
			a.round()
		}
		a.reconcile()
		want := map[types.UID]string{}
		for _, k := range a.kinds {
			for _, object := range k.objects {
				want[object.GetUID()] = object.GetResourceVersion()
			}
		}
		require.Equal(t, want, a.state.known(), "seed %d", seed)
	}
}

func (a *apiServer) reconcile() {
	for len(a.flying) > 0 {
		a.proceed()
	}
	for k := range a.kinds {
		for len(a.kinds[k].news) > 0 {
			a.show(resourceKind(k))
		}
	}
}
