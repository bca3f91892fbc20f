package clusterstate

import (
	"iter"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

type nodeState struct {
	node     *corev1.Node
	hardware *contract.GPUNode
	// shown is what the view was told, nil while the Node object is unknown.
	shown *placement.Node
	pods  map[types.UID]*Pod
}

// SetNode takes in a node. The error says why its hardware cannot be used.
func (s *State) SetNode(n *corev1.Node) (Change, error) {
	state := s.node(n.Name)
	before := state.node
	state.node = n
	change, err := s.show(state)
	if before == nil || !reflect.DeepEqual(before.Spec.Taints, n.Spec.Taints) {
		change.Node = n.Name
	}
	return change, err
}

// RemoveNode takes a node out. That frees nothing on others, but rules about domains, spread above all, may
// allow more there.
func (s *State) RemoveNode(name string) Change {
	state := s.node(name)
	change := Change{Node: name, Freed: state.shown != nil}
	state.node, state.shown = nil, nil
	s.View.RemoveNode(name)
	s.dropUnused(name)
	return change
}

// SetGPUNode takes in the hardware of a node. The error says why it cannot be used.
func (s *State) SetGPUNode(hardware *contract.GPUNode) (Change, error) {
	state := s.node(hardware.Name)
	state.hardware = hardware
	change, err := s.show(state)
	change.Node = hardware.Name
	return change, err
}

// HeartbeatDue looks again at a node whose agent should have been heard of by now: a node
// with a silent agent offers no GPUs.
func (s *State) HeartbeatDue(name string) (Change, error) {
	state, ok := s.nodes[name]
	if !ok {
		return Change{}, nil
	}
	return s.show(state)
}

// RemoveGPUNode forgets the published hardware of a node.
func (s *State) RemoveGPUNode(name string) (Change, error) {
	state := s.node(name)
	state.hardware = nil
	defer s.dropUnused(name)
	change, err := s.show(state)
	change.Node = name
	return change, err
}

// Node returns a node's object, and the hardware that its agent has published, each nil when
// there is none.
func (s *State) Node(name string) (*corev1.Node, *contract.GPUNode) {
	if state, ok := s.nodes[name]; ok {
		return state.node, state.hardware
	}
	return nil, nil
}

// PodsOn lists the pods that hold resources of a node, in no particular order.
func (s *State) PodsOn(node string) iter.Seq[*Pod] {
	if state, ok := s.nodes[node]; ok {
		return maps.Values(state.pods)
	}
	return func(func(*Pod) bool) {}
}

func (s *State) node(name string) *nodeState {
	state, ok := s.nodes[name]
	if !ok {
		state = &nodeState{pods: map[types.UID]*Pod{}}
		s.nodes[name] = state
	}
	return state
}

func (s *State) dropUnused(name string) {
	if state := s.nodes[name]; state.node == nil && state.hardware == nil && len(state.pods) == 0 {
		delete(s.nodes, name)
	}
}

// show tells the view about a node, unless nothing changed that it cares for.
func (s *State) show(state *nodeState) (Change, error) {
	if state.node == nil {
		return Change{}, nil
	}
	node, err := s.tables.Node(state.node, state.hardware)
	if state.shown != nil && reflect.DeepEqual(*state.shown, node) {
		return Change{}, err
	}
	renumbered := state.shown == nil || state.shown.GPUs != node.GPUs
	state.shown = &node
	s.View.SetNode(node)
	if renumbered {
		for _, pod := range state.pods {
			s.charge(pod)
		}
	}
	return Change{Freed: true}, err
}

func (s *State) gpusOf(node string) *gpu.Table {
	if state, ok := s.nodes[node]; ok && state.shown != nil {
		return state.shown.GPUs
	}
	return nil
}
