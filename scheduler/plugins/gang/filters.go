package gang

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// sweepers bounds how many nodes are looked at at a time.
const sweepers = 16

// handle is the framework as the plugin uses it. Running PreFilter is not among what the
// framework offers to plugins by its interface, but what it hands to them can do it.
type handle interface {
	fwk.Handle
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
}

// refusals are the nodes that other plugins refuse for members of a role, with the
// reasons. What a gang remembers is never changed, but replaced.
type refusals map[string]map[string]string

func (r refusals) add(role, node, reason string) {
	if r[role] == nil {
		r[role] = map[string]string{}
	}
	r[role][node] = reason
}

// with returns these refusals and others.
func (r refusals) with(others refusals) refusals {
	all := refusals{}
	for _, some := range []refusals{r, others} {
		for role, reasons := range some {
			for node, reason := range reasons {
				all.add(role, node, reason)
			}
		}
	}
	return all
}

// nodes returns the refused nodes by role.
func (r refusals) nodes() inventory.Exclusions {
	if len(r) == 0 {
		return nil
	}
	exclude := inventory.Exclusions{}
	for role, reasons := range r {
		exclude[role] = map[string]bool{}
		for node := range reasons {
			exclude[role][node] = true
		}
	}
	return exclude
}

// String says how many nodes are refused by whom and why, the most common first.
func (r refusals) String() string {
	nodes := map[string]map[string]bool{}
	for _, reasons := range r {
		for node, reason := range reasons {
			if nodes[reason] == nil {
				nodes[reason] = map[string]bool{}
			}
			nodes[reason][node] = true
		}
	}
	var b strings.Builder
	for _, reason := range slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(nodes[b]), len(nodes[a])), cmp.Compare(a, b))
	}) {
		noun := "nodes"
		if len(nodes[reason]) == 1 {
			noun = "node"
		}
		fmt.Fprintf(&b, " %d %s refused by %s.", len(nodes[reason]), noun, strings.TrimSuffix(reason, "."))
	}
	return b.String()
}

// reasonOf says which plugin refused a pod, and why.
func reasonOf(status *fwk.Status) string {
	return strings.TrimPrefix(status.Plugin()+": "+status.Message(), ": ")
}

// rehearsal asks the filters of other plugins about a placement before it is taken. It
// runs in the scheduling cycle, on copies of the nodes in the framework's snapshot, from
// which the pods are gone that the placement waits for.
type rehearsal struct {
	*Plugin
	shapes map[string]*shape
	nodes  map[string]fwk.NodeInfo
	found  refusals
}

// shape is a role with what the PreFilter plugins say of one of its members.
type shape struct {
	pod   *corev1.Pod
	state fwk.CycleState
	// nodes are those that PreFilter plugins allow; nil for all. by says which plugins.
	nodes sets.Set[string]
	by    string
	// swept are the plugins that have been asked about all nodes.
	swept sets.Set[string]
}

// blocked is that another plugin refuses a member whatever the node.
type blocked struct {
	pod    *corev1.Pod
	reason string
}

// rehearse returns the nodes of a decision that other plugins refuse. Members of a role
// are one shape: PreFilter runs once for each, Filter for each member on its node,
// beside the members before it.
func (p *Plugin) rehearse(ctx context.Context, d inventory.Decision) (refusals, *blocked, error) {
	r := &rehearsal{Plugin: p, shapes: map[string]*shape{}, nodes: map[string]fwk.NodeInfo{}, found: refusals{}}
	roles := map[string]string{}
	for _, role := range d.Gang.Roles {
		for _, member := range role.Members {
			roles[member] = role.Name
		}
	}
	for _, a := range d.Result.Placement.Assignments {
		if role := roles[a.Member]; r.shapes[role] == nil {
			why, err := r.prepare(ctx, role, d.Pods[a.Member])
			if why != nil || err != nil {
				return nil, why, err
			}
		}
	}
	for _, pod := range d.Leaving {
		if err := r.remove(ctx, pod); err != nil {
			return nil, nil, err
		}
	}
	for _, a := range d.Result.Placement.Assignments {
		if err := r.seat(ctx, roles[a.Member], d.Pods[a.Member], a.Node); err != nil {
			return nil, nil, err
		}
	}
	return r.found, nil, nil
}

