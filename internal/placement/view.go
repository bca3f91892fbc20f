package placement

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// View is what the planner knows of a cluster. It is kept incrementally: nodes and pods
// come and go, planning reads, and remembers what it denied until something changes. It is
// not safe for concurrent use.
type View struct {
	nodes map[string]*node
	// order holds the present nodes in the planner's order.
	order []*node
	pods  map[string]*Pod
	// jobs counts the pods of each gang in each leaf.
	jobs     map[job]int
	quota    *quota.Tree
	workload *fragmentation
	// uncounted means that nodes have come or gone since the workload's prices were set.
	uncounted bool
	// linked counts the present nodes in NVLink domains.
	linked int
	// admissions is nil once a node has changed.
	admissions *admissions
	// reservations are the reservations that are held, in the order in which they were made.
	reservations []*reserved
	// version counts changes of nodes, of the quota tree and of the workload.
	version uint64
	// verdicts are remembered until something changes.
	verdicts verdictCache
	// elastic are the gangs that need only some of their members ([View.SetMinimum]).
	elastic map[string]elastic
	// budgets say how many of the pods that a disruption budget covers may be evicted.
	budgets map[string]int
	// states holds one capacity per distinct state of a node.
	states map[string]*interned
	// tables numbers the hardware tables of the nodes; lastTable is the last number given.
	tables    map[*gpu.Table]numbered
	lastTable int
}

// numbered is a number with the count of nodes that need it.
type numbered struct{ number, nodes int }

// interned is a capacity with the number of nodes in that state.
type interned struct {
	*capacity
	nodes int
}

// NewView returns an empty view without a quota tree.
func NewView() *View {
	return &View{
		nodes: map[string]*node{}, pods: map[string]*Pod{}, jobs: map[job]int{},
		states: map[string]*interned{}, tables: map[*gpu.Table]numbered{}, verdicts: newVerdictCache(),
	}
}

// SetNode adds a node or replaces its description; pods on it stay.
func (v *View) SetNode(n Node) {
	v.version++
	v.changed()
	have := v.node(n.Name)
	if have.present {
		v.detach(have)
	}
	have.Node, have.present = n, true
	i, _ := slices.BinarySearchFunc(v.order, have, func(a, b *node) int { return a.Compare(&b.Node) })
	v.order = slices.Insert(v.order, i, have)
	if n.NVLinkDomain != "" {
		v.linked++
	}
	v.admissions, v.uncounted = nil, true
	v.judge(have)
	v.refresh(have)
}

// RemoveNode takes a node out; its pods stay known and come back with the node.
func (v *View) RemoveNode(name string) {
	v.version++
	v.changed()
	if n := v.nodes[name]; n != nil && n.present {
		v.detach(n)
		n.Node, n.present = Node{Name: name}, false
		v.forget(n)
	}
}

// detach takes a present node out of the order and releases its state.
func (v *View) detach(n *node) {
	i, _ := slices.BinarySearchFunc(v.order, n, func(a, b *node) int { return a.Compare(&b.Node) })
	v.order = slices.Delete(v.order, i, i+1)
	if n.NVLinkDomain != "" {
		v.linked--
	}
	v.admissions, v.uncounted = nil, true
	v.release(n)
}

// node returns the entry of that name and makes an absent one when there is none.
func (v *View) node(name string) *node {
	n := v.nodes[name]
	if n == nil {
		n = &node{Node: Node{Name: name}}
		v.nodes[name] = n
	}
	return n
}

// forget drops the entry of an absent node without pods.
func (v *View) forget(n *node) {
	if !n.present && n.used.pods == 0 {
		delete(v.nodes, n.Name)
	}
}

