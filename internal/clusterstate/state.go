package clusterstate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// State is what is known of a cluster: the planner's view, kept up to date one object at a
// time, and the pods of every gang, those included that a scheduler has placed but that the API
// server has not confirmed yet. Methods that change nothing may be called at the same time,
// and no others; [State.SetMinimums] changes the view alone.
type State struct {
	// View is the planner's view. Nodes, pods, budgets and minimums are put into it here.
	View *snapshot.View

	// trees are the quota trees by name; tree is the valid one that was in force last, and
	// bar is set while that in force is not valid.
	trees     map[string]*unstructured.Unstructured
	tree      *quota.Tree
	treeSpec  quota.Spec
	bar       *inventory.Bar
	tables    inventory.Tables
	nodes     map[string]*nodeState
	pods      map[types.UID]*Pod
	gangs     map[string]map[types.UID]*Pod
	podGroups map[string]*unstructured.Unstructured
	fences    fences
	// succeeded are the pods that have succeeded, ended is what Jobs say of their pods, by the UID of the Job.
	succeeded byGang[*metav1.PartialObjectMetadata]
	ended     byGang[inventory.Ended]
	// budgets are the disruption budgets by namespace and name.
	budgets map[string]map[string]Budget
	// deviceClasses are the extended resources of each class of devices.
	deviceClasses map[string][]string
	// devices says what is known beside these.
	devices placement.Delegated
	// restless are the gangs that have changed since the view was told what they need.
	restless map[string]bool
	// gangChanged is told the key of each gang that changes, nil for nobody.
	gangChanged func(key string)
	// volumeOf, pendingOf and devicesOf are nil when nobody knows.
	volumeOf  inventory.BoundVolume
	pendingOf inventory.PendingClaim
	devicesOf inventory.ResourceClaim
}

// Change tells what an update may mean to gangs that wait.
type Change struct {
	// Gang is the key of the gang whose pods or PodGroup changed, "" for none.
	Gang string
	// Left is the key of another gang that a pod belonged to before, "" for none.
	Left string
	// Freed means that there may be room in the cluster, now or once pods that are being
	// deleted have gone, where there was none; so it is where labels of a pod change by which it is
	// charged, and where a node has gone.
	Freed bool
	// Departed means that a pod that holds room has ended, or that someone deletes it, and not to
	// make room. Departs is the key of its gang, "" for none.
	Departed bool
	Departs  string
	// Bound is the key of the gang of a pod that is bound now, as was expected, "" for none.
	Bound string
	// Placed means that a pod is bound now that was not before, or has other labels: others may have to run near it.
	Placed bool
	// RolledBack means that a pod that was about to be bound is not ([State.Forget]), or
	// that a place is not held any more.
	RolledBack bool
	// Lifted means that a place is not held any more, by a decision: pods that the planner does not
	// place may have the quota.
	Lifted bool
	// Node is a node whose taints or hardware changed, that came or went, or that a pod
	// is bound to though it does not exist; "" for none.
	Node string
	// Rules means that another quota tree is in force, or that the one in force has become
	// valid or invalid.
	Rules bool
	// Altered is a bound pod of which someone has changed the allocation record, nil for none.
	Altered *corev1.Pod
}

// New returns the state of an empty cluster. gangChanged is told the key of each gang that
// changes; nil tells nobody.
func New(gangChanged func(key string)) *State {
	return &State{
		View:      snapshot.NewView(),
		trees:     map[string]*unstructured.Unstructured{},
		nodes:     map[string]*nodeState{},
		pods:      map[types.UID]*Pod{},
		gangs:     map[string]map[types.UID]*Pod{},
		podGroups: map[string]*unstructured.Unstructured{},
		fences:    fences{},
		succeeded: newByGang[*metav1.PartialObjectMetadata](),
		ended:     newByGang[inventory.Ended](),
		budgets:   map[string]map[string]Budget{},

		deviceClasses: map[string][]string{},
		restless:      map[string]bool{},
		gangChanged:   gangChanged,
	}
}

// SetWorkload makes the choice of nodes and GPUs follow the requests that arrive; nil makes
// it the tightest fit.
func (s *State) SetWorkload(w placement.Workload) {
	if !maps.Equal(s.View.Workload(), w) {
		s.View.SetWorkload(w)
	}
}

// Keys lists the nodes on which pods hold resources, and the keys of all gangs that have
// pods or a PodGroup.
func (s *State) Keys() (nodes, gangs []string) {
	for name, state := range s.nodes {
		if len(state.pods) > 0 {
			nodes = append(nodes, name)
		}
	}
	gangs = slices.AppendSeq(slices.Collect(maps.Keys(s.gangs)), maps.Keys(s.podGroups))
	slices.Sort(nodes)
	slices.Sort(gangs)
	return nodes, slices.Compact(gangs)
}
