// Package snapshot is the cluster as the planner knows it: its nodes, what runs and is reserved
// on them, the quota tree and the disruption budgets. A [View] is kept incrementally; a [Cluster]
// is what one gang is placed on, the view as it is or with pods gone and reservations lifted.
//
// Methods of a view that give or take a Cluster or a [Reserved] are for the planner's packages.
package snapshot

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/fragmentation"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// View is what the planner knows of a cluster. It is kept incrementally: nodes and pods
// come and go, planning reads, and remembers what it denied until something changes. It is
// not safe for concurrent use.
type View struct {
	nodes map[string]*capacity.Node
	// order holds the present nodes in the planner's order.
	order []*capacity.Node
	pods  map[string]*placement.Pod
	// jobs counts the pods of each gang in each leaf.
	jobs     map[Job]int
	quota    *quota.Tree
	workload *fragmentation.Scorer
	// delegated are the extended resources that others allocate ([placement.Node.Delegated]). It is never changed, but replaced.
	delegated placement.Delegated
	// uncounted means that nodes have come or gone since the workload's prices were set.
	uncounted bool
	// linked counts the present nodes in NVLink domains.
	linked int
	// admissions is nil once a node has changed.
	admissions *admission.Memory
	// reservations are the reservations that are held, in the order in which they were made.
	reservations []*Reserved
	// later is remembered for pods that are not planned.
	later laterMemory
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
	*capacity.Capacity
	nodes int
}

// NewView returns an empty view without a quota tree.
func NewView() *View {
	return &View{
		nodes: map[string]*capacity.Node{}, pods: map[string]*placement.Pod{}, jobs: map[Job]int{},
		states: map[string]*interned{}, tables: map[*gpu.Table]numbered{}, verdicts: newVerdictCache(),
	}
}

// SetNode adds a node or replaces its description; pods on it stay.
func (v *View) SetNode(n placement.Node) {
	v.version++
	v.changed()
	have := v.node(n.Name)
	if have.Present {
		v.detach(have)
	}
	have.Node, have.Present = n, true
	if v.delegated != nil {
		have.Delegated = v.delegated
	}
	i, _ := slices.BinarySearchFunc(v.order, have, func(a, b *capacity.Node) int { return a.Compare(&b.Node) })
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
	if n := v.nodes[name]; n != nil && n.Present {
		v.detach(n)
		n.Node, n.Present = placement.Node{Name: name}, false
		v.forget(n)
	}
}

// detach takes a present node out of the order and releases its state.
func (v *View) detach(n *capacity.Node) {
	i, _ := slices.BinarySearchFunc(v.order, n, func(a, b *capacity.Node) int { return a.Compare(&b.Node) })
	v.order = slices.Delete(v.order, i, i+1)
	if n.NVLinkDomain != "" {
		v.linked--
	}
	v.admissions, v.uncounted = nil, true
	v.release(n)
}

// node returns the entry of that name and makes an absent one when there is none.
func (v *View) node(name string) *capacity.Node {
	n := v.nodes[name]
	if n == nil {
		n = &capacity.Node{Node: placement.Node{Name: name}}
		v.nodes[name] = n
	}
	return n
}

// forget drops the entry of an absent node without pods.
func (v *View) forget(n *capacity.Node) {
	if !n.Present && n.Used.Pods == 0 {
		delete(v.nodes, n.Name)
	}
}

