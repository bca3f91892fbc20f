package fleet

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clientfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

var (
	twiceWorlds = flag.Int("twice.worlds", 2, "generated fleets in which no job may run in two clusters")
	twiceSeed   = flag.Uint64("twice.seed", 1, "seed of the first of them")
)

var pyTorchJobs = schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Resource: "pytorchjobs"}

// A simulated fleet: the scheduler of the fleet is the real one, and so are the caches by which it and the schedulers of the members decide.
// Karmada, operators, kubelets and API servers are a few lines each, which do one thing at a time, in any order: each reads what it acts on
// at some moment, and acts on it at a later one.
type simulation struct {
	*rand.Rand
	t   *testing.T
	c   *controller
	hub *kubetest.Server
	api *kube.Client
	// jobs are those of the fleet, members its clusters.
	jobs    []*unstructured.Unstructured
	members []*simulated
	// shown is what a watch of the hub is about to show, works what Karmada is about to do.
	shown []func()
	works []simulatedWork
	// asleep are works that someone who hangs has begun, and does once he wakes up.
	asleep []simulatedWork
	// seen are the bindings as they were shown last.
	seen map[string]string
	// turn counts the schedulers of the fleet that have led; hangsAfter is with which of its requests the one that leads hangs, 0 for none.
	turn, hangsAfter int
	log              []string
	check            func()
}

// simulatedWork has a job made in a cluster, or deleted there.
type simulatedWork struct {
	member *simulated
	job    *unstructured.Unstructured
	there  bool
}

// simulated is a member cluster.
type simulated struct {
	name   string
	client *kube.Client
	// cut means that its API server cannot be reached, ready that the hub finds it reached.
	cut, ready bool
	// state is what its scheduler knows, hung that it does nothing, and dead that it has hung for so long that another one leads.
	state      *clustercache.Cache
	hung, dead bool
	held       map[string][]string
	fenced     map[string][]string
	// binds are bindings that are under way.
	binds []func()
	pods  map[string]*corev1.Pod
	made  int
	// picture is the hub's, nil while it follows nothing, shown what it has not seen yet.
	picture *member
	shown   []func(m *member)
	seen    map[string]*unstructured.Unstructured
	// ahead is by how much its clock is.
	ahead time.Duration
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 7)), t: t, hub: kubetest.Start(t), seen: map[string]string{}}
	for _, text := range []string{jobsText, bindingsText} {
		s.hub.Put(object(t, text))
	}
	var err error
	s.api, err = kube.New(s.hub.Config())
	require.NoError(t, err)
	for i := range 2 + s.IntN(2) {
		s.members = append(s.members, s.newMember(fmt.Sprintf("m%d", i)))
	}
	for i := range 1 + s.IntN(2) {
		name := string(rune('a' + i))
		o := object(t, strings.NewReplacer("name: a", "name: "+name, "uid: first", "uid: "+name, "gpu-topology: a", "gpu-topology: "+name, `"1"`, `"2"`, "replicas: 1", "replicas: 2", `"8"`, `"4"`).Replace(jobText))
		s.jobs = append(s.jobs, o)
		s.hub.Put(o)
		failover := ", failover: {application: {decisionConditions: {tolerationSeconds: 5}, purgeMode: Directly}}"
		s.hub.Put(object(t, strings.Replace(bindingText("placement: {}"+failover), "name: a", "name: "+name, 2)))
	}
	s.restart()
	return s
}

func (s *simulation) newMember(name string) *simulated {
	kinds := map[schema.GroupVersionResource]string{gangreservation.Resource: "GangReservationList", pyTorchJobs: "PyTorchJobList"}
	client, err := kube.New(s.hub.Config()) // for its discovery
	require.NoError(s.t, err)
	objects, typed := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), clientfake.NewClientset()
	m := &simulated{name: name, ready: true, pods: map[string]*corev1.Pod{}, seen: map[string]*unstructured.Unstructured{}}
	cut := func(clienttesting.Action) (bool, runtime.Object, error) {
		return m.cut, nil, errors.New("connection refused")
	}
	versioned(objects)
	objects.PrependReactor("*", "*", cut)
	typed.PrependReactor("*", "*", cut)
	client.Dynamic, client.Typed = objects, typed
	m.client = client
	s.lead(m)
	return m
}

