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
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// filterWorkers bounds how many nodes are looked at at a time.
const filterWorkers = 16

// rejections are what other plugins reject of nodes for members of a role, or of several
// together, whose names are joined then. What a gang remembers is never changed, but replaced.
type rejections map[string]map[string]rejection

// joint joins the names of roles.
const joint = "+"

// rejection is that a node takes so many members of a role and no more, and why.
type rejection struct {
	limit  int
	reason string
}

// add notes a refusal; of two about one node the stricter stays.
func (r rejections) add(role, node string, rejected rejection) {
	if r[role] == nil {
		r[role] = map[string]rejection{}
	}
	if known, ok := r[role][node]; !ok || rejected.limit < known.limit {
		r[role][node] = rejected
	}
}

// addRejected notes that a node refuses a further member of a role beside those of each role
// that it takes. If there are none of that role, it is the others that are in the way,
// unless the refusal would stand without any pod on the node.
func (r rejections) addRejected(role, node string, beside map[string]int, why *fwk.Status) {
	reason := reasonOf(why)
	if beside[role] > 0 || len(beside) == 0 || why.Code() == fwk.UnschedulableAndUnresolvable {
		r.add(role, node, rejection{limit: beside[role], reason: reason})
		return
	}
	roles, most := []string{role}, 0
	for other, n := range beside {
		roles, most = append(roles, other), most+n
	}
	slices.Sort(roles)
	r.add(strings.Join(roles, joint), node, rejection{limit: most, reason: reason})
}

// with returns these refusals and others.
func (r rejections) with(others rejections) rejections {
	all := rejections{}
	for _, some := range []rejections{r, others} {
		for role, nodes := range some {
			for node, rejected := range nodes {
				all.add(role, node, rejected)
			}
		}
	}
	return all
}

// limits returns how many members nodes take, by role.
func (r rejections) limits() clustercache.Limits {
	var limits clustercache.Limits
	for _, role := range slices.Sorted(maps.Keys(r)) {
		nodes, roles := r[role], strings.Split(role, joint)
		for _, node := range slices.Sorted(maps.Keys(nodes)) {
			limit := nodes[node].limit
			switch {
			case len(roles) > 1:
				limits.Joint = append(limits.Joint, placement.NodeLimit{Node: node, Roles: roles, Most: limit})
			case limits.Roles == nil:
				limits.Roles = map[string]map[string]int{role: {node: limit}}
			case limits.Roles[role] == nil:
				limits.Roles[role] = map[string]int{node: limit}
			default:
				limits.Roles[role][node] = limit
			}
		}
	}
	return limits
}

// String says how many nodes are refused by whom and why, the most common first.
func (r rejections) String() string {
	nodes := map[string]map[string]bool{}
	for _, rejected := range r {
		for node, refusal := range rejected {
			text := "refused by " + refusal.reason
			if refusal.limit > 0 {
				text = fmt.Sprintf("refused beyond %s by %s", inventory.Members(refusal.limit), refusal.reason)
			}
			if nodes[text] == nil {
				nodes[text] = map[string]bool{}
			}
			nodes[text][node] = true
		}
	}
	var b strings.Builder
	for _, text := range slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(nodes[b]), len(nodes[a])), cmp.Compare(a, b))
	}) {
		noun := "nodes"
		if len(nodes[text]) == 1 {
			noun = "node"
		}
		fmt.Fprintf(&b, " %d %s %s.", len(nodes[text]), noun, strings.TrimSuffix(text, "."))
	}
	return b.String()
}

// reasonOf says which plugin refused a pod, and why.
func reasonOf(status *fwk.Status) string {
	return strings.TrimPrefix(status.Plugin()+": "+status.Message(), ": ")
}

// filterDryRun asks the filters of other plugins about a placement before it is taken. It
// runs in the scheduling cycle, on copies of the nodes in the framework's snapshot, from
// which the pods are gone that the placement waits for.
type filterDryRun struct {
	*Plugin
	roles map[string]*roleState
	nodes map[string]fwk.NodeInfo
	// placed counts the members on each node by role.
	placed map[string]map[string]int
	found  rejections
}

// roleState is a role with what the PreFilter plugins say of one of its members.
type roleState struct {
	pod   *corev1.Pod
	state fwk.CycleState
	// nodes are those that PreFilter plugins allow; nil for all. by says which plugins.
	nodes sets.Set[string]
	by    string
	// filtered are the plugins that have been asked about all nodes.
	filtered sets.Set[string]
}

