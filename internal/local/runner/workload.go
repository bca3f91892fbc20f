package runner

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
)

const (
	// stopGrace is what a process gets to end when the platform goes down.
	stopGrace = 5 * time.Second
	// readyAfter is how long a container without a probe must run to count as ready.
	readyAfter = time.Second
)

// workload is the processes that one pod, or all pods of one revision of a
// DaemonSet, stand for.
type workload struct {
	key string
	// shared means that it serves several pods.
	shared bool
	// first is the pod that started it.
	first *corev1.Pod
	// node is the real node of the pod, nil when its node is simulated.
	node *realnode.Node
	dir  string
	stop context.CancelFunc

	// The runner's lock guards what follows.

	// address is the loopback address that stands for that of the pod.
	address  string
	pods     map[podID]bool
	statuses []process.Status
	outputs  []*output
	// probed tells of each container whether it is ready by its probe.
	probed []bool
	// ending: it has no pod any more, and its processes get the grace to end.
	ending bool
	grace  time.Duration
	// waiting are pods that want to start it again when it has ended.
	waiting []podID
}

// containerState is what is known of a container of a workload.
type containerState struct {
	process.Status
	// tail is the end of what the last run wrote.
	tail  string
	ready bool
}

// keyOf returns the key of the workload of a pod, given its real node, if it has one.
func keyOf(pod *corev1.Pod, node *realnode.Node) (key string, shared bool) {
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "DaemonSet" && node == nil {
		return pod.Namespace + "." + owner.Name + "." + pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], true
	}
	return pod.Namespace + "." + pod.Name + "." + string(pod.UID), false
}

// join makes the pod part of its workload, which it starts when the pod is the
// first. It is not joined while an earlier workload of the same key ends; the pod
// is looked at again after that.
func (r *Runner) join(ctx context.Context, pod *corev1.Pod, node *realnode.Node) (states []containerState, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return nil, false
	}
	key, shared := keyOf(pod, node)
	w := r.workloads[key]
	switch {
	case w == nil:
		w = &workload{
			key: key, shared: shared, first: pod, node: node, dir: filepath.Join(r.Dir, key), grace: stopGrace,
			address:  r.freeAddress(pod),
			pods:     map[podID]bool{},
			statuses: make([]process.Status, len(pod.Spec.Containers)),
			probed:   make([]bool, len(pod.Spec.Containers)),
		}
		r.workloads[key] = w
		r.run(ctx, w)
	case w.ending:
		w.waiting = append(w.waiting, idOf(pod))
		return nil, false
	}
	w.pods[idOf(pod)] = true
	r.homes[pod.UID] = w
	for i, status := range w.statuses {
		states = append(states, containerState{
			Status: status, tail: w.outputs[i].tail(status.Running != nil), ready: w.ready(i, time.Now()),
		})
	}
	return states, true
}

// freeAddress is the first loopback address on which neither another workload has a port of
// the pod nor another program of this machine. The caller holds the lock.
func (r *Runner) freeAddress(pod *corev1.Pod) string {
	ports := portsOf(&pod.Spec)
	taken := map[string]bool{}
	for _, other := range r.workloads {
		if slices.ContainsFunc(portsOf(&other.first.Spec), func(port int) bool { return slices.Contains(ports, port) }) {
			taken[other.address] = true
		}
	}
	for last := byte(1); ; last++ {
		address := net.IPv4(127, 0, 0, last).String()
		inUse := func(port int) bool { return !canListen(address, port) }
		if last == 254 || !taken[address] && !slices.ContainsFunc(ports, inUse) {
			return address
		}
	}
}

// readdress gives a workload of which nothing runs yet, or any more, another address where another program has a port of it: two platforms
// that look for an address at the same moment find the same one free.
func (r *Runner) readdress(w *workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(w.statuses, func(s process.Status) bool { return s.Running != nil }) {
		return
	}
	if slices.ContainsFunc(portsOf(&w.first.Spec), func(port int) bool { return !canListen(w.address, port) }) {
		w.address = r.freeAddress(w.first)
	}
}