func (m *simulated) now() time.Time { return time.Now().Add(m.ahead) }

func (m *simulated) reservations() dynamic.ResourceInterface {
	return m.client.Dynamic.Resource(gangreservation.Resource).Namespace("default")
}

// inside does something in a cluster, whether the hub reaches it or not.
func (m *simulated) inside(do func()) {
	cut := m.cut
	m.cut = false
	do()
	m.cut = cut
}

func (m *simulated) listed(t *testing.T) (all []*contract.GangReservation) {
	list, err := m.reservations().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, item := range list.Items {
		r := &contract.GangReservation{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, r))
		all = append(all, r)
	}
	return all
}

// has is the job of a name in a cluster, nil for none.
func (s *simulation) has(m *simulated, name string) (found *unstructured.Unstructured) {
	m.inside(func() {
		o, err := m.client.Dynamic.Resource(pyTorchJobs).Namespace("default").Get(s.t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
			found = o
		}
	})
	return found
}

// set has the API server of a cluster store a pod, nil for none any more.
func (s *simulation) set(m *simulated, name string, pod *corev1.Pod) {
	before := m.pods[name]
	m.inside(func() {
		pods := m.client.Typed.CoreV1().Pods("default")
		if before != nil {
			require.NoError(s.t, pods.Delete(s.t.Context(), name, metav1.DeleteOptions{}))
		}
		if pod != nil {
			_, err := pods.Create(s.t.Context(), pod, metav1.CreateOptions{})
			require.NoError(s.t, err)
		}
	})
	if pod == nil {
		delete(m.pods, name)
	} else {
		m.pods[name] = pod
	}
	show := func(state *clustercache.Cache) {
		if before != nil && (pod == nil || pod.UID != before.UID) {
			state.RemovePod(before.UID)
		}
		if pod != nil {
			state.SetPod(pod)
		}
	}
	show(m.state)
	m.shown = append(m.shown, func(p *member) { show(p.state) })
}

// lead has a scheduler start in a cluster. Of what the one before it was about to bind some is bound.
func (s *simulation) lead(m *simulated) {
	for _, bind := range m.binds {
		if s.IntN(2) == 0 {
			bind()
		}
	}
	m.binds, m.hung, m.dead = nil, false, false
	m.state, m.held, m.fenced = newMember(s.t).state, map[string][]string{}, map[string][]string{}
	for _, pod := range m.pods {
		m.state.SetPod(pod)
	}
	m.inside(func() {
		all := m.listed(s.t)
		for _, r := range all {
			if r.Fences(m.now()) {
				s.raise(m, r)
			}
		}
		for _, r := range all {
			if r.Spec.Fenced || r.Status.Phase != contract.PhaseReserved || !m.now().Before(r.Status.Expires.Time) {
				continue
			}
			planned := map[string][]contract.PlannedNode{}
			for _, gang := range r.Status.Gangs {
				planned[gang.Name] = gang.Nodes
			}
			if _, why := m.state.Grant(s.toCome(r), planned); why == "" {
				m.held[r.Name] = s.toCome(r).Keys()
			}
		}
	})
}

func (s *simulation) toCome(r *contract.GangReservation) clusterstate.ToCome {
	pods, err := job.Expected(&unstructured.Unstructured{Object: r.Spec.Job})
	require.NoError(s.t, err)
	return clusterstate.NewToCome(pods)
}

func (s *simulation) raise(m *simulated, r *contract.GangReservation) {
	m.state.Revoke(m.held[r.Name]...)
	delete(m.held, r.Name)
	m.fenced[r.Name] = s.toCome(r).Keys()
	m.state.Fence(r.FenceText(), m.fenced[r.Name]...)
}

