package acsfake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// poolSteps are the stages that bring a pool to what it should be; the caller holds the lock.
func (s *Server) poolSteps(t *TaskRecord) []step {
	p := s.pool(t.Target)
	if p == nil {
		return []step{{name: "look_up", do: func(context.Context, *job) error { return errPoolGone }}}
	}
	first := step{name: "update_nodepool", message: "Update the node pool.", poolState: poolUpdating, do: nothing}
	if t.Type == taskCreatePool {
		first = step{name: "create_scaling_group", message: "Create the scaling group.", poolState: poolInitial, do: nothing}
	}
	steps := []step{first}
	missing := p.Size - len(p.Nodes)
	switch {
	case missing > 0:
		steps = append(steps,
			step{name: "create_instances", message: fmt.Sprintf("Create %d instances.", missing), poolState: poolScaling, do: nothing},
			step{name: "register_nodes", message: fmt.Sprintf("Wait for %d nodes to register.", missing), poolState: poolScaling, faulty: true, do: s.grow})
	case missing < 0:
		steps = append(steps, step{name: "remove_nodes", message: fmt.Sprintf("Drain and remove %d nodes.", -missing), poolState: poolRemoving, faulty: true, do: s.shrink})
	default:
		steps[0].faulty = true
	}
	// Assumed, not observed: also when the pool's own record did not change.
	if t.UpdateNodes {
		steps = append(steps, step{name: "update_nodes", message: "Update the labels and taints of the nodes.", poolState: poolUpdating, do: s.relabel})
	}
	return steps
}

// deletionSteps are the stages of deleting a pool; the caller holds the lock.
func (s *Server) deletionSteps(t *TaskRecord) []step {
	if !t.Force {
		return []step{{name: "delete_scaling_group", message: "Delete the scaling group.", poolState: poolDeleting, faulty: true, do: s.removeEmpty}}
	}
	return []step{
		{name: "remove_nodes", message: "Drain and remove all nodes.", poolState: poolDeleting, do: func(ctx context.Context, j *job) error {
			return s.removeNodes(ctx, j, 0)
		}},
		{name: "delete_scaling_group", message: "Delete the scaling group.", poolState: poolDeleting, faulty: true, do: s.removeEmpty},
	}
}

func nothing(context.Context, *job) error { return nil }

// grow registers nodes until the pool has its size, or as many as a fault allows. A
// node is listed when it has registered.
func (s *Server) grow(ctx context.Context, j *job) error {
	for added := 0; j.fault == nil || j.fault.Hidden || added < j.fault.NodesBefore; added++ {
		s.mu.Lock()
		p := s.pool(j.target)
		if p == nil || len(p.Nodes) >= p.Size {
			s.mu.Unlock()
			return nil
		}
		record, inStock := s.nextNode(p)
		node := p.node(record)
		s.mu.Unlock()
		if !inStock {
			fault := NoStock()
			return &fault
		}

		if err := s.backend().EnsureNode(ctx, node); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		s.mu.Lock()
		p.Nodes, p.NextNode = append(p.Nodes, record), record.Number+1
		s.mu.Unlock()
		s.changed()
	}
	return nil
}

func (s *Server) shrink(ctx context.Context, j *job) error {
	s.mu.Lock()
	size := s.pool(j.target).Size
	s.mu.Unlock()
	return s.removeNodes(ctx, j, size)
}

// removeNodes removes nodes until the pool has only so many.
func (s *Server) removeNodes(ctx context.Context, j *job, left int) error {
	return s.removeWhile(ctx, j, func(nodes []NodeRecord) (victim NodeRecord, ok bool) {
		if len(nodes) <= left {
			return NodeRecord{}, false
		}
		if assumeNewestRemovedFirst {
			return nodes[len(nodes)-1], true
		}
		return nodes[0], true
	})
}

// removeNamed removes the nodes with these names.
func (s *Server) removeNamed(ctx context.Context, j *job, names []string) error {
	return s.removeWhile(ctx, j, func(nodes []NodeRecord) (victim NodeRecord, ok bool) {
		at := slices.IndexFunc(nodes, func(n NodeRecord) bool { return slices.Contains(names, n.Name) })
		if at < 0 {
			return NodeRecord{}, false
		}
		return nodes[at], true
	})
}

// removeWhile drains and removes nodes of the pool, while one is chosen among them.
func (s *Server) removeWhile(ctx context.Context, j *job, choose func([]NodeRecord) (victim NodeRecord, ok bool)) error {
	for {
		if err := s.drain(j); err != nil {
			return err
		}
		s.mu.Lock()
		p := s.pool(j.target)
		if p == nil {
			s.mu.Unlock()
			return nil
		}
		victim, more := choose(p.Nodes)
		node := p.node(victim)
		s.mu.Unlock()
		if !more {
			return nil
		}
		if err := s.backend().DeleteNode(ctx, node); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		s.mu.Lock()
		p.Nodes = slices.DeleteFunc(p.Nodes, func(n NodeRecord) bool { return n.Name == victim.Name })
		s.mu.Unlock()
		s.changed()
	}
}

// drainRetry is the time between two tries to evict a pod.
const drainRetry = time.Second

// drain waits while a disruption budget forbids to evict pods: removal with force drains too.
func (s *Server) drain(j *job) error {
	for s.drainBlocked() {
		s.say(j, "Cannot evict pod as it would violate the pod's disruption budget.")
		if err := s.wait(drainRetry); err != nil {
			return err
		}
	}
	return nil
}

// relabel gives every node the pool's labels and taints.
func (s *Server) relabel(ctx context.Context, j *job) error {
	s.mu.Lock()
	p := s.pool(j.target)
	nodes := slices.Clone(p.Nodes)
	taints := p.taints()
	s.mu.Unlock()
	for _, old := range nodes {
		changed := old
		s.mu.Lock()
		changed.Labels, changed.Taints = s.nodeLabels(p, old.InstanceType), taints
		before, after := p.node(old), p.node(changed)
		s.mu.Unlock()
		if err := s.backend().UpdateNode(ctx, before, after); err != nil {
			return fmt.Errorf("node %s: %w", old.Name, err)
		}
		s.mu.Lock()
		for i := range p.Nodes {
			if p.Nodes[i].Name == old.Name {
				p.Nodes[i] = changed
			}
		}
		s.mu.Unlock()
		s.changed()
	}
	return nil
}

var errNotEmpty = errors.New("scaling group's instances not empty")

// removeEmpty forgets a pool that has no nodes.
func (s *Server) removeEmpty(_ context.Context, j *job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pool(j.target)
	if p == nil {
		return nil
	}
	if len(p.Nodes) > 0 {
		return errNotEmpty
	}
	if j.fault == nil || j.fault.Hidden {
		s.state.Pools = slices.DeleteFunc(s.state.Pools, func(other *PoolRecord) bool { return other == p })
	}
	return nil
}
