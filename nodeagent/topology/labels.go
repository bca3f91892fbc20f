package topology

import (
	"context"
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/features"
)

// nodeLabels is what is known of the labels of GPU feature discovery (GFD) on the Node.
type nodeLabels struct {
	// applied are those that the API server took last, nil before the first; it knows which an earlier agent had written.
	applied map[string]string
	// others are labels that someone else has given another value, which is here.
	others map[string]string
	// discovered means that GFD writes the labels.
	discovered bool
}

// writeLabels returns the write that gives the Node its labels, nil when it has them, or GFD writes them. The
// last reading counts: GPUs that cannot be read have not gone.
func (p *publisher) writeLabels(node *unstructured.Unstructured) func(context.Context) error {
	if p.raw == nil {
		return nil
	}
	live := node.GetLabels()
	if features.Discovered(live, node.GetAnnotations()) {
		p.stayOut(node)
		return nil
	}
	p.labels.discovered = false
	want := map[string]string{}
	if p.FeatureLabels {
		want = features.Labels(*p.raw)
	}
	maps.DeleteFunc(p.labels.others, func(key, value string) bool { return live[key] != value })
	maps.DeleteFunc(want, func(key, _ string) bool { _, taken := p.labels.others[key]; return taken })
	switch {
	case p.labels.applied == nil && len(want) == 0 && !labelled(live):
		return nil
	case p.labels.applied != nil && maps.Equal(p.labels.applied, want) && has(live, want):
		return nil
	}
	return func(ctx context.Context) error { return p.applyLabels(ctx, node, want) }
}

// stayOut leaves the labels to GFD. Those that an agent has written stay, with the values that GFD gives them.
func (p *publisher) stayOut(node *unstructured.Unstructured) {
	if p.FeatureLabels && !p.labels.discovered {
		const why = "NVIDIA's GPU feature discovery labels the Node: the node agent leaves these labels alone"
		p.log.Info(why)
		p.Events.Event(node, corev1.EventTypeNormal, "FeatureLabelsStayOut", why)
	}
	p.labels = nodeLabels{discovered: true}
}

// applyLabels writes the labels but for those that others have given another value.
func (p *publisher) applyLabels(ctx context.Context, node *unstructured.Unstructured, want map[string]string) error {
	written, err := p.tryLabels(ctx, want)
	var conflict *kube.ConflictError
	if errors.As(err, &conflict) {
		if p.labels.others == nil {
			p.labels.others = map[string]string{}
		}
		for _, c := range conflict.Conflicts {
			key := strings.TrimPrefix(c.Field, ".metadata.labels.")
			p.log.Info("a label of the Node is left as another has it", "label", key, "manager", c.Manager)
			p.labels.others[key] = node.GetLabels()[key]
			delete(want, key)
		}
		written, err = p.tryLabels(ctx, want)
	}
	if err != nil {
		return err
	}
	p.Nodes.Wrote(cluster.Node, written)
	p.labels.applied = want
	return nil
}

func (p *publisher) tryLabels(ctx context.Context, want map[string]string) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	obj.SetName(p.node)
	obj.SetLabels(want)
	// The status of a Node takes labels, too: the agent has no right to change the rest of it.
	return p.Client.ApplyBeside(ctx, contract.NodeFeaturesManager, obj, "status")
}

// labelled tells whether a Node may have labels of an earlier agent.
func labelled(labels map[string]string) bool {
	_, ok := labels[contract.GFDCountLabel]
	return ok
}

// has tells whether an object has labels, or other keys, beside which others may have theirs.
func has(labels, want map[string]string) bool {
	for key, value := range want {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}
