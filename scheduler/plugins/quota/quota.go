// Package quota keeps pods that are not planned, such as those without GPUs, within
// the quota tree, and charges them to the view while they are being bound. Planned
// pods are checked by the planner, in the same transaction as their placement.
package quota

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/binding"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// retryInterval is how soon a pod is tried again that the view has not seen yet.
const retryInterval = 50 * time.Millisecond

// verifyAgain is the pause after which it is looked again whether a binding that failed has succeeded.
const verifyAgain = time.Second

// Name is the plugin's name in a scheduler configuration.
const Name = "GPUPlanQuota"

// Plugin is the quota plugin.
type Plugin struct {
	cache  *clustercache.Cache
	handle fwk.Handle
	// after calls a function after a pause.
	after func(time.Duration, func())

	mu sync.Mutex
	// waiting are the pods that wait for quota, by "namespace/name".
	waiting map[string]*corev1.Pod
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// Factory returns a function that makes the plugin for the framework.
func Factory(cache *clustercache.Cache) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p := &Plugin{cache: cache, handle: handle, waiting: map[string]*corev1.Pod{}}
		p.after = func(pause time.Duration, f func()) { time.AfterFunc(pause, f) }
		cache.Subscribe(func(change clusterstate.Change) {
			if change.Freed || change.RolledBack || change.Lifted {
				p.wake(ctx)
			}
		})
		return p, nil
	}
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// EventsToRegister returns one event: a pod that waits gets other labels, by which it may be charged
// elsewhere. Else pods that wait for quota are activated when the plugin's own view has changed, which the
// framework's events may precede.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodLabel},
		QueueingHintFn: func(_ klog.Logger, waiting *corev1.Pod, _, changed any) (fwk.QueueingHint, error) {
			if pod, ok := changed.(*corev1.Pod); ok && pod.UID == waiting.UID {
				return fwk.Queue, nil
			}
			return fwk.QueueSkip, nil
		},
	}}, nil
}

// SignPod keeps planned pods out of the framework's batching of equal pods; others of one
// leaf are equal to this plugin.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, planned := p.cache.PlanKey(pod); planned {
		return nil, fwk.NewStatus(fwk.Unschedulable, "planned pods are not batched")
	}
	return []fwk.SignFragment{{Key: Name + ".Leaf()", Value: p.cache.Leaf(pod)}}, nil
}

// PreFilter refuses a pod that exceeds a limit of the quota tree, and one that the view has
// not seen yet and could not charge: the framework's queue may have heard of it first.
func (p *Plugin) PreFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.cache.Planned(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if p.cache.Unseen(pod) {
		p.after(retryInterval, func() { p.activate(ctx, pod) })
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the scheduler has not taken the pod into its view yet")
	}
	if !p.release(ctx, pod) {
		p.after(verifyAgain, func() { p.activate(ctx, pod) })
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "its last binding may have succeeded")
	}
	// Whatever is freed after this line wakes the pod.
	p.mu.Lock()
	p.waiting[name(pod)] = pod
	p.mu.Unlock()
	if reason := p.cache.OverQuota(pod); reason != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
	}
	p.mu.Lock()
	delete(p.waiting, name(pod))
	p.mu.Unlock()
	return nil, fwk.NewStatus(fwk.Skip)
}

// PreFilterExtensions returns nil: usage is in the view.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Reserve charges the pod to the view until the API server shows it bound. In between,
// in the first cycle of a scheduler, gangs get their places that the one before it held
// for them; a pod that exceeds a limit then tries again at once, and says so.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if p.cache.Planned(pod) {
		return nil
	}
	if reason := p.cache.OverQuota(pod); reason != "" {
		p.activate(ctx, pod)
		return fwk.NewStatus(fwk.Unschedulable, reason)
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	p.cache.Assume(bound)
	state.Write(Name, charged{})
	return nil
}

// charged is the state of a cycle in which Reserve charged the pod: the planner may take the pod over
// before Unreserve is called, or let go of it.
type charged struct{}

// Clone returns what does not change.
func (c charged) Clone() fwk.StateData { return c }

// Unreserve takes back what Reserve charged, unless the pod is bound all the same, or nobody can tell:
// then it stays charged until its next cycle.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	if _, err := state.Read(Name); err == nil {
		p.release(ctx, pod)
	}
}

// release takes back what Reserve charged for a pod that is not bound, and reports whether nothing is charged for it.
func (p *Plugin) release(ctx context.Context, pod *corev1.Pod) bool {
	if !p.cache.Assumed(pod.UID) {
		return true
	}
	unbound, err := binding.Unbound(ctx, p.handle.ClientSet(), pod)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot take back what a pod was charged with", "pod", name(pod))
	}
	if unbound {
		p.cache.Forget(pod.UID)
	}
	return unbound
}

// activate has a pod tried again.
func (p *Plugin) activate(ctx context.Context, pod *corev1.Pod) {
	p.handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{name(pod): pod})
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// wake activates the pods that wait for quota.
func (p *Plugin) wake(ctx context.Context) {
	p.mu.Lock()
	pods := p.waiting
	p.waiting = map[string]*corev1.Pod{}
	p.mu.Unlock()
	if len(pods) > 0 {
		p.handle.Activate(klog.FromContext(ctx), pods)
	}
}
