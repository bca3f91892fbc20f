package queue

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Reasons of the condition of a quota tree that says whether its limits count.
const (
	treeInForce   = "InForce"
	treeInvalid   = "Invalid"
	treeNotOldest = "NotTheOldest"
)

// treeReport is a quota tree whose status is to be written.
type treeReport struct {
	object *unstructured.Unstructured
	status map[string]any
	// news is the condition when it says something new, else nil.
	news *metav1.Condition
}

// reportTrees finds the quota trees whose status is not as it should be.
func (p *reconciler) reportTrees() {
	for _, name := range slices.Sorted(maps.Keys(p.trees)) {
		object := p.trees[name]
		before, _, _ := unstructured.NestedMap(object.Object, "status")
		status := maps.Clone(before)
		if status == nil {
			status = map[string]any{}
		}
		if object == p.inForce && p.bar == nil {
			status["root"] = p.accounts.node(p.tree.spec)
		}
		next := p.conditionOf(object)
		status["conditions"] = condition.Among(object, next)
		if apiequality.Semantic.DeepEqual(before, status) {
			continue
		}
		report := treeReport{object: object, status: status}
		said, _ := condition.Find(object, next.Type) // what cannot be read is written again
		if said == nil && next.Status != metav1.ConditionTrue || said != nil && said.Message != next.Message {
			report.news = &next
		}
		p.out.trees = append(p.out.trees, report)
	}
}

// conditionOf is the condition of a tree as it should be.
func (p *reconciler) conditionOf(object *unstructured.Unstructured) metav1.Condition {
	next := metav1.Condition{
		Type: contract.QuotaTreeInForce, Status: metav1.ConditionTrue, Reason: treeInForce, Message: "its limits count",
		ObservedGeneration: object.GetGeneration(), LastTransitionTime: *p.time(p.now),
	}
	switch {
	case object != p.inForce:
		next.Status, next.Reason = metav1.ConditionFalse, treeNotOldest
		next.Message = fmt.Sprintf("there is another one, %s, which is older; delete one of them", p.inForce.GetName())
	case p.bar != nil:
		next.Status, next.Reason = metav1.ConditionFalse, treeInvalid
		next.Message = p.bar.Why + "; nothing that it governs starts"
	}
	return next
}

// recordTree puts a new condition of a quota tree into an event.
func (w *writer) recordTree(object *unstructured.Unstructured, condition *metav1.Condition) {
	kind := corev1.EventTypeNormal
	if condition.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	w.events.Event(object, kind, contract.QuotaTreeKind+condition.Reason, condition.Message)
}
