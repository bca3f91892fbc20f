package gang

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedfake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/allocate"
)

// drive is a bench on which anything happens at any time: pods come and go, other plugins
// refuse, bindings fail. It does with each pod what kube-scheduler's queue does: a pod that
// appears or is activated asks to enter, one that may has a cycle, and one that failed
// stays away until it is activated.
type drive struct {
	*bench
	*rand.Rand
	// pods are all that exist, hidden those that the scheduler has not seen yet, bound those
	// that run, by name, late those that start once the others of their gang run.
	pods                map[string]*corev1.Pod
	hidden, bound, late map[string]bool
	// ready are those whose cycle comes, at those that wait at Permit, by name with their node.
	ready map[string]bool
	at    map[string]string
	// inFlight is the pod whose cycle is under way, "" for none, again means that it was activated meanwhile.
	inFlight string
	again    bool
	// blocked are pods that another plugin refuses whatever the node until it relents, and its events bring them back.
	blocked map[string]bool
	made    int
	// unbound counts the bindings that the API server has refused.
	unbound int
	// calms means that nothing goes wrong any more.
	calms bool
}

func newDrive(t *testing.T, seed uint64) *drive {
	t.Helper()
	b := newBench(t, "a", "b")
	b.handle.recorder = &events.FakeRecorder{} // which keeps no events
	frozen := apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("the node is frozen"))
	b.handle.client.(*typedfake.Clientset).PrependReactor("create", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "binding", nil, frozen
	})
	return &drive{
		bench: b, Rand: rand.New(rand.NewPCG(seed, 0)),
		pods: map[string]*corev1.Pod{}, hidden: map[string]bool{}, bound: map[string]bool{}, late: map[string]bool{},
		ready: map[string]bool{}, at: map[string]string{}, blocked: map[string]bool{},
	}
}

// any picks one of some names, "" of none.
func (d *drive) any(names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return names[d.IntN(len(names))]
}

// wake lets the worker work, unless it is behind, and pods that were activated ask to enter the queue.
func (d *drive) wake() {
	if d.calms || d.IntN(4) > 0 {
		d.work()
	}
	for _, name := range d.handle.takeActivated() {
		d.ask(name)
	}
}

func (d *drive) ask(name string) {
	switch pod := d.pods[name]; {
	case pod == nil, d.hidden[name], d.bound[name], d.at[name] != "":
	case name == d.inFlight:
		d.again = true
	default:
		d.ready[name] = d.plugin.PreEnqueue(d.Context(), pod).IsSuccess()
	}
}

// appear makes a gang of up to three members of up to eight GPUs, of which pods appear later;
// some need only one of them, and some of these have a launcher.
func (d *drive) appear() {
	d.made++
	name := fmt.Sprint("g", d.made)
	pods := d.gangPods(name, 1+d.IntN(3), 1<<d.IntN(4))
	launches := d.IntN(2) == 0
	if launches || d.IntN(3) == 0 {
		elastic(pods, 0)
	}
	if launches { // it comes first
		launcher := launcherOf(pods)
		d.create(launcher)
		d.pods[launcher.Name], d.late[launcher.Name] = launcher, true
		d.see(launcher)
	}
	for _, pod := range pods {
		d.pods[pod.Name], d.hidden[pod.Name] = pod, true
		if d.IntN(12) == 0 {
			d.blocked[pod.Name] = true
		}
		if !launches && d.IntN(8) > 0 {
			d.see(pod)
		}
	}
}

// launcherOf is the launcher of a gang.
func launcherOf(members []*corev1.Pod) *corev1.Pod {
	launcher := members[0].DeepCopy()
	launcher.Name = gangOf(launcher.Name) + "-l"
	launcher.UID = types.UID(launcher.Name)
	launcher.Labels[contract.JobReplicaTypeLabel] = contract.ReplicaLauncher
	delete(launcher.Spec.Containers[0].Resources.Requests, contract.ResourceTopologyGPU)
	return launcher
}

func (d *drive) see(pod *corev1.Pod) {
	delete(d.hidden, pod.Name)
	d.plugin.work.observe(d.cache.SetPod(pod))
	d.wake()
	d.ask(pod.Name)
}

// vanish deletes a pod, wherever it is.
func (d *drive) vanish(name string) {
	pod := d.pods[name]
	delete(d.pods, name)
	delete(d.hidden, name)
	delete(d.bound, name)
	delete(d.ready, name)
	if node := d.at[name]; node != "" {
		d.unreserve(pod, node)
	}
	d.plugin.work.observe(d.cache.RemovePod(pod.UID))
	d.wake()
}

func (d *drive) unreserve(pod *corev1.Pod, node string) {
	delete(d.at, pod.Name)
	delete(d.handle.waiting, types.UID(pod.Name))
	d.plugin.Unreserve(d.Context(), d.states[pod.UID], pod, node)
}

// cycle is the cycle of a pod; refused means that another plugin refuses its node, blocked that
// one refuses the pod whatever the node.
func (d *drive) cycle(name string, refused, blocked bool) {
	pod := d.pods[name]
	delete(d.ready, name)
	d.inFlight, d.again = name, false
	d.runCycle(pod, refused, blocked || d.blocked[name])
	d.inFlight = ""
	d.wake()
	if d.again {
		d.ask(name)
	}
}

