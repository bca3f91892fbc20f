// Package condition reads and writes conditions of objects, and is where each condition that
// the programs write is made. Several parts of the programs
// write one condition each of an object, at the same time. Server-side apply keeps them
// apart: a writer owns its condition and does not send the others, of which it may have
// seen an old state. Where the schema is of others and may lack conditions, apply is refused as
// a whole: such a status is updated with its resource version, with the others as they are.
package condition

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// Find reads the condition of a type, nil when the object has none. What others have
// written beside it does not matter.
func Find(object *unstructured.Unstructured, conditionType string) (*metav1.Condition, error) {
	list, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return nil, fmt.Errorf("read the conditions of %s: %w", title(object), err)
	}
	i := index(list, conditionType)
	if i < 0 {
		return nil, nil
	}
	entry, _ := list[i].(map[string]any) // it has a type
	have := new(metav1.Condition)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(entry, have); err != nil {
		return nil, fmt.Errorf("read condition %s of %s: %w", conditionType, title(object), err)
	}
	return have, nil
}

// index is where a list of conditions has that of a type, -1 for nowhere.
func index(list []any, conditionType string) int {
	return slices.IndexFunc(list, func(entry any) bool {
		fields, ok := entry.(map[string]any)
		return ok && fields["type"] == conditionType
	})
}

// Next is a condition as it is to be written over the one before, nil for none. Its
// LastTransitionTime stays while its status does.
func Next(before *metav1.Condition, c metav1.Condition) metav1.Condition {
	if before == nil {
		before = &metav1.Condition{}
	}
	c.LastTransitionTime = since(before.Status, c.Status, before.LastTransitionTime, c.LastTransitionTime)
	return c
}

// since is when a condition got its status: as before while that stays, else what its writer says, or now.
func since[S ~string](before, status S, then, given metav1.Time) metav1.Time {
	switch {
	case before == status:
		return then
	case given.IsZero():
		return metav1.Now()
	}
	return given
}

// Patch is what server-side apply takes to write all conditions of an object that a writer owns; changed is
// false when the object says the same. What cannot be read is written again.
func Patch(object *unstructured.Unstructured, conditions ...metav1.Condition) (patch *unstructured.Unstructured, changed bool) {
	var all []any
	for _, c := range conditions {
		before, _ := Find(object, c.Type)
		all = append(all, fields(Next(before, c)))
		changed = changed || before == nil || before.Status != c.Status || before.Reason != c.Reason || before.Message != c.Message
	}
	patch = &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": all}}}
	patch.SetGroupVersionKind(object.GroupVersionKind())
	patch.SetName(object.GetName())
	patch.SetNamespace(object.GetNamespace())
	return patch, changed
}

// Among is the list of an object's conditions with c in it, for a writer that updates the whole status.
// The others stay as they are, whatever their form.
func Among(object *unstructured.Unstructured, c metav1.Condition) []any {
	before, _ := Find(object, c.Type) // what cannot be read is written again
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	next := fields(Next(before, c))
	if i := index(list, c.Type); i >= 0 {
		list[i] = next
		return list
	}
	return append(list, next)
}

// fields is a condition in the form that an object's status has it in.
func fields(c metav1.Condition) map[string]any {
	fields := map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
	}
	if c.ObservedGeneration != 0 {
		fields["observedGeneration"] = c.ObservedGeneration
	}
	return fields
}

// Apply writes a condition of an object of resource, such as "podgroups", as the field
// manager owner, and leaves its others alone. It is not written when the object says the
// same, and it is no error that the object is gone.
func Apply(ctx context.Context, client dynamic.Interface, resource, owner string, object *unstructured.Unstructured, c metav1.Condition) (written bool, err error) {
	c.ObservedGeneration = object.GetGeneration()
	patch, changed := Patch(object, c)
	if !changed {
		return false, nil
	}
	return apply(ctx, client, resource, owner, object, patch, c)
}

// Write is Apply for an object that may be older than what was written last: what it says
// does not count.
func Write(ctx context.Context, client dynamic.Interface, resource, owner string, object *unstructured.Unstructured, c metav1.Condition) (written bool, err error) {
	c.ObservedGeneration = object.GetGeneration()
	patch, _ := Patch(object, c)
	return apply(ctx, client, resource, owner, object, patch, c)
}

func apply(ctx context.Context, client dynamic.Interface, resource, owner string, object, patch *unstructured.Unstructured, c metav1.Condition) (written bool, err error) {
	gvr := object.GroupVersionKind().GroupVersion().WithResource(resource)
	_, err = client.Resource(gvr).Namespace(object.GetNamespace()).ApplyStatus(ctx, object.GetName(), patch,
		metav1.ApplyOptions{FieldManager: owner, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("write condition %s of %s: %w", c.Type, title(object), err)
	}
	return true, nil
}

func title(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}
