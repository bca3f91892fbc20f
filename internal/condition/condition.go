// Package condition reads and writes conditions of objects, and is where each condition that
// the programs write is made. Several parts of the programs
// write one condition each of an object, at the same time. Server-side apply keeps them
// apart: a writer owns its condition and does not send the others, of which it may have
// seen an old state.
package condition

import (
	"context"
	"fmt"
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
	for _, entry := range list {
		fields, ok := entry.(map[string]any)
		if !ok || fields["type"] != conditionType {
			continue
		}
		have := new(metav1.Condition)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, have); err != nil {
			return nil, fmt.Errorf("read condition %s of %s: %w", conditionType, title(object), err)
		}
		return have, nil
	}
	return nil, nil
}

// Next is a condition as it is to be written over the one before, nil for none. Its
// LastTransitionTime stays while its status does.
func Next(before *metav1.Condition, c metav1.Condition) metav1.Condition {
	switch {
	case before != nil && before.Status == c.Status:
		c.LastTransitionTime = before.LastTransitionTime
	case c.LastTransitionTime.IsZero():
		c.LastTransitionTime = metav1.Now()
	}
	return c
}

// Patch is what server-side apply takes to write one condition of an object; changed is
// false when the object says the same. What cannot be read is written again.
func Patch(object *unstructured.Unstructured, c metav1.Condition) (patch *unstructured.Unstructured, changed bool) {
	before, _ := Find(object, c.Type)
	patch = &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{fields(Next(before, c))}}}}
	patch.SetGroupVersionKind(object.GroupVersionKind())
	patch.SetName(object.GetName())
	patch.SetNamespace(object.GetNamespace())
	return patch, before == nil || before.Status != c.Status || before.Reason != c.Reason || before.Message != c.Message
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
