// Package quota is the quota tree of a cluster (ElasticQuotaTree): guaranteed
// minimum and allowed maximum at every node of the tree, and what is used under it.
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
	// OversellPercent scales every minimum and maximum of the tree when a request is
	// compared with it; only that of the root counts, and 0 means 100. It is the
	// oversell rate of koord-queue.
	OversellPercent int64
	// LendLimit is the part of Min that others may borrow while it is idle; a
	// resource that is not named may be lent whole.
	LendLimit Resources
	// Namespaces belong to this leaf; only leaves have namespaces.
	Namespaces []string
	Children   []Spec
}

// Tree is a validated quota tree with usage. It is not safe for concurrent use.
type Tree struct {
	root     *node
	oversell int64
	byName   map[string]*node
	leafOf   map[string]string
	governed map[string]bool
}

// node is one node of the tree with what runs below it.
type node struct {
	spec     *Spec
	path     string
	parent   *node
	children []*node
	used     Resources
	// fixed is the part of used that is not preemptible.
	fixed Resources
	jobs  int64
}

// New validates a tree and returns it without usage. The error is an [*Invalid],
// which lists every rule that is broken with the path of the node; warnings alone
// are no error.
func New(root Spec) (*Tree, error) {
	problems := Check(root)
	if slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning }) {
		return nil, &Invalid{Problems: problems}
	}
	t := &Tree{byName: map[string]*node{}, leafOf: map[string]string{}, governed: map[string]bool{}, oversell: 100}
	if root.OversellPercent > 0 {
		t.oversell = root.OversellPercent
	}
	root.Name = RootName
	t.root = t.build(&root, nil)
	return t, nil
}

func (t *Tree) build(s *Spec, parent *node) *node {
	n := &node{spec: s, path: s.Name, parent: parent, used: Resources{}, fixed: Resources{}}
	if parent != nil {
		n.path = parent.path + "/" + s.Name
	}
	t.byName[s.Name] = n
	for _, ns := range s.Namespaces {
		t.leafOf[ns] = s.Name
	}
	for _, r := range []Resources{s.Min, s.Max} {
		for name := range r {
			t.governed[name] = true
		}
	}
	for i := range s.Children {
		n.children = append(n.children, t.build(&s.Children[i], n))
	}
	return n
}

// Leaves returns the names of the leaves in tree order.
func (t *Tree) Leaves() []string {
	var leaves []string
	var walk func(n *node)
	walk = func(n *node) {
		if len(n.children) == 0 {
			leaves = append(leaves, n.spec.Name)
		}
		for _, c := range n.children {
			walk(c)
		}
	}
	walk(t.root)
	return leaves
}

// LeafOf returns the leaf that owns the namespace, "" when none does.
func (t *Tree) LeafOf(namespace string) string { return t.leafOf[namespace] }

// HasLeaf reports whether a leaf of that name exists.
func (t *Tree) HasLeaf(name string) bool { return t.leaf(name) != nil }

// Missing says that the tree has no leaf of a name, "" when it has one. What names such a leaf
// has no limits, and does not start.
func (t *Tree) Missing(name string) string {
	if t.HasLeaf(name) {
		return ""
	}
	return fmt.Sprintf("the quota tree has no leaf %q; its leaves are %s", name, strings.Join(t.Leaves(), ", "))
}

func (t *Tree) leaf(name string) *node {
	if n := t.byName[name]; n != nil && len(n.children) == 0 {
		return n
	}
	return nil
}

// Path returns the path of the node of that name, "root/research/vision"; "" when there is none.
func (t *Tree) Path(name string) string {
	if n := t.byName[name]; n != nil {
		return n.path
	}
	return ""
}

// Add charges a running request to the leaf and its ancestors; Remove takes it back.
// Both ignore a leaf that does not exist.
func (t *Tree) Add(leaf string, request Resources, preemptible bool) {
	t.charge(leaf, request, preemptible, 1)
}

// Remove takes back what Add charged.
func (t *Tree) Remove(leaf string, request Resources, preemptible bool) {
	t.charge(leaf, request, preemptible, -1)
}

func (t *Tree) charge(leaf string, request Resources, preemptible bool, sign int64) {
	for n := t.leaf(leaf); n != nil; n = n.parent {
		n.used.add(request, sign)
		if !preemptible {
			n.fixed.add(request, sign)
		}
	}
}