// addressOf is the address that a workload has now.
func (r *Runner) addressOf(w *workload) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return w.address
}

func canListen(address string, port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return !errors.Is(err, syscall.EADDRINUSE)
	}
	return listener.Close() == nil
}

// portsOf are the ports of a pod: those that its containers name, and those that probes ask.
func portsOf(spec *corev1.PodSpec) (ports []int) {
	for _, container := range spec.Containers {
		for _, port := range container.Ports {
			ports = append(ports, int(port.ContainerPort))
		}
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
			if probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Port.Type == intstr.Int {
				ports = append(ports, probe.HTTPGet.Port.IntValue())
			}
			if probe != nil && probe.TCPSocket != nil && probe.TCPSocket.Port.Type == intstr.Int {
				ports = append(ports, probe.TCPSocket.Port.IntValue())
			}
		}
	}
	return ports
}

// leave takes a pod out of its workload. The processes end with the last pod;
// ending means that they have not yet. The pod is looked at again when they have.
func (r *Runner) leave(id podID, grace time.Duration) (ending bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.homes[id.uid]
	if w == nil {
		return false
	}
	if w.ending {
		return true
	}
	if len(w.pods) > 1 {
		delete(w.pods, id)
		delete(r.homes, id.uid)
		return false
	}
	w.ending, w.grace = true, grace
	w.stop()
	return true
}

// run starts the workload's containers. The caller holds the lock.
func (r *Runner) run(ctx context.Context, w *workload) {
	ctx, w.stop = context.WithCancel(ctx)
	var containers sync.WaitGroup
	for i, container := range w.first.Spec.Containers {
		w.outputs = append(w.outputs, newOutput(r.logFile(container.Name)))
		containers.Go(func() {
			grace := func() time.Duration {
				r.mu.Lock()
				defer r.mu.Unlock()
				return w.grace
			}
			program := func(ctx context.Context) (process.Spec, error) {
				r.readdress(w)
				spec, err := r.program(ctx, w, &container)
				if err != nil {
					w.outputs[i].fail(err)
					return process.Spec{}, err
				}
				w.outputs[i].begin(spec.Name)
				spec.Output = w.outputs[i]
				return spec, nil
			}
			r.Processes.Keep(ctx, grace, program, func(status process.Status) { r.observe(w, i, status) })
		})
	}
	r.ended.Go(func() {
		containers.Wait()
		w.stop()
		for _, output := range w.outputs {
			output.close()
		}
		if err := os.RemoveAll(w.dir); err != nil {
			klog.Warningf("runner: clear the files of %s: %v", w.key, err)
		}
		r.forget(w)
	})
	r.ended.Go(func() { r.renewToken(ctx, w) })
}

// observe takes note of a change of a container.
func (r *Runner) observe(w *workload, container int, status process.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.statuses[container] = status
	w.probed[container] = false
	r.enqueuePods(w)
	if status.Running == nil {
		return
	}
	if probe := w.first.Spec.Containers[container].ReadinessProbe; probe != nil {
		go r.probe(w, container, probe, status.Running)
		return
	}
	time.AfterFunc(readyAfter, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.enqueuePods(w)
	})
}

// ready tells whether a container is: its probe says so, or without a probe it has
// run for a while. The caller holds the runner's lock.
func (w *workload) ready(container int, now time.Time) bool {
	status := w.statuses[container]
	if status.Running == nil {
		return false
	}
	if w.first.Spec.Containers[container].ReadinessProbe != nil {
		return w.probed[container]
	}
	return now.Sub(status.StartedAt) >= readyAfter
}

func (r *Runner) enqueuePods(w *workload) {
	for id := range w.pods {
		r.queue.Add(id)
	}
}

// forget removes a workload that has ended and looks again at its pods.
func (r *Runner) forget(w *workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workloads, w.key)
	for id := range w.pods {
		delete(r.homes, id.uid)
	}
	r.enqueuePods(w)
	for _, id := range slices.Compact(w.waiting) {
		r.queue.Add(id)
	}
}
