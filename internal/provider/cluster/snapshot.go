package cluster

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Snapshot is a cluster at one moment. It is shared: read it only. It is safe for
// concurrent use.
type Snapshot struct {
	// Objects are the cluster's, finished pods included.
	clusterlist.Objects
	// NoScheduler means that our scheduler is known not to run.
	NoScheduler bool

	view *snapshot.View
	// state says what becomes of pods that are still to come.
	state *clusterstate.State
	// gang returns a gang by its key.
	gang func(key string) (inventory.GangState, bool)
	// waiting are the gangs that wait for room, in the order of the scheduler's queue.
	waiting []inventory.GangState
	// limits is the quota tree without usage, nil for none, and as for the scheduler an empty one for one that is not valid.
	limits *quota.Tree
	around sync.Once
	amid   *inventory.Surroundings
}

// joining is how long after its creation a node may have the taints of one that is not
// ready yet without being out of order.
const joining = 5 * time.Minute

// taintUninitialized is the taint of a node that the cloud's controller has not looked at.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// joins are the taints of a node until it has joined. Its kubelet, the cloud's controller and
// the network take them away by themselves.
var joins = []string{corev1.TaintNodeNotReady, corev1.TaintNodeNetworkUnavailable, taintUninitialized}

// settle takes the nodes that have only just joined for what they are about to be: nothing
// that waits for one of them has to wait for another.
func settle(nodes []corev1.Node, now time.Time) {
	for i := range nodes {
		n := &nodes[i]
		if now.Sub(n.CreationTimestamp.Time) < joining {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(joins, t.Key) })
		}
	}
}

func newSnapshot(objects clusterlist.Objects) *Snapshot {
	s := &Snapshot{Objects: objects}
	settle(s.Nodes, time.Now())
	state, _ := s.Objects.State() // the error is its bar's
	snapshot := state.Snapshot()
	s.state, s.gang, s.view, s.limits = state, snapshot.Gang, snapshot.View, state.Tree()
	for _, key := range snapshot.Waiting() {
		gang, _ := snapshot.Gang(key)
		s.waiting = append(s.waiting, gang)
	}
	return s
}

// Surroundings returns what keeps pods from nodes: volumes, and running pods. Those of jobs of the
// configuration, which own tells by their labels, are not among these: they may be about to leave.
// On those of the planned nodes that are to come the cluster's DaemonSets run.
func (s *Snapshot) Surroundings(own func(labels map[string]string) bool, planned []placement.Node) *inventory.Surroundings {
	s.around.Do(func() {
		s.amid = inventory.NewSurroundings(s.Nodes, s.CSINodes, s.Objects.Pods, s.BoundVolume(), func(p *corev1.Pod) bool { return JobOf(p) == "" || !own(p.Labels) })
	})
	keepers := s.keepers()
	if len(keepers) == 0 {
		return s.amid
	}
	var toCome []placement.Node
	var pods []*corev1.Pod
	for _, n := range planned {
		if _, exists := s.view.Node(n.Name); !exists {
			toCome, pods = append(toCome, n), append(pods, s.podsOn(n, keepers)...)
		}
	}
	return s.amid.With(toCome, pods)
}

// Delegate tells nodes, those that are to come as well, which extended resources are devices that kube-scheduler allocates, or
// may be where the user may not know, and returns them.
func (s *Snapshot) Delegate(nodes []placement.Node) placement.Delegated {
	delegated := s.view.Delegated()
	for i := range nodes {
		nodes[i].Delegated = delegated
	}
	return delegated
}

// Waiting are the IDs of the gangs of which all members are there and wait for room, as far as their pods say.
func (s *Snapshot) Waiting() (ids []string) {
	for _, gang := range s.waiting {
		ids = append(ids, gang.Gang.ID)
	}
	return ids
}

// View returns a copy of the planner's view, with the quota tree and what is used of it; one that is not valid
// counts as the scheduler has it, as an empty one.
func (s *Snapshot) View() *snapshot.View { return s.view.Clone() }

// Quota returns a copy of the cluster's quota tree without usage, nil when there is none.
// The error says why it cannot be used.
func (s *Snapshot) Quota() (*quota.Tree, error) {
	if bar := s.state.Bar(); bar != nil {
		return nil, errors.New(bar.Why)
	}
	if s.limits == nil {
		return nil, nil
	}
	return s.limits.Clone(), nil
}

// Barred says why a gang does not start as long as the cluster's quota tree is not valid, "" for one that does. The job
// queue lets nobody go by such a tree.
func (s *Snapshot) Barred(g placement.Gang, queued bool) string {
	bar := s.state.Bar()
	namespace, _, _ := strings.Cut(g.ID, "/")
	if bar != nil && (queued || bar.Holds(namespace, g.Leaf)) {
		return bar.Why
	}
	return ""
}

// Missing says what must still appear before a gang can start, "" when nothing must, or it has no pods.
func (s *Snapshot) Missing(gang string) string {
	state, _ := s.gang(gang)
	return state.MissingText
}

// ToCome are the gangs of pods that are still to come, as the scheduler asks for their places; why says of one why it cannot.
func (s *Snapshot) ToCome(pods []*corev1.Pod) (gangs []placement.Gang, why string) {
	for _, gang := range clusterstate.NewToCome(pods) {
		asked, why := s.state.Asked(gang)
		if why != "" {
			return nil, why
		}
		gangs = append(gangs, asked)
	}
	return gangs, ""
}

// Hardware returns those of the named nodes that exist as the planner sees them, in its
// order of equal candidates.
func (s *Snapshot) Hardware(names []string) []placement.Node {
	nodes := make([]placement.Node, 0, len(names))
	for _, name := range names {
		if n, ok := s.view.Node(name); ok {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, placement.CompareNodes)
	return nodes
}

// Node returns a node of the view with what runs on it, nil when there is none. It is for reading only.
func (s *Snapshot) Node(name string) *capacity.Node { return s.view.State(name) }

// PodsOn returns what holds resources of a node, in the order of the pods' IDs.
func (s *Snapshot) PodsOn(node string) []placement.Pod { return s.view.Pods(node) }
