// Package quota is the quota tree of a cluster (ElasticQuotaTree): guaranteed
// minimum and allowed maximum at every node of the tree, and what is used under it.
//
// What names a leaf that the tree lacks does not start. What runs with such a name, because
// the leaf has gone or become an inner node, is charged to the root alone: the root's limits
// hold for it, it has no minimum, and nobody may take from it.
//
// A resource that is named nowhere in the tree is not governed by it. What a leaf
// uses beyond its own minimum is borrowed from minimums that others leave idle.
//
// The package is pure: no I/O, no clock, no Kubernetes objects. Amounts are
// integers in canonical units, see [Resources]. The rules are those of Alibaba
// Cloud's capacity scheduling ("Use Capacity Scheduling", "ElasticQuotaTree") and
// of koordinator-sh/koord-queue, which serves the same object.
package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// RootName is what the topmost node of every tree is called, whatever its own name says.
const RootName = "root"

// Jobs stands for the number of jobs where a limit names its resource.
const Jobs = "jobs"

// Resources is an amount per resource name. Units: "cpu" in millicores, "memory"
// and "ephemeral-storage" in bytes, every other resource in whole units.
type Resources map[string]int64

// Spec describes one node of the tree with everything below it.
type Spec struct {
	// Name is unique in the whole tree; the topmost is always called "root".
	Name string
	// Min is guaranteed; a resource that is not named has the minimum 0.
	Min Resources
	// Max may not be exceeded; a resource that is not named is unlimited.
	Max Resources
	// MaxJobs limits the jobs dequeued at a time below this node; 0 means unlimited.
	MaxJobs int64
	// LendLimit is the part of Min that others may borrow while it is idle; a
	// resource that is not named may be lent whole.
	LendLimit Resources
	// Namespaces belong to this leaf; only leaves have namespaces.
	Namespaces []string
	Children   []Spec
}

// Tree is a validated quota tree with usage. It is not safe for concurrent use; clones
// share what does not change, so that one costs little more than its usage.
type Tree struct {
	// nodes are in tree order, parents first.
	nodes    []node
	byName   map[string]int
	leafOf   map[string]string
	governed map[string]bool
	// lends means that a lend limit keeps something from others.
	lends bool
	// columns are the resources that were charged or have limits.
	columns map[string]int
	// used has an amount by node and column; fixed is the part that is not preemptible. jobs
	// counts by node.
	used, fixed, jobs []int64
}

// node is one node of the tree.
type node struct {
	spec *Spec
	path string
	// parent and children are indexes; the root's parent is none.
	parent   int
	children []int
}

const none = -1

// New validates a tree and returns it without usage. The error is an [*Invalid],
// which lists every rule that is broken with the path of the node; warnings alone
// are no error.
func New(root Spec) (*Tree, error) {
	problems := Check(root)
	if slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning }) {
		return nil, &Invalid{Problems: problems}
	}
	t := &Tree{byName: map[string]int{}, leafOf: map[string]string{}, governed: map[string]bool{}, columns: map[string]int{}}
	root.Name = RootName
	t.build(&root, RootName, none)
	for _, name := range slices.Sorted(maps.Keys(t.governed)) {
		t.columns[name] = len(t.columns)
	}
	t.used, t.fixed, t.jobs = t.amounts(), t.amounts(), make([]int64, len(t.nodes))
	return t, nil
}

// amounts returns an amount of 0 by node and column.
func (t *Tree) amounts() []int64 { return make([]int64, len(t.nodes)*len(t.columns)) }

func (t *Tree) build(s *Spec, path string, parent int) int {
	i := len(t.nodes)
	t.nodes = append(t.nodes, node{spec: s, path: path, parent: parent})
	t.byName[s.Name] = i
	for _, ns := range s.Namespaces {
		t.leafOf[ns] = s.Name
	}
	for _, r := range []Resources{s.Min, s.Max} {
		for name := range r {
			t.governed[name] = true
		}
	}
	t.lends = t.lends || len(s.LendLimit) > 0
	for c := range s.Children {
		child := t.build(&s.Children[c], path+"/"+s.Children[c].Name, i)
		t.nodes[i].children = append(t.nodes[i].children, child)
	}
	return i
}

// Leaves returns the names of the leaves in tree order.
func (t *Tree) Leaves() []string {
	var leaves []string
	for i := range t.nodes {
		if len(t.nodes[i].children) == 0 {
			leaves = append(leaves, t.nodes[i].spec.Name)
		}
	}
	return leaves
}

// LeafOf returns the leaf that owns the namespace, "" when none does.
func (t *Tree) LeafOf(namespace string) string { return t.leafOf[namespace] }

// HasLeaf reports whether a leaf of that name exists.
func (t *Tree) HasLeaf(name string) bool { return t.leaf(name) != none }

