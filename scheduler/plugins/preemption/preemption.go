// Package preemption is kube-scheduler's preemption for single pods, which does not tear
// gangs: a pod of a gang is a victim only when the whole gang may go, and then the whole
// gang goes. Gangs that preempt others do so by the planner, without it.
package preemption

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/hooks"
)

// Name is the plugin's name in a scheduler configuration.
const Name = "GPUPlanPreemption"

// Plugin is kube-scheduler's DefaultPreemption with its default arguments, and with gangs
// as units. It takes that plugin's place in a profile.
type Plugin struct {
	*defaultpreemption.DefaultPreemption
	cache  *clustercache.Cache
	handle fwk.Handle
}

var (
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
)

// Factory returns a function that makes the plugin for the framework.
func Factory(cache *clustercache.Cache) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		stock, err := hooks.Preemption(ctx, handle)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		p := &Plugin{DefaultPreemption: stock, cache: cache, handle: handle}
		stock.IsEligiblePod = func(_ fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
			_, ok := p.together(victim.GetPod(), preemptor)
			return ok
		}
		stock.MoreImportantPod = moreImportant
		hooks.Choose(stock, Name, p)
		return p, nil
	}
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// moreImportant orders pods as kube-scheduler does, but of equal priority a pod of a
// gang is more important than one on its own: others would go with it.
func moreImportant(a, b *corev1.Pod) bool {
	if corev1helpers.PodPriority(a) == corev1helpers.PodPriority(b) && inGang(a) != inGang(b) {
		return inGang(a)
	}
	return util.MoreImportantPod(a, b)
}

func inGang(p *corev1.Pod) bool {
	_, ok := inventory.GangKey(p)
	return ok
}

// together returns the pods that go when the victim goes, itself among them; ok is false
// when not all of them may go for the preemptor.
func (p *Plugin) together(victim, preemptor *corev1.Pod) (pods []*corev1.Pod, ok bool) {
	key, gang := inventory.GangKey(victim)
	if victim.DeletionTimestamp != nil { // who leaves already is only waited for
		return []*corev1.Pod{victim}, true
	}
	if !gang {
		return []*corev1.Pod{victim}, inventory.Preemptible(victim) && !inventory.Pinned(victim)
	}
	if own, _ := inventory.GangKey(preemptor); own == key {
		return nil, false
	}
	pods, ok = p.cache.Evictable(key)
	higher := func(mate *corev1.Pod) bool {
		return corev1helpers.PodPriority(mate) >= corev1helpers.PodPriority(preemptor)
	}
	known := func(mate *corev1.Pod) bool { return mate.UID == victim.UID }
	return pods, ok && !slices.ContainsFunc(pods, higher) && slices.ContainsFunc(pods, known)
}

// SelectVictimsOnNode chooses victims as kube-scheduler does and adds the rest of their
// gangs, wherever it runs. Pods on their own that need not go then are spared.
func (p *Plugin) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo, pdbs []*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	before := slices.Clone(node.GetPods())
	chosen, violations, status := p.DefaultPreemption.SelectVictimsOnNode(ctx, state, pod, node, pdbs)
	if !status.IsSuccess() || !slices.ContainsFunc(chosen, inGang) {
		return chosen, violations, status
	}
	going, removed := map[types.UID]*corev1.Pod{}, map[types.UID]bool{}
	for _, victim := range chosen {
		pods, ok := p.together(victim, pod)
		if !ok {
			return nil, 0, fwk.NewStatus(fwk.Unschedulable, "a gang that was to be evicted has changed")
		}
		for _, mate := range pods {
			going[mate.UID] = mate
		}
		removed[victim.UID] = true
	}
	dryRun := dryRun{handle: p.handle, state: state, pod: pod, node: node}
	for _, info := range before {
		if uid := info.GetPod().UID; going[uid] != nil && !removed[uid] {
			if err := dryRun.remove(ctx, info); err != nil {
				return nil, 0, fwk.AsStatus(err)
			}
		}
	}
	for _, victim := range chosen {
		if inGang(victim) {
			continue
		}
		i := slices.IndexFunc(before, func(info fwk.PodInfo) bool { return info.GetPod().UID == victim.UID })
		spared, err := dryRun.reprieve(ctx, before[i])
		if err != nil {
			return nil, 0, fwk.AsStatus(err)
		}
		if spared {
			delete(going, victim.UID)
		}
	}
	victims := slices.SortedFunc(maps.Values(going), func(a, b *corev1.Pod) int {
		switch {
		case moreImportant(a, b):
			return -1
		case moreImportant(b, a):
			return 1
		}
		return 0
	})
	return victims, violations, status
}

// dryRun is a node on which it is tried whether a pod fits without some others.
type dryRun struct {
	handle fwk.Handle
	state  fwk.CycleState
	pod    *corev1.Pod
	node   fwk.NodeInfo
}

// remove takes a pod off the node.
func (t dryRun) remove(ctx context.Context, info fwk.PodInfo) error {
	if err := t.node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
		return err
	}
	return t.handle.RunPreFilterExtensionRemovePod(ctx, t.state, t.pod, info, t.node).AsError()
}

// reprieve puts a pod back, if the other one fits beside it.
func (t dryRun) reprieve(ctx context.Context, info fwk.PodInfo) (bool, error) {
	t.node.AddPodInfo(info)
	if err := t.handle.RunPreFilterExtensionAddPod(ctx, t.state, t.pod, info, t.node).AsError(); err != nil {
		return false, err
	}
	if t.handle.RunFilterPluginsWithNominatedPods(ctx, t.state, t.pod, t.node).IsSuccess() {
		return true, nil
	}
	return false, t.remove(ctx, info)
}