func (d *drive) runCycle(pod *corev1.Pod, refused, blocked bool) {
	state := framework.NewCycleState()
	d.states[pod.UID] = state
	nodes := framework.NewDefaultNodeToStatus()
	if blocked {
		d.blocked[pod.Name] = true
		nodes.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "refused"))
		d.plugin.PostFilter(d.Context(), state, pod, nodes)
		return
	}
	result, status := d.plugin.PreFilter(d.Context(), state, pod, nil)
	d.meanwhile()
	switch {
	case status.IsSkip() && refused:
		d.blocked[pod.Name] = true
		d.plugin.PostFilter(d.Context(), state, pod, nodes)
		return
	case status.IsSkip():
		d.start(pod)
		return
	case !status.IsSuccess() || refused:
		d.plugin.PostFilter(d.Context(), state, pod, nodes)
		return
	}
	node := result.NodeNames.UnsortedList()[0]
	if status = d.plugin.Reserve(d.Context(), state, pod, node); status.IsSuccess() {
		d.meanwhile()
		status, _ = d.plugin.Permit(d.Context(), state, pod, node)
	}
	d.at[pod.Name] = node
	switch {
	case status.IsWait():
		d.handle.waiting[pod.UID] = &fakeWaiting{}
	case !status.IsSuccess():
		d.unreserve(pod, node)
	default:
		d.handle.waiting[pod.UID] = &fakeWaiting{allowed: true}
	}
}

// meanwhile has pods seen while a cycle is under way.
func (d *drive) meanwhile() {
	if name := d.any(slices.Collect(maps.Keys(d.hidden))); name != "" && d.IntN(2) == 0 {
		d.see(d.pods[name])
	}
}

// start binds a pod that starts once its gang runs.
func (d *drive) start(pod *corev1.Pod) {
	require.True(d, d.late[pod.Name], pod.Name)
	if g := d.plugin.gangs["ns/"+gangOf(pod.Name)]; g != nil {
		require.Empty(d, g.assumed, "%s starts before its gang runs", pod.Name)
	}
	d.observe(pod, "a", nil)
}

// observe shows a pod bound.
func (d *drive) observe(pod *corev1.Pod, node string, record map[string]string) {
	on := pod.DeepCopy()
	on.Spec.NodeName, on.Annotations = node, record
	_, err := d.handle.client.CoreV1().Pods(on.Namespace).Update(d.Context(), on, metav1.UpdateOptions{})
	require.NoError(d, err)
	d.pods[pod.Name], d.bound[pod.Name] = on, true
	d.plugin.work.observe(d.cache.SetPod(on))
}

// step binds pods that may bind, and sends those back that are rejected. A binding may fail before others can be bound or when
// they are, or only seem to, and the API server may refuse it.
func (d *drive) step(name string, fails bool) {
	pod, node := d.pods[name], d.at[name]
	waits := d.handle.waiting[pod.UID]
	switch {
	case waits.rejected, waits.allowed && fails && d.IntN(2) == 0:
		d.unreserve(pod, node)
	case waits.allowed:
		s := assumedIn(d.states[pod.UID])
		select {
		case <-d.plugin.prepare(s):
		default:
			return // others are not prepared yet
		}
		seems := d.IntN(2) == 0
		switch {
		case s.attempt.failed(), fails && !seems:
			if fails && d.IntN(2) == 0 {
				d.refuseBinding(pod, node)
			}
			d.unreserve(pod, node)
		default:
			delete(d.at, name)
			delete(d.handle.waiting, pod.UID)
			record, err := s.record.Annotations()
			require.NoError(d, err)
			late := d.IntN(2) == 0
			if !late {
				d.observe(pod, node, record)
			}
			if fails {
				d.unreserve(pod, node)
			} else {
				d.bind(pod, node)
			}
			if late {
				d.observe(pod, node, record)
			}
		}
	}
	d.wake()
	if d.at[name] == "" && d.pods[name] != nil {
		d.ask(name) // the queue tries a pod again whose binding failed
	}
}

// refuseBinding asks the API server to bind a pod, which it refuses.
func (d *drive) refuseBinding(pod *corev1.Pod, node string) {
	var binder fwk.BindPlugin
	_, err := allocate.Factory(func(made *allocate.Plugin) { binder = made })(d.Context(), nil, d.handle)
	require.NoError(d, err)
	require.False(d, binder.Bind(d.Context(), d.states[pod.UID], pod, node).IsSuccess())
	d.unbound++
}

func gangOf(pod string) string { return pod[:len(pod)-2] }