// answer has the scheduler of a cluster look at its reservations, as package gangreservation does.
func (s *simulation) answer(m *simulated) {
	m.inside(func() {
		all := m.listed(s.t)
		gone := func(name string) bool {
			return !slices.ContainsFunc(all, func(r *contract.GangReservation) bool { return r.Name == name })
		}
		for name, keys := range m.held {
			if gone(name) {
				m.state.Revoke(keys...)
				delete(m.held, name)
			}
		}
		for name, keys := range m.fenced {
			if gone(name) {
				m.state.Fence("", keys...)
				delete(m.fenced, name)
			}
		}
		for _, r := range all {
			status := contract.GangReservationStatus{Epoch: r.Spec.Epoch}
			until := metav1.NewTime(m.now().Add(time.Duration(r.Spec.Seconds) * time.Second))
			switch {
			case r.Spec.Fenced && r.Fences(m.now()):
				s.raise(m, r)
				if r.Status.Epoch == r.Spec.Epoch || m.state.Placed(m.fenced[r.Name]...) > 0 {
					continue
				}
				status.Phase, status.Expires = contract.PhaseFenced, &until
			case r.Spec.Fenced:
				continue
			case r.Status.Epoch < r.Spec.Epoch:
				m.state.Fence("", m.fenced[r.Name]...)
				delete(m.fenced, r.Name)
				gangs, why := m.state.Grant(s.toCome(r), nil)
				status.Phase = contract.PhaseReserved
				if status.Expires, status.Gangs = &until, gangs; why != "" {
					status.Phase, status.Expires = contract.PhaseRefused, nil
				} else if len(gangs) == 0 {
					status.Phase, status.Expires = contract.PhaseTaken, nil
				} else {
					m.held[r.Name] = s.toCome(r).Keys()
				}
			case r.Status.Phase == contract.PhaseReserved && !m.now().Before(r.Status.Expires.Time):
				m.state.Revoke(m.held[r.Name]...)
				delete(m.held, r.Name)
				status.Phase, status.Expires = contract.PhaseExpired, r.Status.Expires
			default:
				continue
			}
			r.Status = status
			raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
			require.NoError(s.t, err)
			_, err = m.reservations().Update(s.t.Context(), &unstructured.Unstructured{Object: raw}, metav1.UpdateOptions{})
			require.NoError(s.t, err)
		}
	})
}

// decide has the scheduler of a cluster place what waits there.
func (s *simulation) decide(m *simulated) {
	for _, o := range s.jobs {
		d, _, err := m.state.Decide("default/"+o.GetName(), clustercache.Limits{}, func(*clustercache.Decision) bool { return true })
		require.NoError(s.t, err)
		for _, assumed := range d.Assumed {
			annotations, err := assumed.Record.Annotations()
			require.NoError(s.t, err)
			m.binds = append(m.binds, func() {
				pod := m.pods[assumed.Pod.Name]
				if pod == nil || pod.UID != assumed.Pod.UID || pod.DeletionTimestamp != nil || pod.Spec.NodeName != "" {
					return
				}
				pod = pod.DeepCopy()
				pod.Spec.NodeName, pod.Annotations = assumed.Record.Node, annotations
				s.set(m, pod.Name, pod)
			})
		}
	}
}

// operate has the operator of a cluster make the pods of its jobs, and the garbage collector delete those of jobs that have gone.
func (s *simulation) operate(m *simulated) {
	for _, o := range s.jobs {
		there := s.has(m, o.GetName())
		pods, err := job.Expected(o)
		require.NoError(s.t, err)
		for _, pod := range pods {
			have := m.pods[pod.Name]
			switch {
			case there != nil && have == nil:
				m.made++
				pod.UID = types.UID(fmt.Sprintf("%s-%d", m.name, m.made))
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: there.GetUID(), Controller: new(true)}}
				s.set(m, pod.Name, pod)
			case have != nil && have.DeletionTimestamp == nil && (there == nil || have.OwnerReferences[0].UID != there.GetUID()):
				now := metav1.Now()
				gone := have.DeepCopy()
				gone.DeletionTimestamp = &now
				s.set(m, pod.Name, gone)
			}
		}
	}
}

// end has a kubelet, or the garbage collector, end a pod that is being deleted.
func (s *simulation) end(m *simulated) {
	for name, pod := range m.pods {
		if pod.DeletionTimestamp != nil {
			s.set(m, name, nil)
			return
		}
	}
}

// binding is that of a job, as the hub has it.
func (s *simulation) binding(o *unstructured.Unstructured) *unstructured.Unstructured {
	b, err := s.api.Dynamic.Resource(bindings).Namespace("default").Get(s.t.Context(), o.GetName(), metav1.GetOptions{})
	require.NoError(s.t, err)
	return b
}