// refresh computes what is left of a present node and shares it with its equals.
func (v *View) refresh(n *node) {
	if !n.present {
		return
	}
	v.release(n)
	table, ok := v.tables[n.GPUs]
	if !ok {
		v.lastTable++
		table.number = v.lastTable
	}
	table.nodes++
	v.tables[n.GPUs] = table
	c := v.remaining(n)
	key := c.key(table.number)
	state := v.states[key]
	if state == nil {
		state = &interned{capacity: c}
		v.states[key] = state
	}
	state.nodes++
	n.free, n.key = state.capacity, key
}

// release gives the node's state back.
func (v *View) release(n *node) {
	if n.free == nil {
		return
	}
	if state := v.states[n.key]; state.nodes > 1 {
		state.nodes--
	} else {
		delete(v.states, n.key)
	}
	if table := v.tables[n.free.table]; table.nodes > 1 {
		table.nodes--
		v.tables[n.free.table] = table
	} else {
		delete(v.tables, n.free.table)
	}
	n.free, n.key = nil, ""
}

// Version changes whenever a node or the quota tree does.
func (v *View) Version() uint64 { return v.version }

// state returns a node with what runs on it, nil when there is none.
func (v *View) state(name string) *node {
	if n := v.nodes[name]; n != nil && n.present {
		return n
	}
	return nil
}

// Node returns the description of a node.
func (v *View) Node(name string) (Node, bool) {
	if n := v.nodes[name]; n != nil && n.present {
		return n.Node, true
	}
	return Node{}, false
}

// Nodes returns the names of all nodes in the planner's order.
func (v *View) Nodes() []string {
	names := make([]string, len(v.order))
	for i, n := range v.order {
		names[i] = n.Name
	}
	return names
}

// job is a gang as a leaf of the quota tree counts it: once in each leaf that its pods are charged to.
type job struct{ gang, leaf string }

// job is that of a pod.
func (p *Pod) job() job { return job{p.Gang, p.Leaf} }

// AddPod charges a pod to its node, GPUs and quota leaf; a pod with the same ID is replaced.
func (v *View) AddPod(p Pod) {
	v.changed()
	v.RemovePod(p.ID)
	v.pods[p.ID] = &p
	n := v.node(p.Node)
	n.used.charge(&p, 1)
	v.refresh(n)
	if p.Gang != "" {
		v.jobs[p.job()]++
	}
	if v.quota != nil {
		v.quota.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
		if v.jobs[p.job()] == 1 {
			v.quota.AddJob(p.Leaf)
		}
	}
}

// RemovePod takes a pod out; it does nothing when the ID is unknown.
func (v *View) RemovePod(id string) {
	p := v.pods[id]
	if p == nil {
		return
	}
	v.changed()
	delete(v.pods, id)
	n := v.nodes[p.Node]
	n.used.charge(p, -1)
	v.refresh(n)
	v.forget(n)
	if p.Gang != "" {
		if v.jobs[p.job()]--; v.jobs[p.job()] == 0 {
			delete(v.jobs, p.job())
		}
	}
	if v.quota != nil {
		v.quota.Remove(p.Leaf, p.Request.Charge(), p.Preemptible)
		if p.Gang != "" && v.jobs[p.job()] == 0 {
			v.quota.RemoveJob(p.Leaf)
		}
	}
}

// Pod returns the pod of that ID.
func (v *View) Pod(id string) (Pod, bool) {
	if p := v.pods[id]; p != nil {
		return *p, true
	}
	return Pod{}, false
}

// SetQuota sets the quota tree, which must not contain the usage of known pods, and
// charges all known pods to a copy of it; nil removes it.
func (v *View) SetQuota(t *quota.Tree) {
	v.version++
	v.changed()
	v.quota = nil
	if t == nil {
		return
	}
	v.quota = t.Clone()
	for _, p := range v.pods {
		v.quota.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
	}
	for j := range v.jobs {
		v.quota.AddJob(j.leaf)
	}
}

// Quota returns a copy of the quota tree with what all known pods use, nil when there is none.
func (v *View) Quota() *quota.Tree {
	if v.quota == nil {
		return nil
	}
	return v.quota.Clone()
}

