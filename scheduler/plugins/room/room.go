// Package room has pods that the planner does not place, such as those without GPUs, leave
// room for those that it does: they go to the nodes that the planner would choose for them, by
// what the requests for GPUs that arrive can use then. Other plugins' reasons, a preference of
// the pod say, are added as with every plugin that scores nodes.
package room

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// Name is the plugin's name in a scheduler configuration.
const Name = "GPUPlanRoom"

const stateKey fwk.StateKey = Name

// Plugin is the plugin that scores nodes for pods that are not planned.
type Plugin struct{ cache *clustercache.Cache }

var (
	_ fwk.PreScorePlugin = (*Plugin)(nil)
	_ fwk.ScorePlugin    = (*Plugin)(nil)
	_ fwk.SignPlugin     = (*Plugin)(nil)
)

// Factory returns a function that makes the plugin for the framework.
func Factory(cache *clustercache.Cache) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return &Plugin{cache: cache}, nil
	}
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// SignPod adds nothing: pods that are equal to the other plugins are so to this one.
func (*Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

// scores are those of nodes, by name.
type scores map[string]int64

// Clone implements fwk.StateData; scores never change once they are made.
func (s scores) Clone() fwk.StateData { return s }

// PreScore scores the nodes that have passed the filters: the planner's first gets most by
// itself, so that it is chosen where no other plugin tells nodes apart.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if p.cache.Planned(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	passed := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		passed[n.Node().Name] = true
	}
	given := make(scores, len(nodes))
	for _, name := range p.cache.Rank(pod) {
		if passed[name] {
			given[name] = score(len(given), len(nodes))
		}
	}
	state.Write(stateKey, given)
	return nil
}

// score is that of a node by its place in an order of so many.
func score(place, of int) int64 {
	if place == 0 {
		return fwk.MaxScore
	}
	return (fwk.MaxScore - 1) * int64(of-place) / int64(of)
}

// Score returns the node's score; one that the planner would not take has none.
func (*Plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	given, _ := data.(scores) // nobody else writes it
	return given[node.Node().Name], nil
}

// ScoreExtensions returns nil: scores need no further step.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