// Missing says that the tree has no leaf of a name, "" when it has one. What names such a leaf
// does not start.
func (t *Tree) Missing(name string) string {
	if t.HasLeaf(name) {
		return ""
	}
	return fmt.Sprintf("the quota tree has no leaf %q; its leaves are %s", name, strings.Join(t.Leaves(), ", "))
}

// leaf returns the index of a leaf, none when there is none of that name.
func (t *Tree) leaf(name string) int {
	if i, ok := t.byName[name]; ok && len(t.nodes[i].children) == 0 {
		return i
	}
	return none
}

// Payer returns the name of the node that is charged for what runs and names a leaf: the leaf, the
// root alone when the tree has no leaf of that name, "" when none is named.
func (t *Tree) Payer(leaf string) string {
	if i := t.payer(leaf); i != none {
		return t.nodes[i].spec.Name
	}
	return ""
}

func (t *Tree) payer(leaf string) int {
	const root = 0
	if i := t.leaf(leaf); i != none || leaf == "" {
		return i
	}
	return root
}

// usedOf is what is used below a node.
func (t *Tree) usedOf(i int, resource string) int64 {
	if column, ok := t.columns[resource]; ok {
		return t.used[i*len(t.columns)+column]
	}
	return 0
}

// Path returns the path of the node of that name, "root/research/vision"; "" when there is none.
func (t *Tree) Path(name string) string {
	if i, ok := t.byName[name]; ok {
		return t.nodes[i].path
	}
	return ""
}

// Add charges a running request to the leaf that it names ([Tree.Payer]) and its ancestors;
// Remove takes it back.
func (t *Tree) Add(leaf string, request Resources, preemptible bool) {
	t.charge(leaf, request, preemptible, 1)
}

// Remove takes back what Add charged.
func (t *Tree) Remove(leaf string, request Resources, preemptible bool) {
	t.charge(leaf, request, preemptible, -1)
}

func (t *Tree) charge(leaf string, request Resources, preemptible bool, sign int64) {
	at := t.payer(leaf)
	if at == none {
		return
	}
	for resource, amount := range request {
		column, ok := t.columns[resource]
		if !ok {
			column = t.widen(resource)
		}
		for i := at; i != none; i = t.nodes[i].parent {
			t.used[i*len(t.columns)+column] += sign * amount
			if !preemptible {
				t.fixed[i*len(t.columns)+column] += sign * amount
			}
		}
	}
}

// widen adds a column for a resource that the tree does not name.
func (t *Tree) widen(resource string) (column int) {
	old := len(t.columns)
	t.columns = maps.Clone(t.columns)
	t.columns[resource] = old
	for _, amounts := range []*[]int64{&t.used, &t.fixed} {
		narrow := *amounts
		*amounts = t.amounts()
		for i := range t.nodes {
			copy((*amounts)[i*len(t.columns):], narrow[i*old:(i+1)*old])
		}
	}
	return old
}

// Used returns what runs below the node of that name.
func (t *Tree) Used(name string) Resources {
	used := Resources{}
	i, ok := t.byName[name]
	if !ok {
		return used
	}
	for resource := range t.columns {
		if amount := t.usedOf(i, resource); amount != 0 {
			used[resource] = amount
		}
	}
	return used
}

// Min returns what is guaranteed below the node of that name.
func (t *Tree) Min(name string) Resources { return maps.Clone(t.specOf(name).Min) }

// Max returns what may be used at most below the node of that name.
func (t *Tree) Max(name string) Resources { return maps.Clone(t.specOf(name).Max) }

// Namespaces returns the namespaces of the leaf of that name.
func (t *Tree) Namespaces(name string) []string { return slices.Clone(t.specOf(name).Namespaces) }

// JobsOf returns how many jobs run below the node of that name, and how many may; 0 is no limit.
func (t *Tree) JobsOf(name string) (running, most int64) {
	if i, ok := t.byName[name]; ok {
		running = t.jobs[i]
	}
	return running, t.specOf(name).MaxJobs
}

// Borrowed returns what is used below the node of that name beyond its minimum, of the resources
// that the tree names.
func (t *Tree) Borrowed(name string) Resources {
	borrowed := Resources{}
	for resource, amount := range t.Used(name) {
		if beyond := amount - t.specOf(name).Min[resource]; t.governed[resource] && beyond > 0 {
			borrowed[resource] = beyond
		}
	}
	return borrowed
}

func (t *Tree) specOf(name string) Spec {
	if i, ok := t.byName[name]; ok {
		return *t.nodes[i].spec
	}
	return Spec{}
}

// Clone returns an independent copy with the same usage.
func (t *Tree) Clone() *Tree {
	c := *t
	c.used, c.fixed, c.jobs = slices.Clone(t.used), slices.Clone(t.fixed), slices.Clone(t.jobs)
	return &c
}

