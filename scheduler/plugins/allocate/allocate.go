// Package allocate binds planned pods: the node and the record of the pod's cards
// reach the API server in one call, so that no crash can separate them. The API
// server merges the annotations of a Binding into the pod that it binds.
package allocate

import (
	"context"

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

const stateKey fwk.StateKey = Name

// allocation is what a cycle decided for its pod.
type allocation contract.Allocation

// Clone implements fwk.StateData; an allocation never changes once it is decided.
func (a *allocation) Clone() fwk.StateData { return a }

// Decide hands the allocation of the cycle's pod to the binding.
func Decide(state fwk.CycleState, record contract.Allocation) {
	state.Write(stateKey, (*allocation)(&record))
}

// Plugin binds pods for which a cycle has decided an allocation.
type Plugin struct {
	handle fwk.Handle
	// calls holds one token per binding under way.
	calls chan struct{}
}

var _ fwk.BindPlugin = (*Plugin)(nil)

// New returns the plugin.
func New(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return newPlugin(handle), nil
}

func newPlugin(handle fwk.Handle) *Plugin {
	return &Plugin{handle: handle, calls: make(chan struct{}, maxCalls)}
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
	record := contract.Allocation(*decided)
	annotations, err := record.Annotations()
	if err != nil {
		return fwk.AsStatus(err)
	}
	if err := describeShares(annotations, pod, record.Shares); err != nil {
		return fwk.AsStatus(err)
	}
	return fwk.AsStatus(p.bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}))
}

// bind posts a binding, by the scheduler's queue of API calls where it has one.
func (p *Plugin) bind(ctx context.Context, binding *corev1.Binding) error {
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