// anything lets something happen.
func (d *drive) anything() {
	switch d.IntN(15) {
	case 0, 1:
		d.appear()
	case 2:
		if name := d.any(slices.Collect(maps.Keys(d.pods))); name != "" {
			d.vanish(name)
		}
	case 3:
		for _, name := range slices.Sorted(maps.Keys(d.pods)) { // a job ends
			if g := d.any(slices.Collect(maps.Keys(d.bound))); g != "" && gangOf(name) == gangOf(g) {
				d.vanish(name)
			}
		}
	case 4, 5, 6, 7:
		if name := d.any(slices.Collect(maps.Keys(d.ready))); name != "" && d.ready[name] {
			d.cycle(name, d.IntN(6) == 0, d.IntN(12) == 0)
		}
	case 8, 9, 10:
		if name := d.any(slices.Collect(maps.Keys(d.at))); name != "" {
			d.step(name, d.IntN(8) == 0)
		}
	case 11, 12, 13:
		d.elapse()
		d.wake()
	case 14:
		d.relent(d.any(slices.Collect(maps.Keys(d.blocked))))
	}
	d.check()
}

// relent has a plugin let a pod by that it has refused.
func (d *drive) relent(name string) {
	delete(d.blocked, name)
	if !d.hidden[name] && name != d.inFlight {
		d.ask(name)
	}
}

// check holds what is true at any moment.
func (d *drive) check() {
	for key, g := range d.plugin.gangs {
		require.Equal(d, g.waits(), g.why.text != "", key)
		require.Equal(d, g.entry == entryEntered, g.firstPod != "", key)
		require.NotEqual(d, phaseClosing, attemptPhase(g), "an attempt is closed at once")
		if g.attempt != nil {
			for _, s := range g.attempt.pods {
				require.False(d, d.bound[s.pod.Name], "%s is bound while the attempt is %s", s.pod.Name, g.attempt.phase)
			}
		}
	}
}

func attemptPhase(g *gang) phase {
	if g.attempt == nil {
		return ""
	}
	return g.attempt.phase
}

// calm lets everything go its way until nothing happens any more: pods that have not been seen
// appear, nobody refuses anything else, nothing fails. Of the pods that are refused whatever the node every other one stays so.
func (d *drive) calm() {
	d.calms = true
	d.wake()
	for _, name := range slices.Sorted(maps.Keys(d.pods)) {
		if d.hidden[name] {
			d.see(d.pods[name])
		}
		if d.blocked[name] && d.IntN(2) == 0 {
			d.relent(name)
		}
	}
	for range 600 {
		ready := slices.DeleteFunc(slices.Collect(maps.Keys(d.ready)), func(name string) bool { return !d.ready[name] })
		switch name, waits := d.any(ready), d.any(slices.Collect(maps.Keys(d.at))); {
		case name != "":
			d.cycle(name, false, false)
		case waits != "" && (d.handle.waiting[d.pods[waits].UID].allowed || d.handle.waiting[d.pods[waits].UID].rejected):
			d.step(waits, false)
		case len(d.timers) > 0:
			d.elapse()
			d.wake()
		}
		d.check()
	}
}

// TestNoGangIsLeftBehind: whatever has happened, once nothing goes wrong any more every gang
// whose pods are all there runs whole, or waits for room that there is not.
func TestNoGangIsLeftBehind(t *testing.T) {
	ran, waited, attempts, refused, without := 0, 0, 0, 0, 0
	for seed := range uint64(60) {
		d := newDrive(t, seed)
		for range 80 {
			d.anything()
		}
		d.calm()
		attempts, refused = attempts+len(d.at), refused+d.unbound
		members := map[string][]string{}
		for name := range d.pods {
			if !d.blocked[name] {
				members[gangOf(name)] = append(members[gangOf(name)], name)
			} else if refused := d.cache.GangStatus("ns/"+gangOf(name), d.pods[name].UID); refused.Refused {
				without++
			}
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			key := "ns/" + name
			bound := len(slices.DeleteFunc(slices.Clone(members[name]), func(pod string) bool { return !d.bound[pod] }))
			considered, ok := d.cache.Consider(key, clustercache.Limits{})
			require.True(t, ok)
			if considered.MissingText != "" {
				continue
			}
			if bound == len(members[name]) {
				ran++
				if slices.ContainsFunc(slices.Collect(maps.Keys(d.pods)), func(pod string) bool { return d.blocked[pod] && gangOf(pod) == name }) {
					continue
				}
				assert.NotContains(t, d.plugin.gangs, key, "seed %d: a gang that runs is forgotten", seed)
				continue
			}
			waited++
			require.Contains(t, d.plugin.gangs, key, "seed %d", seed)
			if place := considered.Result.Placement; place != nil {
				assert.Empty(t, place.Assignments, "seed %d: gang %s has a place and %d of %d members run: %+v", seed, key, bound, len(members[name]), *d.plugin.gangs[key])
			}
			assert.Equal(t, entryWaiting, d.plugin.gangs[key].entry, "seed %d: %s", seed, key)
		}
	}
	t.Logf("%d gangs ran, %d waited, %d bindings were refused", ran, waited, refused)
	assert.Greater(t, ran, 60)
	assert.Greater(t, waited, 40)
	assert.Zero(t, attempts, "nobody waits at Permit")
	assert.Positive(t, refused)
	assert.Greater(t, without, 10, "pods that are refused whatever the node")
}
