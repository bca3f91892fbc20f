package placement

import (
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Pod is a running (or reserved) consumer of a node.
type Pod struct {
	// ID is unique in the view, for example "namespace/name" or a UID.
	ID      string
	Node    string
	Request Request
	// Own are the whole cards of the pod, Shares its parts of cards.
	Own    gpu.Set
	Shares []CardShare
	// Gang is the ID of the pod's gang, "" for none; Leaf the quota leaf that is charged.
	Gang        string
	Leaf        string
	Priority    int32
	Preemptible bool
}

// View is what the planner knows of a cluster. It is kept incrementally: nodes and
// pods come and go, planning reads. It is not safe for concurrent use.
type View struct{}

// NewView returns an empty view without a quota tree.
func NewView() *View { panic("to be written") }

// SetNode adds a node or replaces its description; pods on it stay.
func (v *View) SetNode(n Node) { panic("to be written") }

// RemoveNode takes a node out; its pods stay known and come back with the node.
func (v *View) RemoveNode(name string) { panic("to be written") }

// Node returns the description of a node.
func (v *View) Node(name string) (Node, bool) { panic("to be written") }

// Nodes returns the names of all nodes in the planner's order.
func (v *View) Nodes() []string { panic("to be written") }

// AddPod charges a pod to its node, cards and quota leaf; a pod with the same ID is replaced.
func (v *View) AddPod(p Pod) { panic("to be written") }

// RemovePod takes a pod out; it does nothing when the ID is unknown.
func (v *View) RemovePod(id string) { panic("to be written") }

// SetQuota sets the quota tree and charges all known pods to it; nil removes it.
func (v *View) SetQuota(t *quota.Tree) { panic("to be written") }

// FreeCards returns the whole cards of a node that are healthy and not used by anybody.
func (v *View) FreeCards(node string) gpu.Set { panic("to be written") }

// Clone returns an independent copy.
func (v *View) Clone() *View { panic("to be written") }

// Plan places a gang, or says why it cannot be. It does not change the view.
func (v *View) Plan(g Gang) Result { panic("to be written") }

// Apply charges a placement to the view, one pod per assignment with the ID
// "gang/member"; the returned function restores the view exactly.
func (v *View) Apply(g Gang, p Placement) (undo func()) { panic("to be written") }