// look has the watches see what has been written.
func (s *simulation) look() {
	for _, o := range s.jobs {
		b := s.binding(o)
		if version := b.GetResourceVersion(); s.seen[o.GetName()] != version {
			s.seen[o.GetName()] = version
			s.shown = append(s.shown, func() { s.c.setBinding(s.t.Context(), b) })
		}
	}
	for _, m := range s.members {
		m.inside(func() {
			now := map[string]*unstructured.Unstructured{}
			list, err := m.reservations().List(s.t.Context(), metav1.ListOptions{})
			require.NoError(s.t, err)
			for i := range list.Items {
				now[list.Items[i].GetName()] = &list.Items[i]
			}
			for name, before := range m.seen {
				if now[name] == nil {
					m.shown = append(m.shown, func(p *member) { p.removeReservation(before) })
				}
			}
			for name, r := range now {
				if before := m.seen[name]; before == nil || !reflect.DeepEqual(before.Object, r.Object) {
					m.shown = append(m.shown, func(p *member) { p.setReservation(r) })
				}
			}
			m.seen = now
		})
	}
}

// restart has another scheduler of the fleet lead, which knows what it reads.
func (s *simulation) restart() {
	s.shown, s.seen = nil, map[string]string{}
	s.turn, s.hangsAfter = s.turn+1, 0
	s.c = newController(s.t.Context(), s.hubClient())
	s.c.events = &record.FakeRecorder{}
	for _, m := range s.members {
		m.picture, m.shown = nil, nil
		s.notice(m)
	}
	for _, o := range s.jobs {
		b := s.binding(o)
		s.seen[o.GetName()] = b.GetResourceVersion()
		s.c.setBinding(s.t.Context(), b)
	}
}

// notice has the hub look whether it reaches a cluster, which is followed once it does.
func (s *simulation) notice(m *simulated) {
	m.ready = !m.cut
	text := strings.Replace(clusterText, "name: m", "name: "+m.name, 1)
	if !m.ready {
		text = strings.Replace(text, `"True"`, `"False"`, 1)
	}
	s.c.setCluster(s.t.Context(), object(s.t, text))
	if m.picture != nil || m.cut {
		return
	}
	m.picture = newMember(s.t)
	m.picture.name, m.picture.client = m.name, s.clientOf(m)
	m.picture.synced.Store(true)
	for _, pod := range m.pods {
		m.picture.state.SetPod(pod)
	}
	m.shown, m.seen = nil, map[string]*unstructured.Unstructured{}
	s.look()
	s.c.members[m.name] = m.picture
}

// change writes a binding as Karmada does.
func (s *simulation) change(o *unstructured.Unstructured, do func(b map[string]any)) {
	b := s.binding(o)
	do(b.Object)
	s.hub.Put(b)
	s.look()
}

// read has Karmada decide what is to be where, by a binding as it is now.
func (s *simulation) read(o *unstructured.Unstructured) {
	b, err := bindingOf(s.binding(o))
	require.NoError(s.t, err)
	for _, m := range s.members {
		w := simulatedWork{m, o, b.Cluster() == m.name}
		if s.works = append(s.works, w); w.there && s.IntN(6) == 0 {
			s.asleep = append(s.asleep, w)
		}
	}
}

// work has Karmada do something that it has decided, not always in the order in which it has.
func (s *simulation) work(inOrder bool) {
	if len(s.works) == 0 {
		return
	}
	at := 0
	if !inOrder && s.IntN(2) == 0 {
		at = s.IntN(len(s.works))
	}
	w := s.works[at]
	if s.works = slices.Delete(s.works, at, at+1); !s.do(w) {
		s.works = append(s.works, w) // it is tried again
	}
}

// do has Karmada do something in a cluster, if that can be reached.
func (s *simulation) do(w simulatedWork) bool {
	have := s.has(w.member, w.job.GetName())
	switch jobs := w.member.client.Dynamic.Resource(pyTorchJobs).Namespace("default"); {
	case w.member.cut:
		return false
	case w.there && have == nil:
		there := w.job.DeepCopy()
		w.member.made++
		there.SetUID(types.UID(fmt.Sprintf("%s-job-%d", w.member.name, w.member.made)))
		there.SetLabels(map[string]string{contract.KarmadaManagedLabel: "true"})
		_, err := jobs.Create(s.t.Context(), there, metav1.CreateOptions{})
		require.NoError(s.t, err)
	case !w.there && have != nil:
		require.NoError(s.t, jobs.Delete(s.t.Context(), w.job.GetName(), metav1.DeleteOptions{}))
	}
	return true
}

