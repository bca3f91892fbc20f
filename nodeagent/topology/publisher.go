// Package topology publishes the cards of a node in the cluster: as a GPUNode
// object, which the planner reads, and as the ConfigMap that `arena top node` reads.
package topology

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

// modeTopology is the value of [contract.NodeModeLabel] for which the mirror exists.
const modeTopology = "topology"

// mirrorNamespace is where arena looks for the mirror.
const mirrorNamespace = "kube-system"

var (
	nodeKind      = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	gpuNodeKind   = schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
)

// publisher publishes the cards of one node. It writes only what has changed.
type publisher struct {
	*Agent
	node     string
	tracker  health.Tracker
	restored bool
	// mirrored is the status of which mirror is the rendering.
	mirrored contract.GPUNodeStatus
	mirror   map[string]string
}

// publish publishes a reading of the node's hardware.
func (p *publisher) publish(ctx context.Context, reading hardware.Reading) error {
	live, err := p.published(ctx)
	if err != nil {
		return err
	}
	if !p.restored {
		p.restore(live.Status)
		p.restored = true
	}
	now := p.Now()
	verdicts := p.tracker.Observe(now, reading)
	p.Metrics.Seen(p.node, reading, verdicts)
	return p.write(ctx, live, statusOf(reading, verdicts, live.Status.Conditions, metav1.NewTime(now)))
}

// publishUnreadable publishes that the hardware cannot be read, and why; what was
// known of it stays.
func (p *publisher) publishUnreadable(ctx context.Context, cause error) error {
	live, err := p.published(ctx)
	if err != nil {
		return err
	}
	return p.write(ctx, live, unreadable(live.Status, cause, metav1.NewTime(p.Now())))
}

// published returns the GPUNode as the cluster has it; without one, an empty one.
func (p *publisher) published(ctx context.Context) (contract.GPUNode, error) {
	var live contract.GPUNode
	obj, err := p.Client.Get(ctx, gpuNodeKind, "", p.node)
	if kube.IsNotFound(err) {
		return live, nil
	}
	if err != nil {
		return live, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &live); err != nil {
		return live, fmt.Errorf("read the published GPUNode %s: %w", p.node, err)
	}
	return live, nil
}

// restore tells the tracker which cards an earlier run had found unusable.
func (p *publisher) restore(status contract.GPUNodeStatus) {
	machine, err := status.Machine()
	if err != nil {
		return // nothing usable was published
	}
	for i, card := range status.Cards {
		if card.Health == contract.Unhealthy && card.Since != nil {
			p.tracker.Restore(machine.Cards[i], card.Reason, card.Since.Time)
		}
	}
}

// write brings the GPUNode and the mirror to the given status.
func (p *publisher) write(ctx context.Context, live contract.GPUNode, status contract.GPUNodeStatus) error {
	node, err := p.Client.Get(ctx, nodeKind, "", p.node)
	if err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: p.node, UID: node.GetUID()}
	if live.UID == "" || !slices.Contains(live.OwnerReferences, owner) {
		if _, err := p.Client.ApplyAs(ctx, contract.NodeAgentName, p.object(gpuNodeKind, "", p.node, owner)); err != nil {
			return err
		}
	}
	if !equality.Semantic.DeepEqual(live.Status, status) {
		if err := p.writeStatus(ctx, status); err != nil {
			return err
		}
		p.announce(live.Status, status, node)
	}
	return p.writeMirror(ctx, status, node.GetLabels()[contract.NodeModeLabel], owner)
}

// announce records an event on the node for each card whose health has changed.
func (p *publisher) announce(before, now contract.GPUNodeStatus, node *unstructured.Unstructured) {
	was := map[int]string{}
	for _, card := range before.Cards {
		was[card.Index] = card.Health
	}
	for _, card := range now.Cards {
		switch {
		case card.Health == contract.Unhealthy && was[card.Index] != contract.Unhealthy:
			p.Events.Eventf(node, corev1.EventTypeWarning, "GPUCardUnhealthy", "Card %d %s must not be used: %s", card.Index, card.UUID, card.Reason)
		case card.Health == contract.Healthy && was[card.Index] == contract.Unhealthy:
			p.Events.Eventf(node, corev1.EventTypeNormal, "GPUCardHealthy", "Card %d %s is used again", card.Index, card.UUID)
		}
	}
}

func (p *publisher) writeStatus(ctx context.Context, status contract.GPUNodeStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encode the status of GPUNode %s: %w", p.node, err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	obj.SetGroupVersionKind(gpuNodeKind)
	obj.SetName(p.node)
	_, err = p.Client.ApplyAs(ctx, contract.NodeAgentName, obj, "status")
	return err
}

// writeMirror keeps the ConfigMap of a node in mode topology, and removes it from others.
func (p *publisher) writeMirror(ctx context.Context, status contract.GPUNodeStatus, mode string, owner metav1.OwnerReference) error {
	name := contract.TopologyConfigMapPrefix + p.node
	if mode != modeTopology || len(status.Cards) == 0 {
		return p.Client.Delete(ctx, configMapKind, mirrorNamespace, name)
	}
	if p.mirror == nil || !reflect.DeepEqual(p.mirrored, status) {
		mirror, err := mirrorOf(status)
		if err != nil {
			return fmt.Errorf("render the topology of node %s: %w", p.node, err)
		}
		p.mirror, p.mirrored = mirror, status
	}
	live, err := p.Client.Get(ctx, configMapKind, mirrorNamespace, name)
	if err != nil && !kube.IsNotFound(err) {
		return err
	}
	obj := p.object(configMapKind, mirrorNamespace, name, owner)
	labels := obj.GetLabels()
	labels[contract.TopologyConfigMapNodeLabel] = p.node
	labels[contract.NodeModeLabel] = modeTopology
	obj.SetLabels(labels)
	if live != nil {
		data, _, _ := unstructured.NestedStringMap(live.Object, "data")
		if maps.Equal(data, p.mirror) && maps.Equal(live.GetLabels(), labels) && slices.Contains(live.GetOwnerReferences(), owner) {
			return nil
		}
	}
	obj.Object["data"] = stringsToAny(p.mirror)
	_, err = p.Client.ApplyAs(ctx, contract.NodeAgentName, obj)
	return err
}

// object returns an object with our labels that goes when its node goes.
func (p *publisher) object(gvk schema.GroupVersionKind, namespace, name string, owner metav1.OwnerReference) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(gvk)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetLabels(map[string]string{contract.NameLabel: contract.NodeAgentName, contract.PartOfLabel: contract.PartOfValue})
	obj.SetOwnerReferences([]metav1.OwnerReference{owner})
	return obj
}

func stringsToAny(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