// blocked is that another plugin refuses a member whatever the node.
type blocked struct {
	pod    *corev1.Pod
	reason string
}

// mayReject reports whether other plugins may refuse a gang places that the planner finds for
// it, or demand that its members come in a certain order: what members that come first
// do to those that come later is not known before.
func mayReject(d *clustercache.Decision) bool {
	if d.Delegated {
		return true
	}
	for _, role := range d.Gang.Roles {
		if spec := &d.Pods[role.Members[0]].Spec; !role.Late && (len(spec.Volumes) > 0 && slices.ContainsFunc(spec.Volumes, attached) ||
			len(spec.ResourceClaims) > 0 || len(role.Neighbors) > 0 ||
			slices.ContainsFunc(role.Spreads, func(s placement.TopologySpread) bool { return !s.Soft })) {
			return true
		}
	}
	return false
}

// attached reports whether a volume is one that not every node can have.
func attached(v corev1.Volume) bool {
	s := &v.VolumeSource
	return s.PersistentVolumeClaim != nil || s.Ephemeral != nil || s.CSI != nil ||
		s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.AzureDisk != nil || s.ISCSI != nil || s.RBD != nil
}

// mountsItsOwn reports whether a pod has volumes or devices that may be missing while those of others like it are there.
func mountsItsOwn(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

// dryRunFilters returns what other plugins reject of a decision, or else the order in which its
// members can take their places. Members of a role are one shape: PreFilter runs once for
// each, and for each member with volumes or devices of its own, Filter for each member on its node, beside the members before it. The planner's order
// is tried first, and where there is none, roles that go before others, and the first pod; a member that is refused tries again
// after the others.
func (p *Plugin) dryRunFilters(ctx context.Context, d clustercache.Decision, firstPod *corev1.Pod) (rejections, []string, *blocked, error) {
	r := &filterDryRun{Plugin: p, roles: map[string]*roleState{}, nodes: map[string]fwk.NodeInfo{}, placed: map[string]map[string]int{}, found: rejections{}}
	roles := map[string]string{}
	for _, role := range d.Gang.Roles {
		for _, member := range role.Members {
			roles[member] = role.Name
		}
	}
	for _, a := range d.Result.Placement.Assignments {
		if role, pod := roles[a.Member], d.Pods[a.Member]; r.roles[role] == nil || mountsItsOwn(pod) {
			why, err := r.prepare(ctx, role, pod)
			if why != nil || err != nil {
				return nil, nil, why, err
			}
		}
	}
	for _, pod := range d.Leaving {
		if err := r.remove(ctx, pod); err != nil {
			return nil, nil, nil, err
		}
	}
	var order []string
	due := slices.Clone(d.Result.Placement.Assignments)
	position := map[string]int{}
	for i, member := range d.Result.Placement.Order {
		position[member] = i
	}
	first := p.precedenceOf(d.Key)
	precedence := func(role string) int {
		if at := slices.Index(first, role); at >= 0 {
			return at
		}
		return len(first)
	}
	slices.SortStableFunc(due, func(a, b placement.Assignment) int {
		if len(position) > 0 {
			return cmp.Compare(position[a.Member], position[b.Member])
		}
		return cmp.Or(
			cmp.Compare(precedence(roles[a.Member]), precedence(roles[b.Member])),
			cmp.Compare(rank(d.Pods[b.Member].UID == firstPod.UID), rank(d.Pods[a.Member].UID == firstPod.UID)))
	})
	for len(due) > 0 {
		var later []placement.Assignment
		var rejected []*fwk.Status
		for _, a := range due {
			status, err := r.place(ctx, roles[a.Member], d.Pods[a.Member], a.Node)
			switch {
			case err != nil:
				return nil, nil, nil, err
			case status != nil:
				later, rejected = append(later, a), append(rejected, status)
			default:
				order = append(order, a.Member)
			}
		}
		if len(later) == len(due) {
			return r.found, nil, nil, r.rejectAll(ctx, roles, later, rejected)
		}
		due = later
	}
	return nil, order, nil, nil
}

// precedenceOf are the roles of a gang whose members come before those of others.
func (p *Plugin) precedenceOf(key string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, ok := p.gangs[key]; ok {
		return g.precedence
	}
	return nil
}

// rejectAll notes who refuses the places of members that none of the others help to theirs.
func (r *filterDryRun) rejectAll(ctx context.Context, roles map[string]string, places []placement.Assignment, why []*fwk.Status) error {
	for i, a := range places {
		role := roles[a.Member]
		r.found.addRejected(role, a.Node, r.placed[a.Node], why[i])
		if err := r.filterAllNodes(ctx, role, why[i].Plugin()); err != nil {
			return err
		}
	}
	return nil
}

// prepare runs PreFilter for a shape, or for one more member of it.
func (r *filterDryRun) prepare(ctx context.Context, role string, pod *corev1.Pod) (*blocked, error) {
	s := &roleState{pod: pod, state: framework.NewCycleState(), filtered: sets.New[string]()}
	s.state.Write(dryRunKey, &cycle{})
	result, status, by := r.handle.RunPreFilterPlugins(ctx, s.state, pod)
	switch {
	case status.IsRejected():
		return &blocked{pod: pod, reason: status.Message()}, nil
	case !status.IsSuccess():
		return nil, status.AsError()
	case !result.AllNodes():
		s.nodes, s.by = result.NodeNames, strings.Join(sets.List(by), ", ")
	}
	if r.roles[role] == nil {
		r.roles[role] = s
	}
	return nil, nil
}

// node returns the copy of a node, nil when the snapshot does not have it. Pods that the
// view knows to be gone are left out: the snapshot may be a moment behind.
func (r *filterDryRun) node(ctx context.Context, name string) (fwk.NodeInfo, error) {
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
func (r *filterDryRun) remove(ctx context.Context, pod *corev1.Pod) error {
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

func (r *filterDryRun) take(ctx context.Context, info fwk.NodeInfo, pod fwk.PodInfo) error {
	if err := info.RemovePod(klog.FromContext(ctx), pod.GetPod()); err != nil {
		return err
	}
	for _, s := range r.roles {
		if status := r.handle.RunPreFilterExtensionRemovePod(ctx, s.state, s.pod, pod, info); !status.IsSuccess() {
			return status.AsError()
		}
	}
	return nil
}

// place puts a member on its node, unless another plugin refuses it there.
func (r *filterDryRun) place(ctx context.Context, role string, pod *corev1.Pod, name string) (rejected *fwk.Status, err error) {
	s := r.roles[role]
	info, err := r.node(ctx, name)
	if err != nil {
		return nil, err
	}
	if info == nil {
		return fwk.NewStatus(fwk.Unschedulable, "the scheduler: the node has just appeared"), nil
	}
	switch status := r.ask(ctx, s, pod, info); {
	case status.IsRejected():
		return status, nil
	case !status.IsSuccess():
		return nil, status.AsError()
	}
	if r.placed[name] == nil {
		r.placed[name] = map[string]int{}
	}
	r.placed[name][role]++
	added, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, err
	}
	info.AddPodInfo(added)
	for _, s := range r.roles {
		if status := r.handle.RunPreFilterExtensionAddPod(ctx, s.state, s.pod, added, info); !status.IsSuccess() {
			return nil, status.AsError()
		}
	}
	return nil, nil
}

// ask runs the filters for a member on a node.
func (r *filterDryRun) ask(ctx context.Context, s *roleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if s.nodes != nil && !s.nodes.Has(info.Node().Name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "it allows other nodes only").WithPlugin(s.by)
	}
	return r.handle.RunFilterPlugins(ctx, s.state, pod, info)
}

// filterAllNodes notes all nodes that a plugin refuses for a shape whatever runs there, once it
// has refused one: so that not one after the other is planned in vain.
func (r *filterDryRun) filterAllNodes(ctx context.Context, role, plugin string) error {
	s := r.roles[role]
	if plugin == "" || s.filtered.Has(plugin) {
		return nil
	}
	s.filtered.Insert(plugin)
	all, err := r.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	var lock sync.Mutex
	workqueue.ParallelizeUntil(ctx, filterWorkers, len(all), func(i int) {
		bare := framework.NewNodeInfo()
		bare.SetNode(all[i].Node())
		status := r.ask(ctx, s, s.pod, bare)
		if status.Code() == fwk.UnschedulableAndUnresolvable && status.Plugin() == plugin {
			lock.Lock()
			defer lock.Unlock()
			r.found.add(role, bare.Node().Name, rejection{reason: reasonOf(status)})
		}
	})
	return nil
}

func rank(first bool) int {
	if first {
		return 1
	}
	return 0
}