// evict has Karmada take a job out of its cluster, because the job has failed there or the cluster is not reached.
func (s *simulation) evict(o *unstructured.Unstructured) {
	s.change(o, func(b map[string]any) {
		spec := b["spec"].(map[string]any) //nolint:forcetypeassert // of this test
		clusters, _, _ := unstructured.NestedSlice(b, "spec", "clusters")
		if len(clusters) == 0 {
			return
		}
		name := clusters[0].(map[string]any)["name"] //nolint:forcetypeassert // of this test
		spec["clusters"], spec["gracefulEvictionTasks"] = []any{}, []any{map[string]any{"fromCluster": name, "purgeMode": "Directly"}}
	})
}

// forget has Karmada end evictions, as it does after ten minutes, and tell of no cluster.
func (s *simulation) forget(o *unstructured.Unstructured) {
	s.change(o, func(b map[string]any) {
		unstructured.RemoveNestedField(b, "spec", "gracefulEvictionTasks")
		unstructured.RemoveNestedField(b, "status", "aggregatedStatus")
	})
}

// tell has Karmada tell which clusters have a job.
func (s *simulation) tell(o *unstructured.Unstructured) {
	told := []any{}
	for _, m := range s.members {
		if s.has(m, o.GetName()) != nil {
			told = append(told, map[string]any{"clusterName": m.name, "applied": true, "status": map[string]any{"conditions": []any{map[string]any{"type": "Running", "status": "True"}}}})
		}
	}
	s.change(o, func(b map[string]any) {
		require.NoError(s.t, unstructured.SetNestedSlice(b, told, "status", "aggregatedStatus"))
	})
}

// age has time go by.
func (s *simulation) age(by time.Duration) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for key, r := range s.c.asked {
		r.first, r.last = r.first.Add(-by), r.last.Add(-by)
		s.c.asked[key] = r
	}
	for _, of := range s.c.fences {
		for name, r := range of {
			r.last = r.last.Add(-by)
			of[name] = r
		}
	}
	for _, of := range s.c.refusals {
		for name, r := range of {
			r.until = r.until.Add(-by)
			of[name] = r
		}
	}
	for key, w := range s.c.watched {
		if !w.since.IsZero() {
			w.since = w.since.Add(-by)
			s.c.watched[key] = w
		}
	}
	for _, m := range s.members {
		m.ahead += by
		if m.picture != nil {
			m.picture.unheard = m.picture.unheard.Add(-by)
		}
		m.dead = m.dead || m.hung && by > 15*time.Second
	}
}

// show has a watch of the scheduler of the fleet catch up by one change.
func (s *simulation) show(m *simulated) {
	if m.cut || m.picture == nil || len(m.shown) == 0 {
		return
	}
	next := m.shown[0]
	m.shown = m.shown[1:]
	next(m.picture)
	s.c.changed(m.name)
}

// reconcile has the scheduler of the fleet look at a job. It tries again what fails. One that has hung may look at one more before it
// knows that another one leads.
func (s *simulation) reconcile(o *unstructured.Unstructured) {
	for c := s.c; ; o = s.jobs[s.IntN(len(s.jobs))] {
		if err := c.reconcile(s.t.Context(), "default/"+o.GetName()); err != nil {
			s.log = append(s.log, err.Error())
		}
		if c == s.c || s.IntN(2) == 0 {
			break
		}
	}
	for s.c.work.Len() > 0 { // everyone is looked at anyway
		key, _ := s.c.work.Get()
		s.c.work.Done(key)
	}
	s.look()
}

