package nodegpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
)

// change is what becomes of a resource: from is nil for a new one, to for one that goes.
type change struct{ from, to *model }

// given are the nodes that the resource has afterwards, before those that it has had.
func (c change) given() []string  { return namesOf(c.to) }
func (c change) before() []string { return namesOf(c.from) }

func namesOf(m *model) []string {
	if m == nil {
		return nil
	}
	return m.names()
}

// dropped are the nodes that lose what the resource gave them.
func (c change) dropped() []string {
	return slices.DeleteFunc(c.before(), func(name string) bool { return slices.Contains(c.given(), name) })
}

// allowed reports whether the GPUs of the nodes may be in use. A resource that goes says so in the state.
func (c change) allowed() bool {
	if c.to == nil {
		return c.from.AllowDisruption.ValueBool()
	}
	return c.to.AllowDisruption.ValueBool()
}

// relabels reports whether nodes get other labels, as far as the state tells.
func (c change) relabels() bool {
	return c.from == nil || !maps.Equal(c.from.labels(), c.to.labels()) || !slices.Equal(c.before(), c.given()) || len(c.from.DriftedNodes.Elements()) > 0
}

// takes are the labels of a node that are the resource's already, whoever has changed them since: the plan has shown that.
func (c change) takes(node string) (fields []kube.Field) {
	if !slices.Contains(c.before(), node) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.from.labels())) {
		fields = append(fields, labelField(key))
	}
	return fields
}

func labelField(key string) kube.Field { return kube.Field{"metadata", "labels", key} }

// move is what becomes of a node.
type move struct {
	node *corev1.Node
	// labels are all that it has afterwards.
	labels map[string]string
	// dropped means that it loses what the resource gave it.
	dropped bool
}

func (m move) from() string { return modeOf(m.node.Labels) }

func (m move) to() string { return modeOf(m.labels) }

// moves lists what becomes of the nodes that the cluster has.
func (c change) moves(snapshot *cluster.Snapshot) (moves []move) {
	given, _ := find(snapshot, c.given())
	for _, n := range given {
		moves = append(moves, c.move(n, c.to.labels(), false))
	}
	dropped, _ := find(snapshot, c.dropped())
	for _, n := range dropped {
		moves = append(moves, c.move(n, nil, true))
	}
	return moves
}

// move gives a node labels in place of those that the resource gave it, as far as it has these still.
func (c change) move(n *corev1.Node, labels map[string]string, dropped bool) move {
	after := maps.Clone(n.Labels)
	if after == nil {
		after = map[string]string{}
	}
	if slices.Contains(c.before(), n.Name) {
		for key, value := range c.from.labels() {
			if after[key] == value {
				delete(after, key)
			}
		}
	}
	maps.Copy(after, labels)
	return move{node: n, labels: after, dropped: dropped}
}

// effect is what moves that are alike take away from pods on their nodes.
type effect struct {
	// text completes "The plan …", why says what is wrong with that, summary is a headline.
	summary, text, why string
	pods               []running.Pod
}

// effects are those of the moves by which pods lose the GPUs that they use, or the nodes that they select.
func effects(moves []move, snapshot *cluster.Snapshot) (all []effect) {
	type switched struct {
		from, to string
		dropped  bool
	}
	switches, renamed := map[switched][]string{}, map[string][]string{}
	for _, m := range moves {
		if m.from() != m.to() {
			s := switched{m.from(), m.to(), m.dropped}
			switches[s] = append(switches[s], m.node.Name)
		}
		if name := m.node.Labels[contract.NodePoolNameLabel]; name != "" && m.labels[contract.NodePoolNameLabel] != name {
			renamed[name] = append(renamed[name], m.node.Name)
		}
	}
	hit := func(e effect, nodes []string, hits func(running.Pod) bool) {
		e.pods = slices.DeleteFunc(running.On(running.Pods(snapshot.Pods), nodes), func(p running.Pod) bool { return !hits(p) })
		if len(e.pods) > 0 {
			all = append(all, e)
		}
	}
	for s, names := range switches {
		text := fmt.Sprintf("switches %s from mode %s to %s", nodesCalled(names), s.from, s.to)
		if s.dropped {
			text = fmt.Sprintf("takes mode %s away from %s", s.from, nodesCalled(names))
		}
		hit(effect{
			summary: "GPUs are in use", text: text,
			why: "Pods that use GPUs in one mode must have finished before the label changes (Alibaba Cloud: labels of GPU nodes): schedulers lose count of what they hold.",
		}, names, func(p running.Pod) bool { return loses(p.Request, s.from, s.to) })
	}
	selects := running.Selects([]string{contract.NodePoolNameLabel})
	for name, names := range renamed {
		hit(effect{
			summary: "Jobs select nodes by the name", text: fmt.Sprintf("takes the name %s away from %s", name, nodesCalled(names)),
			why: "Jobs that were given the nodes select them by it (" + contract.NodePoolNameLabel + "): a member that is lost finds no place there again.",
		}, names, func(p running.Pod) bool { return selects(p.Object) })
	}
	slices.SortFunc(all, func(a, b effect) int { return cmp.Compare(a.text, b.text) })
	return all
}

// loses reports whether a node that is switched between two modes no longer counts what a pod on it uses. One that uses
// GPUs of the second mode alone was there before someone changed the label.
func loses(r placement.Request, from, to string) bool {
	return r.Mode != placement.ModeNone && (serves(from, r) || !serves(to, r))
}

// serves reports whether nodes of a mode offer what a pod asks for.
func serves(mode string, r placement.Request) bool {
	m := placement.Mode(mode)
	if r.Mode.Whole() {
		return m == r.Mode
	}
	return m.Shared() && (r.CorePercent == 0 || m == placement.ModeCoreMem)
}

func nodesCalled(names []string) string {
	if len(names) == 1 {
		return "node " + names[0]
	}
	return "nodes " + join(names)
}

// attributeOf is the attribute that says what a label is.
var attributeOf = map[string]string{
	contract.NodeModeLabel: "mode", contract.NodeGPUPolicyLabel: "gpu_policy", contract.NodePoolNameLabel: "name",
}