// add changes r by sign × other and drops what becomes zero, so that adding and
// taking away restores r exactly.
func (r Resources) add(other Resources, sign int64) {
	for name, amount := range other {
		if sum := r[name] + sign*amount; sum != 0 {
			r[name] = sum
		} else {
			delete(r, name)
		}
	}
}

// Used returns what runs below the node of that name.
func (t *Tree) Used(name string) Resources {
	n := t.byName[name]
	if n == nil {
		return Resources{}
	}
	return maps.Clone(n.used)
}

// Min returns what is guaranteed below the node of that name.
func (t *Tree) Min(name string) Resources { return maps.Clone(t.specOf(name).Min) }

// Max returns what may be used at most below the node of that name.
func (t *Tree) Max(name string) Resources { return maps.Clone(t.specOf(name).Max) }

func (t *Tree) specOf(name string) Spec {
	if n := t.byName[name]; n != nil {
		return *n.spec
	}
	return Spec{}
}

// Clone returns an independent copy with the same usage.
func (t *Tree) Clone() *Tree {
	c := &Tree{byName: make(map[string]*node, len(t.byName)), leafOf: t.leafOf, governed: t.governed, oversell: t.oversell}
	c.root = c.copyNode(t.root, nil)
	return c
}

func (t *Tree) copyNode(from, parent *node) *node {
	n := &node{
		spec: from.spec, path: from.path, parent: parent,
		used: maps.Clone(from.used), fixed: maps.Clone(from.fixed), jobs: from.jobs,
	}
	t.byName[n.spec.Name] = n
	for _, child := range from.children {
		n.children = append(n.children, t.copyNode(child, n))
	}
	return n
}

// AddJob counts a job that was released of the queue into the leaf and its ancestors.
func (t *Tree) AddJob(leaf string) { t.countJob(leaf, 1) }

// RemoveJob takes back what AddJob counted.
func (t *Tree) RemoveJob(leaf string) { t.countJob(leaf, -1) }

func (t *Tree) countJob(leaf string, sign int64) {
	for n := t.leaf(leaf); n != nil; n = n.parent {
		n.jobs += sign
	}
}

// Raise returns a copy of the tree, usage included, in which the maximum that was
// exceeded is just high enough, with that maximum before and after. It returns nil
// when no maximum helps: the limit is a minimum (Exceeded.Guaranteed).
func (t *Tree) Raise(e Exceeded) (raised *Tree, from, to int64) {
	n := t.byName[e.Path[strings.LastIndexByte(e.Path, '/')+1:]]
	if e.Guaranteed || n == nil {
		return nil, 0, 0
	}
	raised = t.Clone()
	spec := *n.spec
	raised.byName[spec.Name].spec = &spec
	to = e.Used + e.Requested
	if e.Resource == Jobs {
		from, spec.MaxJobs = spec.MaxJobs, to
		return raised, from, to
	}
	to = (to*100 + t.oversell - 1) / t.oversell
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
	// Held is the part of Used that nobody uses but that its owner does not lend.
	Held int64
	// Guaranteed tells that Limit is the node's min, which caps non-preemptible use.
	Guaranteed bool
}

// String says the limit in words.
func (e Exceeded) String() string {
	kind := "max"
	if e.Guaranteed {
		kind = "min, which caps what is not preemptible,"
	}
	held := ""
	if e.Held > 0 {
		held = fmt.Sprintf(" (%s of it held back by lend limits)", Format(e.Resource, e.Held))
	}
	text := fmt.Sprintf("quota %s: %s of %s is %s, %s is used%s", e.Path, kind, e.Resource,
		Format(e.Resource, e.Limit), Format(e.Resource, e.Used), held)
	if e.Requested > 0 {
		text += fmt.Sprintf(" and %s is asked for", Format(e.Resource, e.Requested))
	}
	return text
}

// Format renders an amount for people: CPU in cores, bytes in GiB, everything else as it is.
func Format(resource string, amount int64) string {
	switch resource {
	case "cpu":
		return fmt.Sprintf("%g", float64(amount)/1000)
	case "memory", "ephemeral-storage":
		return fmt.Sprintf("%.4gGi", float64(amount)/(1<<30))
	}
	return fmt.Sprint(amount)
}
