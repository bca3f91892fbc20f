package cluster

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Snapshot is a cluster at one moment. It is shared: read it only. It is safe for
// concurrent use.
type Snapshot struct {
	// Objects are the cluster's, finished pods included.
	inventory.Objects
	// NoScheduler tells that our scheduler is known not to run.
	NoScheduler bool

	view *placement.View
	// waiting are the gangs that wait for room, in the order of the scheduler's queue.
	waiting []inventory.GangState
	// limits is the quota tree without usage, nil for none; broken says why it cannot be used.
	limits *quota.Tree
	broken error
}

func newSnapshot(objects inventory.Objects) *Snapshot {
	s := &Snapshot{Objects: objects}
	cache, err := s.Cache()
	scene := cache.Scene()
	s.view, s.broken = scene.View, err
	for _, key := range scene.Waiting() {
		gang, _ := scene.Gang(key)
		s.waiting = append(s.waiting, gang)
	}
	if s.QuotaTree == nil || err != nil {
		return s
	}
	spec, err := inventory.QuotaSpec(s.QuotaTree)
	if err == nil {
		s.limits, err = quota.New(spec)
	}
	s.broken = err
	return s
}

// View returns a copy of the planner's view, with the quota tree and what is used of it.
// The error says why the cluster's quota tree cannot be used.
func (s *Snapshot) View() (*placement.View, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	return s.view.Clone(), nil
}

// Quota returns a copy of the cluster's quota tree without usage, nil when there is none.
// The error says why it cannot be used.
func (s *Snapshot) Quota() (*quota.Tree, error) {
	if s.broken != nil || s.limits == nil {
		return nil, s.broken
	}
	return s.limits.Clone(), nil
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

// PodsOn returns what holds resources of a node, in the order of the pods' IDs.
func (s *Snapshot) PodsOn(node string) []placement.Pod { return s.view.Pods(node) }