// Unused returns the tree without usage: what is charged to it may be added to the usage
// of the tree ([Tree.With], [Tree.FitsWith]), and may be negative.
func (t *Tree) Unused() *Tree {
	c := *t
	c.used, c.fixed, c.jobs = t.amounts(), t.amounts(), make([]int64, len(t.nodes))
	return &c
}

// With returns a copy with more usage, which is that of a tree of the same nodes.
func (t *Tree) With(more *Tree) *Tree {
	c := t.Clone()
	for resource, column := range more.columns {
		own, ok := c.columns[resource]
		if !ok {
			own = c.widen(resource)
		}
		for i := range c.nodes {
			c.used[i*len(c.columns)+own] += more.used[i*len(more.columns)+column]
			c.fixed[i*len(c.columns)+own] += more.fixed[i*len(more.columns)+column]
		}
	}
	for i := range c.jobs {
		c.jobs[i] += more.jobs[i]
	}
	return c
}

// AddJob counts a job that was released of the queue into the leaf that it names ([Tree.Payer]) and its ancestors.
func (t *Tree) AddJob(leaf string) { t.countJob(leaf, 1) }

// RemoveJob takes back what AddJob counted.
func (t *Tree) RemoveJob(leaf string) { t.countJob(leaf, -1) }

func (t *Tree) countJob(leaf string, sign int64) {
	for i := t.payer(leaf); i != none; i = t.nodes[i].parent {
		t.jobs[i] += sign
	}
}

// Raise returns a copy of the tree, usage included, in which the maximum that was
// exceeded is just high enough, with that maximum before and after. It returns nil
// when no maximum helps: the limit is a minimum (Exceeded.Guaranteed).
func (t *Tree) Raise(e Exceeded) (raised *Tree, from, to int64) {
	i, ok := t.byName[e.Path[strings.LastIndexByte(e.Path, '/')+1:]]
	if e.Guaranteed || !ok {
		return nil, 0, 0
	}
	raised = t.Clone()
	spec := *t.nodes[i].spec
	raised.nodes = slices.Clone(t.nodes)
	raised.nodes[i].spec = &spec
	to = e.Used + e.Requested
	if e.Resource == Jobs {
		from, spec.MaxJobs = spec.MaxJobs, to
		return raised, from, to
	}
	from = spec.Max[e.Resource]
	spec.Max = maps.Clone(spec.Max)
	spec.Max[e.Resource] = to
	return raised, from, to
}

// Exceeded names the limit that keeps a request from running.
type Exceeded struct {
	// Path is the node of the tree whose limit binds, "root/research".
	Path string
	// Resource is the resource, or [Jobs].
	Resource string
	// Used, Requested and Limit are in the resource's unit ([Resources]).
	Used, Requested, Limit int64
	// Held is the part of Used that nobody uses but that its owner does not lend, Reserved the
	// part that is used only once reservations are taken ([Tree.FitsWith]).
	Held, Reserved int64
	// Guaranteed means that Limit is the node's min, which caps non-preemptible use.
	Guaranteed bool
}

// String says the limit in words.
func (e Exceeded) String() string {
	kind := "max"
	if e.Guaranteed {
		kind = "min, which caps what is not preemptible,"
	}
	used := e.Used
	var notes []string
	if e.Reserved > 0 {
		used -= e.Reserved + e.Held
		notes = append(notes, Format(e.Resource, e.Used)+" once reservations are taken")
	}
	if e.Held > 0 {
		notes = append(notes, Format(e.Resource, e.Held)+" of it held back by lend limits")
	}
	text := fmt.Sprintf("quota %s: %s of %s is %s, %s is used", e.Path, kind, e.Resource, Format(e.Resource, e.Limit), Format(e.Resource, used))
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	if e.Requested > 0 {
		text += fmt.Sprintf(" and %s is asked for", Format(e.Resource, e.Requested))
	}
	return text
}

// Format renders an amount for people, as Kubernetes reads it: CPU in cores, bytes in GiB, more than a machine has of
// these in a bigger unit, everything else as it is.
func Format(resource string, amount int64) string {
	switch resource {
	case "cpu":
		if cores := float64(amount) / 1000; cores < 1e6 {
			return fmt.Sprintf("%g", cores)
		}
		return scaled(float64(amount)/1e9, 1000, "M", "G", "T")
	case "memory", "ephemeral-storage":
		return scaled(float64(amount)/(1<<30), 1024, "Gi", "Ti", "Pi")
	}
	return fmt.Sprint(amount)
}

// scaled writes an amount in the first unit in which four digits are enough.
func scaled(amount, step float64, units ...string) string {
	for amount >= 9999.5 && len(units) > 1 {
		amount, units = amount/step, units[1:]
	}
	return fmt.Sprintf("%.4g%s", amount, units[0])
}