// refresh computes what is left of a present node and shares it with its equals.
func (v *View) refresh(n *capacity.Node) {
	if !n.Present {
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
	key := c.Key(table.number)
	state := v.states[key]
	if state == nil {
		state = &interned{Capacity: c}
		v.states[key] = state
	}
	state.nodes++
	n.Free, n.Key = state.Capacity, key
}

// release gives the node's state back.
func (v *View) release(n *capacity.Node) {
	if n.Free == nil {
		return
	}
	if state := v.states[n.Key]; state.nodes > 1 {
		state.nodes--
	} else {
		delete(v.states, n.Key)
	}
	if table := v.tables[n.Free.Table]; table.nodes > 1 {
		table.nodes--
		v.tables[n.Free.Table] = table
	} else {
		delete(v.tables, n.Free.Table)
	}
	n.Free, n.Key = nil, ""
}

// Version changes whenever a node or the quota tree does.
func (v *View) Version() uint64 { return v.version }

// State returns a node with what runs on it, nil when there is none.
func (v *View) State(name string) *capacity.Node {
	if n := v.nodes[name]; n != nil && n.Present {
		return n
	}
	return nil
}

// Node returns the description of a node.
func (v *View) Node(name string) (placement.Node, bool) {
	if n := v.nodes[name]; n != nil && n.Present {
		return n.Node, true
	}
	return placement.Node{}, false
}

// Nodes returns the names of all nodes in the planner's order.
func (v *View) Nodes() []string {
	names := make([]string, len(v.order))
	for i, n := range v.order {
		names[i] = n.Name
	}
	return names
}

// Job is a gang as a leaf of the quota tree counts it: once in each leaf that its pods are charged to.
type Job struct{ Gang, Leaf string }

// JobOf is that of a pod.
func JobOf(p *placement.Pod) Job { return Job{p.Gang, p.Leaf} }

// AddPod charges a pod to its node, GPUs and quota leaf; a pod with the same ID is replaced.
func (v *View) AddPod(p placement.Pod) {
	v.changed()
	v.RemovePod(p.ID)
	v.pods[p.ID] = &p
	v.later.changed(p.ID)
	n := v.node(p.Node)
	n.Used.Charge(&p, 1)
	v.refresh(n)
	if p.Gang != "" {
		v.jobs[JobOf(&p)]++
	}
	if v.quota != nil {
		v.quota.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
		if v.jobs[JobOf(&p)] == 1 {
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
	v.later.changed(id)
	delete(v.pods, id)
	n := v.nodes[p.Node]
	n.Used.Charge(p, -1)
	v.refresh(n)
	v.forget(n)
	if p.Gang != "" {
		if v.jobs[JobOf(p)]--; v.jobs[JobOf(p)] == 0 {
			delete(v.jobs, JobOf(p))
		}
	}
	if v.quota != nil {
		v.quota.Remove(p.Leaf, p.Request.Charge(), p.Preemptible)
		if p.Gang != "" && v.jobs[JobOf(p)] == 0 {
			v.quota.RemoveJob(p.Leaf)
		}
	}
}

// Pod returns the pod of that ID.
func (v *View) Pod(id string) (placement.Pod, bool) {
	if p := v.pods[id]; p != nil {
		return *p, true
	}
	return placement.Pod{}, false
}

// SetQuota sets the quota tree, which must not contain the usage of known pods, and
// charges all known pods to a copy of it; nil removes it.
func (v *View) SetQuota(t *quota.Tree) {
	v.version++
	v.changed()
	v.quota, v.later = nil, laterMemory{}
	if t == nil {
		return
	}
	v.quota = t.Clone()
	for _, p := range v.pods {
		v.quota.Add(p.Leaf, p.Request.Charge(), p.Preemptible)
	}
	for j := range v.jobs {
		v.quota.AddJob(j.Leaf)
	}
}

// Quota returns a copy of the quota tree with what all known pods use, nil when there is none.
func (v *View) Quota() *quota.Tree {
	if v.quota == nil {
		return nil
	}
	return v.quota.Clone()
}

// OverQuota says which limit of the quota tree a gang would exceed that is charged so much more, now
// or once reservations are in their places that it must leave alone, "" for none. Of the view it reads the
// tree and the pods only; which reservations there are the caller says ([View.Held]).
func (v *View) OverQuota(g *placement.Gang, charge quota.Resources, held []*Reserved) string {
	if v.quota == nil {
		return ""
	}
	if exceeded := v.quota.Fits(g.Leaf, charge, g.Preemptible); exceeded != nil {
		return exceeded.String()
	}
	kept := slices.DeleteFunc(slices.Clone(held), func(h *Reserved) bool { return h.yields(g) })
	for _, later := range v.laterBeside(kept) {
		if exceeded := v.quota.FitsWith(later, g.Leaf, charge, g.Preemptible); exceeded != nil {
			return exceeded.String()
		}
	}
	return ""
}

// SetWorkload makes node and GPU choice follow the fragmentation that a placement causes
// for the workload as it is now; an empty one, the default, makes it the tightest fit.
func (v *View) SetWorkload(w placement.Workload) {
	v.version++
	v.changed()
	v.workload, v.uncounted = nil, true
	if len(w) > 0 {
		v.workload = fragmentation.NewDistribution(w).Scorer()
	}
	for _, n := range v.order {
		if v.judge(n) {
			v.refresh(n)
		}
	}
}

// SetDelegated says which extended resources others allocate on nodes that have none of them themselves. A view that was never
// told goes by its nodes.
func (v *View) SetDelegated(names placement.Delegated) {
	v.version++
	v.changed()
	v.delegated = maps.Clone(names)
	for _, n := range v.order {
		v.release(n) // all of them first: the key of a state does not tell
	}
	for _, n := range v.order {
		n.Delegated = v.delegated
		v.refresh(n)
	}
}

// Delegated are the resources of SetDelegated; read them only.
func (v *View) Delegated() placement.Delegated { return v.delegated }

// Delegates reports whether a gang asks for something that others allocate on some nodes.
func (v *View) Delegates(g *placement.Gang) bool {
	return len(v.delegated) > 0 && slices.ContainsFunc(g.Roles, func(r placement.Role) bool {
		for name, amount := range r.Request.Extended {
			if !r.Late && amount > 0 && v.delegated.Has(name) {
				return true
			}
		}
		return false
	})
}

// judge notes which of the workload's rules about nodes a node meets, and reports whether that is new.
func (v *View) judge(n *capacity.Node) bool {
	before := n.Eligible
	n.Eligible = 0
	if v.workload != nil {
		n.Eligible = v.workload.Eligible(&n.Node)
	}
	return n.Eligible != before
}

// Workload returns the workload that choices follow, nil for the tightest fit.
func (v *View) Workload() placement.Workload {
	if v.workload == nil {
		return nil
	}
	return maps.Clone(v.workload.Workload)
}

// FreeGPUs returns the whole GPUs of a node that are healthy and not used by anybody.
func (v *View) FreeGPUs(node string) gpu.Set {
	if n := v.nodes[node]; n != nil && n.Present {
		return n.FreeGPUs(n.HealthyGPUs())
	}
	return 0
}

// Clone returns an independent copy. Copies may be used at the same time.
func (v *View) Clone() *View {
	c := &View{
		nodes:        make(map[string]*capacity.Node, len(v.nodes)),
		order:        make([]*capacity.Node, len(v.order)),
		pods:         maps.Clone(v.pods),
		jobs:         maps.Clone(v.jobs),
		quota:        v.Quota(),
		workload:     v.workload.Clone(),
		delegated:    v.delegated,
		uncounted:    v.uncounted,
		reservations: slices.Clone(v.reservations),
		states:       make(map[string]*interned, len(v.states)),
		tables:       maps.Clone(v.tables), lastTable: v.lastTable, linked: v.linked,
		budgets: maps.Clone(v.budgets), elastic: maps.Clone(v.elastic), verdicts: newVerdictCache(),
	}
	for name, n := range v.nodes {
		copied := *n
		copied.Used = n.Used.Clone()
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
func (v *View) Apply(g placement.Gang, p placement.Placement) (undo func()) {
	added := g.Pods(p.Assignments)
	var replaced []placement.Pod
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
func (v *View) Pods(node string) []placement.Pod {
	var pods []placement.Pod
	for _, p := range v.pods {
		if p.Node == node {
			pods = append(pods, *p)
		}
	}
	slices.SortFunc(pods, func(a, b placement.Pod) int { return cmp.Compare(a.ID, b.ID) })
	return pods
}

// Idle measures the view by a workload: how many GPUs are idle, parts of shared GPUs
// included, and how many of these a request of the workload cannot use on average, because
// its node or its GPU has too little left (the fragments of the FGD paper). Without
// members nothing is known to be unusable.
func (v *View) Idle(w placement.Workload) (gpus, unusable float64) {
	return fragmentation.NewDistribution(w).Idle(v.order)
}