// prepare runs PreFilter for a shape.
func (r *rehearsal) prepare(ctx context.Context, role string, pod *corev1.Pod) (*blocked, error) {
	s := &shape{pod: pod, state: framework.NewCycleState(), swept: sets.New[string]()}
	s.state.Write(rehearsalKey, &cycle{})
	result, status, by := r.handle.RunPreFilterPlugins(ctx, s.state, pod)
	switch {
	case status.IsRejected():
		return &blocked{pod: pod, reason: status.Message()}, nil
	case !status.IsSuccess():
		return nil, status.AsError()
	case !result.AllNodes():
		s.nodes, s.by = result.NodeNames, strings.Join(sets.List(by), ", ")
	}
	r.shapes[role] = s
	return nil, nil
}

// node returns the copy of a node, nil when the snapshot does not have it. Pods that the
// view knows to be gone are left out: the snapshot may be a moment behind.
func (r *rehearsal) node(ctx context.Context, name string) (fwk.NodeInfo, error) {
	if info, ok := r.nodes[name]; ok {
		return info, nil
	}
	known, err := r.handle.SnapshotSharedLister().NodeInfos().Get(name)
	if err != nil {
		return nil, nil //nolint:nilerr // it is not in the snapshot
	}
	info := known.Snapshot()
	r.nodes[name] = info
	for _, pod := range known.GetPods() {
		if !r.cache.Holds(pod.GetPod().UID) {
			if err := r.take(ctx, info, pod); err != nil {
				return nil, err
			}
		}
	}
	return info, nil
}

// remove takes a pod off its node.
func (r *rehearsal) remove(ctx context.Context, pod *corev1.Pod) error {
	info, err := r.node(ctx, pod.Spec.NodeName)
	if info == nil || err != nil {
		return err
	}
	for _, known := range info.GetPods() {
		if known.GetPod().UID == pod.UID {
			return r.take(ctx, info, known)
		}
	}
	return nil
}

func (r *rehearsal) take(ctx context.Context, info fwk.NodeInfo, pod fwk.PodInfo) error {
	if err := info.RemovePod(klog.FromContext(ctx), pod.GetPod()); err != nil {
		return err
	}
	for _, s := range r.shapes {
		if status := r.handle.RunPreFilterExtensionRemovePod(ctx, s.state, s.pod, pod, info); !status.IsSuccess() {
			return status.AsError()
		}
	}
	return nil
}

// seat puts a member on its node, or notes who refuses it there.
func (r *rehearsal) seat(ctx context.Context, role string, pod *corev1.Pod, name string) error {
	s := r.shapes[role]
	if r.found[role][name] != "" {
		return nil
	}
	info, err := r.node(ctx, name)
	if err != nil {
		return err
	}
	if info == nil {
		r.found.add(role, name, "the scheduler: the node has just appeared")
		return nil
	}
	switch status := r.ask(ctx, s, pod, info); {
	case status.IsRejected():
		r.found.add(role, name, reasonOf(status))
		return r.sweep(ctx, role, status.Plugin())
	case !status.IsSuccess():
		return status.AsError()
	}
	added, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	info.AddPodInfo(added)
	for _, s := range r.shapes {
		if status := r.handle.RunPreFilterExtensionAddPod(ctx, s.state, s.pod, added, info); !status.IsSuccess() {
			return status.AsError()
		}
	}
	return nil
}

// ask runs the filters for a member on a node.
func (r *rehearsal) ask(ctx context.Context, s *shape, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if s.nodes != nil && !s.nodes.Has(info.Node().Name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "it allows other nodes only").WithPlugin(s.by)
	}
	return r.handle.RunFilterPlugins(ctx, s.state, pod, info)
}

// sweep notes all nodes that a plugin refuses for a shape whatever runs there, once it
// has refused one: so that not one after the other is planned in vain.
func (r *rehearsal) sweep(ctx context.Context, role, plugin string) error {
	s := r.shapes[role]
	if s.swept.Has(plugin) {
		return nil
	}
	s.swept.Insert(plugin)
	all, err := r.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	var lock sync.Mutex
	workqueue.ParallelizeUntil(ctx, sweepers, len(all), func(i int) {
		bare := framework.NewNodeInfo()
		bare.SetNode(all[i].Node())
		status := r.ask(ctx, s, s.pod, bare)
		if status.Code() == fwk.UnschedulableAndUnresolvable && status.Plugin() == plugin {
			lock.Lock()
			defer lock.Unlock()
			r.found.add(role, bare.Node().Name, reasonOf(status))
		}
	})
	return nil
}