// OverQuota says which limit of the quota tree a charge to a leaf would exceed, "" for none.
// It reads nothing but the tree.
func (v *View) OverQuota(leaf string, charge quota.Resources, preemptible bool) string {
	if v.quota == nil {
		return ""
	}
	if exceeded := v.quota.Fits(leaf, charge, preemptible); exceeded != nil {
		return exceeded.String()
	}
	return ""
}

// SetWorkload makes node and GPU choice follow the fragmentation that a placement causes
// for the workload as it is now; an empty one, the default, makes it the tightest fit.
func (v *View) SetWorkload(w Workload) {
	v.version++
	v.changed()
	v.workload, v.uncounted = nil, true
	if len(w) > 0 {
		v.workload = newDistribution(w).scored()
	}
	for _, n := range v.order {
		if v.judge(n) {
			v.refresh(n)
		}
	}
}

// judge notes which of the workload's rules about nodes a node meets, and reports whether that is new.
func (v *View) judge(n *node) bool {
	before := n.eligible
	n.eligible = 0
	if v.workload != nil {
		n.eligible = v.workload.eligible(&n.Node)
	}
	return n.eligible != before
}

// Workload returns the workload that choices follow, nil for the tightest fit.
func (v *View) Workload() Workload {
	if v.workload == nil {
		return nil
	}
	return maps.Clone(v.workload.workload)
}

// FreeGPUs returns the whole GPUs of a node that are healthy and not used by anybody.
func (v *View) FreeGPUs(node string) gpu.Set {
	if n := v.nodes[node]; n != nil && n.present {
		return n.freeGPUs(n.healthyGPUs())
	}
	return 0
}

// Clone returns an independent copy. Copies may be used at the same time.
func (v *View) Clone() *View {
	c := &View{
		nodes:        make(map[string]*node, len(v.nodes)),
		order:        make([]*node, len(v.order)),
		pods:         maps.Clone(v.pods),
		jobs:         maps.Clone(v.jobs),
		quota:        v.Quota(),
		workload:     v.workload.copied(),
		uncounted:    v.uncounted,
		reservations: slices.Clone(v.reservations),
		states:       make(map[string]*interned, len(v.states)),
		tables:       maps.Clone(v.tables), lastTable: v.lastTable, linked: v.linked,
		budgets: maps.Clone(v.budgets), elastic: maps.Clone(v.elastic), verdicts: newVerdictCache(),
	}
	for name, n := range v.nodes {
		copied := *n
		copied.used = n.used.clone()
		c.nodes[name] = &copied
	}
	for i, n := range v.order {
		c.order[i] = c.nodes[n.Name]
	}
	for key, state := range v.states {
		copied := *state
		c.states[key] = &copied
	}
	return c
}

// Apply charges a placement to the view, one pod per assignment with the ID
// "gang/member"; the returned function restores the view exactly.
func (v *View) Apply(g Gang, p Placement) (undo func()) {
	added := g.pods(p.Assignments)
	var replaced []Pod
	for _, pod := range added {
		if old := v.pods[pod.ID]; old != nil {
			replaced = append(replaced, *old)
		}
		v.AddPod(*pod)
	}
	return func() {
		for _, pod := range added {
			v.RemovePod(pod.ID)
		}
		for _, old := range replaced {
			v.AddPod(old)
		}
	}
}

// Pods returns the pods that are known on a node, in the order of their IDs.
func (v *View) Pods(node string) []Pod {
	var pods []Pod
	for _, p := range v.pods {
		if p.Node == node {
			pods = append(pods, *p)
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.ID, b.ID) })
	return pods
}

// Idle measures the view by a workload: how many GPUs are idle, parts of shared GPUs
// included, and how many of these a request of the workload cannot use on average, because
// its node or its GPU has too little left (the fragments of the FGD paper). Without
// members nothing is known to be unusable.
func (v *View) Idle(w Workload) (gpus, unusable float64) { return newDistribution(w).idle(v.order) }
