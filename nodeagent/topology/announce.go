package topology

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
)

// announce records an event on the node for each card whose health has changed, and for
// hardware that cannot be read any more, or again.
func (p *publisher) announce(before, now contract.GPUNodeStatus, node *unstructured.Unstructured) {
	was := map[string]string{}
	for _, card := range before.Cards {
		was[identity(card)] = card.Health
	}
	for _, card := range now.Cards {
		switch before := was[identity(card)]; {
		case card.Health == contract.Unhealthy && before != contract.Unhealthy:
			p.Events.Eventf(node, corev1.EventTypeWarning, "GPUCardUnhealthy", "Card %d %s must not be used: %s", card.Index, card.UUID, card.Reason)
		case card.Health == contract.Healthy && before == contract.Unhealthy:
			p.Events.Eventf(node, corev1.EventTypeNormal, "GPUCardHealthy", "Card %d %s is used again", card.Index, card.UUID)
		}
	}
	switch then, ready := unreadable(before), unreadable(now); {
	case ready != "" && then == "":
		p.Events.Eventf(node, corev1.EventTypeWarning, "GPUCardsUnreadable", "The cards cannot be read, and nothing is placed on them: %s", ready)
	case ready == "" && then != "":
		p.Events.Eventf(node, corev1.EventTypeNormal, "GPUCardsReadable", "The cards can be read again")
	}
}

// identity is what tells a published card from others.
func identity(card contract.CardInfo) string {
	if card.UUID != "" {
		return card.UUID
	}
	return fmt.Sprint(card.Index)
}

// unreadable says why the cards cannot be read, "" when they can.
func unreadable(status contract.GPUNodeStatus) string {
	if ready := meta.FindStatusCondition(status.Conditions, contract.ConditionReady); ready != nil && ready.Status == metav1.ConditionUnknown {
		return ready.Message
	}
	return ""
}

// nodeCondition returns the write that repeats the GPUNode's condition on the Node, nil
// when the Node has it.
func (p *publisher) nodeCondition(node *unstructured.Unstructured, status contract.GPUNodeStatus) func(context.Context) error {
	ready := meta.FindStatusCondition(status.Conditions, contract.ConditionReady)
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, c := range conditions {
		have, _ := c.(map[string]any)
		if have["type"] == contract.GPUsReadyCondition && have["status"] == string(ready.Status) && have["reason"] == ready.Reason && have["message"] == ready.Message {
			return nil
		}
	}
	return func(ctx context.Context) error {
		obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
			"type": contract.GPUsReadyCondition, "status": string(ready.Status), "reason": ready.Reason, "message": ready.Message,
			"lastTransitionTime": ready.LastTransitionTime.UTC().Format(time.RFC3339),
		}}}}}
		obj.SetGroupVersionKind(nodeKind)
		obj.SetName(p.node)
		return p.apply(ctx, cluster.Node, obj, "status")
	}
}
