// Package quota is the quota tree of a cluster (ElasticQuotaTree): guaranteed
// minimum and allowed maximum at every node of the tree, and what is used under it.
//
// The package is pure: no I/O, no clock, no Kubernetes objects. Amounts are
// integers in canonical units, see [Resources].
package quota

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

// Tree is a validated quota tree with usage. It is not safe for concurrent use.
type Tree struct{}

// New validates a tree and returns it without usage. The error is an [Invalid],
// which lists every rule that is broken with the path of the node.
func New(root Spec) (*Tree, error) { panic("to be written") }

// Problem is one broken rule of a quota tree.
type Problem struct {
	// Path names the node from the root, "root/research/vision".
	Path string
	// Field is what breaks the rule: "name", "min", "max", "namespaces", "children".
	Field string
	// Resource is the resource concerned, "" when the rule is not about one.
	Resource string
	// Text says what is wrong and what to do, without the path.
	Text string
	// Warning marks a rule on which the vendor's documents contradict each other
	// (Σ children's min ≤ parent's min): the tree is usable all the same.
	Warning bool
}

// Invalid is the error of [New].
type Invalid struct{ Problems []Problem }

func (e *Invalid) Error() string { panic("to be written") }

// Check lists every broken rule of a tree, warnings included, in tree order.
func Check(root Spec) []Problem { panic("to be written") }

// Exceeded names the limit that keeps a request from running.
type Exceeded struct {
	// Path is the node of the tree whose limit binds, "root/research".
	Path     string
	Resource string
	// Used, Requested and Limit are in the resource's unit ([Resources]).
	Used, Requested, Limit int64
	// Guaranteed tells that Limit is the node's min, which caps non-preemptible use.
	Guaranteed bool
}

// Leaves returns the names of the leaves in tree order.
func (t *Tree) Leaves() []string { panic("to be written") }

// LeafOf returns the leaf that owns the namespace, "" when none does.
func (t *Tree) LeafOf(namespace string) string { panic("to be written") }

// HasLeaf reports whether a leaf of that name exists.
func (t *Tree) HasLeaf(name string) bool { panic("to be written") }

// Fits returns nil when a request may run in the leaf: used + requested ≤ max at
// the leaf and every ancestor, or ≤ min everywhere when it is not preemptible.
func (t *Tree) Fits(leaf string, request Resources, preemptible bool) *Exceeded {
	panic("to be written")
}

// Add charges a running request to the leaf and its ancestors; Remove takes it back.
// Both ignore a leaf that does not exist.
func (t *Tree) Add(leaf string, request Resources, preemptible bool) { panic("to be written") }

// Remove takes back what Add charged.
func (t *Tree) Remove(leaf string, request Resources, preemptible bool) { panic("to be written") }

// Used returns what runs below the node of that name.
func (t *Tree) Used(name string) Resources { panic("to be written") }

// Clone returns an independent copy with the same usage.
func (t *Tree) Clone() *Tree { panic("to be written") }
