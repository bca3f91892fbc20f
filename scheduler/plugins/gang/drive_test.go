package gang

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// drive is a bench on which anything happens at any time: pods come and go, other plugins
// refuse, bindings fail. It does with each pod what kube-scheduler's queue does: a pod that
// appears or is activated asks to enter, one that may has a cycle, and one that failed
// stays away until it is activated.
type drive struct {
	*bench
	*rand.Rand
	// pods are all that exist, hidden those that the scheduler has not seen yet, bound those
	// that run, by name.
	pods          map[string]*corev1.Pod
	hidden, bound map[string]bool
	// ready are those whose cycle comes, at those that wait at Permit, by name with their node.
	ready map[string]bool
	at    map[string]string
	// blocked are pods that another plugin has refused, whose events bring them back.
	blocked map[string]bool
	made    int
}

func newDrive(t *testing.T, seed uint64) *drive {
	t.Helper()
	b := newBench(t, "a", "b")
	b.handle.recorder = &events.FakeRecorder{} // which keeps no events
	return &drive{
		bench: b, Rand: rand.New(rand.NewPCG(seed, 0)),
		pods: map[string]*corev1.Pod{}, hidden: map[string]bool{}, bound: map[string]bool{}, ready: map[string]bool{}, at: map[string]string{}, blocked: map[string]bool{},
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

// wake lets the worker work, and pods that it has activated ask to enter the queue.
func (d *drive) wake() {
	d.work()
	for _, name := range d.handle.takeActivated() {
		d.ask(name)
	}
}

func (d *drive) ask(name string) {
	if pod := d.pods[name]; pod != nil && !d.bound[name] && d.at[name] == "" {
		d.ready[name] = d.plugin.PreEnqueue(d.Context(), pod).IsSuccess()
	}
}

// appear makes a gang of up to three members of up to eight GPUs, of which pods appear later;
// one of some needs only one of them.
func (d *drive) appear() {
	d.made++
	pods := d.gangPods(fmt.Sprint("g", d.made), 1+d.IntN(3), 1<<d.IntN(4))
	if d.IntN(3) == 0 {
		elastic(pods, 0)
	}
	for _, pod := range pods {
		d.pods[pod.Name], d.hidden[pod.Name] = pod, true
		if d.IntN(8) > 0 {
			d.see(pod)
		}
	}
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
	state := framework.NewCycleState()
	d.states[pod.UID] = state
	nodes := framework.NewDefaultNodeToStatus()
	if blocked {
		d.blocked[name] = true
		nodes.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "refused"))
		d.plugin.PostFilter(d.Context(), state, pod, nodes)
		d.wake()
		return
	}
	result, status := d.plugin.PreFilter(d.Context(), state, pod, nil)
	if !status.IsSuccess() || refused {
		d.plugin.PostFilter(d.Context(), state, pod, nodes)
		d.wake()
		return
	}
	node := result.NodeNames.UnsortedList()[0]
	if status = d.plugin.Reserve(d.Context(), state, pod, node); status.IsSuccess() {
		status, _ = d.plugin.Permit(d.Context(), state, pod, node)
	}
	d.at[name] = node
	switch {
	case status.IsWait():
		d.handle.waiting[pod.UID] = &fakeWaiting{}
	case !status.IsSuccess():
		d.unreserve(pod, node)
	default:
		d.handle.waiting[pod.UID] = &fakeWaiting{allowed: true}
	}
	d.wake()
}

// step binds pods that may bind, unless that fails, and sends those back that are rejected.
func (d *drive) step(name string, fails bool) {
	pod, node := d.pods[name], d.at[name]
	waits := d.handle.waiting[pod.UID]
	switch {
	case waits.rejected, waits.allowed && fails:
		d.unreserve(pod, node)
	case waits.allowed:
		s := assumedIn(d.states[pod.UID])
		select {
		case <-d.plugin.prepare(s):
		default:
			return // others are not prepared yet
		}
		if s.attempt.failed() {
			d.unreserve(pod, node)
			break
		}
		delete(d.at, name)
		delete(d.handle.waiting, pod.UID)
		record, err := d.plugin.gangs["ns/"+gangOf(name)].assumed[pod.UID].record.Annotations()
		require.NoError(d, err)
		on := pod.DeepCopy()
		on.Spec.NodeName, on.Annotations = node, record
		d.pods[name], d.bound[name] = on, true
		d.bind(pod, node)
		d.plugin.work.observe(d.cache.SetPod(on))
	}
	d.wake()
	if d.at[name] == "" && d.pods[name] != nil {
		d.ask(name) // the queue tries a pod again whose binding failed
	}
}

func gangOf(pod string) string { return pod[:len(pod)-2] }

// anything lets something happen.
func (d *drive) anything() {
	switch d.IntN(12) {
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
	case 11:
		d.elapse()
		d.wake()
	}
	d.check()
}

// check holds what is true at any moment.
func (d *drive) check() {
	for key, g := range d.plugin.gangs {
		require.Equal(d, g.waits(), g.why.text != "", key)
		require.Equal(d, g.entry == entryEntered || g.entry == entryBlocked, g.firstPod != "", key)
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
// appear, nobody refuses, nothing fails.
func (d *drive) calm() {
	for _, name := range slices.Sorted(maps.Keys(d.pods)) {
		if d.hidden[name] {
			d.see(d.pods[name])
		}
		if d.blocked[name] {
			d.ask(name)
		}
	}
	for range 400 {
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
	ran, waited, attempts := 0, 0, 0
	for seed := range uint64(40) {
		d := newDrive(t, seed)
		for range 80 {
			d.anything()
		}
		d.calm()
		attempts += len(d.at)
		members := map[string][]string{}
		for name := range d.pods {
			members[gangOf(name)] = append(members[gangOf(name)], name)
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
	t.Logf("%d gangs ran, %d waited", ran, waited)
	assert.Greater(t, ran, 60)
	assert.Greater(t, waited, 40)
	assert.Zero(t, attempts, "nobody waits at Permit")
}
