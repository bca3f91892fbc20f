// Package allocate binds planned pods: the node and the record of the pod's GPUs
// reach the API server in one call, so that no crash can separate them. The API
// server merges the annotations of a Binding into the pod that it binds.
package allocate

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Name is the plugin's name in a scheduler configuration.
const Name = "GPUPlanAllocate"

// maxCalls bounds the bindings under way at a time. A gang binds all its members at
// once; what goes beyond the streams of one HTTP/2 connection (100) would open another
// connection for each call, with a TLS handshake that costs more than the binding.
const maxCalls = 64

// maxPending bounds the bindings under way and those that wait to begin before the
// next cycle starts: deciding is faster than binding, and whatever is decided early only
// waits, with the stack of its goroutine, behind pods that may be less urgent.
const maxPending = 2 * maxCalls

const (
	stateKey   fwk.StateKey = Name
	failureKey fwk.StateKey = Name + "/failure"
)

// allocation is what a cycle decided for its pod.
type allocation struct {
	record contract.Allocation
	// await returns when the pod may be bound, or why it may not.
	await func(context.Context) *fwk.Status
}

// Clone implements fwk.StateData; an allocation never changes once it is decided.
func (a *allocation) Clone() fwk.StateData { return a }

// Decide hands the allocation of the cycle's pod to the binding, which calls await before it binds,
// and gives up with its status.
func Decide(state fwk.CycleState, record contract.Allocation, await func(context.Context) *fwk.Status) {
	state.Write(stateKey, &allocation{record: record, await: await})
}

// failure is why a binding has failed.
type failure struct{ error }

// Clone implements fwk.StateData.
func (f failure) Clone() fwk.StateData { return f }

// Failure is why the binding of the cycle's pod has failed, nil when it has not, or there was none.
func Failure(state fwk.CycleState) error {
	if data, err := state.Read(failureKey); err == nil {
		f, _ := data.(failure) // nothing else is stored
		return f.error
	}
	return nil
}

// Plugin binds pods for which a cycle has decided an allocation.
type Plugin struct {
	handle fwk.Handle
	// calls holds one token per binding under way.
	calls chan struct{}
	// pending counts bindings under way and those that wait to begin; ended
	// receives when one has ended.
	pending atomic.Int64
	ended   chan struct{}
}

var _ fwk.BindPlugin = (*Plugin)(nil)

// Factory returns a function that makes the plugin for the framework and hands it to made.
func Factory(made func(*Plugin)) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p := newPlugin(handle)
		made(p)
		return p, nil
	}
}

func newPlugin(handle fwk.Handle) *Plugin {
	return &Plugin{handle: handle, calls: make(chan struct{}, maxCalls), ended: make(chan struct{}, 1)}
}

// Wait returns when few enough bindings are pending for another cycle to be useful, or
// ctx ends.
func (p *Plugin) Wait(ctx context.Context) {
	for p.pending.Load() > maxPending {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return
		}
	}
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Bind binds a planned pod with its allocation record; it leaves every other pod to
// the next binder.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	data, err := state.Read(stateKey)
	decided, ok := data.(*allocation)
	if err != nil || !ok {
		return fwk.NewStatus(fwk.Skip)
	}
	annotations, err := decided.record.Annotations()
	if err != nil {
		return fwk.AsStatus(err)
	}
	if err := describeShares(annotations, pod, decided.record.Shares); err != nil {
		return fwk.AsStatus(err)
	}
	if status := decided.await(ctx); !status.IsSuccess() {
		return status
	}
	err = p.bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	})
	if err != nil {
		state.Write(failureKey, failure{err})
	}
	return fwk.AsStatus(err)
}

// bind posts a binding, by the scheduler's queue of API calls where it has one.
func (p *Plugin) bind(ctx context.Context, binding *corev1.Binding) error {
	p.pending.Add(1)
	defer p.end()
	select {
	case p.calls <- struct{}{}:
		defer func() { <-p.calls }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if calls := p.handle.APICacher(); calls != nil {
		finished, err := calls.BindPod(binding)
		if err != nil {
			return err
		}
		return calls.WaitOnFinish(ctx, finished)
	}
	return p.handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// end counts a binding that has ended.
func (p *Plugin) end() {
	p.pending.Add(-1)
	select {
	case p.ended <- struct{}{}:
	default:
	}
}