// step does one thing somewhere. Without faults nothing breaks, and what is decided is done in that order.
func (s *simulation) step(faults bool) {
	m, o := s.members[s.IntN(len(s.members))], s.jobs[s.IntN(len(s.jobs))]
	what := s.IntN(100)
	s.log = append(s.log, fmt.Sprintf("%d %s %s", what, m.name, o.GetName()))
	switch {
	case what < 22:
		s.reconcile(o)
	case what < 32 && len(s.shown) > 0:
		next := s.shown[0]
		s.shown = s.shown[1:]
		next()
	case what < 44:
		s.show(m)
	case what < 52 && len(s.works) < 20:
		s.read(o)
	case what < 62:
		s.work(!faults)
	case what < 69:
		s.operate(m)
	case what < 73:
		s.end(m)
	case what < 79 && !m.hung:
		s.answer(m)
		s.look()
	case what < 84 && !m.hung:
		s.decide(m)
	case what < 90 && len(m.binds) > 0 && !m.hung:
		bind := m.binds[0]
		m.binds = m.binds[1:]
		bind()
	case what < 91:
		s.age(11 * time.Second)
	case what < 94:
		s.notice(m)
	case what < 95:
		s.tell(o)
	case faults && s.IntN(6) == 0:
		if sent := s.binding(o).GetAnnotations()[contract.SentAnnotation]; s.IntN(3) > 0 { // it rarely rains but it pours
			m = s.members[max(0, slices.IndexFunc(s.members, func(m *simulated) bool { return m.name == sent }))]
		}
		for range 1 + s.IntN(5) {
			s.fault(m, o)
		}
	}
}

// fault has something break in a cluster, or be well again.
func (s *simulation) fault(m *simulated, o *unstructured.Unstructured) {
	switch what := s.IntN(34); {
	case what >= 32:
		s.hangsAfter = 1 + s.IntN(8)
	case what < 5:
		s.evict(o)
	case what < 7:
		s.forget(o)
	case what < 8:
		s.restart()
	case what < 9:
		s.lead(m)
	case what < 10:
		m.cut = true
	case what < 15:
		m.cut = false
	case what < 16:
		m.hung = true
	case what < 20 && m.hung:
		if m.hung = false; m.dead {
			s.lead(m)
		}
	case what < 23 && len(s.asleep) > 0:
		at := s.IntN(len(s.asleep))
		if w := s.asleep[at]; s.do(w) {
			s.asleep = slices.Delete(s.asleep, at, at+1)
			s.hurry(w.member)
		}
	case what < 27:
		s.hurry(m)
	case what < 29:
		s.notice(m)
	default:
		s.age(25 * time.Second)
	}
}

// hurry has a cluster start what is there before anyone has seen it.
func (s *simulation) hurry(m *simulated) {
	if s.operate(m); m.hung {
		return
	}
	s.decide(m)
	for len(m.binds) > 0 {
		bind := m.binds[0]
		m.binds = m.binds[1:]
		bind()
	}
}

// runsIn are the clusters in which pods of a job have nodes.
func (s *simulation) runsIn(o *unstructured.Unstructured) (clusters []string, pods int) {
	for _, m := range s.members {
		n := 0
		for _, pod := range m.pods {
			if pod.Spec.NodeName != "" && strings.HasPrefix(pod.Name, o.GetName()+"-") {
				n++
			}
		}
		if n > 0 {
			clusters, pods = append(clusters, m.name), pods+n
		}
	}
	return clusters, pods
}

// No job has pods on nodes of two clusters, whatever is late, hangs, is cut off or starts again, and in whichever order; and once nothing
// breaks any more, each runs, whole.
func TestNeverInTwoClusters(t *testing.T) {
	for i := range *twiceWorlds {
		seed := *twiceSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSimulation(t, seed)
			ran := map[string]bool{}
			s.check = func() {
				for _, o := range s.jobs {
					clusters, _ := s.runsIn(o)
					require.LessOrEqual(t, len(clusters), 1, "job %s runs in %v:\n%s", o.GetName(), clusters, strings.Join(s.log[max(0, len(s.log)-200):], "\n"))
					for _, name := range clusters {
						ran[o.GetName()+" "+name] = true
					}
				}
			}
			for range 4000 {
				s.step(true)
				s.check()
			}
			s.hangsAfter = 0
			for _, m := range s.members {
				m.cut = false
				s.notice(m)
				if m.hung {
					s.lead(m)
				}
			}
			whole := func() bool {
				return !slices.ContainsFunc(s.jobs, func(o *unstructured.Unstructured) bool { _, pods := s.runsIn(o); return pods != 2 })
			}
			for n := 0; n < 20_000 && !whole(); n++ {
				s.step(false)
				s.check()
			}
			assert.True(t, whole(), "%s", strings.Join(s.log[max(0, len(s.log)-100):], "\n"))
			t.Logf("%d members, %d jobs, which ran in %v", len(s.members), len(s.jobs), ran)
		})
	}
}
