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
	// patch is what server-side apply takes.
	patch *unstructured.Unstructured
	// news is the condition when it says something new, else nil.
	news *metav1.Condition
}

// reportTrees finds the quota trees whose status is not as it should be.
func (p *reconciler) reportTrees() {
	for _, name := range slices.Sorted(maps.Keys(p.trees)) {
		object := p.trees[name]
		next := p.conditionOf(object)
		before, _ := condition.Find(object, next.Type) // what cannot be read is written again
		patch, changed := condition.Patch(object, next)
		patch.SetUID(object.GetUID()) // not another of its name
		usedBefore, _, _ := unstructured.NestedMap(object.Object, "status", "root")
		used := usedBefore // what is not sent goes
		if object == p.inForce && p.bar == nil {
			used = p.accounts.node(p.tree.spec)
		}
		if used != nil {
			patch.Object["status"].(map[string]any)["root"] = used
		}
		if !changed && before.ObservedGeneration == next.ObservedGeneration && apiequality.Semantic.DeepEqual(usedBefore, used) {
			continue
		}
		report := treeReport{object: object, patch: patch}
		if before == nil && next.Status != metav1.ConditionTrue || before != nil && before.Message != next.Message {
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
